"""Scores of the models along a path, from the factors' small numbers alone; a stop rule keeps the minimum of a score.

Each function takes s, z, y'y, lambda and the sum of the row weights W, as in `distkern.selection.regularization`, and
returns one number for each model. W stands for the number of rows, so a weight counts as repeated rows. Targets share
one noise variance, as they share lambda: the likelihood uses the total of their sums of squares, over W T numbers, and
scores are per target. The stop rules themselves are in `stopping`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import lgamma, log

import numpy as np

from ..arrays import Array
from .regularization import charged_gcv, effective_centers, residual_sum_of_squares

__all__ = ["bayesian_information", "description_length", "information_criterion", "model_length", "path_score"]


def bayesian_information(s: Array, z: Array, yy: Array, lam: Array, W: float) -> float:
    """Compute BIC = W log(ss/W) + p log W (Schwarz 1978; named in section 4 of the paper).

    p = 1 + sum_{j>=1} s_j/(lambda + s_j) counts the constant and the effective number of weights. A centre costs
    log W, which is more than its two degrees of freedom in GCV_c. The selection itself is therefore not charged again.

    Parameters
    ----------
    s : array, shape (m + 1,)
        Squared norms of the orthogonal columns, the constant first.
    z : array, shape (m + 1, T)
        Products of the columns with the targets.
    yy : array, shape (T,)
        Squared norms of the centred targets.
    lam : array, shape (1,) or (T,)
        Regularisation, at least 0.
    W : float
        Sum of the row weights.

    Returns
    -------
    float
        The score; infinite where p reaches half of W, as for GCV_c: the likelihood of a nearly exact fit would exceed
        any price of its parameters.
    """
    effective, ss = float(effective_centers(s, lam).mean()), float(residual_sum_of_squares(s, z, yy, lam).sum())
    return information_criterion(ss, effective, W, len(yy), float(yy.sum()))


def information_criterion(ss: float, effective: float, W: float, n_targets: int, squares: float) -> float:
    """Compute BIC from sums over the targets.

    Parameters
    ----------
    ss : float
        Squares of the residual.
    effective : float
        Effective number of weights beside the constant.
    W : float
        Sum of the row weights.
    n_targets : int
        Number of targets.
    squares : float
        Squares of the centred targets.
    """
    if 1.0 + 2.0 * effective >= W or ss == float("inf"):
        return float("inf")
    # A residual below the rounding of y'y is no better fit; the papers take the logarithm of ss itself.
    ss = max(ss, float(np.finfo(np.float64).eps) * squares, float(np.finfo(np.float64).tiny))
    return W * (log(ss) - log(W * n_targets)) + (1.0 + effective) * log(W)


def description_length(s: Array, z: Array, yy: Array, lam: Array, W: float) -> float:
    """Compute the length, in nats, of a two-part code of a target (Rissanen 1978; named in section 4 of the paper).

    BIC/2 is the code length of the residuals and of the weights, at the precision that W rows warrant. The code of the
    m centres among the rows has the length log C(W, m), once for all targets.

    Parameters
    ----------
    s, z, yy, lam, W
        As for `bayesian_information`.

    Returns
    -------
    float
        The length, up to a constant; infinite where BIC is, and where there are no more rows than centres.
    """
    return model_length(bayesian_information(s, z, yy, lam, W), len(s) - 1, W, len(yy))


def model_length(bic: float, n_centers: int, W: float, n_targets: int) -> float:
    """Compute the length of the code from BIC, with the choice of `n_centers` among rows of weight W."""
    if n_centers >= W:
        return float("inf")
    which = lgamma(W + 1.0) - lgamma(n_centers + 1.0) - lgamma(W - n_centers + 1.0)
    return bic / 2.0 + which / n_targets


def _charged_gcv(s: Array, z: Array, yy: Array, lam: Array, W: float) -> float:
    return float(charged_gcv(s, z, yy, lam, W).sum())


_SCORES: dict[str | None, Callable[[Array, Array, Array, Array, float], float]] = {
    "gcv": _charged_gcv,
    "bic": bayesian_information,
    "mdl": description_length,
}


def path_score(stop: str | None, s: Array, z: Array, yy: Array, lam: Array, W: float) -> float | None:
    """Compute the score that a stop rule observes, None if the rule observes another number.

    Parameters
    ----------
    stop : str or None
        Name of the rule.
    s, z, yy, lam, W
        As for `bayesian_information`.
    """
    score = _SCORES.get(stop)
    return None if score is None else score(s, z, yy, lam, W)
