"""Rows of a sparse matrix in memory: blocks are made dense one at a time, as they are read."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from distkern.errors import DataError

from ..arrays.checks import numeric_dtype
from .sources import ArraySource

__all__ = ["is_sparse", "source_in_memory", "sparse_rows"]


def is_sparse(values: object) -> bool:
    """Return whether values are a sparse matrix or array of scipy."""
    return bool(issparse(values))


def sparse_rows(X: Any) -> Any:
    """Return a sparse matrix or array in any format as rows of float64, or float32 where it has this dtype.

    Parameters
    ----------
    X : sparse matrix or array
        The rows; they are not changed.

    Raises
    ------
    DataError
        ``invalid-input`` for a wrong shape, ``not-numeric``, ``not-finite`` with row and column.
    """
    if X.ndim != 2:
        raise DataError(
            f"X is sparse with {X.ndim} dimensions: it must have two, rows and features", kind="invalid-input"
        )
    numeric_dtype(np.dtype(X.dtype), "X")
    rows: Any = csr_array(X, dtype=np.float32 if X.dtype == np.float32 else np.float64)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    if not np.isfinite(rows.data).all():
        first = int(np.argmin(np.isfinite(rows.data)))
        row = int(np.searchsorted(rows.indptr, first, side="right")) - 1
        raise DataError(
            f"X holds {rows.data[first]} in row {row}, column {rows.indices[first]} (counted from 0): replace it, or "
            "leave the row out",
            kind="not-finite",
        )
    return rows


class SparseSource(ArraySource):
    """Rows of a sparse matrix in memory; its blocks have the numbers, and the bounds, of those of a dense array."""

    place = "a sparse matrix in memory"

    def _own_rows(self, X: Any) -> Any:
        return sparse_rows(X)

    def read_features(self, block: int) -> NDArray[Any]:
        """Return the rows of X of one block, dense, a fresh array of shape (rows, n_features)."""
        dense: NDArray[Any] = self.X[self.boundaries[block] : self.boundaries[block + 1]].toarray()
        return dense

    def read_rows(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return single rows of X in the order given, dense, shape (n, n_features)."""
        dense: NDArray[Any] = self.X[rows].toarray()
        return dense

    def fingerprint(self) -> str:
        """Return a hash of the content."""
        state = blake2b(digest_size=16)
        state.update(repr(self.X.shape).encode())
        for part in (
            self.X.data,
            self.X.indices.astype(np.int64),
            self.X.indptr.astype(np.int64),
            self.y,
            self.weights,
        ):
            state.update(b"none" if part is None else np.ascontiguousarray(part).tobytes())
        return state.hexdigest()

    def __repr__(self) -> str:
        return f"<SparseSource: {self.n_rows} rows x {self.n_features} features {self.feature_dtype}>"


def source_in_memory(X: Any, y: Any, weights: Any = None, **options: Any) -> ArraySource:
    """Return the blocks of rows in memory, sparse or dense, by default without `weights` (None); see `ArraySource`."""
    return (SparseSource if is_sparse(X) else ArraySource)(X, y, weights, **options)
