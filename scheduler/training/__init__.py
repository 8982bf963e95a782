"""Training of a model from start to end: loop, record, time limit, refit and calibration rows."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("Path", "TrainingResult"):
        # Pickles of version 0.1 name them here.
        return getattr(import_module(".driver_loop", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
