"""Leave-one-out misclassifications of the rows of a problem on one block (Hong, Chen and Harris, 2006).

Without row i the model predicts y_i - e_i / beta_i for it, with its residual e_i and
beta_i = 1 - sum_j q_ij^2 / (lambda + s_j). The alpha_i of the slides is beta_i - y_i e_i, and alpha_i / beta_i <= 0 is
an error. With one target for each class the largest prediction decides. A row of weight r is r rows, one of which is
left out. `..selectors.loo_selector` selects by the counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array

from ..protocol.messages import Judge

CANDIDATES_AT_ONCE = 16
"""Candidates whose effect on a tile is computed together, with one target."""


class LooRows:
    """Classes and shares beta of the rows of a problem on one block.

    Parameters
    ----------
    labels : array, shape (rows,)
        Class of each row; True and False with one target.
    weights, roots : array, shape (rows,), or None
        Row weights, and their square roots.
    share : float
        beta before the first centre.
    """

    def __init__(self, labels: NDArray[Any], weights: Array | None, roots: Array | None, share: float) -> None:
        self._labels = labels
        self._weights = weights
        self._roots = roots
        self._shares = np.full(len(labels), share)

    def lower_shares(self, rows: slice, new: NDArray[Any], inverse: NDArray[Any]) -> None:
        """Subtract new columns of Q, shape (k, rows of the tile), from beta; `inverse` is 1 / (lambda + s) of each."""
        columns = self._unweighted(rows, new)
        self._shares[rows] -= inverse.astype(np.float64) @ np.square(columns)

    def misclassified(
        self,
        rows: slice,
        pool: NDArray[Any],
        residual: NDArray[Any],
        message: Judge,
    ) -> Array:
        """Return the leave-one-out errors of the model with each of some candidates, as weights of rows, shape (n,).

        Parameters
        ----------
        rows : slice
            Rows of the tile.
        pool : array, shape (B, rows of the tile)
            Orthogonalised candidates.
        residual : array, shape (rows of the tile, 2 or more)
            E.
        message
            Slots and steps of the n candidates.
        """
        slots, steps, inverse = message.slots, message.steps, message.inverse
        n_targets = steps.shape[1]
        errors = self._unweighted(rows, residual[:, :n_targets].T)
        weights = np.ones(errors.shape[1]) if self._weights is None else self._weights[rows]
        if n_targets == 1:
            return self._of_two_classes(rows, pool, errors[0], weights, message)
        counts = np.empty(len(slots))
        shares, labels = self._shares[rows], self._labels[rows]
        own = labels, np.arange(len(labels))
        for i, slot in enumerate(slots):
            column = self._unweighted(rows, pool[slot])
            after = errors - np.outer(steps[i].astype(np.float64), column)
            left = shares - inverse[i] * np.square(column)
            mine = after[own]
            after[own] = np.inf
            # The row's class has the prediction 1 - e / beta, the best of the others -1 - e / beta. The comparison is
            # multiplied by beta, which may be 0.
            counts[i] = weights @ ((mine - after.min(axis=0) >= 2 * left) | (left <= 0))
        return counts

    def _of_two_classes(
        self,
        rows: slice,
        pool: NDArray[Any],
        errors: Array,
        weights: Array,
        message: Judge,
    ) -> Array:
        counts = np.empty(len(message.slots))
        shares = self._shares[rows]
        signs = np.where(self._labels[rows], 1.0, -1.0)
        alpha = shares - signs * errors
        for start in range(0, len(counts), CANDIDATES_AT_ONCE):
            part = slice(start, start + CANDIDATES_AT_ONCE)
            columns = self._unweighted(rows, pool[message.slots[part]])
            lost = np.square(columns) * message.inverse[part, None]
            columns *= signs
            columns *= message.steps[part]
            wrong = (alpha + columns - lost <= 0) | (shares - lost <= 0)
            counts[part] = wrong @ weights
        return counts

    def _unweighted(self, rows: slice, columns: NDArray[Any]) -> Array:
        """Return a float64 copy of columns without the root weights."""
        copied = columns.astype(np.float64)
        if self._roots is not None:
            copied /= self._roots[rows]
        return copied
