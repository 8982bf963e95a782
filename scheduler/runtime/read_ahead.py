"""Reads that run ahead of the threads that compute on the rows, where every request waits on a network.

A pass over blocks knows their order: while threads compute on one block, a bounded number of the next ones are read.
Each block is read once. Covers the order and the bound of reads; a read itself is in `..rows.block_reading`, its
retries in `distkern.storage`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Generic, Self, TypeVar

from distkern.storage.arrays.source import FeatureSource
from distkern.storage.io.threads import ThreadCall

T = TypeVar("T")

AHEAD_BYTES = 64 << 20
"""Most bytes of X that a process reads ahead."""

MOST_AHEAD = 16
"""Most blocks that a process reads ahead."""

SHARE_OF_LIMIT = 8
"""Reads ahead take at most one part in this many of the memory limit."""


def blocks_ahead(remote: bool, block_bytes: int, limit: int | None = None) -> int:
    """Return how many blocks reads run ahead of the work.

    Parameters
    ----------
    remote : bool
        Whether requests wait on a network; 0 blocks otherwise.
    block_bytes : int
        Bytes of the largest block as it is read.
    limit : int, optional
        Bytes that the process may take; no limit by default.
    """
    if not remote:
        return 0
    # Half, since a block is in memory compressed and decoded while it is read.
    room = AHEAD_BYTES if limit is None else min(AHEAD_BYTES, limit // SHARE_OF_LIMIT // 2)
    return min(MOST_AHEAD, room // max(1, block_bytes))


def is_remote(source: object) -> bool:
    """Return whether reads of a source wait on a network."""
    return bool(getattr(source, "remote", False))


def ahead_of(source: FeatureSource) -> int:
    """Return how many blocks reads of a source run ahead by default: as many as the size of its blocks allows."""
    rows = max((b - a for a, b in pairwise(source.boundaries)), default=0)
    return blocks_ahead(is_remote(source), rows * source.n_features * source.feature_dtype.itemsize)


def step_aside() -> None:
    """Let the dask worker start another task while the calling task waits for a read; elsewhere do nothing."""
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        with contextlib.suppress(ValueError):
            distributed.secede()


class ReadAhead(Generic[T]):
    """Items of a sequence known beforehand, read in its order and taken in about the same order.

    Parameters
    ----------
    read : callable
        Reads one item.
    order : sequence of int
        Numbers of the items. The caller takes each once, none before one that is more than `ahead` places earlier.
    ahead : int
        Most items that are read or wait beyond the last one taken; with 0 the calling thread reads each item.
    """

    def __init__(self, read: Callable[[int], T], order: Sequence[int], ahead: int) -> None:
        self._read = read
        self._order = order
        self._position = {number: position for position, number in enumerate(order)}
        self._ahead = ahead
        self._started = 0
        self._coming: dict[int, ThreadCall[T]] = {}
        self._lock = threading.Lock()
        self._reading: deque[threading.Thread] = deque(maxlen=ahead)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for call in self._coming.values():
            call.thread.join()
        self._coming.clear()

    def take(self, number: int) -> T:
        """Wait for an item and return it; raise the error of its read."""
        if not self._ahead:
            return self._read(number)
        with self._lock:
            last = min(self._position[number] + self._ahead, len(self._order) - 1)
            while self._started <= last:
                coming = self._order[self._started]
                # At most `ahead` are read at a time, in their order: each waits for the one so many places earlier.
                before = self._reading[0] if len(self._reading) == self._ahead else None
                call = ThreadCall(partial(self._read_after, before, coming), "distkern-ahead")
                self._coming[coming] = call
                self._reading.append(call.thread)
                self._started += 1
            call = self._coming.pop(number)
        return call.result()

    def _read_after(self, before: threading.Thread | None, number: int) -> T:
        if before is not None:
            before.join()
        return self._read(number)

    def __iter__(self) -> Iterator[T]:
        for number in self._order:
            yield self.take(number)
