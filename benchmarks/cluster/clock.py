"""Steps of the wall clock of one process, as after a correction of the time of its host."""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

STEP_SECONDS = 3600.0

_clock = time.time
_offset = 0.0


def stepped_time() -> float:
    """Return the time of day with the steps so far."""
    return _clock() + _offset


def step_on_signals() -> None:
    """Let SIGUSR1 set the clock of this process an hour forward, and SIGUSR2 an hour back.

    Every module that has imported the clock by name gets the one with steps.
    """

    def step(number: int, _: Any) -> None:
        global _offset
        _offset += STEP_SECONDS if number == signal.SIGUSR1 else -STEP_SECONDS

    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()) if hasattr(module, "__dict__") else ():
            if value is _clock and name != "_clock":
                setattr(module, name, stepped_time)
    signal.signal(signal.SIGUSR1, step)
    signal.signal(signal.SIGUSR2, step)
