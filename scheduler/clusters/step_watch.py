"""Progress of workers: a task that waits forever keeps its worker alive, and only its silence shows that it is stuck.

A disk that hangs, or a library that waits for itself, stops a thread and nothing else: the worker sends heartbeats and
answers pings. In a round that lasts, the driver asks each worker how many threads work for messages and how many steps
they have made. A worker whose threads make no step for longer than every read may take is stuck. Answers come from the
event loop of the worker, so no thread is needed for them. Covers detection only; `..execution.worker_pool` reassigns
the blocks of a stuck worker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic

from ..runtime.timings import Activity
from .liveness import LONGEST_LOOK_SECONDS

ASK_SECONDS = 30.0
"""Age of a round before the first question, and time between two questions to a worker."""

Ask = Callable[[str], "Future[Activity | Exception]"]
"""Asks a worker for its activity, without waiting; the result may be the error of the worker."""


@dataclass
class _Pace:
    since: float
    """Time of the last sign of progress, on the clock that runs while the driver looks."""
    due: float
    """Time of the next question."""
    steps: int | None = None
    asked: Future[Activity | Exception] | None = None


class StepWatch:
    """Steps of the workers of a run, and those that make none.

    Parameters
    ----------
    ask : callable
        Asks a worker for its activity.
    seconds : float
        Time without a step after which a worker that has work is stuck.
    clock : callable
        Returns seconds; the monotonic clock by default.
    """

    def __init__(self, ask: Ask, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._ask = ask
        self._seconds = seconds
        self._clock = clock
        self._looked = clock()
        self._running = 0.0
        self._paces: dict[str, _Pace] = {}
        self.stuck: set[str] = set()
        """Workers that have work and made no step in time, at the last look."""

    def look(self, workers: Collection[str]) -> None:
        """Take the answers that have arrived, and ask workers whose turn it is."""
        now = self._clock()
        if now - self._looked > LONGEST_LOOK_SECONDS:
            # Nobody looked, as between two rounds, or this process was stopped: what happened meanwhile is not known.
            for pace in self._paces.values():
                pace.since = self._running
        else:
            self._running += now - self._looked
        self._looked = now
        watched = self.stuck.union(workers)
        for worker in set(self._paces) - watched:
            self._cancel(self._paces.pop(worker))
        for worker in watched:
            pace = self._paces.setdefault(worker, _Pace(self._running, self._running))
            self._take(worker, pace)
            if pace.asked is None and self._running >= pace.due:
                pace.asked = self._ask(worker)
                pace.due = self._running + ASK_SECONDS
        self.stuck |= {worker for worker, pace in self._paces.items() if self._running - pace.since >= self._seconds}

    def forget(self, worker: str) -> None:
        """Drop what is known of a worker, which has left."""
        if worker in self._paces:
            self._cancel(self._paces.pop(worker))
        self.stuck.discard(worker)

    def close(self) -> None:
        """Cancel the questions."""
        for pace in self._paces.values():
            self._cancel(pace)
        self._paces = {}

    def _take(self, worker: str, pace: _Pace) -> None:
        if pace.asked is None or not pace.asked.done():
            return
        asked, pace.asked = pace.asked, None
        if asked.cancelled() or asked.exception() is not None:
            return
        found = asked.result()
        if isinstance(found, Activity) and (found.working == 0 or found.steps != pace.steps):
            pace.steps, pace.since = found.steps, self._running
            self.stuck.discard(worker)

    @staticmethod
    def _cancel(pace: _Pace) -> None:
        if pace.asked is not None:
            pace.asked.cancel()
