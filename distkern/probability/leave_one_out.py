"""Leave-one-out outputs of a fitted model on its training rows, from the thin factors alone.

The fit at a training row is closer to its target than at a new row, so outputs on training rows are too large. The
ridge regression on given features phi = (1, q_1 ... q_m) without a row has a closed form: with e = y - f and the
leverage h = 1/W + sum_{j >= 1} q_j^2 / (lambda + s_j), the output without one unit of the row's weight is
y - e / (1 - h). The constant is not penalised, because targets are centred before they are fitted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ..arrays import Array

SMALLEST_FREEDOM = 1e-8
"""Smallest 1 - h at which e / (1 - h) has correct digits; below it, one row alone determines a weight."""


def rows_of_q(columns: Array, u: Array) -> Array:
    """Return rows of Q = [1 K] inv(U).

    Parameters
    ----------
    columns : array, shape (n, m + 1)
        [1 K] on some rows, not multiplied by root weights.
    u : array, shape (m + 1, m + 1)
        Unit upper triangular.

    Returns
    -------
    array, shape (n, m + 1)
    """
    return np.asarray(solve_triangular(u, columns.T, trans="T", unit_diagonal=True).T)


def shrunk_norms(s: Array, lam: Array) -> Array:
    """Return lambda + s, shape (m + 1, T), by which Q'Y is divided; without lambda for the constant, which is first.

    Parameters
    ----------
    s : array, shape (m + 1,)
        Squared norms of Q's columns.
    lam : array, shape (1,) or (T,)
        Regularisation.
    """
    shrunk = lam + s[:, None]
    shrunk[0] = s[0]
    return shrunk


def left_out_outputs(
    q: Array,
    targets: Array,
    target_means: Array,
    s: Array,
    z: Array,
    lam: Array,
    weights: Array | None = None,
    held_out: NDArray[np.bool_] | None = None,
) -> Array:
    """Return the output of each training row from the model without that row.

    Parameters
    ----------
    q : array, shape (n, m + 1)
        From `rows_of_q`.
    targets : array, shape (n, T)
        Targets, not centred.
    target_means : array, shape (T,)
        Means that were subtracted from the targets before the fit.
    s : array, shape (m + 1,)
        Squared norms of Q's columns over all training rows, weighted; the first is the sum of the weights.
    z : array, shape (m + 1, T)
        Q'Y for centred targets.
    lam : array, shape (1,) or (T,)
        Regularisation.
    weights : array, shape (n,), optional
        Row weights, above zero; ones by default. A weight counts as that many repeated rows, of which one is left
        out; a weight below one is left out as a whole.
    held_out : array of bool, shape (n,), optional
        Rows that the model was not trained on, whose outputs are those of the model; none by default.

    Returns
    -------
    array, shape (n, T)
        A row of leverage one has no output without itself; it gets the target's mean.

    Notes
    -----
    The features and lambda are those of the whole fit. A left-out row stays a centre if it is one.
    """
    shrunk = shrunk_norms(s, lam)
    outputs = target_means + q @ (z / shrunk)
    leverage = np.square(q) @ (1 / shrunk)
    if weights is not None:
        leverage *= np.minimum(weights, 1.0)[:, None]
    freedom = 1 - leverage
    reliable = freedom > SMALLEST_FREEDOM
    errors = targets - outputs
    found = np.where(reliable, targets - errors / np.where(reliable, freedom, 1.0), target_means)
    return found if held_out is None else np.where(held_out[:, None], outputs, found)
