"""Losses other than the square: their values and slopes on rows.

Every loss is convex with a continuous slope, so one method minimises them all, see `loss_fit`. A quantile's check
function (Koenker and Bassett, Regression Quantiles, Econometrica 46, 1978) has a corner at zero, which a parabola of a
small width replaces (its Moreau envelope). Numbers are divided by a scale of their residuals first, so that constants
and the penalty have no units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from ..arrays import Array

__all__ = ["CHECK_WIDTH", "HUBER", "LOGISTIC", "QUANTILE", "SQUARED", "Loss", "LossChoice"]

SQUARED, LOGISTIC, HUBER, QUANTILE = "squared", "logistic", "huber", "quantile"

CHECK_WIDTH = 0.05
"""Width of the parabola that replaces the corner of the check function, in units of the scale of the residuals."""


@dataclass(frozen=True)
class LossChoice:
    """A loss before the scales of residuals are known."""

    name: str
    """"logistic", "huber" or "quantile"."""
    constant: float = 0.0
    """As in `Loss`, default 0.0."""


@dataclass(frozen=True)
class Loss:
    """A loss with its constants."""

    name: str
    """"logistic", "huber" or "quantile"."""
    constant: float
    """Residual from which the Huber loss is linear, in units of the scale, or level of the quantile; of no use with the
    logistic loss."""
    scales: Array
    """(T,): scale of the residuals of each target, by which targets are divided; ones for the logistic loss."""

    def evaluate(self, scores: Array, targets: Array) -> tuple[Array, Array, Array]:
        """Return the loss of each row and its first and second derivative by the scores.

        Parameters
        ----------
        scores : array, shape (n, T)
            Outputs of the model, in units of the scales.
        targets : array, shape (n, T)
            Numbers; for the logistic loss +-1, one column for two classes, else one for each class.

        Returns
        -------
        values : array, shape (n,)
        slopes : array, shape (n, T)
        curvatures : array, shape (n, T)
            Diagonals of the second derivatives.
        """
        if self.name == LOGISTIC:
            return _two_classes(scores, targets) if scores.shape[1] == 1 else _classes(scores, targets)
        left = targets / self.scales - scores
        if self.name == HUBER:
            pulls = np.clip(left, -self.constant, self.constant)
            values = pulls * (left - 0.5 * pulls)
            return values.sum(axis=1), -pulls, (np.abs(left) < self.constant).astype(np.float64)
        low, high = self.constant - 1.0, self.constant
        pulls = np.clip(left / CHECK_WIDTH, low, high)
        values = pulls * (left - 0.5 * CHECK_WIDTH * pulls)
        return values.sum(axis=1), -pulls, ((pulls > low) & (pulls < high)) / CHECK_WIDTH

    def exact(self, scores: Array, targets: Array) -> Array:
        """Return the loss of each row that is to be small, shape (n,): of a quantile the check function itself."""
        if self.name != QUANTILE:
            return self.evaluate(scores, targets)[0]
        left = targets / self.scales - scores
        return np.asarray(np.maximum(self.constant * left, (self.constant - 1.0) * left).sum(axis=1))


def _two_classes(scores: Array, targets: Array) -> tuple[Array, Array, Array]:
    margins = targets * scores
    wrong = expit(-margins)
    return np.logaddexp(0.0, -margins)[:, 0], -targets * wrong, wrong * (1.0 - wrong)


def _classes(scores: Array, targets: Array) -> tuple[Array, Array, Array]:
    shifted = scores - scores.max(axis=1, keepdims=True)
    own = (shifted * (targets > 0)).sum(axis=1)
    chances = np.exp(shifted)
    totals = chances.sum(axis=1, keepdims=True)
    chances /= totals
    values = np.log(totals[:, 0]) - own
    curvatures = chances * (1.0 - chances)
    chances[targets > 0] -= 1.0
    return values, chances, curvatures
