"""Bordered symmetric systems [0 1'; 1 H][b; A] = [0; Y], the optimality conditions of least-squares SVMs.

With H eta = 1 and H N = Y (Suykens et al., Least Squares Support Vector Machines, 2002, chapter 3) the border is
eliminated: b = 1'N / 1'eta and A = N - eta b'. H is K + D, positive definite for a Mercer kernel. Both systems may
then be solved by Cholesky, as here, or by conjugate gradients, as in `conjugate_gradients`.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy.linalg import LinAlgError, LinAlgWarning, cho_factor, cho_solve, solve

from ..arrays import Array
from ..errors import DataError

__all__ = ["eliminate_border", "solve_bordered", "solve_symmetric"]


def eliminate_border(eta: Array, nu: Array) -> tuple[Array, Array]:
    """Solve a bordered system from the solutions of H eta = 1 and H N = Y.

    Parameters
    ----------
    eta : array, shape (n,)
        H^-1 1.
    nu : array, shape (n, T)
        N = H^-1 Y.

    Returns
    -------
    A : array, shape (n, T)
        Weights; every column sums to zero.
    b : array, shape (T,)
        Intercepts.
    """
    b = nu.sum(axis=0) / eta.sum()
    return nu - eta[:, None] * b, b


def solve_bordered(H: Array, Y: Array) -> tuple[Array, Array]:
    """Solve [0 1'; 1 H][b; A] = [0; Y] by one factorisation of H, in its place.

    Parameters
    ----------
    H : array, shape (n, n)
        Symmetric; overwritten.
    Y : array, shape (n, T)
        Targets.

    Returns
    -------
    A : array, shape (n, T)
        Weights.
    b : array, shape (T,)
        Intercepts.

    Raises
    ------
    DataError
        ``singular``: H is singular to working precision.
    """
    solution = solve_symmetric(H, np.column_stack([np.ones(len(H)), Y]))
    return eliminate_border(solution[:, 0], solution[:, 1:])


def solve_symmetric(H: Array, B: Array) -> Array:
    """Solve H X = B by Cholesky, or by an indefinite factorisation where H is not positive definite.

    Parameters
    ----------
    H : array, shape (n, n)
        Symmetric; overwritten.
    B : array, shape (n, k)
        Right-hand sides.

    Returns
    -------
    array, shape (n, k)

    Raises
    ------
    DataError
        ``singular``: H is singular to working precision.
    """
    diagonal = H.diagonal().copy()
    try:
        # LAPACK works in place on column-major arrays; H is symmetric, so its transpose is passed.
        factor = cho_factor(H.T, lower=True, overwrite_a=True, check_finite=False)
        solution = np.asarray(cho_solve(factor, B, check_finite=False))
    except LinAlgError:
        # The factorisation overwrote one triangle and the diagonal; the other triangle still is that of H.
        n = len(H)
        for i in range(n):
            H[:i, i] = H[i, :i]
        np.fill_diagonal(H, diagonal)
        solution = _solve_indefinite(H, B)
    if not np.isfinite(solution).all():
        raise _singular()
    return solution


def _solve_indefinite(H: Array, B: Array) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("error", LinAlgWarning)
        try:
            return np.asarray(solve(H, B, assume_a="sym", check_finite=False))
        except (LinAlgError, LinAlgWarning):
            raise _singular() from None


def _singular() -> DataError:
    return DataError(
        "the kernel matrix with its regularisation is singular to working precision: regularise more (gamma lower, "
        "regularization higher), or change the width of the kernel",
        kind="singular",
    )
