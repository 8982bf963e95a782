"""Choice of lambda by generalised cross validation or by evidence, from the factors' small numbers alone.

With orthogonal columns q_j all formulas use only s_j = q_j'q_j, z_j = q_j'y and y'y, in O(m T) a step. The
smoother is P = I - Q (Q'Q + lambda I)^-1 Q', ss = |P y|^2 and tr = trace(P). Column 0 is the constant:
s_0 = W, the sum of the row weights, and z_0 = 0 because targets are centred. W stands for the number of rows,
so that a weight equals repeated rows.

``lam`` has shape (1,) when the T targets share one lambda, with their ss and sums added up, or (T,) when each
target has its own. Results have the shape of ``lam`` unless stated otherwise.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array

__all__ = [
    "charged_gcv",
    "effective_centers",
    "effective_trace",
    "gcv",
    "reestimate_by_evidence",
    "reestimate_lambda",
    "residual_sum_of_squares",
]

_TINY = float(np.finfo(np.float64).tiny)

_LAMBDA_LIMIT = 1e6
"""Largest lambda, in units of the largest s; with a larger one the model would be the mean."""


def residual_sum_of_squares(s: Array, z: Array, yy: Array, lam: Array) -> Array:
    """Compute ss = |P y|^2 of every target, clipped at 0 (thesis eq. 3.80, 3.85).

    ss = y'y - 2 sum z^2/(lambda + s) + sum s z^2/(lambda + s)^2.

    Parameters
    ----------
    s : array, shape (m + 1,)
        Squared norms of the orthogonal columns.
    z : array, shape (m + 1, T)
        Products of the columns with the targets.
    yy : array, shape (T,)
        Squared norms of the centred targets.
    lam : array, shape (1,) or (T,)
        Regularisation, at least 0.

    Returns
    -------
    array, shape (T,)
        Weighted sums of squared residuals; cancellation never makes them negative.
    """
    return _residuals(z, yy, lam, _shrinkage(s, lam)[0])


def effective_trace(s: Array, lam: Array, W: float, charge: float = 1.0) -> Array:
    """Compute the effective number of free rows, where a selected centre may count as more than one weight.

    For a charge of 1 this is trace(P) = W - sum_j s_j/(lambda + s_j), the constant column included (thesis
    eq. 3.85). For any other charge c it is the stop rule's W - 1 - c sum_{j>=1} s_j/(lambda + s_j), which
    counts the constant as one degree of freedom for any lambda.

    Parameters
    ----------
    s : array, shape (m + 1,)
        Squared norms of the orthogonal columns, the constant first.
    lam : array, shape (1,) or (T,)
        Regularisation, at least 0.
    W : float
        Sum of the row weights.
    charge : float, default 1.0
        Degrees of freedom of a selected centre.

    Returns
    -------
    array, shape of `lam`
        The trace, possibly 0 or less.
    """
    return _trace(_shrinkage(s, lam)[1], W, charge)


def effective_centers(s: Array, lam: Array) -> Array:
    """Compute the effective number of weights beside the constant, sum_{j>=1} s_j/(lambda + s_j).

    Parameters
    ----------
    s : array, shape (m + 1,)
        Squared norms of the orthogonal columns, the constant first.
    lam : array, shape (1,) or (T,)
        Regularisation, at least 0.

    Returns
    -------
    array, shape of `lam`
        Between 0 and m.
    """
    return np.asarray(_shrinkage(s, lam)[1][1:].sum(axis=0))


def gcv(s: Array, z: Array, yy: Array, lam: Array, W: float) -> Array:
    """Compute GCV = W ss/tr^2 (thesis eq. 3.85); a shared lambda adds up the targets' ss.

    Parameters
    ----------
    s, z, yy, lam
        As for `residual_sum_of_squares`.
    W : float
        Sum of the row weights.

    Returns
    -------
    array, shape of `lam`
        The score; infinite where the trace is not above 0.
    """
    return charged_gcv(s, z, yy, lam, W, charge=1.0)


def charged_gcv(s: Array, z: Array, yy: Array, lam: Array, W: float, charge: float = 2.0) -> Array:
    """Compute GCV_c = W ss/tr_c^2, the score of the stop rule; see `effective_trace` for tr_c.

    The paper's GCV (charge 1) falls to the end of almost every path, because each centre is the best of many
    candidates; a charge of 2 accounts for that choice.

    Parameters
    ----------
    s, z, yy, lam
        As for `residual_sum_of_squares`.
    W : float
        Sum of the row weights.
    charge : float, default 2.0
        Degrees of freedom of a selected centre.

    Returns
    -------
    array, shape of `lam`
        The score; infinite where the trace is not above 0.
    """
    if z.shape[1] == 1:
        _, shares, _, rest = _one_column(s, z, yy, lam)
        free_rows = float(_trace(shares, W, charge))
        return np.array([rest / free_rows * (W / free_rows) if free_rows > 0.0 else np.inf])
    inverse, shares = _shrinkage(s, lam)
    trace = _trace(shares, W, charge)
    ss = _over_targets(_residuals(z, yy, lam, inverse), lam)
    score = np.full(lam.shape, np.inf)
    free = trace > 0.0
    # Two quotients in turn: W ss and tr^2 would overflow or underflow before the score does.
    np.divide(ss, trace, out=score, where=free)
    return np.asarray(np.multiply(score, np.divide(W, trace, out=np.ones_like(trace), where=free), out=score))


def reestimate_lambda(s: Array, z: Array, yy: Array, lam: Array, W: float) -> Array:
    """Take one fixed-point step towards the lambda that minimises GCV (thesis eq. 3.88, 3.89).

    lambda <- dtr ss / (tr sum (z/(lambda + s))^2/(lambda + s)) with dtr = sum s/(lambda + s)^2.

    Parameters
    ----------
    s, z, yy, lam
        As for `residual_sum_of_squares`.
    W : float
        Sum of the row weights.

    Returns
    -------
    array, shape of `lam`
        The new lambda, between 0 and 10^6 max s. The old lambda is returned where the step is undefined: the trace is
        not above 0, or all products of the columns with the targets are 0.
    """
    if z.shape[1] == 1:
        return _reestimate_one(s, z, yy, lam, W)
    inverse, shares = _shrinkage(s, lam)
    weights = np.ascontiguousarray(z) * inverse
    trace = _trace(shares, W)
    ss = _over_targets(_residuals(z, yy, lam, inverse), lam)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        trace_slope = (s[:, np.newaxis] * inverse * inverse).sum(axis=0)
        curvature = _over_targets((weights * weights * inverse).sum(axis=0), lam)
        step = (trace_slope / trace) * (ss / curvature)
    defined = (trace > 0.0) & (curvature > 0.0) & ~np.isnan(step)
    return np.where(defined, np.clip(step, 0.0, _LAMBDA_LIMIT * s.max()), lam)


def reestimate_by_evidence(s: Array, z: Array, yy: Array, lam: Array, W: float) -> Array:
    """Take one fixed-point step towards a lambda that maximises the Bayesian evidence (MacKay 1992, eq. 4.11, 4.12).

    The weights w = z/(lambda + s) of the orthogonal columns have the prior N(0, I/alpha), the noise is N(0, I/beta) and
    lambda = alpha/beta. With gamma = sum_j s_j/(lambda + s_j) weights determined by the data, alpha = gamma/|w|^2 and
    beta = (W - gamma)/ss. The constant stays in both sums, so that this is the marginal likelihood of y under
    I/beta + Q Q'/alpha. Targets that share lambda share alpha and beta: their |w|^2 and ss are added up.

    From lambda = 0, where the evidence is minus infinity, the step leads to a lambda above 0 unless the fit is exact.

    Parameters
    ----------
    s, z, yy, lam
        As for `residual_sum_of_squares`.
    W : float
        Sum of the row weights.

    Returns
    -------
    array, shape of `lam`
        The new lambda, between 0 and 10^6 max s. The old lambda is returned where the step is undefined: the trace is
        not above 0, or all products of the columns with the targets are 0.
    """
    inverse, shares = _shrinkage(s, lam)
    weights = np.ascontiguousarray(z) * inverse
    trace = _trace(shares, W)
    ss = _over_targets(_residuals(z, yy, lam, inverse), lam)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        size = _over_targets((weights * weights).sum(axis=0), lam)
        step = ((W - trace) / trace) * (ss / size)
    defined = (trace > 0.0) & (size > 0.0) & ~np.isnan(step)
    return np.where(defined, np.clip(step, 0.0, _LAMBDA_LIMIT * s.max()), lam)


def _reestimate_one(s: Array, z: Array, yy: Array, lam: Array, W: float) -> Array:
    """Compute `reestimate_lambda` for one column of products, which a shared lambda has.

    A path of 1000 centres needs it 2000 times, and on arrays of this size the time is that of the calls.
    """
    inverse, shares, weights, ss = _one_column(s, z, yy, lam)
    trace, curvature = float(_trace(shares, W)), float((weights * weights) @ inverse)
    if not (trace > 0.0 and curvature > 0.0):
        return lam.copy()
    step = float(shares @ inverse) / trace * (ss / curvature)
    return lam.copy() if np.isnan(step) else np.array([min(max(step, 0.0), _LAMBDA_LIMIT * float(s.max()))])


def _one_column(s: Array, z: Array, yy: Array, lam: Array) -> tuple[Array, Array, Array, float]:
    """Return 1/(lambda + s), s/(lambda + s), z/(lambda + s) and ss for z of shape (m + 1, 1), as vectors."""
    value, column = float(lam[0]), z[:, 0]
    total = s + value
    if total.min() >= _TINY:
        inverse, shares = 1.0 / total, s / total
    else:
        inverse, shares = (array[:, 0] for array in _shrinkage(s, lam))
    weights = column * inverse
    explained = float(weights @ (column * (1.0 + value * inverse)))
    return inverse, shares, weights, max(float(yy[0]) - explained, 0.0)


def _shrinkage(s: Array, lam: Array) -> tuple[Array, Array]:
    """Return 1/(lambda + s) and s/(lambda + s), both of shape (m + 1, len(lam))."""
    total = s[:, np.newaxis] + lam
    if total.min() >= _TINY:
        # The share is a quotient, not a product with the inverse: without lambda every share is exactly 1.
        return 1.0 / total, s[:, np.newaxis] / total
    # A column of squared norm 0 has z = 0 too: without lambda its 0/0 counts as 0.
    present = total >= _TINY
    inverse = np.divide(1.0, total, out=np.zeros_like(total), where=present)
    return inverse, np.divide(s[:, np.newaxis], total, out=np.zeros_like(total), where=present)


def _residuals(z: Array, yy: Array, lam: Array, inverse: Array) -> Array:
    weights = np.ascontiguousarray(z) * inverse
    # The two sums of 3.85 in one, z^2/(l+s) (1 + l/(l+s)): every term is positive, so only one subtraction cancels.
    explained = (weights * z * (1.0 + lam * inverse)).sum(axis=0)
    return np.asarray(np.maximum(yy - explained, 0.0))


def _trace(shares: Array, W: float, charge: float = 1.0) -> Array:
    if charge == 1.0:
        return np.asarray(W - shares.sum(axis=0))
    return np.asarray(W - 1.0 - charge * shares[1:].sum(axis=0))


def _over_targets(values: Array, lam: Array) -> Array:
    return values.sum(keepdims=True) if lam.shape == (1,) else values
