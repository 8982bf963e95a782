"""Reads that run ahead of the threads that work on the rows, where every request waits on a network.

A pass over blocks knows their order, so while one is worked on the next ones are on their way, a bounded number of
them. A block is read once, by whoever comes first to the place in the order that lets it in.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

T = TypeVar("T")

AHEAD_BYTES = 64 << 20
"""Rows of X that reads of a process run ahead, at most."""

MOST_AHEAD = 16
"""Blocks that they run ahead, at most."""

SHARE_OF_LIMIT = 8
"""They take no more than this part of the memory limit."""


def blocks_ahead(far: bool, block_bytes: int, limit: int | None = None) -> int:
    """Return how many blocks reads run ahead of the work.

    Parameters
    ----------
    far : bool
        Whether requests wait; what is near is read when it is needed.
    block_bytes : int
        Bytes of the largest block as it is read.
    limit : int, optional
        Bytes that the process may take.
    """
    if not far:
        return 0
    # Compressed and decoded, while it is read.
    room = AHEAD_BYTES if limit is None else min(AHEAD_BYTES, limit // SHARE_OF_LIMIT // 2)
    return min(MOST_AHEAD, room // max(1, block_bytes))


class Blocks(Protocol):
    """What is asked of a source."""

    n_features: int
    boundaries: tuple[int, ...]
    feature_dtype: np.dtype[Any]


def is_far(source: object) -> bool:
    """Tell whether reads of a source wait on a network."""
    return bool(getattr(source, "far", False))


def ahead_of(source: Blocks) -> int:
    """Return how many blocks reads of a source run ahead where nothing was planned: what its blocks allow."""
    rows = max((b - a for a, b in pairwise(source.boundaries)), default=0)
    return blocks_ahead(is_far(source), rows * source.n_features * source.feature_dtype.itemsize)


def step_aside() -> None:
    """Let the worker start another task while the one that calls this waits for a read; elsewhere do nothing."""
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        with contextlib.suppress(ValueError):
            distributed.secede()


class ReadAhead(Generic[T]):
    """Items of a sequence that is known beforehand, read in its order and taken in about the same.

    Parameters
    ----------
    read : callable
        Reads one item.
    order : sequence of int
        Numbers of the items; each is taken once, and the first of them before those that are further than `ahead` on.
    ahead : int
        Items that are read, or wait to be taken, beyond those that were asked for; 0 reads an item when it is asked
        for, in the thread that asks.
    """

    def __init__(self, read: Callable[[int], T], order: Sequence[int], ahead: int) -> None:
        self._read = read
        self._order = order
        self._position = {number: position for position, number in enumerate(order)}
        self._ahead = ahead
        self._started = 0
        self._coming: dict[int, Future[T]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(ahead, thread_name_prefix="distkern-read") if ahead else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._coming.clear()

    def take(self, number: int) -> T:
        """Return an item, once it is there; an error of its read is raised here."""
        if self._pool is None:
            return self._read(number)
        with self._lock:
            last = min(self._position[number] + self._ahead, len(self._order) - 1)
            while self._started <= last:
                coming = self._order[self._started]
                self._coming[coming] = self._pool.submit(self._read, coming)
                self._started += 1
            future = self._coming.pop(number)
        return future.result()

    def __iter__(self) -> Iterator[T]:
        for number in self._order:
            yield self.take(number)
