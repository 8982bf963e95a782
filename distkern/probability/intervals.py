"""Prediction intervals from leave-one-out residuals, of one width for all rows or of a width that follows the row.

The absolute residual of a training row from the model without it is as large as that of a new row. Its weighted
quantile over rows, with one place for the new row, is half the width of an interval (jackknife; Barber, Candes, Ramdas
and Tibshirani, 2021). Jackknife+ takes quantiles of the left-out predictions plus residuals anew for each new row; with
few centres and many rows the left-out predictions of a new row differ by a share 1/rows of the width, and one quantile
is enough.

A width that follows the row divides residuals by a scale g(x) before the quantile is taken, and multiplies after.
log g is a ridge regression of the logarithms of the residuals on the first kernel columns of the model, so a prediction
with its interval needs no kernel value more than one without.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, solve_triangular

from ..arrays import Array
from ..errors import JobError
from .leave_one_out import left_out_outputs

SCALE_CENTERS = 100
"""Most centres of the model of the scale, the first of the path; 200 and 500 gave intervals of the same width."""

LEAST_RESIDUAL = 0.5
"""Share of the median residual that is added to all before the logarithm: exact fits would have any."""

STEPS_OF_PENALTY = 30
"""Penalties that are compared, on a grid of logarithms."""

KEPT_SIZES = 2000
"""Most sizes that are kept of all but the largest rows; the share of rows within a size is exact to 1/2000 so."""

KEPT_LARGEST = 200
"""Largest sizes, which are all kept."""

MOST_CORRECTION = 2.0
"""Largest factor on the residuals for the choice of the centres."""

WIDEST_SCALE = 3.0
"""Largest distance of log g from its mean, in standard deviations over the training rows."""


@dataclass(frozen=True, eq=False)
class LocalScale:
    """Logarithm of the size of the residuals, as weights of the model's first kernel columns."""

    coef: Array
    """(k, T): weights of the first k centres."""
    intercept: Array
    """(T,)."""
    low: Array
    """(T,): smallest logarithm; smaller ones, far from the training rows, are raised to it."""
    high: Array
    """(T,): largest logarithm."""

    @property
    def n_outputs(self) -> int:
        """Number of targets."""
        return len(self.intercept)

    def aligned(self) -> LocalScale:
        """Return the same with contiguous and aligned arrays."""
        return replace(self, coef=np.array(self.coef, order="C"))

    def evaluate(self, columns: NDArray[Any]) -> Array:
        """Return g of rows, shape (n, T), from their kernel values, shape (n, m)."""
        first = columns[:, : len(self.coef)]
        return self.of(np.asarray(first @ self.coef.astype(columns.dtype, copy=False), np.float64) + self.intercept)

    def of(self, logarithms: Array) -> Array:
        """Return g, shape (n, T), from fitted logarithms, shape (n, T)."""
        return np.asarray(np.exp(np.clip(logarithms, self.low, self.high)))


def fit_scale(q: Array, u: Array, residuals: Array, mass: Array) -> tuple[LocalScale, Array]:
    """Fit the scale of the residuals, and return it with the scale of each row from the fit without that row.

    Parameters
    ----------
    q : array, shape (n, k + 1)
        Rows of Q for the first k centres, the constant first.
    u : array, shape (k + 1, k + 1)
        Unit upper triangular, [1 K] = Q U.
    residuals : array, shape (n, T)
        Leave-one-out residuals.
    mass : array, shape (n,)
        Weights of the rows.

    Returns
    -------
    LocalScale
    scales : array, shape (n, T)
    """
    sizes = np.abs(residuals)
    median = np.median(sizes, axis=0)
    targets = np.log(sizes + np.maximum(LEAST_RESIDUAL * median, np.finfo(np.float64).tiny))
    total = mass.sum()
    means = mass @ targets / total
    centre = mass @ q[:, 1:] / total
    columns = q[:, 1:] - centre
    s, basis = eigh(columns.T @ (columns * mass[:, None]))
    s = np.maximum(s, 0.0)
    columns = columns @ basis
    z = columns.T @ ((targets - means) * mass[:, None])
    lam = _penalties(s, z, np.square(targets - means).T @ mass, total)
    shrunk = z / (lam + s[:, None]) if len(s) else z
    full = np.column_stack([np.ones(len(q)), columns])
    logarithms = left_out_outputs(
        full, targets, means, np.r_[total, s], np.concatenate([np.zeros((1, len(means))), z]), lam, mass
    )
    spread = np.sqrt(mass @ np.square(columns @ shrunk) / total)
    weights = np.empty((q.shape[1], len(means)))
    weights[1:] = basis @ shrunk
    weights[0] = means - centre @ weights[1:]
    weights = solve_triangular(u, weights, unit_diagonal=True)
    scale = LocalScale(weights[1:], weights[0], means - WIDEST_SCALE * spread, means + WIDEST_SCALE * spread)
    return scale, scale.of(logarithms)


def _penalties(s: Array, z: Array, squares: Array, total: float) -> Array:
    """Return the penalty of each target with the least generalised cross validation, shape (T,)."""
    largest = max(float(s.max(initial=0.0)), np.finfo(np.float64).tiny)
    grid = largest * np.logspace(-9, 3, STEPS_OF_PENALTY)
    factors = 1 / (grid[:, None] + s)
    trace = total - 1 - factors @ s
    explained = (2 * factors - s * np.square(factors)) @ np.square(z)
    scores = np.maximum(squares - explained, 0.0) / np.square(np.maximum(trace, 1.0))[:, None]
    return np.asarray(grid[scores.argmin(axis=0)])


@dataclass(frozen=True, eq=False)
class ResidualQuantiles:
    """Sizes of the residuals of each target, with their weights."""

    sizes: Array
    """(n, T): absolute residuals of each target in ascending order, or their ratios to the scale."""
    masses: Array
    """(n, T): weight of the residuals up to each."""

    @classmethod
    def of(cls, sizes: Array, mass: Array) -> Self:
        """Sort sizes, shape (n, T), of rows with weights, shape (n,)."""
        order = np.argsort(sizes, axis=0, kind="stable")
        n, kept = len(sizes), np.arange(len(sizes))
        if n > KEPT_SIZES + KEPT_LARGEST:
            kept = np.unique(np.r_[np.linspace(0, n - 1, KEPT_SIZES).astype(int), kept[n - KEPT_LARGEST :]])
        return cls(np.take_along_axis(sizes, order, axis=0)[kept], np.cumsum(mass[order], axis=0)[kept])

    def can_promise(self, coverage: float) -> bool:
        """Return whether there are rows enough for a coverage."""
        return self._wanted(coverage) <= float(self.masses[-1, 0])

    def _wanted(self, coverage: float) -> float:
        # Sums of equal weights are rounded, and an exact rank must not become the next one.
        return coverage * (float(self.masses[-1, 0]) + 1.0) * (1 - 1e-12)

    def at(self, coverage: float) -> Array:
        """Return the size that a share `coverage` of new rows does not exceed, shape (T,).

        The new row counts as one more, of infinite size: without weights this is the ceil(coverage (n + 1))-th size.

        Raises
        ------
        JobError
            ``invalid-parameter``: there are too few rows for this coverage.
        """
        total = float(self.masses[-1, 0])
        if not self.can_promise(coverage):
            raise JobError(
                f"coverage={coverage:g}: leave-one-out residuals of rows of total weight {total:g} bound at most "
                f"{total / (total + 1):.4g}; ask for less, or train on more rows",
                kind="invalid-parameter",
            )
        positions = (self.masses < self._wanted(coverage)).sum(axis=0)
        return np.asarray(self.sizes[np.minimum(positions, len(self.sizes) - 1), np.arange(self.sizes.shape[1])])


@dataclass(frozen=True, eq=False)
class Intervals:
    """Lengths that turn predictions of a regression into intervals."""

    scale: LocalScale
    """Scale of the residuals at a row."""
    local: ResidualQuantiles
    """Of residuals divided by the scale."""
    constant: ResidualQuantiles
    """Of the residuals."""

    @classmethod
    def fit(cls, q: Array, u: Array, residuals: Array, mass: Array, correction: Array) -> Self:
        """Fit intervals to the leave-one-out residuals of a sample.

        Parameters
        ----------
        q, u, residuals, mass
            As for `fit_scale`.
        correction : array, shape (T,)
            Factor on the residuals, of `choice_of_centers`.
        """
        scale, scales = fit_scale(q, u, residuals, mass)
        sizes = np.abs(residuals) * correction
        return cls(scale, ResidualQuantiles.of(sizes / scales, mass), ResidualQuantiles.of(sizes, mass))


def choice_of_centers(trace: Array, charged_trace: Array, share: float) -> Array:
    """Return the factor on leave-one-out residuals for the choice of the centres, shape of `trace`.

    A row that selected centres was fitted by their choice, too, which leave-one-out residuals on the same centres do
    not undo. The stop rule charges a centre with two degrees of freedom for that; here the residuals of the share of
    rows that selected grow by the ratio of the degrees of freedom that are left.

    Parameters
    ----------
    trace, charged_trace : array
        Effective numbers of free rows, a centre counted once and twice.
    share : float
        Share of the rows that selected centres.
    """
    ratio = trace / np.maximum(charged_trace, trace / MOST_CORRECTION)
    return np.asarray(1.0 + share * (ratio - 1.0))
