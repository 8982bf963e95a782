"""Lines for a log: start, end and what befalls a run at once, how far it is at most once a minute."""

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
"""Least seconds between two lines on how far a run is."""


class LineDisplay(Display):
    """Plain lines, no control codes.

    Parameters
    ----------
    write : callable
        Takes the level, as of `logging`, and a line.
    interval : float
        Least seconds between two lines on how far the run is.
    clock : callable
        Returns seconds.
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
        self._last = self._heard = clock()
        self._noted: float | None = None
        self._figures: RunFigures | None = RunFigures()
        self._lock = Lock()

    def show(self, figures: RunFigures, dashboard: str | None) -> None:
        """Write a line if the last one is old enough."""
        del dashboard
        self._figures, self._heard = None if figures.state in OVER else figures, self._clock()
        self._tell()

    def tick(self) -> None:
        """Write a line if the last one is old enough, though nothing may have happened since; from any thread."""
        silent = self._clock() - self._heard
        self._tell(f"; nothing new for {duration(silent)}" if silent >= self._interval else "")

    def _tell(self, remark: str = "") -> None:
        with self._lock:
            now, figures = self._clock(), self._figures
            if figures is None or now - self._last < self._interval:
                return
            self._last = now
        self.say(logging.INFO, line(figures) + remark)

    def close(self) -> None:
        """Write no more of a run that is over."""
        self._figures = None

    def say(self, level: int, text: str) -> None:
        """Write a line."""
        self._write(level, text)

    def note(self, text: str | None) -> None:
        """Write a remark that is new, or that was written long enough ago."""
        now = self._clock()
        if text is None:
            self._noted = None
        elif self._noted is None or now - self._noted >= self._interval:
            self._noted = now
            self.say(logging.WARNING, text)
