"""Conjugate gradients for several right-hand sides at once, and a low-rank preconditioner for kernel matrices.

Only products with the matrix are needed. All right-hand sides share each product: it takes most of the time where the
kernel matrix is computed again for every product. Otherwise each right-hand side has its own recurrence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from ..arrays import Array
from ..errors import DataError

__all__ = ["LowRankPreconditioner", "Solved", "conjugate_gradients", "pivoted_cholesky"]

Product = Callable[[Array], Array]
"""Function of P, shape (n, k), that returns the matrix times P."""

Converged = Callable[[Array, Array, Array, int], NDArray[np.bool_]]

_REFRESH = 50
"""Iterations after which the residual is computed from the solution: rounding makes the recurrence drift from it."""


@dataclass(frozen=True)
class Solved:
    """Result of conjugate gradients."""

    solution: Array
    """(n, k)."""
    iterations: int
    """Steps of the slowest right-hand side."""
    products: int
    """Products with the matrix."""
    residual: float
    """Largest |b - H x| / |b| of a right-hand side, computed from the solution."""
    converged: bool
    """Whether the residual is at most the tolerance."""


def conjugate_gradients(
    product: Product,
    B: Array,
    precondition: Product,
    tol: float,
    max_iter: int,
    *,
    converged: Converged | None = None,
) -> Solved:
    """Solve H X = B for a positive definite H (Hestenes and Stiefel, 1952).

    Parameters
    ----------
    product : callable
        H times a matrix of shape (n, k).
    B : array, shape (n, k)
        Right-hand sides; a column of zeros has the solution zero.
    precondition : callable
        An approximation of H^-1, symmetric and positive definite, times a matrix of shape (n, k).
    tol : float
        A right-hand side has converged when |b - H x| <= tol |b|.
    max_iter : int
        Most iterations.
    converged : callable, optional
        Takes the solution, the residual r of the recurrence, r'z with z the preconditioned r, and the number of
        iterations; returns a mask of the right-hand sides that have converged. It replaces `tol`, no residual is
        computed from the solution, and the preconditioner may be rounded coarsely (Polak and Ribiere's directions). A
        right-hand side ends where no direction has a positive curvature, instead of an error.

    Returns
    -------
    Solved

    Raises
    ------
    DataError
        ``indefinite``: H is not positive definite.
    """
    X = np.zeros_like(B)
    R = B.copy()
    norms = np.sqrt(np.square(B).sum(axis=0))
    limits = tol * norms
    iterations = products = 0
    Z = precondition(R)
    P = Z.copy()
    rho = _dots(R, Z)
    true_residual = True
    exhausted = np.zeros(B.shape[1], dtype=bool)
    while True:
        active = np.sqrt(np.square(R).sum(axis=0)) > limits if converged is None else ~converged(X, R, rho, iterations)
        active &= ~exhausted
        if not active.any() or iterations >= max_iter:
            if true_residual or converged is not None:
                break
            # The recurrence has converged; the residual itself decides, since the two differ by rounding.
            R = B - product(X)
            products += 1
            true_residual = True
            Z = precondition(R)
            P = Z.copy()
            rho = _dots(R, Z)
            continue
        HP = product(P)
        products += 1
        iterations += 1
        curvature = _dots(P, HP)
        if converged is not None:
            # Directions of a singular matrix that a coarse preconditioner made too long: rounding is all that is left.
            exhausted |= active & (curvature <= 0.0)
            active &= ~exhausted
        if (curvature[active] <= 0.0).any():
            raise DataError(
                "the kernel matrix is not positive definite, and conjugate gradients need that: use solver='dense', "
                "or a Mercer kernel such as 'gaussian'",
                kind="indefinite",
            )
        step = np.where(active, rho / np.where(active, curvature, 1.0), 0.0)
        X += P * step
        refresh = converged is None and iterations % _REFRESH == 0
        if refresh:
            R = B - product(X)
            products += 1
        else:
            R -= HP * step
        true_residual = refresh
        Z = precondition(R)
        rho, before = _dots(R, Z), rho
        gained = rho if converged is None else -step * _dots(HP, Z)
        growth = np.where(active, gained / np.where(active, before, 1.0), 0.0)
        P *= growth
        P += Z
    sizes = np.sqrt(np.square(R).sum(axis=0))
    relative = np.divide(sizes, norms, out=np.zeros_like(sizes), where=norms > 0)
    within = bool((sizes <= limits).all() if converged is None else not active.any())
    return Solved(X, iterations, products, float(relative.max(initial=0.0)), within)


def _dots(left: Array, right: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->j", left, right))


def pivoted_cholesky(
    column: Callable[[int], Array], diagonal: Array, scale: Array, rank: int, tol: float = 1e-12
) -> Array:
    """Approximate a positive semidefinite K by L L' of low rank (Fine and Scheinberg, 2001).

    Parameters
    ----------
    column : callable
        Returns column j of K, shape (n,).
    diagonal : array, shape (n,)
        Diagonal of K.
    scale : array, shape (n,)
        The next pivot is the row with the largest remaining diagonal divided by this: D of K + D.
    rank : int
        Largest number of columns of L.
    tol : float, default 1e-12
        Stop when no remaining diagonal exceeds this part of the largest diagonal of K.

    Returns
    -------
    array, shape (rank or fewer, n)
        L'.
    """
    rest = diagonal.copy()
    largest = float(rest.max(initial=0.0))
    factor = np.zeros((min(rank, len(rest)), len(rest)))
    for k in range(len(factor)):
        pivot = int(np.argmax(rest / scale))
        if not rest[pivot] > tol * largest:
            return factor[:k]
        row = column(pivot) - factor[:k, pivot] @ factor[:k]
        row /= np.sqrt(rest[pivot])
        factor[k] = row
        rest -= row * row
        # Rounding can leave a remaining diagonal below 0, which no exact step can.
        np.maximum(rest, 0.0, out=rest)
        rest[pivot] = 0.0
    return factor


class LowRankPreconditioner:
    """(L L' + D)^-1 by the formula of Sherman, Morrison and Woodbury.

    Parameters
    ----------
    factor : array, shape (r, n)
        L'.
    diagonal : array, shape (n,)
        D, above zero.
    """

    def __init__(self, factor: Array, diagonal: Array) -> None:
        self._factor = factor
        self._inverse = (1.0 / diagonal)[:, None]
        core = (factor * self._inverse[:, 0]) @ factor.T
        core[np.diag_indices(len(core))] += 1.0
        self._core = cho_factor(core, lower=True, overwrite_a=True, check_finite=False) if len(core) else None

    def __call__(self, R: Array) -> Array:
        """Apply to R, shape (n, k)."""
        scaled = R * self._inverse
        if self._core is None:
            return scaled
        inner = cho_solve(self._core, self._factor @ scaled, check_finite=False)
        return np.asarray(scaled - self._inverse * (self._factor.T @ inner))
