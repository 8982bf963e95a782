"""What forward selections of kernel columns come to: the rows in order, the weights, and why it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .stopping import StopReason

__all__ = ["CONDITION_LIMIT", "DEPENDENT", "HISTORY_DTYPE", "Columns", "ForwardPath", "centred_targets"]

Array = NDArray[np.float64]

Columns = Callable[[NDArray[np.int64]], Array]
"""Takes positions of rows, shape (k,), to their kernel columns, shape (n, k)."""

DEPENDENT = 1e-14
"""A column with |q|^2 of at most this part of |k|^2 depends on the selected ones and is skipped for good."""

CONDITION_LIMIT = 1e10
"""Selection ends when the lengths of the orthogonal columns differ by more than this factor."""

HISTORY_DTYPE = np.dtype(
    [
        ("center", np.int64),
        ("residual_max", np.float64),
        ("q_norm", np.float64),
        ("error_reduction", np.float64),
    ]
)
"""A row per centre: its row, the largest absolute residual before it, |q|, and the part of y'y that it explained."""


@dataclass(frozen=True)
class ForwardPath:
    """A finished selection."""

    positions: NDArray[np.int64]
    """(m,): selected rows in order, as positions among the rows that were given."""
    coef: Array
    """(m, T)."""
    intercept: Array
    """(T,)."""
    history: NDArray[np.void]
    """(m,): of `HISTORY_DTYPE`, with positions as centres."""
    reason: StopReason
    """Why it ended."""


def centred_targets(Y: Array, weights: Array) -> tuple[Array, Array]:
    """Subtract the weighted means and multiply by the root weights.

    Parameters
    ----------
    Y : array, shape (n, T)
        Targets.
    weights : array, shape (n,)
        Row weights above zero.

    Returns
    -------
    E : array, shape (n, T)
        Residuals of the constant model, times root weights.
    means : array, shape (T,)
    """
    means = weights @ Y / weights.sum()
    return (Y - means) * np.sqrt(weights)[:, None], means
