"""Functions of the l1 distance, the sum of absolute differences, and their gradients, in parts of the rows.

The l1 distance is no matrix product. scipy's loop over the pairs is several times faster than passes of numpy over the
columns of a part, also for float32. It adds the columns of a pair in order, in float64, so a value depends on its row
and centre only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import cdist

from .base import PART_SIZE, FloatArray, inverse_of
from .gradients import target_arrays

Profile = Callable[[FloatArray, int], None]


def city_block_values(
    profile: Profile, width: float, X: FloatArray, C: FloatArray, out: FloatArray | None
) -> FloatArray:
    """Compute a profile of the l1 distances over a width, shape (n_rows, n_centers); see `Radial.profile`."""
    assert X.dtype == C.dtype, f"X is {X.dtype} and C is {C.dtype}"
    K = np.empty((len(X), len(C)), dtype=X.dtype) if out is None else out
    C = C.astype(np.float64, copy=False)
    inverse = inverse_of(width, C.dtype)
    step = max(1, PART_SIZE // max(1, len(C)))
    distances = np.empty((min(step, len(X)), len(C)))
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        for start in range(0, len(X), step):
            ratios = K[start : start + step]
            found = cdist(X[start : start + step], C, "cityblock", out=distances[: len(ratios)])
            np.multiply(found, inverse, out=ratios, casting="same_kind")
            profile(ratios, X.shape[1])
    return K


def city_block_gradients(
    slope: Profile, width: float, X: FloatArray, C: FloatArray, A: FloatArray, out: FloatArray | None
) -> FloatArray:
    """Compute the gradients of weighted sums; `slope` replaces ratios by the derivative of the profile."""
    A, out = target_arrays(X, C, A, out)
    inverse = inverse_of(width, X.dtype)
    step = max(1, PART_SIZE // max(1, *C.shape))
    scratch = np.empty((2, min(step, len(X)), len(C)), dtype=X.dtype)
    signs = np.empty((2, *scratch.shape[1:]), dtype=np.int8)
    columns = np.ascontiguousarray(C.T)
    for start in range(0, len(X), step):
        rows = X[start : start + step]
        S, W = scratch[:, : len(rows)]
        above, below = signs[:, : len(rows)]
        city_block_values(slope, width, rows, C, S)
        for j, (values, centers) in enumerate(zip(rows.T[..., np.newaxis], columns, strict=True)):
            # Two comparisons instead of np.sign, which is several times slower where signs alternate.
            np.greater(values, centers, out=above.view(np.bool_))
            np.less(values, centers, out=below.view(np.bool_))
            np.subtract(above, below, out=above)
            np.multiply((np.multiply(S, above, out=W) @ A).T, inverse, out=out[:, start : start + step, j])
    return out
