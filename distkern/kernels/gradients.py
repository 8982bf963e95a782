"""Gradients of weighted sums of kernels, in parts of the rows with matrix products.

The gradient of every kernel here is a factor of the pair times x - c, or times c. The factor of a pair is its slope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import PART_SIZE, FloatArray

Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Rows, in rising order, and centres of some pairs of a part."""


def gradient_sums(
    slopes: Callable[[slice, FloatArray], Pairs | None],
    X: FloatArray,
    C: FloatArray,
    A: NDArray[Any],
    out: FloatArray | None,
    *factors: float,
    differences: bool = True,
) -> FloatArray:
    """Compute sum_j A_jt S_ij (x_i - c_j), or the sum of A_jt S_ij c_j, for every row i and target t.

    Parameters
    ----------
    slopes : callable
        Writes the slopes S of the rows of a slice into an array, shape (n_rows of the slice, n_centers). It returns
        the pairs whose x - c must be subtracted itself, since their slopes have no bound, or None.
    X, C, A, out : arrays
        See `Kernel.gradients`.
    *factors : float
        Factors of the result, applied one after another, so that their product may be out of the dtype's range.
    differences : bool, default True
        Whether the slopes are those of x - c, not of c.

    Returns
    -------
    array, shape (n_targets, n_rows, n_features)
        `out`, or a new array.
    """
    A, out = target_arrays(X, C, A, out)
    step = max(1, PART_SIZE // max(1, *C.shape))
    scratch = np.empty((2, min(step, len(X)), len(C)), dtype=X.dtype)
    for start in range(0, len(X), step):
        part = slice(start, start + step)
        rows = X[part]
        S, W = scratch[:, : len(rows)]
        close = slopes(part, S)
        if close is not None:
            near = S[close]
            S[close] = 0.0
        for weights, sums in zip(A.T, out[:, part], strict=True):
            np.matmul(np.multiply(S, weights, out=W), C, out=sums)
            if differences:
                np.subtract(W.sum(axis=1)[:, np.newaxis] * rows, sums, out=sums)
        if close is not None:
            _add_differences(out[:, part], rows, C, A, close, near)
        for factor in factors:
            out[:, part] *= X.dtype.type(factor)
    return out


def target_arrays(
    X: FloatArray, C: FloatArray, A: NDArray[Any], out: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Return the weights in the dtype of the rows, and `out` or a new array for the gradients."""
    assert X.dtype == C.dtype, f"X is {X.dtype} and C is {C.dtype}"
    assert A.ndim == 2, f"A has shape {A.shape}"
    assert len(A) == len(C), f"{len(A)} rows of weights and {len(C)} centres"
    A = A.astype(X.dtype, copy=False)
    return A, np.empty((A.shape[1], *X.shape), dtype=X.dtype) if out is None else out


def _add_differences(
    sums: FloatArray, X: FloatArray, C: FloatArray, A: FloatArray, pairs: Pairs, slopes: FloatArray
) -> None:
    """Add the terms of some pairs to the sums of their rows."""
    step = max(1, PART_SIZE // (2 * X.shape[1]))
    for start in range(0, len(slopes), step):
        rows, centers = (side[start : start + step] for side in pairs)
        terms = X[rows]
        terms -= C[centers]
        terms *= slopes[start : start + step, np.newaxis]
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        for weights, found in zip(A.T, sums, strict=True):
            found[rows[first]] += np.add.reduceat(weights[centers, np.newaxis] * terms, first, axis=0)
