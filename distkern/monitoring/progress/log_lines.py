"""Lines for a log: start, end and incidents of a run at once, its state at most once a minute."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock
from time import monotonic

from ...text import duration
from ..run_state import OVER, RunFigures
from .display import Display
from .messages import line

LOG_INTERVAL = 60.0
"""Least seconds between two lines on the state of a run."""


class LineDisplay(Display):
    """Plain lines without control codes.

    Parameters
    ----------
    write : callable
        Function that takes the level, as of `logging`, and a line.
    interval : float, default 60.0
        Least seconds between two lines on the state of the run.
    clock : callable, default monotonic
        Function that returns seconds.
    """

    def __init__(
        self,
        write: Callable[[int, str], None],
        interval: float = LOG_INTERVAL,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._write = write
        self._interval = interval
        self._clock = clock
        self._last = self._last_event = clock()
        self._noted: float | None = None
        self._figures: RunFigures | None = RunFigures()
        self._lock = Lock()

    def show(self, figures: RunFigures, dashboard: str | None) -> None:
        """Write a line if the last one is `interval` old."""
        del dashboard
        self._figures, self._last_event = None if figures.state in OVER else figures, self._clock()
        self._write_state()

    def tick(self) -> None:
        """Write a line if the last one is `interval` old, also without an event since; may be called by any thread."""
        silent = self._clock() - self._last_event
        self._write_state(f"; nothing new for {duration(silent)}" if silent >= self._interval else "")

    def _write_state(self, remark: str = "") -> None:
        with self._lock:
            now, figures = self._clock(), self._figures
            if figures is None or now - self._last < self._interval:
                return
            self._last = now
        self.say(logging.INFO, line(figures) + remark)

    def close(self) -> None:
        """Write no more lines on the state of the run."""
        self._figures = None

    def say(self, level: int, text: str) -> None:
        """Write a line."""
        self._write(level, text)

    def note(self, text: str | None) -> None:
        """Write a remark that is new, or that was written `interval` ago."""
        now = self._clock()
        if text is None:
            self._noted = None
        elif self._noted is None or now - self._noted >= self._interval:
            self._noted = now
            self.say(logging.WARNING, text)
