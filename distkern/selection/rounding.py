"""Limits of the rounding of kernel values, and the search for the longest prefix of a path within them.

[1 K] = Q U holds up to rounding. The fit of a path comes from Q, predictions from kernel values with the weights
inv(U) w. A kernel value is wrong by about its unit of rounding, and a prediction by that times the sizes of the
weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator

import numpy as np

from ..arrays import Array
from ..errors import RoundingWarning

AGREES = 0.01
"""Most that rounding may change the root mean square residual, in standard deviations of the target."""

SAFETY = 1e6
"""Units of rounding that are allowed for without a look at rows. Distances far beyond the width lose some thousands;
the rest covers rows that are far from the average, and what many steps add up."""


def magnified(norms: Array, weights: Array, dtype: str) -> Array:
    """Return how far one unit of rounding in every kernel value can move predictions, shape (T,).

    Parameters
    ----------
    norms : array, shape (m + 1,)
        Root mean square of each column of [1 K].
    weights : array, shape (m + 1, T)
        Weights in the kernel basis.
    dtype : str
        Dtype of the kernel values.
    """
    return np.asarray(float(np.finfo(dtype).eps) * (norms @ np.abs(weights)))


def in_deviations(cost: Array, deviations: Array) -> float:
    """Return the largest cost of a target, in its standard deviations where it has any."""
    return float((cost / np.where(deviations > 0.0, deviations, 1.0)).max(initial=0.0))


def longest_prefix(kept: int, full: int, together: int) -> Generator[list[int], list[bool], int]:
    """Yield lengths of prefixes to compare, take whether each agrees, and return the longest length that does.

    Longer prefixes need not be worse, so halving could end at a length that does not agree; this search ends at one
    that was seen to agree, or at 0.

    Parameters
    ----------
    kept, full : int
        Length of the model, and of the whole path; they are compared first.
    together : int
        Most lengths to compare at a time afterwards.
    """
    ends = sorted({kept, full} - {0})
    agree = yield ends
    if all(agree):
        return full
    good, bad = (kept, full) if agree[0] else (0, ends[0])
    while bad - good > 1:
        lengths = np.unique(np.linspace(good, bad, min(together, bad - good - 1) + 2).astype(int))[1:-1].tolist()
        agree = yield lengths
        good = max((length for length, agreed in zip(lengths, agree, strict=True) if agreed), default=good)
        bad = min((length for length in lengths if length > good), default=bad)
    return good


def warn_of_rounding(n_centers: int, worst: float, kept: int | None, dtype: str) -> None:
    """Warn of a model whose predictions rounding spoils.

    Parameters
    ----------
    n_centers : int
        Centres of that model.
    worst : float
        By how much it changes the root mean square residual, in standard deviations of the target.
    kept : int or None
        Centres that are kept; None if all are.
    dtype : str
        Dtype of the kernel values.

    Warns
    -----
    RoundingWarning
    """
    precise = "dtype='float64', " if dtype == "float32" else ""
    fewer = f"max_centers={max(kept, 1)}" if kept is not None else "fewer centres"
    warnings.warn(
        f"with {n_centers} centres the rounding of {dtype} kernel values changes the residual of the predictions by "
        f"{worst:.2g} standard deviations of the target, and the limit is {AGREES:g}"
        + ("" if kept is None else f": the model keeps the first {kept} centres")
        + f"; {precise}a smaller sigma or {fewer} avoids this",
        RoundingWarning,
        stacklevel=3,
    )
