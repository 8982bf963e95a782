"""Lines for a log: start, end and what befalls a run at once, how far it is at most once a minute."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from distkern.figures import RunFigures
from distkern.progress.display import Display
from distkern.progress.wording import line

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
        self._last = clock()
        self._rounds = 0
        self._noted: float | None = None

    def show(self, figures: RunFigures, dashboard: str | None) -> None:
        """Write a line if there was a round and the last line is old enough."""
        del dashboard
        rounds, now = len(figures.series["n_centers"]), self._clock()
        if rounds != self._rounds and now - self._last >= self._interval:
            self._rounds, self._last = rounds, now
            self.say(logging.INFO, line(figures))

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
