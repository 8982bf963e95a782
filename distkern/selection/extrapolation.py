"""Estimates of the scores of a path over all rows, from its factors on a sample of them; a final pass fits all rows.

The squares of the residual fall on the sample for two reasons: the centres explain the targets, and weights and choice
fit the noise of few rows. Only the first is left over many rows. With v = ss/(W - 1 - c p) as the variance of what is
unexplained, p degrees of freedom on a sample of weight W leave about ss' = (W' - 1 - p) v over rows of weight W'.

A selected centre counts as two degrees of freedom where the stop rule compares models (`regularization.charged_gcv`),
and as one if the choice fitted no noise. c lies between the two: a path must not end before its best model over all
rows, and centres beyond that one cost time only. The scores themselves are in `criteria`.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array
from .criteria import information_criterion, model_length
from .regularization import effective_centers, reestimate_lambda, residual_sum_of_squares

__all__ = ["LambdaOverRows", "score_over_rows", "variance"]

OPTIMISM = 1.5
"""Degrees of freedom of a selected centre in the squares of the residual of a sample."""

CHARGED = 2.0
"""Degrees of freedom of a selected centre in the score over all rows, as in `charged_gcv`."""


def variance(ss: Array, effective: Array, W: float) -> Array:
    """Return ss / (W - 1 - c p), infinite where no degree of freedom is left.

    Parameters
    ----------
    ss : array, shape (n,)
        Squares of the residual on the sample.
    effective : array, shape (n,)
        Degrees of freedom p of the centres.
    W : float
        Sum of the row weights of the sample.
    """
    free = W - 1.0 - OPTIMISM * effective
    result: Array = np.full(np.shape(ss), np.inf)
    np.divide(ss, free, out=result, where=free > 0.0)
    return result


def score_over_rows(stop: str | None, s: Array, z: Array, yy: Array, lam: Array, W: float, rows: float) -> float | None:
    """Estimate the score of a model over all rows from its factors on a sample.

    Parameters
    ----------
    stop : str or None
        Name of the stop rule.
    s, z, yy, lam, W
        As for `criteria.path_score`, on the sample.
    rows : float
        Sum of the weights of all rows.

    Returns
    -------
    float or None
        None if the rule observes another number; infinite where the sample or all rows leave no degree of freedom.
    """
    if stop not in ("gcv", "bic", "mdl"):
        return None
    effective, ss = effective_centers(s, lam), residual_sum_of_squares(s, z, yy, lam)
    if len(ss) != len(effective) or stop != "gcv":
        ss, effective = ss.sum(keepdims=True), effective.mean(keepdims=True)
    left = np.maximum(rows - 1.0 - effective, 0.0) * variance(ss, effective, W)
    if stop == "gcv":
        trace = rows - 1.0 - CHARGED * effective
        return float((left / trace * (rows / trace)).sum()) if (trace > 0.0).all() else float("inf")
    bic = information_criterion(float(left[0]), float(effective[0]), rows, len(yy), float(yy.sum()) * rows / W)
    return bic if stop == "bic" else model_length(bic, len(s) - 1, rows, len(yy))


class LambdaOverRows:
    """Lambda along a path as it would be over all rows, by GCV from the factors of a sample.

    A column explains g = z^2/s on the sample, c v of it by chance; the rest grows with the rows, and chance leaves v.

    Parameters
    ----------
    rows : float
        Sum of the weights of all rows.
    """

    def __init__(self, rows: float) -> None:
        self._rows = rows
        self._lambda = np.zeros(1)

    def observe(self, s: Array, z: Array, yy: Array, lam: Array, W: float) -> float:
        """Return lambda over all rows after the last step; arguments are those of `score_over_rows`, of each step."""
        effective = effective_centers(s, lam).mean(keepdims=True)
        v = float(variance(residual_sum_of_squares(s, z, yy, lam).sum(keepdims=True), effective, W)[0])
        if not np.isfinite(v):
            return float(self._lambda[0])
        growth, scaled = self._rows / W, s * (self._rows / W)
        gains = np.maximum(growth * (np.square(z).sum(axis=1) / s - OPTIMISM * v) + v, 0.0)
        gains[0] = 0.0
        norm = np.array([gains.sum() + max(self._rows - len(s), 0.0) * v])
        products = np.sqrt(gains * scaled)[:, None]
        self._lambda = reestimate_lambda(scaled, products, norm, self._lambda, self._rows)
        return float(self._lambda[0])
