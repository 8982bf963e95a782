"""Wait for a condition instead of for a time."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep


def wait_until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Return once the condition is true; fail where it is not in time."""
    deadline = monotonic() + seconds
    while not condition():
        assert monotonic() < deadline, "waited in vain"
        sleep(0.02)
