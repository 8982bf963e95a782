"""npy and npz files, read in slabs of rows.

numpy itself decompresses a whole member of an npz file. Here a member is read as a stream. Only an array that is stored
column by column is first copied to a temporary file, because its rows are not contiguous.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError, JobError

from ..arrays.checks import check_rows_agree, numeric_dtype
from ..io.npy_header import NpyHeader, read_npy_header
from .table import BATCH_BYTES, Batch, unreadable

__all__ = ["NumpyTable", "StoredArray", "open_npy", "open_npz"]

_FAILURES = (
    *(OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error),
    *(NotImplementedError, RuntimeError, SyntaxError, OverflowError, RecursionError, struct.error),
    tokenize.TokenError,
)
"""Errors of damaged archives and headers; numpy evaluates a header as a Python literal."""


@dataclass(frozen=True)
class StoredArray:
    """An array in a file, which can be read in slabs."""

    path: Path
    """File that holds it."""
    name: str
    """Name for messages."""
    header: NpyHeader
    """Shape, order and dtype."""
    opener: Callable[[], IO[bytes]]
    """Function that opens a stream at the start of the npy data."""

    def slabs(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield the array `rows` rows at a time, the last slab shorter."""
        shape, fortran_order, dtype = self.header
        row_shape = shape[1:]
        row_bytes = int(np.prod(row_shape, dtype=np.int64)) * dtype.itemsize
        try:
            with self.opener() as stream:
                read_npy_header(stream)
                if fortran_order and len(shape) > 1:
                    yield from _scattered_slabs(stream, self.header, rows)
                    return
                for start in range(0, shape[0], rows):
                    count = min(rows, shape[0] - start)
                    data = _read_exactly(stream, count * row_bytes)
                    yield np.frombuffer(data, dtype=dtype).reshape(count, *row_shape)
                # The checksum of a zip member is compared at its end only.
                stream.read(1)
        except _FAILURES as cause:
            if isinstance(cause, DataError):
                raise
            raise unreadable(self.path, cause) from cause


class NumpyTable:
    """Rows of stored arrays, X and y of each file or the target as a column of X.

    Parameters
    ----------
    parts : sequence of (X, y)
        Features of shape (n, n_features) and targets, None where the target is `target_column`.
    target_column : int, optional
        Column of X that is the target.

    Raises
    ------
    DataError
        ``shape-mismatch``, ``not-numeric``, ``columns-differ``, ``unknown-column``, ``zero-features`` or
        ``empty-file``.
    """

    def __init__(
        self, parts: Sequence[tuple[StoredArray, StoredArray | None]], target_column: int | None = None
    ) -> None:
        self._parts = parts
        self._column = target_column
        first = parts[0][0]
        for X, y in parts:
            shape = X.header.shape
            if len(shape) != 2 or 0 in shape:
                raise DataError(
                    f"{X.name} has shape {shape}: it must have two dimensions, rows and features, and not be empty",
                    kind="empty-file" if 0 in shape else "shape-mismatch",
                )
            if shape[1] != first.header.shape[1]:
                raise DataError(
                    f"{X.name} has {shape[1]} columns, {first.name} has {first.header.shape[1]}: all files "
                    f"need the same columns",
                    kind="columns-differ",
                )
            if y is not None:
                check_rows_agree(shape[0], y.header.shape[0] if y.header.shape else 0, y.name)
        width = first.header.shape[1]
        if target_column is not None and not 0 <= target_column < width:
            raise DataError(
                f"{first.name} has no column {target_column}: choose --target from 0 to {width - 1}",
                kind="unknown-column",
            )
        self.names: tuple[str, ...] | None = None
        self.n_features = width - (target_column is not None)
        if not self.n_features:
            raise DataError(f"{first.name} has no column besides the target", kind="zero-features")
        self.n_rows = sum(X.header.shape[0] for X, _ in parts)
        self.dtype: np.dtype[Any] = np.result_type(*(numeric_dtype(X.header.dtype, X.name) for X, _ in parts))

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        rows = max(1, BATCH_BYTES // (8 * (self.n_features + 1)))
        for X, y in self._parts:
            if y is None:
                for slab in X.slabs(rows):
                    yield Batch(
                        np.delete(slab, self._column or 0, axis=1).astype(self.dtype),
                        np.ascontiguousarray(slab[:, self._column or 0]),
                    )
            else:
                for slab, target in zip(X.slabs(rows), y.slabs(rows), strict=True):
                    yield Batch(slab.astype(self.dtype, copy=False), target)


def open_npy(paths: Sequence[Path], target: str | int | None) -> NumpyTable:
    """Open npy files.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        Files with X, or with X and the target in one array.
    target : str or int
        Number of the target column from 0, or the path of a npy file with y (for one file of X).

    Raises
    ------
    DataError
        ``target``, ``missing``, ``unreadable``, and those of `NumpyTable`.
    """
    if target is None:
        raise DataError(
            f"where is the target of {paths[0]}? Name a column number or a .npy file with --target",
            kind="target",
        )
    parts = [_stored_file(path) for path in paths]
    if isinstance(target, int) or target.removeprefix("-").isdigit():
        return NumpyTable([(X, None) for X in parts], int(target))
    if not Path(target).is_file():
        raise DataError(f"--target {target} is neither a column number nor an existing .npy file", kind="missing")
    if len(parts) > 1:
        raise DataError(
            f"one target file {target} is given for {len(parts)} files of X: ingest one file at a time",
            kind="target",
        )
    return NumpyTable([(parts[0], _stored_file(Path(target)))])


def open_npz(paths: Sequence[Path], target: str | None, part: str | None) -> NumpyTable:
    """Open npz files with keys X and y, or X_train, y_train, X_test, y_test.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        Files.
    target : str, optional
        Key of the target instead of y.
    part : {"train", "test"}, optional
        The part to read where there are several.

    Raises
    ------
    DataError
        ``unknown-key``, ``unreadable``, and those of `NumpyTable`.
    JobError
        ``part``: the part must be named.
    """
    parts = []
    for path in paths:
        keys = _keys(path)
        X = _choose_key(path, keys, "X", part)
        y = _choose_key(path, keys, target or "y", part)
        parts.append((_stored_member(path, X), _stored_member(path, y)))
    return NumpyTable(parts)


def _choose_key(path: Path, keys: Sequence[str], name: str, part: str | None) -> str:
    parts = [key for key in ("train", "test") if f"{name}_{key}" in keys]
    if part is None:
        if name in keys:
            return name
        if len(parts) == 2:
            raise JobError(f"{path} has a train and a test part: choose --part train or test", kind="part")
        if parts:
            return f"{name}_{parts[0]}"
    elif part in parts:
        return f"{name}_{part}"
    wanted = name if part is None else f"{name}_{part}"
    raise DataError(
        f"{path} has no array {wanted!r}: its arrays are {', '.join(keys) or 'none'}; name them X and y, or "
        f"X_train and so on with --part",
        kind="unknown-key",
    )


def _keys(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    except _FAILURES as cause:
        raise unreadable(path, cause) from cause


def _stored_file(path: Path) -> StoredArray:
    return _stored(path, str(path), lambda: path.open("rb"), lambda: path.stat().st_size)


def _stored_member(path: Path, key: str) -> StoredArray:
    def opener() -> IO[bytes]:
        # The member keeps the archive's file open until it is closed itself.
        with zipfile.ZipFile(path) as archive:
            return archive.open(f"{key}.npy")

    def size() -> int:
        with zipfile.ZipFile(path) as archive:
            return archive.getinfo(f"{key}.npy").file_size

    return _stored(path, f"{key} of {path}", opener, size)


def _stored(path: Path, name: str, opener: Callable[[], IO[bytes]], size: Callable[[], int]) -> StoredArray:
    try:
        with opener() as stream:
            header = read_npy_header(stream)
            # A damaged header may state any size: the file must be that long before anything is allocated.
            needed = stream.tell() + int(np.prod(header.shape, dtype=object)) * header.dtype.itemsize
        if size() < needed:
            raise EOFError("the file ends before the array does")
    except _FAILURES as cause:
        raise unreadable(path, f"{name}: {cause}") from cause
    return StoredArray(path, name, header, opener)


def _scattered_slabs(stream: IO[bytes], header: NpyHeader, rows: int) -> Iterator[NDArray[Any]]:
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
        copy.flush()
        columns = np.memmap(copy, dtype=header.dtype, mode="r", shape=header.shape, order="F")
        for start in range(0, header.shape[0], rows):
            yield np.ascontiguousarray(columns[start : start + rows])


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError("the file ends before the array does")
    return data
