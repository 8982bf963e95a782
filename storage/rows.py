"""Rows of zarr arrays in and out, block by block, for prediction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import MemoryStore

from distkern.storage.blocks import block_boundaries
from distkern.storage.checks import numeric_dtype, require_finite
from distkern.storage.chunks import read_slab


def is_zarr_array(value: Any) -> bool:
    """Say whether `value` is a zarr array."""
    return isinstance(value, zarr.Array)


def row_blocks(array: zarr.Array[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Read rows of features in blocks.

    Parameters
    ----------
    array : zarr.Array, shape (n_rows, n_features)
        Any format and chunking.

    Yields
    ------
    first_row : int
    rows : array, shape (n, n_features)

    Raises
    ------
    DataError
        A value is not finite or not a number, or a chunk cannot be read.
    """
    dtype = numeric_dtype(array.dtype, "X")
    bounds = block_boundaries(array.shape[0], array.shape[1] * dtype.itemsize, array.chunks[0])
    for start, stop in pairwise(bounds):
        rows = read_slab(array, start, stop, "X")
        require_finite(rows, "X", start)
        yield start, rows


def memory_array(
    parts: Iterable[NDArray[Any]], n_rows: int, tail: tuple[int, ...], dtype: np.dtype[Any]
) -> zarr.Array[Any]:
    """Gather consecutive rows into a zarr array in memory.

    Parameters
    ----------
    parts : iterable of array
        Each of shape (n,) + `tail`, `n_rows` rows in all.
    n_rows : int
        Rows of the result.
    tail : tuple of int
        Remaining shape.
    dtype : numpy.dtype
        Type of the result.
    """
    rows = max(1, min(n_rows, (1 << 22) // max(1, dtype.itemsize * int(np.prod(tail, dtype=int)))))
    # Format 2 holds fixed-width text, for which format 3 has no settled data type.
    result = zarr.create_array(MemoryStore(), shape=(n_rows, *tail), chunks=(rows, *tail), dtype=dtype, zarr_format=2)
    start = 0
    for part in parts:
        result[start : start + len(part)] = part
        start += len(part)
    return result
