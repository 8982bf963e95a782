"""Zarr arrays for prediction: recognised as input, and gathered in memory block by block as output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import MemoryStore

from .blocks import MAX_MEMORY_BYTES


def is_zarr_array(value: Any) -> bool:
    """Return whether `value` is a zarr array."""
    return isinstance(value, zarr.Array)


def memory_array(
    parts: Iterable[NDArray[Any]], n_rows: int, tail: tuple[int, ...], dtype: np.dtype[Any]
) -> zarr.Array[Any]:
    """Gather parts of shape (n,) + `tail`, `n_rows` rows in all, into a zarr array in memory."""
    rows = max(1, min(n_rows, MAX_MEMORY_BYTES // max(1, dtype.itemsize * int(np.prod(tail, dtype=int)))))
    # Format 2 holds fixed-width text, for which format 3 has no standard data type.
    result = zarr.create_array(MemoryStore(), shape=(n_rows, *tail), chunks=(rows, *tail), dtype=dtype, zarr_format=2)
    # Only whole chunks are written: a chunk that is written in part is decoded and compressed again each time.
    chunk = np.empty(result.chunks, dtype=dtype)
    filled = written = 0
    for part in parts:
        start = 0
        while start < len(part):
            count = min(rows - filled, len(part) - start)
            chunk[filled : filled + count] = part[start : start + count]
            filled, start = filled + count, start + count
            if filled == rows or written + filled == n_rows:
                result[written : written + filled] = chunk[:filled]
                written, filled = written + filled, 0
    return result
