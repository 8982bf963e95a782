"""The kernel minimum squared error system K gamma = B, in full and on a few columns of K.

Full: the Gram matrix is square and, with many or repeated rows, singular to working precision. The solution is the
gamma of least squares that has the least norm, with an optional ridge. Reduced: the expansion has a few rows only, and
the system is overdetermined (Xu et al., Pattern Recognition 39, 2006). There is no intercept.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh, lu_factor, lu_solve, qr, svd

from ..arrays import Array

__all__ = ["solve_full", "solve_reduced"]

_EPSILON = float(np.finfo(np.float64).eps)


def solve_full(K: Array, B: Array, weights: Array, ridge: float) -> Array:
    """Minimise sum_i r_i |k_i'gamma - b_i|^2 + ridge sum_i |gamma_i|^2 / r_i.

    With gamma = R^1/2 c this is a symmetric system in R^1/2 K R^1/2, and a weight equals repeated rows. Without a
    ridge it is solved by eigenvalues, which is many times slower than a factorisation.

    Parameters
    ----------
    K : array, shape (n, n)
        Gram matrix; overwritten.
    B : array, shape (n, T)
        Targets.
    weights : array, shape (n,)
        Row weights above zero.
    ridge : float
        At least 0; with 0, eigenvalues below rounding count as zero.

    Returns
    -------
    array, shape (n, T)
        gamma.
    """
    roots = np.sqrt(weights)
    K *= roots[:, None]
    K *= roots
    right = B * roots[:, None]
    if ridge:
        return roots[:, None] * _solve_shifted(K, right, float(np.sqrt(ridge)))
    values, vectors = eigh(K.T, overwrite_a=True, driver="evd", check_finite=False)
    filters = _filters(values, ridge, len(K))
    return np.asarray(roots[:, None] * (vectors @ (filters[:, None] * (vectors.T @ right))))


def _solve_shifted(K: Array, B: Array, shift: float) -> Array:
    """Solve (K^2 + shift^2 I) C = K B for a symmetric K.

    K (K^2 + shift^2 I)^-1 is the real part of (K + i shift I)^-1. The normal equations square the condition number;
    the complex matrix does not.
    """
    shifted = np.empty(K.shape, dtype=np.complex128, order="F")
    shifted[...] = K.T
    shifted[np.diag_indices(len(K))] += 1j * shift
    factor = lu_factor(shifted, overwrite_a=True, check_finite=False)
    return np.ascontiguousarray(lu_solve(factor, B.astype(np.complex128), check_finite=False).real)


def solve_reduced(K: Array, B: Array, weights: Array, ridge: float) -> Array:
    """Minimise sum_i r_i |k_i'gamma - b_i|^2 + ridge |gamma|^2 over expansions in a few rows.

    Parameters
    ----------
    K : array, shape (n, m)
        Columns of the Gram matrix, m <= n; overwritten.
    B, weights, ridge
        As for `solve_full`.

    Returns
    -------
    array, shape (m, T)
        gamma.
    """
    roots = np.sqrt(weights)[:, None]
    K *= roots
    Q, R = qr(K, mode="economic", overwrite_a=True, check_finite=False)
    U, values, V = svd(R, overwrite_a=True, check_finite=False)
    filters = _filters(values, ridge, len(K))
    return np.asarray(V.T @ (filters[:, None] * (U.T @ (Q.T @ (B * roots)))))


def _filters(values: Array, ridge: float, n: int) -> Array:
    """Return v / (v^2 + ridge), in place of 1 / v, for each singular value (or eigenvalue) v; 0 where v is rounding."""
    sizes = np.abs(values)
    usable = sizes > (0.0 if ridge else n * _EPSILON * sizes.max(initial=0.0))
    return np.divide(values, np.square(values) + ridge, out=np.zeros_like(values), where=usable)
