"""Weights of selected centres that are small in the norm of the kernel's space (RKHS).

The path penalises the weights of the orthogonal columns, which depend on the order of the centres. Here the function
f = sum_j a_j k(., x_j) itself is penalised: b and a minimise |y - b 1 - K a|^2 + mu a'K_mm a, with K_mm the kernel
between the centres and b free. Only the thin factors [1 K] = Q U and z = Q'y are needed, no row.

With q_0 = 1 and centred targets the best intercept is b = -u_0'a, u_0 the first row of U, and the remaining problem is
|y - Q_1 U_1 a|^2 + mu a'K_mm a without the constant. R = S^(1/2) U_1 has R'R = U_1'S U_1. In v = R a the matrix of the
fit is the orthonormal Q_1 S^(-1/2), and the penalty is mu |F R^-1 v|^2 with F'F = K_mm: the singular value
decomposition of F R^-1 makes both diagonal, and each tried mu costs O(m T). F comes from the eigenvalues of K_mm, since
a Cholesky factorisation fails where K_mm is singular up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh, qr, solve_triangular, svd
from scipy.optimize import minimize_scalar

from ..arrays import Array
from ..errors import JobError
from ..kernels import Kernel, Polynomial, Sigmoid

__all__ = ["NormFactors", "NormFit", "factors_in_rkhs_norm", "fit_in_rkhs_norm", "norm_fit_bytes", "require_norm"]

CHARGE = 2.0
"""Degrees of freedom of a selected centre in the choice of mu, as in the stop rule."""

INDEFINITE = 1e-8
"""An eigenvalue of the kernel matrix below minus this times the largest is more than a rounding error."""

_DECADES = np.arange(-16.0, 8.0, 0.125)
"""Decimal logarithms of the tried mu, in units of the mu of the least penalised direction."""


@dataclass(frozen=True)
class NormFit:
    """Weights, and the mu and GCV that they were chosen by."""

    weights: Array
    """(m + 1, T): the first row is the intercept on centred targets."""
    mu: Array
    """(1,) or (T,): regularisation."""
    gcv: float
    """Generalised cross validation, W ss/tr^2; added up over targets that have their own mu."""


def fit_in_rkhs_norm(
    u: Array, s: Array, z: Array, target_norms: Array, gram: Array, *, per_target: bool = False
) -> NormFit:
    """Fit weights with mu by generalised cross validation, where a selected centre counts `CHARGE` degrees of freedom.

    Parameters
    ----------
    u : array, shape (m + 1, m + 1)
        Unit upper triangular.
    s : array, shape (m + 1,)
        Squared column norms of Q; the first is the sum W of the row weights.
    z : array, shape (m + 1, T)
        Q'Y with centred targets.
    target_norms : array, shape (T,)
        y'y of each centred target.
    gram : array, shape (m, m)
        Kernel between the centres, without row weights.
    per_target : bool, default False
        Whether every target has its own mu; otherwise all share one.

    Returns
    -------
    NormFit

    Raises
    ------
    JobError
        ``indefinite-kernel``: `gram` is not positive semi-definite, so that the kernel has no such norm.
    """
    roots = np.sqrt(s[1:])
    triangle = roots[:, np.newaxis] * u[1:, 1:]
    # (F R^-1)' = R^-T F'
    penalty = solve_triangular(triangle, square_root(gram).T, trans="T", overwrite_b=True)
    directions, sizes, _ = svd(penalty, overwrite_a=True, check_finite=False)
    penalties = np.square(sizes)
    products = directions.T @ (z[1:] / roots[:, np.newaxis])
    groups = [[t] for t in range(z.shape[1])] if per_target else [list(range(z.shape[1]))]
    coefficients = np.empty_like(products)
    mus, gcv = np.empty(len(groups)), 0.0
    for i, group in enumerate(groups):
        score = _Score(penalties, np.square(products[:, group]).sum(axis=1), target_norms[group].sum(), float(s[0]))
        mus[i] = score.minimum()
        gcv += score(mus[i], 1.0)
        coefficients[:, group] = score.shrinkage(mus[i])[:, np.newaxis] * products[:, group]
    weights = np.empty_like(z)
    weights[1:] = solve_triangular(triangle, directions @ coefficients)
    weights[0] = -u[0, 1:] @ weights[1:]
    return NormFit(weights, mus, gcv)


@dataclass(frozen=True)
class NormFactors:
    """Factors of the rows and, below them, of the penalty with a given mu: nested fits without another lambda."""

    u: Array
    """(m + 1, m + 1): unit upper triangular."""
    s: Array
    """(m + 1,)."""
    z: Array
    """(m + 1, T)."""
    gcv: Array
    """(m,): generalised cross validation of the first 1, 2, ... centres, a parameter counted once."""


def factors_in_rkhs_norm(u: Array, s: Array, z: Array, target_norms: Array, gram: Array, mu: float) -> NormFactors:
    """Return the factors of [1 K; 0 sqrt(mu) F] with F'F = K_mm, from those of [1 K].

    Least squares on these rows, whose last ones have the target zero, minimise |y - b 1 - K a|^2 + mu a'K_mm a. The
    first k + 1 columns are those of the problem with k centres, so that U^-1 (z / s) of a leading part are the weights
    of fewer centres, and y'y - sum z^2 / s is the minimum. The rows of the data alone have the leverages sum q^2 / s.

    Parameters
    ----------
    u, s, z, target_norms, gram
        As for `fit_in_rkhs_norm`.
    mu : float
        Regularisation, above 0.

    Returns
    -------
    NormFactors

    Raises
    ------
    JobError
        ``indefinite-kernel``, as `fit_in_rkhs_norm`.
    """
    m = len(gram)
    roots = np.sqrt(s)
    rows = np.zeros((2 * m + 1, m + 1))
    rows[: m + 1] = roots[:, np.newaxis] * u
    rows[m + 1 :, 1:] = np.sqrt(mu) * square_root(gram)
    orthogonal, triangle = qr(rows, mode="economic", overwrite_a=True, check_finite=False)
    top, diagonal = orthogonal[: m + 1], triangle.diagonal().copy()
    targets = z / roots[:, np.newaxis]
    products = top.T @ targets
    # Residual and trace of all leading parts: the orthogonal columns are added one after another.
    squares = np.empty(m + 1)
    fitted = np.zeros_like(targets)
    for k in range(m + 1):
        fitted += np.outer(top[:, k], products[k])
        squares[k] = target_norms.sum() + float(np.einsum("ij,ij->", fitted - 2.0 * targets, fitted))
    trace = s[0] - np.cumsum(np.einsum("ij,ij->j", top, top))
    gcv = np.divide(s[0] * np.maximum(squares, 0.0), np.square(trace), out=np.full(m + 1, np.inf), where=trace > 0.0)
    unit = np.triu(triangle / diagonal[:, np.newaxis])
    return NormFactors(unit, np.square(diagonal), diagonal[:, np.newaxis] * products, gcv[1:])


def norm_fit_bytes(m: int, n_targets: int) -> int:
    """Return the bytes that a fit takes beside U, in the driver.

    Parameters
    ----------
    m : int
        Number of centres.
    n_targets : int
        Number of targets that share them.
    """
    # K_mm, R, F R^-1, the singular vectors of both sides and LAPACK's work arrays, four squares.
    return 8 * (9 * m * m + 6 * m * n_targets)


def require_norm(kernel: Kernel, what: str = "refit='rkhs'") -> None:
    """Refuse a kernel that is known not to be positive definite; `fit_in_rkhs_norm` checks the matrix of any other.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    what : str, default "refit='rkhs'"
        Parameter that needs it, for the message.

    Raises
    ------
    JobError
        ``indefinite-kernel``.
    """
    if isinstance(kernel, Sigmoid) or (isinstance(kernel, Polynomial) and kernel.offset < 0.0):
        raise JobError(
            f"{what} needs a positive definite kernel, and {kernel!r} is not: use another kernel, such as "
            "'gaussian', or leave the parameter out",
            kind="indefinite-kernel",
        )


@dataclass(frozen=True)
class _Score:
    """Generalised cross validation as a function of mu."""

    penalties: Array
    squares: Array
    """Squared products of the targets with the directions, added up over targets."""
    total: float
    """y'y, likewise."""
    weight_sum: float

    def shrinkage(self, mu: float) -> Array:
        return np.asarray(1.0 / (1.0 + mu * self.penalties))

    def __call__(self, mu: float, charge: float = CHARGE) -> float:
        kept = self.shrinkage(mu)
        trace = self.weight_sum - 1.0 - charge * float(kept.sum())
        if trace <= 0.0:
            return float("inf")
        explained = float((self.squares * kept * (2.0 - kept)).sum())
        return max(self.total - explained, 0.0) / trace * (self.weight_sum / trace)

    def at(self, logarithm: float) -> float:
        return self(float(np.exp(logarithm)))

    def minimum(self) -> float:
        """Return the best mu of a grid over its whole range, refined between its neighbours.

        GCV may have several minima in mu: the grid finds the lowest one, which a local search alone could miss.
        """
        largest = self.penalties.max(initial=0.0)
        if not largest > 0.0:
            return 0.0
        least = self.penalties[self.penalties > np.finfo(np.float64).eps ** 2 * largest].min()
        grid = np.log(10.0) * _DECADES - np.log(least)
        best = int(np.argmin([self.at(value) for value in grid]))
        bounds = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        refined = minimize_scalar(self.at, bounds=bounds, method="bounded", options={"xatol": 1e-6}).x
        return float(np.exp(min(grid[best], refined, key=self.at)))


def square_root(gram: Array) -> Array:
    """Return F of F'F = gram; negative eigenvalues that are rounding errors count as zero."""
    values, vectors = eigh((gram + gram.T) / 2)
    if values[0] < -INDEFINITE * max(values[-1], 0.0) or not values[-1] > 0.0:
        raise JobError(
            f"refit='rkhs' and other losses than squares need a positive definite kernel, and the kernel matrix of "
            f"{len(gram)} centres has eigenvalues from {values[0]:.3g} to {values[-1]:.3g}: use a Gaussian kernel, or "
            "refit=None and loss='squared'",
            kind="indefinite-kernel",
        )
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, np.newaxis] * vectors.T)
