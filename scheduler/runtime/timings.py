"""Costs of an answer: seconds of the workers' threads by phase, and bytes of the workers by kind.

Costs are sent with the answers and are no part of them: nothing is computed from a cost and none is recorded, so timing
cannot change a bit. A thread is in one phase at a time; a phase within another interrupts it. The changes of phases are
also counted as steps: a worker that makes none is stuck. Covers measuring in a worker; the driver turns costs into
events in `..execution.layers`, and watches steps in `..clusters.step_watch`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic, perf_counter
from typing import Final, TypeVar

import psutil

T = TypeVar("T")
R = TypeVar("R")

READ: Final = "read"
"""Reading rows from the store, and their statistics."""
KERNEL_COLUMNS: Final = "kernel-columns"
"""Computing kernel columns of candidates, and of all centres in a final pass."""
PROJECTION: Final = "projection"
"""Products of candidates and panels with Q and with each other."""
UPDATE: Final = "update"
"""Appending panels to Q, updating the residual, and removing the panel from the candidates."""
DRAW: Final = "draw"
"""Drawing and scoring candidates."""
FIT: Final = "fit"
"""Computing the sums of a final pass over all rows."""
SCORE: Final = "score"
"""Computing errors on the folds that were left out."""
SCRATCH: Final = "scratch"
"""Reading row matrices from scratch and writing them."""
REPLAY: Final = "replay"
"""Rebuilding blocks from the log."""
OTHER: Final = "other"
"""Everything else that a worker does for a message."""


PROBE_SECONDS = 1.0
"""Least time between two measurements of a worker's memory."""


@dataclass(frozen=True)
class ProcessMemory:
    """Bytes of one worker at one moment."""

    resident: int
    """Resident set of its process; 0 where it cannot be measured."""
    cache: int
    """Row matrices in memory: cached rows, Q, the pool."""
    scratch: int
    """Row matrices in scratch."""


@dataclass
class Costs:
    """Time and memory of one answer."""

    busy: dict[str, float] = field(default_factory=dict)
    """Seconds of threads, by phase."""
    memory: dict[str, ProcessMemory] = field(default_factory=dict)
    """Address of each worker that took part and was measured to its memory."""

    def merge(self, other: Costs) -> Costs:
        """Return the costs of both."""
        if not other.busy and not other.memory:
            return self
        return Costs(summed(self.busy, other.busy), {**self.memory, **other.memory})


def summed(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Return the sums of seconds by phase."""
    total = dict(first)
    for phase, seconds in second.items():
        total[phase] = total.get(phase, 0.0) + seconds
    return total


@dataclass(frozen=True)
class Activity:
    """Work of this process for messages, as `..clusters.step_watch` watches it."""

    working: int
    """Threads that work for a message now."""
    steps: int
    """Phases that threads have begun or ended so far, of which some may be missing."""


class _Counts:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.working = 0
        self.steps = 0


_counts = _Counts()


def activity() -> Activity:
    """Return the work of this process."""
    return Activity(_counts.working, _counts.steps)


def _step(working: int = 0) -> None:
    if working:
        with _counts.lock:
            _counts.working += working
    # Without the lock, since this is called often: two threads at once may count one step, which is a change too.
    _counts.steps += 1


class _Watch:
    """The phase of one thread, its beginning, and the seconds of each phase."""

    __slots__ = ("phase", "seconds", "since")

    def __init__(self) -> None:
        self.phase: str | None = None
        self.since = 0.0
        self.seconds: dict[str, float] = {}

    def enter(self, phase: str | None) -> None:
        now = perf_counter()
        before = self.phase
        if before is not None:
            seconds = self.seconds
            seconds[before] = seconds.get(before, 0.0) + now - self.since
        self.phase, self.since = phase, now


class _Watches(threading.local):
    def __init__(self) -> None:
        self.own = _Watch()


_watches = _Watches()


class busy:
    """Context in which this thread is in a phase; without effect outside a `Stopwatch`, and within a replay.

    Parameters
    ----------
    phase : str
        One of the names of this module.
    """

    __slots__ = ("_before", "_phase", "_watch")

    def __init__(self, phase: str) -> None:
        self._phase = phase

    def __enter__(self) -> None:
        _step()
        self._watch = watch = _watches.own
        self._before = before = watch.phase
        if before is not None and before != REPLAY:
            watch.enter(self._phase)

    def __exit__(self, *exception: object) -> None:
        before = self._before
        if before is not None and before != REPLAY:
            self._watch.enter(before)


class Stopwatch:
    """Adds up the phases of all threads that work for one message."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def running(self, phase: str = OTHER) -> Iterator[None]:
        """Measure this thread, from `phase` on; an outer measurement of the thread is paused."""
        outer = _watches.own
        paused = outer.phase
        outer.enter(None)
        outer.phase = paused
        _watches.own = watch = _Watch()
        watch.enter(phase)
        _step(1)
        try:
            yield
        finally:
            _step(-1)
            watch.enter(None)
            outer.since = watch.since
            _watches.own = outer
            with self._lock:
                self.seconds = summed(self.seconds, watch.seconds)

    def timed(self, function: Callable[[T], R], phase: str = OTHER) -> Callable[[T], R]:
        """Return a function that does the same and is measured, on whatever thread it runs."""

        def measured(item: T) -> R:
            with self.running(phase):
                return function(item)

        return measured


class MemoryProbe:
    """Measures the memory of one worker, at most once in `PROBE_SECONDS`."""

    def __init__(self) -> None:
        self._looked = -PROBE_SECONDS

    def look(self, worker: str, cache: int, scratch: int) -> dict[str, ProcessMemory]:
        """Return the address of a worker with its memory; an empty dictionary if it was measured just before.

        Parameters
        ----------
        worker : str
            Address of the worker, which this process hosts.
        cache, scratch : int
            Bytes of its row matrices in memory and in scratch.
        """
        now = monotonic()
        if now - self._looked < PROBE_SECONDS:
            return {}
        self._looked = now
        return {worker: ProcessMemory(resident_bytes(), cache, scratch)}


def resident_bytes() -> int:
    """Return the resident set of this process; 0 where it cannot be measured."""
    try:
        return int(psutil.Process().memory_info().rss)
    except psutil.Error:
        return 0
