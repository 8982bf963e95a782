"""Zarr arrays in whole chunks: written with a checksum of every chunk, read as rows, refused where damaged."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from hashlib import blake2b
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.buffer.cpu import NDBuffer
from zarr.codecs import BloscCodec

from distkern.errors import BudgetError, DataError, DistkernError
from distkern.redaction import displayed_cause

from ..io.retries import RetryPolicy, read_patiently
from ..io.urls import Refused
from .checks import numeric_dtype
from .conventions import packing_of

__all__ = [
    "ChunkAppender",
    "checksum",
    "crc32",
    "create_array",
    "read_rows",
    "read_slab",
    "require_checksums",
    "require_fit",
]


_SMALLEST_CHUNK = 1000
"""A stored chunk of a dataset is at most this many times smaller than its values; lz4 reaches 255."""


def checksum(rows: NDArray[Any]) -> str:
    """Return 16 hexadecimal digits, a hash of the values and dtype of rows; the codec does not change it."""
    return blake2b(_plain_bytes(rows), digest_size=8).hexdigest()


def crc32(rows: NDArray[Any]) -> int:
    """Return the CRC-32 of the values of rows; nearly three times as fast as `checksum`."""
    return zlib.crc32(_plain_bytes(rows))


def _plain_bytes(rows: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("<")).data.cast("B")


def create_array(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    chunk_rows: int,
    dtype: np.dtype[Any],
    *,
    shuffled: bool = True,
) -> zarr.Array[Any]:
    """Add an array to a group, chunked by whole rows and compressed with lz4.

    Parameters
    ----------
    group : zarr.Group
        Group of the array.
    name : str
        Name of the array.
    shape : tuple of int
        Shape; rows come first.
    chunk_rows : int
        Rows of a chunk.
    dtype : numpy.dtype
        Real or integer numbers.
    shuffled : bool, default True
        Whether the first bytes of all values come first, and so on; rows that are mostly zeros and ones take less
        room, and a third of the time to read, without.

    Returns
    -------
    zarr.Array
        The array. Chunks equal to the fill value are written too: a missing chunk is damage.
    """
    return group.create_array(
        name,
        shape=shape,
        chunks=(chunk_rows, *shape[1:]),
        dtype=dtype,
        compressors=BloscCodec(cname="lz4", clevel=5, shuffle="shuffle" if shuffled else "noshuffle"),
        fill_value=np.nan if dtype.kind == "f" else 0,
        config={"write_empty_chunks": True},
    )


class ChunkAppender:
    """Collects rows and writes them to a zarr array, a whole chunk at a time.

    The memory it takes is one chunk, whatever the size of the appended pieces, and one more where a thread of its own
    writes.

    Parameters
    ----------
    array : zarr.Array
        Array to fill from row 0; it grows when it is too short.
    on_chunk : callable, optional
        Function that gets the rows of each chunk before they are written, in the calling thread.
    thread : Executor, optional
        A thread that writes chunks, one at a time, while the next rows are made; its errors are raised by the next
        call. By default the calling thread writes.
    """

    def __init__(
        self,
        array: zarr.Array[Any],
        on_chunk: Callable[[NDArray[Any]], None] | None = None,
        thread: Executor | None = None,
    ) -> None:
        self.array = array
        self.checksums: list[str] = []
        self.crcs: list[int] = []
        self._on_chunk = on_chunk
        self._pending = np.empty(array.chunks, dtype=array.dtype)
        # Collects rows while the thread writes the other one.
        self._spare = None if thread is None else np.empty(array.chunks, dtype=array.dtype)
        self._fill = 0
        self._taken = self._written = 0
        self._thread = thread
        self._writing: Future[None] | None = None

    @property
    def n_rows(self) -> int:
        """Rows appended so far."""
        return self._taken + self._fill

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows of shape (n,) + the row shape of the array."""
        size = len(self._pending)
        start = 0
        while start < len(rows):
            if self._thread is None and self._fill == 0 and len(rows) - start >= size:
                self._write(rows[start : start + size])
                start += size
                continue
            count = min(size - self._fill, len(rows) - start)
            self._pending[self._fill : self._fill + count] = rows[start : start + count]
            self._fill += count
            start += count
            if self._fill == size:
                self._fill = 0
                self._write(self._pending)

    def finish(self) -> None:
        """Write the rows that do not fill a chunk, and cut the array to the number of rows."""
        rows, self._fill = self._fill, 0
        if rows:
            self._write(self._pending[:rows])
        self._await_writing()
        if self.array.shape[0] != self._written:
            self.array.resize((self._written, *self.array.shape[1:]))

    def _write(self, rows: NDArray[Any]) -> None:
        self._taken += len(rows)
        rows = np.ascontiguousarray(rows, dtype=self.array.dtype)
        if self._on_chunk is not None:
            self._on_chunk(rows)
        if self._thread is None or self._spare is None:
            self._store(rows)
            return
        self._await_writing()
        self._pending, self._spare = self._spare, self._pending
        self._writing = self._thread.submit(self._store, rows)

    def _await_writing(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _store(self, rows: NDArray[Any]) -> None:
        self.checksums.append(checksum(rows))
        self.crcs.append(crc32(rows))
        stop = self._written + len(rows)
        if stop > self.array.shape[0]:
            # The array doubles: resizing visits every chunk, so growth by one chunk would be quadratic.
            self.array.resize((max(stop, 2 * self.array.shape[0]), *self.array.shape[1:]))
        self.array[self._written : stop] = rows
        self._written = stop


def read_slab(
    array: zarr.Array[Any], start: int, stop: int, what: str, policy: RetryPolicy | None = None
) -> NDArray[Any]:
    """Read consecutive rows into a fresh C-contiguous array in native byte order, decoded by `conventions`.

    Parameters
    ----------
    array : zarr.Array
        Array of any format, chunking and order.
    start, stop : int
        First row and the row after the last.
    what : str
        Name of the array for the message.
    policy : RetryPolicy, optional
        Retries of failed reads.

    Raises
    ------
    DataError
        ``unreadable``: a chunk cannot be decoded; ``unreachable``: every attempt failed.
    BudgetError
        ``memory``: the rows do not fit.
    """
    try:
        return read_patiently(
            lambda: _slab(array, start, stop, what),
            f"{what}, rows {start} to {stop - 1}",
            str(array.store_path),
            policy,
        )
    except (DistkernError, MemoryError):
        raise
    except Refused as cause:
        raise DataError(f"rows {start} to {stop - 1} of {what} cannot be read: {cause}", kind=cause.kind) from None
    except Exception as cause:
        raise _unreadable(array, start, stop, what, cause) from displayed_cause(cause)


def read_rows(
    array: zarr.Array[Any], rows: NDArray[np.int64], what: str, policy: RetryPolicy | None = None
) -> NDArray[Any]:
    """Read single rows, in the order given, into a fresh C-contiguous array in native byte order, decoded.

    Parameters
    ----------
    array : zarr.Array
        Array of any format, chunking and order.
    rows : array, shape (n,)
        Row numbers from 0; repeats are allowed.
    what : str
        Name of the array for the message.
    policy : RetryPolicy, optional
        Retries of failed reads.

    Raises
    ------
    DataError
        As for `read_slab`.
    """
    selection: Any = (np.asarray(rows, dtype=np.int64), *(slice(None),) * (array.ndim - 1))
    place = str(array.store_path)
    try:
        return read_patiently(
            lambda: _decoded(array, np.asarray(array.get_orthogonal_selection(selection)), what),
            f"{what}, single rows",
            place,
            policy,
        )
    except (DistkernError, MemoryError):
        raise
    except Refused as cause:
        raise DataError(f"single rows of {what} cannot be read: {cause}", kind=cause.kind) from None
    except Exception as cause:
        raise DataError(
            f"single rows of {what} ({place}) cannot be read: {cause}; a chunk is damaged, write the store again",
            kind="unreadable",
        ) from displayed_cause(cause)


def require_checksums(
    values: NDArray[Any], start: int, chunk_rows: int, expected: Sequence[str | int], what: str, place: str
) -> None:
    """Refuse rows of whole chunks that differ from the written ones.

    Parameters
    ----------
    values : array, shape (n,) + the row shape
        The rows.
    start : int
        Number of the first row, which is the first of a chunk.
    chunk_rows : int
        Rows of a chunk.
    expected : sequence of str or int
        Results of `checksum` or of `crc32` for all chunks of the array.
    what, place : str
        Name of the array and of its store for the message.

    Raises
    ------
    DataError
        ``corrupt``, naming the chunk and its rows.
    """
    for first in range(0, len(values), chunk_rows):
        rows = values[first : first + chunk_rows]
        chunk = (start + first) // chunk_rows
        if (crc32(rows) if isinstance(expected[chunk], int) else checksum(rows)) != expected[chunk]:
            raise DataError(
                f"chunk {chunk} of {what} (rows {start + first} to {start + first + len(rows) - 1}) of {place} differs "
                f"from what was written: ingest the data again",
                kind="corrupt",
            )


def require_fit(rows: NDArray[Any], array: zarr.Array[Any], what: str) -> None:
    """Refuse rows that cannot be appended to an array; `what` names the data in the message.

    Raises
    ------
    DataError
        ``shape-mismatch`` or ``dtype-mismatch``.
    """
    if rows.shape[1:] != array.shape[1:]:
        raise DataError(
            f"{what} has a piece of shape {rows.shape} after rows of shape {array.shape[1:]}: all pieces need "
            f"the same columns",
            kind="shape-mismatch",
        )
    if not np.can_cast(rows.dtype, array.dtype, "safe"):
        raise DataError(
            f"{what} has a piece of {rows.dtype} values after {array.dtype}: convert all pieces to one dtype",
            kind="dtype-mismatch",
        )


def _stored_form(values: NDArray[Any], what: str) -> NDArray[Any]:
    # Labels of bool stay bool; features become numbers in `ZarrRows`.
    if values.dtype.kind in "fiu":
        return np.ascontiguousarray(values, dtype=numeric_dtype(values.dtype, what))
    return np.ascontiguousarray(values)


def _slab(array: zarr.Array[Any], start: int, stop: int, what: str) -> NDArray[Any]:
    selection = (slice(start, stop), *(slice(None),) * (array.ndim - 1))
    if array.dtype.kind in "fiu" and array.dtype.isnative:
        # With an output array zarr copies half as much, and F-ordered arrays are read in C order.
        out = _room(array, start, stop, what)
        array.get_basic_selection(selection, out=NDBuffer.from_numpy_array(out))
        return _decoded(array, out, what)
    return _decoded(array, np.asarray(array.get_basic_selection(selection)), what)


def _decoded(array: zarr.Array[Any], values: NDArray[Any], what: str) -> NDArray[Any]:
    values = _stored_form(values, what)
    packing = packing_of(array, what)
    return values if packing is None else _stored_form(packing.decode(values), what)


def _room(array: zarr.Array[Any], start: int, stop: int, what: str) -> NDArray[Any]:
    shape = (stop - start, *array.shape[1:])
    try:
        return np.empty(shape, dtype=array.dtype)
    except MemoryError:
        nbytes = int(np.prod(shape, dtype=object)) * array.dtype.itemsize
        raise BudgetError(
            f"rows {start} to {stop - 1} of {what} ({array.store_path}) take {nbytes} bytes, more than this process "
            f"can have: write the array again with fewer rows a chunk (now {array.chunks[0]})",
            kind="memory",
        ) from None


def _unreadable(array: zarr.Array[Any], start: int, stop: int, what: str, cause: Exception) -> DataError:
    """Return the error for rows that cannot be read; it names the first chunk that fails by itself."""
    size = max(1, int((array.shards or array.chunks)[0]))
    chunks = f"chunks {start // size} to {(stop - 1) // size}"
    for chunk in range(start // size, -(-stop // size)):
        first, last = max(start, chunk * size), min(stop, (chunk + 1) * size)
        try:
            _slab(array, first, last, what)
        except Exception as error:
            start, stop, cause, chunks = first, last, error, f"chunk {chunk}"
            break
    return DataError(
        f"rows {start} to {stop - 1} of {what} ({chunks} of {array.store_path}) cannot be read: {cause}; a chunk is "
        f"damaged or missing, write the store again",
        kind="unreadable",
    )


def require_room(stored: int | None, array: zarr.Array[Any], chunk: int, what: str, place: str) -> None:
    """Refuse a chunk of a dataset that is missing, or too short for its rows.

    Parameters
    ----------
    stored : int or None
        Stored bytes of the chunk; None where it is missing.
    array : zarr.Array
        The array, chunked by rows.
    chunk : int
        Number of the chunk.
    what, place : str
        Name of the array and of its store for the message.

    Raises
    ------
    DataError
        ``unreadable``.
    """
    if stored is None:
        raise DataError(f"chunk {chunk} of {what} is missing from {place}: write the store again", kind="unreadable")
    nbytes = array.dtype.itemsize * int(np.prod(array.chunks, dtype=object))
    if stored * _SMALLEST_CHUNK < nbytes:
        raise DataError(
            f"chunk {chunk} of {what} of {place} has {stored} bytes, too few for its {nbytes} of values: write "
            "the store again",
            kind="unreadable",
        )
