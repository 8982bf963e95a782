"""Weights of given centres from sums over rows: a small Gram matrix, added up tile by tile, and its factors.

Centres that were chosen on some of the rows are fitted on all rows. No row matrix is kept: tiles add [1 K]'[1 K] and
[1 K]'Y, and G = U'SU gives the same factors as orthogonalisation (z = q'Y by substitution). A Gram matrix squares the
condition number. Where columns nearly depend on each other, tiles therefore form [1 K] inv(U_0) first, with U_0 from
the rows of the selection; its columns are nearly orthogonal over all rows too, and U = U_2 U_0. Most often few columns
depend on others, and U_0 need not change the rest: see `preconditioner_of`.

Answers hold Gram matrices packed (LAPACK's rectangular full packed format, upper triangle), half the bytes of a square.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack, solve_triangular

from ..arrays import Array
from .factors import Factors, skipping_ldl

RELIABLE = 1e-10
"""Smallest s_j / |k_j|^2 at which factors of [1 K]'[1 K] itself are kept."""

FORESEEN = 1e-9
"""Smallest s_j / |k_j|^2 on the selection's rows at which k_j itself enters the sums; over all rows it was never below
a fifth of that on a sample."""


def empty_gram(n: int) -> Array:
    """Return the packed Gram matrix of `n` columns and no rows, shape (n (n + 1) / 2,)."""
    return np.zeros(n * (n + 1) // 2)


def add_gram(packed: Array, columns: Array, square: Array) -> None:
    """Add the products of columns with each other to a packed Gram matrix in place.

    LAPACK could add to the packed matrix itself (dsfrk), but scipy calls it with Python's lock held: threads would then
    run one after another.

    Parameters
    ----------
    packed : array, shape (n (n + 1) / 2,)
        From `empty_gram`.
    columns : array, shape (n, n_rows)
        A column in each row, C-contiguous; at least two.
    square : array, shape (n, n)
        Work array for the product.
    """
    np.matmul(columns, columns.T, out=square)
    added, _ = lapack.dtrttf(square.T)
    packed += added


def add_gram_of_some(packed: Array, columns: Array, which: NDArray[np.intp], square: Array) -> None:
    """Add the products of some columns, where all others are zero; see `add_gram`.

    Parameters
    ----------
    packed, square
        As for `add_gram`.
    columns : array, shape (k, n_rows)
        Columns that are not zero, C-contiguous.
    which : array, shape (k,)
        Their positions among all n columns, ascending.
    """
    square[:] = 0.0
    if len(which) > 1:
        square[np.ix_(which, which)] = columns @ columns.T
    elif len(which):
        square[which, which] = columns[0] @ columns[0]
    added, _ = lapack.dtrttf(square.T)
    packed += added


def unpack_gram(packed: Array, n: int) -> Array:
    """Return the symmetric matrix, shape (n, n), of a packed one."""
    upper, _ = lapack.dtfttr(n, packed)
    upper = np.triu(upper)
    return np.ascontiguousarray(upper + np.triu(upper, 1).T)


class Preconditioner:
    """Replaces columns K by K inv(u).

    Parameters
    ----------
    u : array, shape (n, n)
        Unit upper triangular.
    """

    def __init__(self, u: Array) -> None:
        self._u = u
        changed = np.flatnonzero(np.triu(u, 1).any(axis=0))
        # A product with few columns is faster than a triangular solve with all of them.
        self._changed = changed if 2 * len(changed) <= len(u) else None
        if self._changed is not None:
            units = np.eye(len(u))[:, changed]
            self._inverse = np.ascontiguousarray(solve_triangular(u, units, unit_diagonal=True).T)

    def apply(self, columns: Array) -> None:
        """Replace columns, shape (n, n_rows) and C-contiguous, in place."""
        if self._changed is not None:
            columns[self._changed] = self._inverse @ columns
            return
        solved = blas.dtrsm(1.0, self._u.T, columns.T, side=1, lower=1, trans_a=1, diag=1, overwrite_b=1)
        assert np.shares_memory(solved, columns), "a copy was made of the columns"


def orthogonal_shares(u: Array, s: Array) -> Array:
    """Return s_j / |k_j|^2, the share of each column that is orthogonal to all before it, shape (m + 1,).

    Parameters
    ----------
    u : array, shape (m + 1, m + 1)
        Unit upper triangular.
    s : array, shape (m + 1,)
        Squared norms of Q's columns.
    """
    return s / (s @ np.square(u))


def preconditioner_of(u: Array, s: Array) -> Array | None:
    """Return a matrix like U that changes only the columns that nearly depend on those before them.

    Parameters
    ----------
    u : array, shape (m + 1, m + 1)
        Unit upper triangular.
    s : array, shape (m + 1,)
        Squared norms of Q's columns.

    Returns
    -------
    array, shape (m + 1, m + 1), or None
        P, unit upper triangular: column j of [1 K] inv(P) is q_j where s_j / |k_j|^2 is below `FORESEEN`, and k_j
        elsewhere. U itself where these are most columns, and None where there are none.
    """
    near = np.flatnonzero(orthogonal_shares(u, s) < FORESEEN)
    if not len(near):
        return None
    if 2 * len(near) > len(u):
        return u
    inverse = np.eye(len(u))
    inverse[:, near] = solve_triangular(u, inverse[:, near], unit_diagonal=True)
    matrix = np.eye(len(u))
    matrix[:, near] = solve_triangular(inverse, matrix[:, near], unit_diagonal=True)
    return np.ascontiguousarray(matrix)


@dataclass(frozen=True)
class Refit:
    """Thin factors of the kept columns, the constant first."""

    kept: NDArray[np.int64]
    """(k,): positions of the kept centres, ascending; the others depend on the centres before them."""
    u: Array
    """(k + 1, k + 1): unit upper triangular."""
    s: Array
    """(k + 1,): squared norms of Q's columns."""
    z: Array
    """(k + 1, T): Q'Y; the first row is zero, since targets count as centred."""


def refit(
    gram: Array,
    products: Array,
    dependent: float,
    preconditioner: Array | None = None,
    *,
    complete: bool = True,
    intercept: bool = True,
) -> Refit | None:
    """Factor sums over rows, see `refit_square`.

    Parameters
    ----------
    gram : array, shape (n (n + 1) / 2,)
        Packed [1 K]'[1 K], or the same of [1 K] inv(preconditioner).
    products : array, shape (n, T)
        The same columns' products with the centred targets.
    dependent : float
        A column with |q|^2 <= dependent * |k|^2 is left out.
    preconditioner : array, shape (n, n), optional
        Unit upper triangular, U or a matrix of `preconditioner_of`; the identity by default.
    complete : bool, default True
        Whether a given preconditioner is U, so that the sums are as accurate as they can be.
    intercept : bool, default True
        Whether the column of ones takes part.

    Returns
    -------
    Refit or None
        None where columns that were not changed depend on each other too much: repeat the pass with U.
    """
    square = unpack_gram(gram, len(products))
    if not intercept:
        products = without_constant(square, products)
    if preconditioner is None or not complete:
        factor = _cholesky(square)
        if factor is None or (factor[1] < RELIABLE * square.diagonal()).any():
            return None
        unit, pivots = factor
        if preconditioner is None:
            return Refit(np.arange(len(square) - 1), unit, pivots, _orthogonal_products(unit, products))
    return refit_square(square, products, dependent, preconditioner)


def without_constant(square: Array, products: Array) -> Array:
    """Remove the column of ones from sums, `square` in place; return the products.

    The sum of the row weights stays, as its own squared norm: all formulas take it from there.
    """
    square[0, 1:] = square[1:, 0] = 0.0
    products = products.copy()
    products[0] = 0.0
    return products


def refit_square(square: Array, products: Array, dependent: float, preconditioner: Array) -> Refit:
    """Factor the sums of [1 K] inv(preconditioner).

    Parameters
    ----------
    square : array, shape (n, n)
        Products of the columns with each other.
    products : array, shape (n, T)
        Their products with the centred targets.
    dependent : float
        A column with |q|^2 <= dependent * |k|^2 is left out.
    preconditioner : array, shape (n, n)
        Unit upper triangular.
    """
    limits = dependent * np.einsum("ij,ij->j", preconditioner, square @ preconditioner)
    kept, relation, reduced, reduced_products = np.arange(len(square)), preconditioner, square, products
    while True:
        left, unit, pivots = _independent(reduced, limits[kept])
        if len(left) == len(kept):
            break
        # Later columns of [1 K] inv(U_0) lost a multiple of a column that is now left out: it is added again.
        kept = kept[left]
        relation = preconditioner[np.ix_(kept, kept)]
        base = solve_triangular(relation, preconditioner[:, kept].T, trans="T", unit_diagonal=True).T
        reduced = base.T @ square @ base
        reduced_products = base.T @ products
    return Refit(kept[1:] - 1, unit @ relation, pivots, _orthogonal_products(unit, reduced_products))


def _cholesky(gram: Array) -> tuple[Array, Array] | None:
    """Return unit upper U and pivots S of gram = U'SU, None if a pivot is not positive."""
    root, info = lapack.dpotrf(gram)
    if info:
        return None
    diagonal = root.diagonal()
    return np.ascontiguousarray(root / diagonal[:, None]), np.square(diagonal)


def _independent(gram: Array, limits: Array) -> tuple[NDArray[np.int64], Array, Array]:
    """Return the columns whose pivots exceed `limits`, and their factors."""
    factor = _cholesky(gram)
    if factor is not None and (factor[1] > limits).all():
        return np.arange(len(gram)), *factor
    kept, lower, pivots = skipping_ldl(gram, limits)
    return np.array(kept, dtype=np.int64), np.ascontiguousarray(lower.T), pivots


def _orthogonal_products(unit: Array, products: Array) -> Array:
    z: Array = solve_triangular(unit, products, trans="T", unit_diagonal=True)
    # z_0 is the rounding error of the targets' mean; substitution took it from the later rows, as centring does.
    z[0] = 0.0
    return z


def regularise(
    fitted: Refit, weight_sum: float, target_norms: Array, regularization: str | float, stop: str | None
) -> tuple[Factors, Array, Array | None]:
    """Compute lambda along the path of the kept centres, with one estimate in each step.

    Parameters
    ----------
    fitted : Refit
        Factors over all rows.
    weight_sum : float
        Sum of the row weights.
    target_norms : array, shape (T,)
        y'y of each centred target.
    regularization : str or float
        As for `Factors`.
    stop : str or None
        Name of the stop rule.

    Returns
    -------
    factors : Factors
        Factors of all kept centres.
    gcv : array, shape (k,)
        Generalised cross validation after each step.
    scores : array, shape (k,), or None
        Score of the stop rule after each step, None if it does not follow from the factors.
    """
    m = len(fitted.kept)
    factors = Factors(weight_sum, target_norms, m, regularization)
    gcv = np.empty(m)
    scores: list[float] = []
    for j in range(1, m + 1):
        _, gcv[j - 1] = factors.append(fitted.u[:j, j], fitted.s[j], fitted.z[j])
        score = factors.score(stop)
        if score is not None:
            scores.append(score)
    return factors, gcv, np.array(scores) if len(scores) == m else None
