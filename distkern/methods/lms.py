"""The Widrow-Hoff or LMS procedure: one step a row, in the order of the rows.

a <- a + eta (b_i - a'y_i) y_i with y = (1, x). Steps are taken in groups of `GROUP` rows that begin at multiples of it,
whatever the blocks: within a group the errors before each step solve a triangular system, e = b - Y a - L (f e)
with L the strictly lower part of Y Y', which is the sequence of steps itself, written as products of
matrices. The same numbers thus come from any chunking and any number of workers, because the shapes are the same.

A step of a row is cut where it would go past the row's target (eta |y|^2 at most 1), so that no row makes the
procedure diverge; a row of weight r takes r steps one after another, in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas

from ..arrays import Array

__all__ = ["GROUP", "LMSRule", "LMSState"]

GROUP = 64
"""Rows whose steps are computed together."""


@dataclass(frozen=True)
class LMSRule:
    """How long steps are."""

    learning_rate: float
    """eta, above 0."""
    schedule: str
    """"pass": eta / k in the k-th pass; "row": eta / k at the k-th row, counted by weight; "constant"."""
    normalized: bool
    """Whether a step is divided by |y|^2."""

    def factors(self, squares: Array, weights: Array, seen: Array, number: int) -> Array:
        """Return f of every row: r steps of a row together add f e y, where e is the error before them.

        Parameters
        ----------
        squares : array, shape (n,)
            |y|^2, at least 1 where the weight is above 0.
        weights : array, shape (n,)
            Row weights.
        seen : array, shape (n,)
            Weight of all rows before.
        number : int
            Pass, from 1.
        """
        if self.schedule == "row":
            rates = self.learning_rate / (seen + 1.0)
        else:
            rates = np.full(len(weights), self.learning_rate / (number if self.schedule == "pass" else 1))
        reach = np.minimum(rates if self.normalized else rates * squares, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            covered = np.where(reach < 1.0, -np.expm1(weights * np.log1p(-reach)), 1.0)
        return np.where(weights > 0, covered, 0.0) / np.where(weights > 0, squares, 1.0)


@dataclass(frozen=True, eq=False)
class LMSState:
    """Where the procedure is: the weight vector, and rows that wait for their group to fill."""

    weights: Array
    """(d + 1, T): a, the bias first."""
    rows: Array
    """(n, d + 1): y of the waiting rows, fewer than `GROUP`."""
    targets: Array
    """(n, T): theirs."""
    row_weights: Array
    """(n,): theirs."""
    seen: float
    """Weight of the rows whose steps are taken."""

    @classmethod
    def start(cls, weights: Array, seen: float = 0.0) -> LMSState:
        """Begin at a weight vector, shape (d + 1, T)."""
        width, n_targets = weights.shape
        return cls(weights, np.zeros((0, width)), np.zeros((0, n_targets)), np.zeros(0), seen)

    def advance(self, X: Array, targets: Array, row_weights: Array, rule: LMSRule, number: int) -> LMSState:
        """Take the steps of the next rows, as far as they fill groups.

        Parameters
        ----------
        X : array, shape (n, d)
            Rows; those of weight 0 keep their place and take no step.
        targets : array, shape (n, T)
            Targets.
        row_weights : array, shape (n,)
            Row weights.
        rule : LMSRule
            How long steps are.
        number : int
            Pass, from 1.
        """
        Y = np.concatenate([np.ones((len(X), 1)), X], axis=1)
        Y[row_weights == 0] = 0.0
        Y = np.concatenate([self.rows, Y])
        targets = np.concatenate([self.targets, targets])
        row_weights = np.concatenate([self.row_weights, row_weights])
        whole = len(Y) - len(Y) % GROUP
        weights, seen = _take(self.weights, Y[:whole], targets[:whole], row_weights[:whole], self.seen, rule, number)
        return LMSState(weights, Y[whole:].copy(), targets[whole:].copy(), row_weights[whole:].copy(), seen)

    def finish(self, rule: LMSRule, number: int) -> LMSState:
        """Take the steps of the waiting rows too."""
        fill = ((0, -len(self.rows) % GROUP), (0, 0))
        rows, targets = np.pad(self.rows, fill), np.pad(self.targets, fill)
        weights, seen = _take(self.weights, rows, targets, np.pad(self.row_weights, fill[0]), self.seen, rule, number)
        return LMSState.start(weights, seen)


def _take(
    weights: Array, Y: Array, targets: Array, row_weights: Array, seen: float, rule: LMSRule, number: int
) -> tuple[Array, float]:
    """Take the steps of whole groups; return the weights and the weight of all rows seen."""
    grouped = row_weights.reshape(-1, GROUP)
    # Summed within groups and then over them, one after another, so that blocks have no say in the rounding.
    totals = np.add.accumulate(np.concatenate([[seen], grouped.sum(axis=1)]))
    before = (totals[:-1, None] + np.cumsum(grouped, axis=1) - grouped).ravel()
    factors = rule.factors(np.einsum("ij,ij->i", Y, Y), row_weights, before, number)
    for start in range(0, len(Y), GROUP):
        part = slice(start, start + GROUP)
        own, reach = Y[part], factors[part]
        system = (own @ own.T) * reach
        # Only the strictly lower triangle is looked at: upper of the transposed, which is in Fortran's order.
        errors = blas.dtrsm(1.0, system.T, targets[part] - own @ weights, lower=0, trans_a=1, diag=1)
        weights = weights + own.T @ (reach[:, None] * errors)
    return weights, float(totals[-1])
