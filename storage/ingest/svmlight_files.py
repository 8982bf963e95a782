"""svmlight files, read by scikit-learn in byte ranges and made dense."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_svmlight_file

from distkern.errors import DataError

from .table import BATCH_BYTES, Batch

__all__ = ["SvmlightTable"]

_RANGE_BYTES = 4 * 1024 * 1024
_ANY_WIDTH = 2**31 - 1
_LARGEST_WHOLE = 2.0**53
"""Largest whole number up to which float64 holds every whole number."""


class SvmlightTable:
    """Rows of svmlight files; a first pass finds the number of features and the lowest feature number.

    Features are counted from 1 unless a file has a feature 0. Labels are integers where all of them are whole numbers.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        Files.

    Raises
    ------
    DataError
        ``unreadable``, ``empty-file`` or ``zero-features``.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        lowest, highest = _ANY_WIDTH, -1
        self.n_rows = 0
        whole = True
        for path in paths:
            rows = 0
            for X, y in _ranges(path, _ANY_WIDTH):
                rows += len(y)
                whole = whole and bool(np.all(np.abs(y) <= _LARGEST_WHOLE) and np.all(y == np.rint(y)))
                if X.nnz:
                    lowest, highest = min(lowest, int(X.indices.min())), max(highest, int(X.indices.max()))
            if rows == 0:
                raise DataError(f"{path} has no rows", kind="empty-file")
            self.n_rows += rows
        if highest < 0:
            raise DataError(f"{paths[0]} has labels but no features", kind="zero-features")
        self._first = 1 if lowest > 0 else 0
        self._width = highest + 1
        self._whole = whole
        self.names: tuple[str, ...] | None = None
        self.n_features = self._width - self._first
        self.dtype: np.dtype[Any] = np.dtype(np.float64)

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        step = max(1, BATCH_BYTES // (8 * self.n_features))
        for path in self._paths:
            for X, y in _ranges(path, self._width):
                labels = y.astype(np.int64) if self._whole else y
                for start in range(0, len(y), step):
                    dense = X[start : start + step].toarray()[:, self._first :]
                    yield Batch(np.ascontiguousarray(dense), labels[start : start + step])


def _ranges(path: Path, width: int) -> Iterator[tuple[Any, NDArray[np.float64]]]:
    """Yield sparse rows and labels, with the indices of the file."""
    size = path.stat().st_size
    for offset in range(0, size, _RANGE_BYTES):
        try:
            yield load_svmlight_file(str(path), n_features=width, zero_based=True, offset=offset, length=_RANGE_BYTES)
        except (ValueError, OverflowError, UnicodeDecodeError) as cause:
            raise _explained(path, offset, cause) from cause


def _explained(path: Path, offset: int, cause: Exception) -> DataError:
    line_number = 0
    with path.open("rb") as stream:
        for line_number, line in enumerate(stream, 1):
            if stream.tell() < offset:
                continue
            try:
                load_svmlight_file(io.BytesIO(line), n_features=_ANY_WIDTH, zero_based=True)
            except (ValueError, OverflowError, UnicodeDecodeError) as error:
                return DataError(
                    f"line {line_number} of {path} is not in svmlight form (label index:value ...): {error}; "
                    f"correct the line",
                    kind="unreadable",
                )
    return DataError(f"{path} cannot be read as an svmlight file: {cause}", kind="unreadable")
