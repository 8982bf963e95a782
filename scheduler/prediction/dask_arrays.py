"""dask arrays as training rows and as rows to predict.

Covers the computation of chunks in this process, and lazy predictions; frames become arrays in `dask_frames`.
"""

from __future__ import annotations

import math
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.models.kernel_model import KernelModel
from distkern.redaction import displayed_cause, redact
from distkern.storage import (
    RetryPolicy,
    check_rows_agree,
    check_weights,
    numeric_dtype,
    plain_array,
    read_patiently,
    require_extent,
    require_finite,
)

from ..runtime.threads import follow_worker
from .local import OutputFunction, evaluate
from .shared_tasks import LazyBlocks

LARGE_MODEL_BYTES = 8_000_000
"""Least bytes of a model that lazy predictions send to the cluster once; dask warns of graphs above 10 MB."""


def is_dask_array(value: Any) -> bool:
    """Return whether `value` is a dask array, without importing dask."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(value, module.Array)


class DaskArraySource:
    """Source of rows of dask arrays; a block is a row chunk of X.

    This process computes blocks and sends them to the workers, one at a time. Results that several blocks need, such as
    the means of a scaled array, are computed before the first block.

    Parameters
    ----------
    X : dask.array.Array, shape (n_rows, n_features)
        Features, with known chunk sizes.
    y : dask.array.Array or array-like, shape (n_rows,) or (n_rows, n_targets)
        Targets or labels.
    weights : dask.array.Array or array-like, shape (n_rows,), optional
        Row weights; ones by default.

    Raises
    ------
    DataError
        Shapes do not fit, or chunk sizes are unknown.
    """

    inline = True
    place = "a dask array"
    feature_scales: NDArray[np.float64] | None = None
    """As of `BlockSource`."""

    def __init__(self, X: Any, y: Any, weights: Any = None) -> None:
        if y is None:
            raise DataError("y is missing: give the targets of the rows of X", kind="target")
        for name, array in (("X", X), ("y", y), ("sample_weight", weights)):
            _require_chunk_sizes(name, array)
        if X.ndim != 2:
            raise DataError(
                f"X is a dask array of shape {X.shape}: it must have two dimensions, rows and features",
                kind="shape-mismatch",
            )
        self.feature_dtype = numeric_dtype(np.dtype(X.dtype), "X")
        # Dask computes on the thread of the caller, for as long as the user's functions take.
        self._policy = replace(RetryPolicy.default(), longest=math.inf)
        self._X = X.rechunk({1: -1})
        self._y = y if is_dask_array(y) else plain_array(y, "y")
        in_memory = weights is not None and not is_dask_array(weights)
        self._weights = plain_array(weights, "sample_weight") if in_memory else weights
        self.n_rows, self.n_features = (int(size) for size in X.shape)
        require_extent(self.n_rows, self.n_features)
        if self._y.ndim not in (1, 2):
            raise DataError(
                f"y has shape {self._y.shape}: it must have shape (n_rows,) or (n_rows, n_targets)",
                kind="shape-mismatch",
            )
        check_rows_agree(self.n_rows, self._y.shape[0])
        if self._weights is not None:
            if self._weights.ndim != 1:
                raise DataError(
                    f"sample_weight has shape {self._weights.shape}: it must be one-dimensional, one weight a row",
                    kind="shape-mismatch",
                )
            check_rows_agree(self.n_rows, self._weights.shape[0], "sample_weight")
        self.target_shape: tuple[int, ...] = tuple(self._y.shape[1:])
        self.boundaries = (0, *accumulate(int(size) for size in X.chunks[0] if size))
        self.classes: NDArray[Any] | None = None
        arrays = {"X": self._X, "y": self._y, "sample_weight": self._weights}
        self._blocks = _lazy_blocks({name: array for name, array in arrays.items() if is_dask_array(array)})
        self._beside: dict[tuple[str, int], Any] = {}

    @property
    def lazy_results(self) -> int:
        """Most bytes of results that are kept for all blocks."""
        return self._blocks.most_kept()

    def read_features(self, block: int) -> NDArray[Any]:
        """Return the rows of X of one block, shape (rows, n_features)."""
        values = self._read(self._X, block, "X").astype(self.feature_dtype, copy=False)
        require_finite(values, "X", self.boundaries[block])
        return values

    def read_targets(self, block: int) -> NDArray[Any]:
        """Return the targets of one block."""
        values = self._read(self._y, block, "y")
        require_finite(values, "y", self.boundaries[block])
        return values

    def fingerprint(self) -> None:
        """Return None: a fingerprint would need the values of the arrays."""

    def read_weights(self, block: int) -> NDArray[np.float64] | None:
        """Return the row weights of one block, or None."""
        if self._weights is None:
            return None
        first, last = self.boundaries[block : block + 2]
        return check_weights(self._read(self._weights, block, "sample_weight"), last - first, first)

    def _read(self, array: Any, block: int, what: str) -> NDArray[Any]:
        first, last = self.boundaries[block : block + 2]
        if not is_dask_array(array):
            return np.ascontiguousarray(array[first:last])
        if (what, block) in self._beside:
            return np.ascontiguousarray(self._beside.pop((what, block)))
        try:
            own, *others = read_patiently(
                lambda: self._computed(block, what), f"{what}, rows {first} to {last - 1}", self.place, self._policy
            )
            for name, values in others:
                self._beside[name, block] = values
            return np.ascontiguousarray(own[1])
        except (ArithmeticError, LookupError, TypeError, ValueError) as cause:
            if isinstance(cause, DataError):
                raise
            raise DataError(
                f"rows {first} to {last - 1} of {what} (counted from 0), a dask array, cannot be computed: "
                f"{type(cause).__name__}: {redact(str(cause))}",
                kind="unreadable",
            ) from displayed_cause(cause)

    def _computed(self, block: int, what: str) -> list[tuple[str, Any]]:
        """Compute a block of an array; with X, also of targets and weights that come of the same tasks."""
        names = [what]
        if what == "X":
            names += [name for name in self._blocks.names if name != "X" and self._blocks.related("X", name)]
        return list(zip(names, self._blocks.compute(block, names), strict=True))


def _lazy_blocks(arrays: dict[str, Any]) -> LazyBlocks:
    """Return the chunks of rows of X, those without rows left out, and the same rows of the other arrays."""
    X = arrays["X"]
    numbers = [number for number, size in enumerate(X.chunks[0]) if size]
    sizes = tuple(X.chunks[0][number] for number in numbers)
    keys = {"X": [(X.name, number, 0) for number in numbers]}
    for name, array in arrays.items():
        if name != "X":
            arrays = arrays | {name: (whole := array.rechunk((sizes, *((-1,) * (array.ndim - 1)))))}
            keys[name] = [(whole.name, number, *((0,) * (array.ndim - 1))) for number in range(len(sizes))]
    return LazyBlocks(arrays, keys)


def _require_chunk_sizes(name: str, array: Any) -> None:
    if is_dask_array(array) and any(np.isnan(size) for sizes in array.chunks for size in sizes):
        raise DataError(
            f"{name} is a dask array with chunks of unknown sizes: call {name}.compute_chunk_sizes() first",
            kind="unknown-chunks",
        )


def row_chunks(X: Any) -> Iterator[tuple[int, NDArray[Any]]]:
    """Compute a dask array chunk by chunk; yield the number of the first row, and the rows."""
    X = _whole_rows(X)
    first = 0
    blocks = LazyBlocks({"X": X}, {"X": [(X.name, number, 0) for number in range(X.numblocks[0])]})
    for number in range(X.numblocks[0]):
        rows = np.ascontiguousarray(blocks.compute(number, ["X"])[0])
        if len(rows):
            yield first, rows
        first += len(rows)


def _whole_rows(X: Any) -> Any:
    """Return the array with every row in one chunk; the row chunks stay."""
    return X if X.numblocks[1] == 1 else X.rechunk({1: -1})


def predict_rows(rows: NDArray[Any], model: KernelModel, finish: OutputFunction[NDArray[Any]]) -> NDArray[Any]:
    """Predict one chunk of a dask array."""
    follow_worker()
    return finish(evaluate(model, rows))


def map_rows(
    model: KernelModel, X: Any, finish: OutputFunction[NDArray[Any]], tail: tuple[int, ...], dtype: np.dtype[Any]
) -> Any:
    """Predict a dask array lazily, chunk by chunk.

    Parameters
    ----------
    model : KernelModel
        The model. It has its own key in the graph, so a worker gets it once; a large one is sent once to the cluster
        that is current, instead of with every computation.
    X : dask.array.Array, shape (n_rows, d)
        Rows.
    finish : callable
        From fitted targets, shape (n, T), to an array of shape (n, *tail).
    tail : tuple of int
        Shape of the result of a row.
    dtype : numpy.dtype
        Type of the result.

    Returns
    -------
    dask.array.Array
        A lazy array with the row chunks of `X`.
    """
    import dask

    X = _whole_rows(X)
    if model.centers.nbytes + model.coef.nbytes >= LARGE_MODEL_BYTES:
        from .held_model import HeldModel

        held: Any = HeldModel(model).delayed()
    else:
        held = dask.delayed(model, name=f"kernel-model-{uuid.uuid4().hex}", traverse=False)
    meta = np.empty((0,) * (1 + len(tail)), dtype=dtype)
    if not tail:
        return X.map_blocks(predict_rows, held, finish, dtype=dtype, drop_axis=1, meta=meta)
    shape = (X.chunks[0], *((size,) for size in tail))
    more = list(range(2, 1 + len(tail))) or None
    return X.map_blocks(predict_rows, held, finish, dtype=dtype, chunks=shape, new_axis=more, meta=meta)
