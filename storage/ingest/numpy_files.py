"""npy and npz files, read in slabs of rows.

numpy itself decompresses a whole member of an npz file. Here a member is read as a stream. Only an array that is stored
column by column is first copied to a temporary file, because its rows are not contiguous. A small archive that expands
to gigabytes is refused by its directory.
"""

from __future__ import annotations

import io
import shutil
import struct
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError, JobError

from ..arrays.checks import check_rows_agree, numeric_dtype
from ..io.npy_header import NpyHeader, read_npy_header
from .table import BATCH_BYTES, Batch, Reading, some_rows, unreadable

__all__ = ["NumpyTable", "StoredArray", "open_npy", "open_npz", "stored_file"]

_FAILURES = (
    *(OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error),
    *(NotImplementedError, RuntimeError, SyntaxError, OverflowError, RecursionError, struct.error),
    tokenize.TokenError,
)
"""Errors of damaged archives and headers; numpy evaluates a header as a Python literal."""

MAX_RATIO = 200
"""Most times that a member larger than `FREE_BYTES` may expand; rows of numbers rarely reach 20."""

FREE_BYTES = 1 << 30
"""Bytes to which a member may expand from any size."""

MAX_DIRECTORY_BYTES = 4 << 20
"""Longest directory of an archive, of some 40,000 members; its entries take twenty times as much in memory."""


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
    """Rows of stored arrays: X, y and weights of each file, or targets and weights as columns of X.

    Parameters
    ----------
    parts : sequence of (X, y, weights)
        Features of shape (n, n_features), targets and row weights; None for what is a column of X, or is not there.
    targets : sequence of int, default ()
        Columns of X that are targets.
    weight : int, optional
        Column of X with the row weights.

    Raises
    ------
    DataError
        ``shape-mismatch``, ``not-numeric``, ``columns-differ``, ``unknown-column``, ``zero-features`` or
        ``empty-file``.
    """

    def __init__(
        self,
        parts: Sequence[tuple[StoredArray, StoredArray | None, StoredArray | None]],
        targets: Sequence[int] = (),
        weight: int | None = None,
    ) -> None:
        first = parts[0][0]
        for X, *others in parts:
            shape = X.header.shape
            if len(shape) != 2 or shape[1] == 0:
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
            for other in others:
                if other is not None:
                    check_rows_agree(shape[0], other.header.shape[0] if other.header.shape else 0, other.name)
        counts = [X.header.shape[0] for X, *_ in parts]
        full = some_rows(
            [X.path for X, *_ in parts], counts, f"has no rows ({first.name} is empty, of shape {first.header.shape})"
        )
        self._parts = [part for part in parts if part[0].path in full]
        self._targets, self._weight = list(targets), weight
        self._aside = [*targets, *(() if weight is None else (weight,))]
        width = first.header.shape[1]
        for option, columns in (("--target", self._targets), ("--weight", self._aside)):
            wrong = [column for column in columns if not 0 <= column < width]
            if wrong:
                raise DataError(
                    f"{first.name} has no column {wrong[0]}: choose {option} from 0 to {width - 1}",
                    kind="unknown-column",
                )
        if len(set(self._aside)) < len(self._aside):
            raise DataError("a column is named twice with --target and --weight: name it once", kind="target")
        self.names: tuple[str, ...] | None = None
        self.n_features = width - len(self._aside)
        if not self.n_features:
            raise DataError(f"{first.name} has no column besides the target", kind="zero-features")
        self.n_rows = sum(counts)
        self.dtype: np.dtype[Any] = np.result_type(*(numeric_dtype(X.header.dtype, X.name) for X, *_ in self._parts))

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        rows = max(1, BATCH_BYTES // (8 * (self.n_features + len(self._aside))))
        for X, y, weights in self._parts:
            beside = [repeat(None) if array is None else array.slabs(rows) for array in (y, weights)]
            # The slabs beside end with their arrays, which have the rows of X; repeat never ends.
            for slab, target, shares in zip(X.slabs(rows), *beside, strict=False):
                if self._targets:
                    target = np.ascontiguousarray(slab[:, self._targets])
                    target = target[:, 0] if len(self._targets) == 1 else target
                if self._weight is not None:
                    shares = np.ascontiguousarray(slab[:, self._weight])
                features = np.delete(slab, self._aside, axis=1) if self._aside else slab
                yield Batch(features.astype(self.dtype, copy=False), target, weights=shares)


def open_npy(paths: Sequence[Path], reading: Reading) -> NumpyTable:
    """Open npy files.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        Files with X, or with X, targets and weights in one array.
    reading : Reading
        Targets: numbers of columns from 0, or the path of a npy file with y (for one file of X). Weights: the number of
        a column.

    Raises
    ------
    DataError
        ``target``, ``missing``, ``unreadable``, and those of `NumpyTable`.
    """
    if not (reading.target or reading.no_target):
        raise DataError(
            f"where is the target of {paths[0]}? Name a column number or a .npy file with --target, or give "
            "--no-target for rows to predict",
            kind="target",
        )
    parts = [stored_file(path) for path in paths]
    weight = None if reading.weight is None else int(reading.weight)
    if all(_is_number(target) for target in reading.target):
        return NumpyTable([(X, None, None) for X in parts], [int(target) for target in reading.target], weight)
    target = next(target for target in reading.target if not _is_number(target))
    if not Path(target).is_file():
        raise DataError(f"--target {target} is neither a column number nor an existing .npy file", kind="missing")
    if len(parts) > 1 or len(reading.target) > 1:
        raise DataError(
            f"one target file {target} is given for {len(parts)} files of X, and {len(reading.target)} targets: ingest "
            "one file at a time; a target file may have several columns",
            kind="target",
        )
    return NumpyTable([(parts[0], stored_file(Path(target)), None)], weight=weight)


def open_npz(paths: Sequence[Path], reading: Reading) -> NumpyTable:
    """Open npz files with keys X and y, or X_train, y_train, X_test, y_test.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        Files.
    reading : Reading
        Key of the target instead of y, key of the weights, and the part to read where there are several.

    Raises
    ------
    DataError
        ``unknown-key``, ``unreadable``, and those of `NumpyTable`.
    JobError
        ``part``: the part must be named; ``several-targets``.
    """
    if len(reading.target) > 1:
        raise JobError(
            f"{len(reading.target)} targets are named, and npz files have one array of targets: name one, which may "
            "have several columns",
            kind="several-targets",
        )
    wanted = None if reading.no_target else reading.target[0] if reading.target else "y"
    parts = []
    for path in paths:
        keys = _keys(path)
        X, *others = (
            None if name is None else _stored_member(path, _choose_key(path, keys, name, reading.part))
            for name in ("X", wanted, reading.weight)
        )
        assert X is not None
        parts.append((X, others[0], others[1]))
    return NumpyTable(parts)


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdigit()


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
        f"X_train and so on with --part; rows to predict need no y with --no-target",
        kind="unknown-key",
    )


class _DirectoryOnly(io.FileIO):
    """File of an archive of which no more is read at once than the longest directory."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_DIRECTORY_BYTES:
            raise ValueError(f"its directory has {size} bytes (limit {MAX_DIRECTORY_BYTES})")
        return super().read(size)


def _keys(path: Path) -> list[str]:
    try:
        with _DirectoryOnly(path) as file, zipfile.ZipFile(file) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    except _FAILURES as cause:
        raise unreadable(path, cause) from cause


def stored_file(path: Path) -> StoredArray:
    """Return the array in a npy file; only the header is read."""
    return _stored(path, str(path), lambda: path.open("rb"), lambda: path.stat().st_size)


def _stored_member(path: Path, key: str) -> StoredArray:
    def opener() -> IO[bytes]:
        # The member keeps the archive's file open until it is closed itself.
        with zipfile.ZipFile(path) as archive:
            return archive.open(f"{key}.npy")

    def size() -> int:
        with zipfile.ZipFile(path) as archive:
            member = archive.getinfo(f"{key}.npy")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # lzma would take as much memory as a member asks for.
            raise NotImplementedError("it is not compressed by deflate, as numpy does: unpack the archive")
        if member.file_size > max(FREE_BYTES, MAX_RATIO * member.compress_size):
            raise DataError(
                f"{key} of {path} has {member.compress_size} bytes and expands to {member.file_size} (limit "
                f"{MAX_RATIO} times as many, or {FREE_BYTES}): if it is meant so, unpack the archive and ingest its "
                ".npy files",
                kind="too-large",
            )
        return member.file_size

    return _stored(path, f"{key} of {path}", opener, size)


def _stored(path: Path, name: str, opener: Callable[[], IO[bytes]], size: Callable[[], int]) -> StoredArray:
    try:
        there = size()
        with opener() as stream:
            header = read_npy_header(stream)
            # A damaged header may state any size: the file must be that long before anything is allocated.
            needed = stream.tell() + int(np.prod(header.shape, dtype=object)) * header.dtype.itemsize
        if there < needed:
            raise EOFError("the file ends before the array does")
    except DataError:
        raise
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
