"""Rows of a remote array whose chunks overlap several blocks: a chunk is read once for all of them."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from concurrent.futures import Future
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from ..io.retries import RetryPolicy
from .absent import chunk_shape
from .chunks import read_slab

__all__ = ["SharedChunks"]

MOST_BYTES = 16 << 20
"""Most bytes of rows kept for later blocks, beside those of one chunk."""


class SharedChunks:
    """Reads of an array whose chunks do not end at the boundaries of blocks.

    A row of chunks that several blocks share is kept until each of them has read its part, or until newer ones take its
    room. A process that owns only some of the blocks keeps at most `MOST_BYTES`, or one row of chunks.

    Parameters
    ----------
    array : zarr.Array
        Targets or weights.
    boundaries : tuple of int
        First row of each block, then the number of rows.
    what : str
        Name of the array for messages.
    policy : RetryPolicy
        Retries of failed reads.
    """

    def __init__(self, array: zarr.Array[Any], boundaries: tuple[int, ...], what: str, policy: RetryPolicy) -> None:
        self._array = array
        self._boundaries = boundaries
        self._what = what
        self._policy = policy
        self._size = max(1, chunk_shape(array)[0])
        self._kept: OrderedDict[int, tuple[Future[NDArray[Any]], int]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start:stop`` of one block, a fresh array."""
        size, n_rows = self._size, self._array.shape[0]
        first, last = start // size, (stop - 1) // size
        if start % size == 0 and (stop % size == 0 or stop == n_rows):
            return self._fetch(start, stop)
        parts = []
        inner = first if start % size == 0 else first + 1
        end = last + 1 if stop % size == 0 or stop == n_rows else last
        if inner > first:
            parts.append(self._part(first, start, stop))
        if inner < end:
            parts.append(self._fetch(inner * size, min(end * size, stop)))
        if end <= last and last >= inner:
            parts.append(self._part(last, start, stop))
        return np.concatenate(parts) if len(parts) > 1 else np.array(parts[0], order="C")

    def _part(self, chunk: int, start: int, stop: int) -> NDArray[Any]:
        """Return the rows of a block in a row of chunks that it shares."""
        low, high = chunk * self._size, min((chunk + 1) * self._size, self._array.shape[0])
        with self._lock:
            future, left = self._kept.pop(chunk, (None, self._blocks_in(low, high)))
            mine = future is None
            future = Future() if future is None else future
            if left > 1:
                self._kept[chunk] = future, left - 1
                self._make_room()
        if mine:
            try:
                future.set_result(self._fetch(low, high))
            except BaseException as error:
                with self._lock:
                    self._kept.pop(chunk, None)
                future.set_exception(error)
                raise
        rows: NDArray[Any] = future.result()
        return rows[max(start - low, 0) : stop - low]

    def _blocks_in(self, low: int, high: int) -> int:
        return bisect_left(self._boundaries, high) - (bisect_right(self._boundaries, low) - 1)

    def _make_room(self) -> None:
        row = self._array.dtype.itemsize * int(np.prod(self._array.shape[1:], dtype=int))
        most = max(1, MOST_BYTES // max(1, row * self._size))
        while len(self._kept) > most:
            self._kept.popitem(last=False)

    def _fetch(self, start: int, stop: int) -> NDArray[Any]:
        return read_slab(self._array, start, stop, self._what, self._policy)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_kept", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _kept=OrderedDict(), _lock=threading.Lock())
