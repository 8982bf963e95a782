"""One training from start to end."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("Path", "TrainingResult"):
        # Pickles of version 0.1 have them here.
        return getattr(import_module(".driver_loop", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
