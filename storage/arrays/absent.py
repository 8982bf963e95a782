"""Chunks that are absent from a zarr array.

An absent chunk reads as the fill value. So one request is sent for each chunk that holds the fill value throughout, and
none where the data varies.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore, WrapperStore

from ..io.retries import RetryPolicy, read_patiently
from .conventions import packing_of

__all__ = ["absent_chunks", "chunk_key", "chunk_shape", "holds_chunks", "stored_bytes"]


def chunk_shape(array: zarr.Array[Any]) -> tuple[int, ...]:
    """Return the shape of a stored chunk: that of a shard where the array has shards."""
    return tuple(int(size) for size in (array.shards or array.chunks))


def chunk_key(array: zarr.Array[Any], chunk: tuple[int, ...]) -> str:
    """Return the key of a chunk in the array's store."""
    key = array.metadata.encode_chunk_key(chunk)
    return f"{array.path}/{key}" if array.path else str(key)


def absent_chunks(
    array: zarr.Array[Any], start: int, values: NDArray[Any], what: str, policy: RetryPolicy | None = None
) -> list[tuple[int, ...]]:
    """Find the absent chunks that begin in a range of rows.

    Parameters
    ----------
    array : zarr.Array
        Array of any chunking.
    start : int
        First row.
    values : array, shape (n,) + the row shape
        Values of the rows as they were read, decoded.
    what : str
        Name of the array.
    policy : RetryPolicy, optional
        Retries of the requests.

    Returns
    -------
    list of tuple of int
        Positions in the grid of chunks, ascending.
    """
    fill = array.fill_value
    packing = packing_of(array, what)
    if packing is not None and fill is not None:
        fill = packing.decode(np.asarray(fill, dtype=array.dtype.newbyteorder("="))[None])[0]
    shape = chunk_shape(array)
    if not len(values) or not all(shape):
        return []
    found = []
    columns = [range(-(-size // step)) for size, step in zip(array.shape[1:], shape[1:], strict=True)]
    for row in range(-(-start // shape[0]), -(-(start + len(values)) // shape[0])):
        rows = slice(row * shape[0] - start, (row + 1) * shape[0] - start)
        for rest in itertools.product(*columns):
            part = values[(rows, *(slice(i * n, (i + 1) * n) for i, n in zip(rest, shape[1:], strict=True)))]
            if _all_equal(part, fill) and not _exists(array, (row, *rest), what, policy):
                found.append((row, *rest))
    return found


def _exists(array: zarr.Array[Any], chunk: tuple[int, ...], what: str, policy: RetryPolicy | None) -> bool:
    key = chunk_key(array, chunk)
    return read_patiently(lambda: bool(sync(array.store.exists(key))), f"{what}, {key}", str(array.store_path), policy)


def _all_equal(part: NDArray[Any], fill: Any) -> bool:
    if fill is None:
        fill = part.dtype.type()
    first = part[(0,) * part.ndim]
    if not (first == fill or (first != first and fill != fill)):
        return False
    return bool((np.isnan(part) if first != first else part == first).all())


def holds_chunks(array: zarr.Array[Any], what: str, policy: RetryPolicy | None = None) -> bool:
    """Return whether an array holds a chunk; `policy` is optional.

    True for every remote store: some cannot list their keys, and the others list all of them.
    """
    store = array.store
    while isinstance(store, WrapperStore):
        store = store._store
    if not isinstance(store, (LocalStore, MemoryStore)):
        return True

    async def look() -> bool:
        async for key in array.store.list_prefix(f"{array.path}/" if array.path else ""):
            name = key.rpartition("/")[2]
            if name != "zarr.json" and not name.startswith(".z"):
                return True
        return False

    return read_patiently(lambda: bool(sync(look())), f"{what}, its list of chunks", str(array.store_path), policy)


def stored_bytes(
    array: zarr.Array[Any], chunk: tuple[int, ...], what: str, policy: RetryPolicy | None = None
) -> int | None:
    """Return the stored bytes of the chunk at a position of the grid, None where it is absent; `policy` is optional."""
    key = chunk_key(array, chunk)
    try:
        return read_patiently(
            lambda: int(sync(array.store.getsize(key))), f"{what}, {key}", str(array.store_path), policy
        )
    except FileNotFoundError:
        return None
