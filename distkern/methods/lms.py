"""The Widrow-Hoff or LMS procedure: one step for each row, in the order of the rows.

a <- a + eta (b_i - a'y_i) y_i with y = (1, x). Steps are computed in groups of `GROUP` rows, which begin at multiples
of `GROUP` for any blocks. Within a group the errors before each step solve a triangular system, e = b - Y a - L (f e)
with L the strictly lower part of Y Y'. This is the sequence of steps itself, written as products of matrices. All
chunkings and all numbers of workers give the same numbers, because the shapes are the same.

A step is shortened where it would pass the row's target (eta |y|^2 at most 1), so no row makes the procedure
diverge. A row of weight r has r steps one after another, in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas

from ..arrays import Array

__all__ = ["GROUP", "LMSRule", "LMSState"]

GROUP = 64
"""Rows whose steps are computed together, in one shape for the same bits."""


@dataclass(frozen=True)
class LMSRule:
    """The length of the steps."""

    learning_rate: float
    """eta, above 0."""
    schedule: str
    """"pass": eta / k in the k-th pass; "row": eta / k at the k-th row, counted by weight; or "constant"."""
    normalized: bool
    """Whether a step is divided by |y|^2."""

    def factors(self, squares: Array, weights: Array, seen: Array, number: int) -> Array:
        """Return f of every row: the r steps of a row together add f e y, where e is the error before them.

        Parameters
        ----------
        squares : array, shape (n,)
            |y|^2, at least 1 where the weight is above 0.
        weights : array, shape (n,)
            Row weights.
        seen : array, shape (n,)
            Weight of all rows before.
        number : int
            Number of the pass, from 1.
        """
        if self.schedule == "row":
            rates = self.learning_rate / (seen + 1.0)
        else:
            rates = np.full(len(weights), self.learning_rate / (number if self.schedule == "pass" else 1))
        reach = np.minimum(rates if self.normalized else rates * squares, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            # 1 - (1 - reach)^r by log1p and expm1: the plain form loses all digits of a small step.
            covered = np.where(reach < 1.0, -np.expm1(weights * np.log1p(-reach)), 1.0)
        return np.where(weights > 0, covered, 0.0) / np.where(weights > 0, squares, 1.0)


@dataclass(frozen=True, eq=False)
class LMSState:
    """State of the procedure: the weight vector, and pending rows, whose group is not complete."""

    weights: Array
    """(d + 1, T): a, the bias first."""
    rows: Array
    """(n, d + 1): y of the pending rows, fewer than `GROUP`."""
    targets: Array
    """(n, T): targets of the pending rows."""
    row_weights: Array
    """(n,): weights of the pending rows."""
    seen: float
    """Weight of the rows whose steps are done."""

    @classmethod
    def start(cls, weights: Array, seen: float = 0.0) -> LMSState:
        """Return the state at a weight vector, shape (d + 1, T), after rows of weight `seen`, default 0.0."""
        width, n_targets = weights.shape
        return cls(weights, np.zeros((0, width)), np.zeros((0, n_targets)), np.zeros(0), seen)

    def advance(self, X: Array, targets: Array, row_weights: Array, rule: LMSRule, number: int) -> LMSState:
        """Compute the steps of the next rows, as far as they complete groups.

        Parameters
        ----------
        X : array, shape (n, d)
            Rows; a row of weight 0 keeps its place and has no step.
        targets : array, shape (n, T)
            Targets.
        row_weights : array, shape (n,)
            Row weights.
        rule : LMSRule
            Length of the steps.
        number : int
            Number of the pass, from 1.
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
        """Compute the steps of the pending rows too, padded to a whole group."""
        fill = ((0, -len(self.rows) % GROUP), (0, 0))
        rows, targets = np.pad(self.rows, fill), np.pad(self.targets, fill)
        weights, seen = _take(self.weights, rows, targets, np.pad(self.row_weights, fill[0]), self.seen, rule, number)
        return LMSState.start(weights, seen)


def _take(
    weights: Array, Y: Array, targets: Array, row_weights: Array, seen: float, rule: LMSRule, number: int
) -> tuple[Array, float]:
    """Compute the steps of whole groups; return the weight vector and the weight of all rows so far."""
    grouped = row_weights.reshape(-1, GROUP)
    # Summed within groups, then group after group: the rounding does not depend on the blocks.
    totals = np.add.accumulate(np.concatenate([[seen], grouped.sum(axis=1)]))
    before = (totals[:-1, None] + np.cumsum(grouped, axis=1) - grouped).ravel()
    factors = rule.factors(np.einsum("ij,ij->i", Y, Y), row_weights, before, number)
    for start in range(0, len(Y), GROUP):
        part = slice(start, start + GROUP)
        own, reach = Y[part], factors[part]
        system = (own @ own.T) * reach
        # BLAS reads only the strictly lower triangle: the upper one of the transpose, which is in Fortran's order.
        errors = blas.dtrsm(1.0, system.T, targets[part] - own @ weights, lower=0, trans_a=1, diag=1)
        weights = weights + own.T @ (reach[:, None] * errors)
    return weights, float(totals[-1])
