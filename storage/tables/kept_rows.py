"""Training rows as the pass that makes their schema found them, kept in a scratch file until they are encoded.

So text is parsed, and levels are looked up, once. A number takes 1 to 8 bytes, a date 9 to 16, a level 1 to 4. The file
has no name: nothing is left of it, however the process ends. Where rows cannot be kept the caller reads them again.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from distkern.errors import DistkernError
from distkern.text import byte_size

from ..io.scratch import ScratchFile

__all__ = ["ColumnValues", "KeptPiece", "KeptRows"]

logger = logging.getLogger(__name__)

ColumnValues = tuple[NDArray[Any], ...]
"""Values of a column: of numbers float64, NaN where missing; of dates the days as float64, NaN where missing, and the
local times in microseconds as int64; of categories the levels, from 1 in order of appearance, 0 where missing."""

SHARE = 4
"""At most this part of the bytes that are free on the disk are taken, one fourth: the store needs room too."""

PROBED = 64
"""Values of a column that show whether it may be whole numbers."""

MOST_LABELS = 1000
"""Most different labels of text in a piece; they stay in memory."""


@dataclass(frozen=True, eq=False)
class KeptPiece:
    """Some consecutive rows."""

    columns: list[ColumnValues]
    """Values of the raw columns, in their order."""
    y: NDArray[Any] | None
    """Targets, shape (n,) or (n, T)."""
    weights: NDArray[Any] | None
    """Row weights, shape (n,)."""

    def split(self, most: int) -> Iterator[KeptPiece]:
        """Yield the rows in parts of at most `most` of them."""
        for start in range(0, len(self.columns[0][0]), most):
            part = slice(start, start + most)
            beside = (None if values is None else values[part] for values in (self.y, self.weights))
            yield KeptPiece([tuple(values[part] for values in column) for column in self.columns], *beside)


@dataclass(frozen=True, eq=False)
class _Stored:
    """Place of a piece in the file."""

    offset: int
    n_values: list[int]
    """Number of arrays of each column."""
    forms: list[tuple[np.dtype[Any], np.dtype[Any], tuple[int, ...]]]
    """Types in the file, types, and shapes of all arrays."""
    labels: NDArray[Any] | None
    """Different labels, of which the file has the numbers; None where it has the targets."""
    with_y: bool
    with_weights: bool


class KeptRows:
    """Rows in a scratch file; a context manager that frees it.

    Parameters
    ----------
    directory : path-like
        Directory of the file.
    nbytes : int
        Bytes of the files that the rows are read from.
    """

    def __init__(self, directory: str | os.PathLike[str], nbytes: int) -> None:
        self._directory, self._nbytes = os.fspath(directory), nbytes
        self._file: ScratchFile | None = None
        self._pieces: list[_Stored] = []
        self._limit = 0
        self._target: tuple[str, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._drop()

    @property
    def complete(self) -> bool:
        """Whether all rows since `restart` are kept."""
        return self._file is not None

    @property
    def nbytes(self) -> int:
        """Bytes on the disk."""
        return 0 if self._file is None else self._file.nbytes

    def restart(self) -> None:
        """Forget all rows, and begin anew where the disk has room."""
        self._drop()
        self._limit = shutil.disk_usage(self._directory).free // SHARE
        if self._nbytes > self._limit:
            self._give_up(f"a quarter of the free bytes of {self._directory} is less than the files have")
            return
        try:
            self._file = ScratchFile(self._directory)
        except DistkernError as error:
            self._give_up(str(error))
            return
        logger.info(
            "rows are kept in scratch in %s: the files have %s, and at most %s are taken",
            self._directory,
            byte_size(self._nbytes),
            byte_size(self._limit),
        )

    def add(self, columns: list[ColumnValues] | None, y: NDArray[Any] | None, weights: NDArray[Any] | None) -> None:
        """Keep the next rows; without `columns`, or where the targets change their type, none are kept."""
        if self._file is None:
            return
        labels = None
        if y is not None:
            if y.dtype.kind == "U":
                encoded = pc.dictionary_encode(pa.array(y))
                labels = np.asarray(encoded.dictionary.to_numpy(zero_copy_only=False)).astype(str)
                y = np.asarray(encoded.indices)
            kind = ("U" if labels is not None else y.dtype.kind, y.dtype.itemsize)
            self._target = self._target or kind
            if kind != self._target or y.dtype.kind not in "iufb" or (labels is not None and len(labels) > MOST_LABELS):
                columns = None
        if columns is None:
            self._give_up("a row has no weight, a target changes its type, or its labels are too many")
            return
        beside = [values for values in (y, weights) if values is not None]
        plain = [values for column in columns for values in column] + beside
        arrays = [_narrow(values) for values in plain]
        needed = sum(values.nbytes for values in arrays)
        if self._file.nbytes + needed > self._limit:
            self._give_up(f"rows take more than {byte_size(self._limit)}, a quarter of the free bytes")
            return
        try:
            offset = self._file.allocate(needed)
            place = offset
            for values in arrays:
                self._file.write(place, values)
                place += values.nbytes
        except (DistkernError, OSError) as error:
            self._give_up(str(error))
            return
        forms = [(values.dtype, whole.dtype, whole.shape) for values, whole in zip(arrays, plain, strict=True)]
        sizes = [len(column) for column in columns]
        self._pieces.append(_Stored(offset, sizes, forms, labels, y is not None, weights is not None))

    def pieces(self) -> Iterator[KeptPiece]:
        """Yield all rows in order, as they were added."""
        for stored in self._pieces:
            yield self._read(stored)

    def _read(self, stored: _Stored) -> KeptPiece:
        assert self._file is not None
        arrays, place = [], stored.offset
        for narrow, dtype, shape in stored.forms:
            values = np.empty(shape, narrow)
            self._file.read(place, values)
            place += values.nbytes
            arrays.append(values.astype(dtype, copy=False))
        weights = arrays.pop() if stored.with_weights else None
        y = arrays.pop() if stored.with_y else None
        if y is not None and stored.labels is not None:
            y = stored.labels[y]
        taken = iter(arrays)
        return KeptPiece([tuple(next(taken) for _ in range(size)) for size in stored.n_values], y, weights)

    def _give_up(self, why: str) -> None:
        logger.info("rows are not kept, and the files are read again: %s", why)
        self._drop()

    def _drop(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._pieces, self._target = None, [], None


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Return the same numbers in the fewest bytes where float64 are whole; gaps and -0.0 are not."""
    if values.dtype != np.float64 or not values.size:
        return values
    flat = values.reshape(-1)
    for dtype in (np.int8, np.int16, np.int32):
        if _holds(flat[:PROBED], dtype) and _holds(flat, dtype):
            return values.astype(dtype)
    return values


def _holds(values: NDArray[np.float64], dtype: type[np.signedinteger[Any]]) -> bool:
    with np.errstate(invalid="ignore"):
        back = values.astype(dtype).astype(np.float64)
    return bool((back.view(np.int64) == values.view(np.int64)).all())
