"""Where the time and the memory of workers go: seconds of their threads by phase, bytes by kind.

Costs travel beside the answers and take no part in them: nothing is computed from a cost, and none is recorded, so
that timing cannot change a bit. A thread is in one phase at a time; a phase that begins within another takes its time
from it.
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
"""Rows read from the store, and their statistics."""
KERNEL_COLUMNS: Final = "kernel-columns"
"""Kernel columns of candidates, and of all centres in a final pass."""
PROJECTION: Final = "projection"
"""Candidates and panels against Q and against each other."""
UPDATE: Final = "update"
"""Panels appended to Q, the residual, and candidates rid of the panel."""
DRAW: Final = "draw"
"""Candidates drawn, judged and followed."""
FIT: Final = "fit"
"""Sums of a final pass over all rows."""
SCORE: Final = "score"
"""Errors on the folds that were left out."""
SCRATCH: Final = "scratch"
"""Row matrices read from scratch and written to it."""
REPLAY: Final = "replay"
"""Blocks rebuilt from the log."""
OTHER: Final = "other"
"""Everything else that workers do for a message."""


PROBE_SECONDS = 1.0
"""Least time between two looks at the memory of a worker."""


@dataclass(frozen=True)
class ProcessMemory:
    """Bytes of one worker at one moment."""

    resident: int
    """Resident set of its process, 0 where that cannot be measured."""
    cache: int
    """Row matrices in memory: cached rows, Q, the pool."""
    scratch: int
    """Row matrices in scratch."""


@dataclass
class Costs:
    """What an answer took."""

    busy: dict[str, float] = field(default_factory=dict)
    """Seconds of threads, by phase."""
    memory: dict[str, ProcessMemory] = field(default_factory=dict)
    """Of workers that took part and were looked at."""

    def merge(self, other: Costs) -> Costs:
        """Return the costs of both."""
        return Costs(summed(self.busy, other.busy), {**self.memory, **other.memory})


def summed(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Add up seconds by phase."""
    total = dict(first)
    for phase, seconds in second.items():
        total[phase] = total.get(phase, 0.0) + seconds
    return total


class _Watch(threading.local):
    """What one thread is doing, since when, and how long it did what."""

    def __init__(self) -> None:
        self.phase: str | None = None
        self.since = 0.0
        self.seconds: dict[str, float] = {}

    def enter(self, phase: str | None) -> str | None:
        now = perf_counter()
        before = self.phase
        if before is not None:
            self.seconds[before] = self.seconds.get(before, 0.0) + now - self.since
        self.phase, self.since = phase, now
        return before


_watch = _Watch()


class busy:
    """Context in which this thread is in a phase; without effect outside a `Stopwatch`, and within a replay.

    Parameters
    ----------
    phase : str
        One of the names of this module.
    """

    __slots__ = ("_before", "_phase")

    def __init__(self, phase: str) -> None:
        self._phase = phase
        self._before: str | None = None

    def __enter__(self) -> None:
        watch = _watch
        self._before = watch.phase
        if self._before is not None and self._before != REPLAY:
            watch.enter(self._phase)

    def __exit__(self, *exception: object) -> None:
        if self._before is not None and self._before != REPLAY:
            _watch.enter(self._before)


class Stopwatch:
    """Adds up the phases of all threads that work for one message."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def running(self, phase: str = OTHER) -> Iterator[None]:
        """Measure this thread, which begins in `phase`; a measurement that it is in already pauses."""
        watch = _watch
        before, earlier = watch.enter(None), watch.seconds
        watch.seconds = {}
        watch.enter(phase)
        try:
            yield
        finally:
            watch.enter(None)
            with self._lock:
                self.seconds = summed(self.seconds, watch.seconds)
            watch.seconds = earlier
            watch.enter(before)

    def timed(self, function: Callable[[T], R], phase: str = OTHER) -> Callable[[T], R]:
        """Return a function that does the same and is measured, on whatever thread it runs."""

        def measured(item: T) -> R:
            with self.running(phase):
                return function(item)

        return measured


class MemoryProbe:
    """Looks at the memory of one worker, but not at every message."""

    def __init__(self) -> None:
        self._looked = -PROBE_SECONDS

    def look(self, worker: str, cache: int, scratch: int) -> dict[str, ProcessMemory]:
        """Return the memory of a worker by its address; nothing if it was looked at just before.

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
    """Resident set of this process, 0 where the system does not tell."""
    try:
        return int(psutil.Process().memory_info().rss)
    except psutil.Error:
        return 0
