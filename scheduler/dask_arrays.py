"""dask arrays as training rows and as rows to predict."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError


def is_dask_array(value: Any) -> bool:
    """Say whether `value` is a dask array, without importing dask."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(value, module.Array)


class DaskArraySource:
    """Rows of dask arrays; a block is a row chunk of X.

    Blocks are computed in this process and sent to the workers, one at a time.

    Parameters
    ----------
    X : dask.array.Array, shape (n_rows, n_features)
        Features, with known chunk sizes.
    y : dask.array.Array or array-like, shape (n_rows,) or (n_rows, n_targets)
        Targets or labels.
    weights : dask.array.Array or array-like, shape (n_rows,), optional
        Row weights.

    Raises
    ------
    DataError
        Shapes do not fit, or chunk sizes are unknown.
    """

    inline = True

    def __init__(self, X: Any, y: Any, weights: Any = None) -> None:
        if y is None:
            raise DataError("y is missing: give the targets of the rows of X", kind="target")
        if X.ndim != 2 or any(np.isnan(size) for sizes in X.chunks for size in sizes):
            raise DataError(
                f"X is a dask array of shape {X.shape}: it must have two dimensions and known chunk sizes "
                "(call X.compute_chunk_sizes() first)",
                kind="shape-mismatch",
            )
        self._X = X.rechunk({1: -1})
        self._y = y if is_dask_array(y) else np.asarray(y)
        self._weights = None if weights is None or is_dask_array(weights) else np.asarray(weights)
        self._weights = weights if is_dask_array(weights) else self._weights
        self.n_rows, self.n_features = (int(size) for size in X.shape)
        for name, array in (("y", self._y), ("sample_weight", self._weights)):
            if array is not None and array.shape[0] != self.n_rows:
                raise DataError(
                    f"X has {self.n_rows} rows but {name} has {array.shape[0]}: give one entry of {name} for "
                    "each row of X",
                    kind="shape-mismatch",
                )
        self.target_shape: tuple[int, ...] = tuple(self._y.shape[1:])
        self.boundaries = (0, *accumulate(int(size) for size in X.chunks[0]))
        self.feature_dtype = np.dtype(X.dtype)
        self.classes: NDArray[Any] | None = None

    def read_features(self, block: int) -> NDArray[Any]:
        """Rows of X of one block, shape (rows, n_features)."""
        return self._read(self._X, block, "X")

    def read_targets(self, block: int) -> NDArray[Any]:
        """Targets of one block."""
        return self._read(self._y, block, "y")

    def read_weights(self, block: int) -> NDArray[np.float64] | None:
        """Row weights of one block, or None."""
        if self._weights is None:
            return None
        return self._read(self._weights, block, "sample_weight").astype(np.float64)

    def _read(self, array: Any, block: int, name: str) -> NDArray[Any]:
        from distkern.storage import require_finite

        first, last = self.boundaries[block : block + 2]
        part = array[first:last]
        values = np.ascontiguousarray(part.compute() if is_dask_array(part) else part)
        require_finite(values, name, first)
        return values


def map_rows(
    function: Callable[[NDArray[Any]], NDArray[Any]], X: Any, columns: int | None, dtype: np.dtype[Any]
) -> Any:
    """Apply `function` lazily to row blocks of a dask array.

    Parameters
    ----------
    function : callable
        Takes rows of shape (n, d), returns (n,) or (n, columns).
    X : dask.array.Array, shape (n_rows, d)
        Rows.
    columns : int or None
        Columns of the result, None for one dimension.
    dtype : numpy.dtype
        Type of the result.

    Returns
    -------
    dask.array.Array
        Not computed yet, with the row chunks of `X`.
    """
    X = X.rechunk({1: -1})
    if columns is None:
        return X.map_blocks(function, dtype=dtype, drop_axis=1, meta=np.empty(0, dtype=dtype))
    return X.map_blocks(function, dtype=dtype, chunks=(X.chunks[0], (columns,)), meta=np.empty((0, 0), dtype=dtype))
