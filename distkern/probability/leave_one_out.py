"""What a fitted model says about a training row when that row is left out, from the thin factors alone.

A training row pulls the fit towards its own target, so outputs on training rows look surer than on new ones. Ridge
regression on given features phi = (1, q_1 ... q_m) forgets a row in closed form: with e = y - f and the leverage
h = 1/W + sum_{j >= 1} q_j^2 / (lambda + s_j), the output without one unit of the row's weight is y - e / (1 - h). The
constant is not penalised, as targets are centred before they are fitted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ..arrays import Array

SMALLEST_FREEDOM = 1e-8
"""Least 1 - h at which e / (1 - h) still has digits; below, the row alone holds a centre's column in place."""


def rows_of_q(columns: Array, u: Array) -> Array:
    """Rows of Q = [1 K] inv(U).

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
    """Outputs of training rows from models that were trained without them.

    Parameters
    ----------
    q : array, shape (n, m + 1)
        From `rows_of_q`.
    targets : array, shape (n, T)
        As given, not centred.
    target_means : array, shape (T,)
        What was subtracted from them.
    s : array, shape (m + 1,)
        Squared norms of Q's columns over all training rows, weighted; the first is the sum of the weights.
    z : array, shape (m + 1, T)
        Q'Y for centred targets.
    lam : array, shape (1,) or (T,)
        Regularisation.
    weights : array, shape (n,), optional
        Row weights, above zero; ones by default. A weight counts as that many repeated rows, of which one is left
        out; a weight below one goes as a whole.
    held_out : array of bool, shape (n,), optional
        Rows that the model was not trained on.

    Returns
    -------
    array, shape (n, T)
        A row whose leverage is one says nothing about itself when it is gone: it gets the target's mean.

    Notes
    -----
    The features and lambda stay those of the whole fit; the centre that a row may be stays one.
    """
    shrunk = lam + s[:, None]
    shrunk[0] = s[0]
    outputs = target_means + q @ (z / shrunk)
    leverage = np.square(q) @ (1 / shrunk)
    if weights is not None:
        leverage *= np.minimum(weights, 1.0)[:, None]
    freedom = 1 - leverage
    reliable = freedom > SMALLEST_FREEDOM
    errors = targets - outputs
    found = np.where(reliable, targets - errors / np.where(reliable, freedom, 1.0), target_means)
    return found if held_out is None else np.where(held_out[:, None], outputs, found)
