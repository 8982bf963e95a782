"""Weights of selected centres that minimise a loss, with lambda by cross-validation on a sample of rows.

The weights minimise sum_i W_i loss(y_i, f(x_i)) + lambda/2 a'K_mm a, with f(x) = b + k(x)'a, K_mm the kernel between
the centres, and b free: the penalty of kernel logistic regression, and of `rkhs_refit`, whose coordinates are used here
too. With the thin factors [1 K] = Q U over all rows, R = S^(1/2) U_1 and F'F = K_mm, the singular vectors D of
(F R^-1)' make the penalty diagonal and the columns Q_1 S^(-1/2) D of all rows orthonormal. So the Hessian of squares is
diagonal, and that of another loss nearly so where its curvature differs little among rows. Limited-memory BFGS
minimises the rest: it takes the value and the slope of the loss, sums over rows that are as large as the weights, and
no Gram matrix, which softmax would need for every pair of classes.

Covers the sample; `minimise` calls a function for each evaluation, which may be a pass over a store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular, svd
from scipy.optimize import minimize

from ..arrays import Array
from .losses import HUBER, LOGISTIC, QUANTILE, Loss
from .rkhs_refit import square_root

__all__ = ["LossBasis", "LossFit", "LossSample", "choose", "minimise", "residual_scales", "sample_fit_bytes"]

LOSS_LAMBDAS = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5, 1e-6)
"""Regularisation that is tried, largest first, where the diagonal of the kernel has mean 1."""

RISES = 2
"""The search ends after so many lambdas in a row whose held-out loss is above the lowest."""

LOSS_FOLDS, LOGISTIC_FOLDS = 5, 10
"""Folds of a sample: where lambda of the logistic loss depended on the seed, more of them gave the same one."""

ONE_DRAW = 2000
"""Rows of a sample above which the first fifth of the folds is held out once, and not each fold in turn."""

TRIAL_PRECISION, LOSS_PRECISION = 1e-5, 1e-7
"""Relative change of the penalised loss at which the minimisation ends: of a trial, and of the model."""

TRIAL_MOST, MOST = 150, 500
"""Most evaluations on the sample: of a trial, and of the model."""

KEPT_PAIRS = 20
"""Pairs of steps and slopes that the minimisation keeps."""

LEAST_CURVATURE = 1e-3
"""Least curvature of a coordinate, in parts of the mean of all."""

DEVIATION = 1.4826
"""Standard deviation of a normal distribution in units of its median absolute deviation."""

TUKEY = 1.345
"""Huber's threshold, in deviations, of the fit whose residuals give the scale."""

Evaluate = Callable[[Array], tuple[float, Array]]
"""Function from coordinates, (p, T), to the summed loss and its slope, (p, T)."""


class Metric(Protocol):
    """Units in which the minimisation takes its steps."""

    def to(self, coordinates: Array) -> Array:
        """Return coordinates in these units, shape (p, T)."""
        ...

    def back(self, scaled: Array) -> Array:
        """Return the inverse of `to`."""
        ...

    def slopes(self, slopes: Array) -> Array:
        """Return the slope by scaled coordinates."""
        ...


@dataclass(frozen=True, eq=False)
class _Diagonal:
    """Each coordinate in units of the root of its curvature."""

    scale: Array
    """(p, T)."""

    def to(self, coordinates: Array) -> Array:
        return coordinates / self.scale

    def back(self, scaled: Array) -> Array:
        return scaled * self.scale

    slopes = back


@dataclass(frozen=True, eq=False)
class _Joint:
    """The coordinates of every output in units of one Hessian."""

    root: Array
    """(p, p): upper triangular R, with the Hessian R'R."""

    def to(self, coordinates: Array) -> Array:
        return self.root @ coordinates

    def back(self, scaled: Array) -> Array:
        return np.asarray(solve_triangular(self.root, scaled))

    def slopes(self, slopes: Array) -> Array:
        return np.asarray(solve_triangular(self.root, slopes, trans="T"))


@dataclass(frozen=True, eq=False)
class LossBasis:
    """Coordinates in which the columns of all rows are orthonormal and the penalty is diagonal."""

    roots: Array
    """(m + 1,): square roots of s; the first is the root of the row weights."""
    directions: Array
    """(m, m): D."""
    penalties: Array
    """(m + 1,): penalty of each coordinate where lambda is 1, of the intercept 0."""
    intercept: bool
    """Whether the first coordinate, the intercept, is free; it is zero otherwise."""

    @classmethod
    def of(cls, u: Array, s: Array, gram: Array, *, intercept: bool = True) -> LossBasis:
        """Make the coordinates.

        Parameters
        ----------
        u : array, shape (m + 1, m + 1)
            Unit upper triangular.
        s : array, shape (m + 1,)
            Squared column norms of Q over all rows.
        gram : array, shape (m, m)
            Kernel between the centres.
        intercept : bool, default True
            Whether there is a constant column.

        Raises
        ------
        JobError
            ``indefinite-kernel``.
        """
        roots = np.sqrt(s)
        if not intercept:
            roots[0] = 1.0
        if not len(gram):
            return cls(roots, np.empty((0, 0)), np.zeros(1), intercept)
        triangle = roots[1:, None] * u[1:, 1:]
        penalty = solve_triangular(triangle, square_root(gram).T, trans="T", overwrite_b=True)
        directions, sizes, _ = svd(penalty, overwrite_a=True, check_finite=False)
        # Without units: lambda is in parts of the mean diagonal.
        return cls(roots, directions, np.append(0.0, np.square(sizes)) / gram.diagonal().mean(), intercept)

    def orthogonal(self, coordinates: Array) -> Array:
        """Return the weights of Q's columns, shape (m + 1, T)."""
        weights = coordinates.copy()
        weights[1:] = self.directions @ coordinates[1:]
        return weights / self.roots[:, None]

    def slopes(self, of_orthogonal: Array) -> Array:
        """Return slopes by the coordinates from those by the weights of Q's columns, shape (m + 1, T)."""
        scaled = of_orthogonal / self.roots[:, None]
        scaled[1:] = self.directions.T @ scaled[1:]
        if not self.intercept:
            scaled[0] = 0.0
        return scaled

    def columns(self, q: Array) -> Array:
        """Replace rows of Q, shape (n, m + 1), by those of the orthonormal columns; return them."""
        q /= self.roots
        q[:, 1:] = q[:, 1:] @ self.directions
        if not self.intercept:
            q[:, 0] = 0.0
        return q


@dataclass(frozen=True, eq=False)
class LossSample:
    """Rows on which lambda is chosen and the minimisation starts."""

    columns: Array
    """(n, p): columns of the basis."""
    targets: Array
    """(n, T): as for `Loss.evaluate`."""
    weights: Array
    """(n,): row weights, which sum to those of all rows."""

    def rows(self, chosen: NDArray[np.intp]) -> LossSample:
        """Return some of the rows, with the weights that they have in the whole."""
        return LossSample(self.columns[chosen], self.targets[chosen], self.weights[chosen])

    def evaluation(self, loss: Loss) -> Evaluate:
        """Return the function of the coordinates."""

        def evaluate(coordinates: Array) -> tuple[float, Array]:
            values, slopes, _ = loss.evaluate(self.columns @ coordinates, self.targets)
            return float(self.weights @ values), self.columns.T @ (slopes * self.weights[:, None])

        return evaluate

    def curvatures(self, loss: Loss, coordinates: Array) -> Array:
        """Return the curvature of the summed loss in each coordinate, shape (p, T)."""
        second = loss.evaluate(self.columns @ coordinates, self.targets)[2]
        if not second.any():  # no row is near the corner of a check function; squares have the curvature 1
            return np.ones_like(coordinates)
        return np.asarray(np.square(self.columns).T @ (second * self.weights[:, None]))

    def diagonal(self, loss: Loss, coordinates: Array, penalties: Array) -> Metric:
        """Return units for each coordinate by itself, from the curvature at a point."""
        curvatures = self.curvatures(loss, coordinates)
        floor = LEAST_CURVATURE * curvatures.mean()
        return _Diagonal(1.0 / np.sqrt(np.maximum(curvatures, floor) + penalties[:, None]))

    def joint(self, loss: Loss, coordinates: Array, penalties: Array) -> Metric:
        """Return units from the Hessian at a point, the mean over the outputs, which need fewer evaluations."""
        second = loss.evaluate(self.columns @ coordinates, self.targets)[2].mean(axis=1) * self.weights
        hessian = (self.columns * second[:, None]).T @ self.columns
        floor = LEAST_CURVATURE * hessian.diagonal().mean() + np.finfo(np.float64).tiny
        hessian[np.diag_indices(len(hessian))] += penalties + floor
        return _Joint(cholesky(hessian))


@dataclass(frozen=True, eq=False)
class LossFit:
    """The minimum on a sample."""

    coordinates: Array
    """(p, T)."""
    lam: float
    """Lambda of the penalty lambda/2 a'K_mm a, in parts of the mean diagonal of K_mm."""
    held_out: float
    """Mean loss of held-out rows; NaN where lambda was given."""
    tried: Array
    """(L, 2): each lambda and its held-out loss."""
    held: NDArray[np.intp]
    """(k,): rows of the sample that were held out; none where lambda was given."""
    scores: Array
    """(k, T): their outputs without them, with this lambda."""


def n_folds(loss: Loss) -> int:
    """Return the folds with which lambda of a loss is chosen."""
    return LOGISTIC_FOLDS if loss.name == LOGISTIC else LOSS_FOLDS


def minimise(
    evaluate: Evaluate,
    start: Array,
    penalties: Array,
    metric: Metric,
    *,
    precision: float = LOSS_PRECISION,
    most: int = MOST,
) -> Array:
    """Minimise the summed loss plus half the penalties times squared coordinates.

    Parameters
    ----------
    evaluate : callable
        The loss and its slope; it ends the minimisation by StopIteration.
    start : array, shape (p, T)
        First coordinates.
    penalties : array, shape (p,)
        Penalties, times lambda.
    metric : Metric
        Units of the steps.
    precision : float, default 1e-7
        Relative change of the minimum at which to end.
    most : int, default 500
        Most evaluations.

    Returns
    -------
    array, shape (p, T)
        The best coordinates that were evaluated.
    """
    best: tuple[float, Array] = np.inf, start

    def penalised(x: Array) -> tuple[float, Array]:
        nonlocal best
        coordinates = metric.back(x.reshape(start.shape))
        value, slopes = evaluate(coordinates)
        pulled = penalties[:, None] * coordinates
        value += 0.5 * float((pulled * coordinates).sum())
        if value < best[0]:
            best = value, coordinates
        return value, metric.slopes(slopes + pulled).ravel()

    options: Any = {"maxcor": KEPT_PAIRS, "maxfun": most, "maxiter": most, "ftol": precision, "gtol": 0.0}
    with suppress(StopIteration):
        minimize(penalised, metric.to(start).ravel(), jac=True, method="L-BFGS-B", options=options)
    return best[1]


def choose(
    sample: LossSample,
    loss: Loss,
    penalties: Array,
    folds: NDArray[np.intp],
    lambdas: Sequence[float],
    start: Array | None = None,
) -> LossFit:
    """Choose lambda by the loss of rows that are left out, and fit to all rows of the sample.

    The largest lambda is taken whose loss exceeds the lowest by less than a standard error of the difference; of
    quantiles, for which that was worse, the lambda with the lowest loss.

    Parameters
    ----------
    sample : LossSample
        The rows.
    loss : Loss
        The loss.
    penalties : array, shape (p,)
        Penalties where lambda is 1.
    folds : array, shape (n,)
        Fold of each row, from 0; of many rows only the first fifth of `n_folds` is left out, together.
    lambdas : sequence of float
        Descending; one lambda is taken as it is.
    start : array, shape (p, T), optional
        First coordinates; zeros by default.
    """
    start = np.zeros((sample.columns.shape[1], sample.targets.shape[1])) if start is None else start
    none = np.empty(0, dtype=np.intp), np.empty((0, sample.targets.shape[1]))
    found = LossFit(start, lambdas[0], np.nan, np.empty((0, 2)), *none)
    if len(lambdas) > 1:
        found = _tried(sample, loss, penalties, folds, lambdas, found)
    start, pull = found.coordinates, found.lam * penalties
    # With a floor under the curvatures no lambda of zero runs away.
    whole = sample.evaluation(loss), start, pull, sample.diagonal(loss, start, pull)
    return replace(found, coordinates=minimise(*whole))


def _tried(
    sample: LossSample,
    loss: Loss,
    penalties: Array,
    folds: NDArray[np.intp],
    lambdas: Sequence[float],
    begun: LossFit,
) -> LossFit:
    """Return the chosen lambda, what was tried, and the fit without the first held-out rows."""
    if len(folds) <= ONE_DRAW:
        outs = [np.flatnonzero(folds == k) for k in range(n_folds(loss))]
    else:
        outs = [np.flatnonzero(folds < n_folds(loss) // 5)]
    outs = [out for out in outs if 0 < len(out) < len(folds)]
    if not outs:
        return begun
    keeps = [sample.rows(np.setdiff1d(np.arange(len(folds)), out)) for out in outs]
    held = np.concatenate(outs)
    masses = sample.weights[held]
    starts, losses, points, scores = [begun.coordinates] * len(outs), list[Array](), list[Array](), list[Array]()
    lowest = 0
    for lam in lambdas:
        for k, kept in enumerate(keeps):
            metric = kept.diagonal(loss, starts[k], lam * penalties)
            starts[k] = minimise(
                kept.evaluation(loss),
                starts[k],
                lam * penalties,
                metric,
                precision=TRIAL_PRECISION,
                most=TRIAL_MOST,
            )
        points.append(starts[0])
        scores.append(np.concatenate([sample.columns[out] @ at for out, at in zip(outs, starts, strict=True)]))
        losses.append(loss.exact(scores[-1], sample.targets[held]))
        if masses @ losses[-1] < masses @ losses[lowest]:
            lowest = len(losses) - 1
        if len(losses) - 1 - lowest >= RISES:
            break
    chosen = lowest
    if loss.name != QUANTILE:
        chosen = next(i for i in range(lowest + 1) if _is_as_low(losses[i] - losses[lowest], masses))
    means = np.array([masses @ each for each in losses]) / masses.sum()
    tried = np.column_stack([lambdas[: len(means)], means])
    return LossFit(points[chosen], lambdas[chosen], float(means[chosen]), tried, held, scores[chosen])


def _is_as_low(excess: Array, masses: Array) -> bool:
    """Return whether the mean by which losses exceed others is at most its standard error."""
    mean = masses @ excess / masses.sum()
    error = np.sqrt(np.square(masses * (excess - mean)).sum()) / masses.sum()
    return bool(mean <= error)


def residual_scales(sample: LossSample, penalties: Array) -> tuple[Array, Array]:
    """Return a robust deviation of the residuals of each target, shape (T,), and coordinates near the middle, (p, T).

    The median absolute deviation of a Huber fit (Huber and Ronchetti, Robust Statistics, 2009, section 7.7), whose own
    scale is that of the targets first, and that of the residuals then.

    Parameters
    ----------
    sample : LossSample
        The rows.
    penalties : array, shape (p,)
        Penalties where lambda is 1.
    """
    left, start = sample.targets, np.zeros((sample.columns.shape[1], sample.targets.shape[1]))
    scales = _deviations(left, sample.weights)
    for _ in range(3):
        loss = Loss(HUBER, TUKEY, scales)
        pull = 0.1 * penalties
        metric = sample.diagonal(loss, start, pull)
        start = minimise(sample.evaluation(loss), start, pull, metric, precision=TRIAL_PRECISION, most=TRIAL_MOST)
        found = _deviations(sample.targets - (sample.columns @ start) * scales, sample.weights)
        start, scales = start * (scales / found), found
    return scales, start


def _deviations(left: Array, weights: Array) -> Array:
    """Return the median absolute deviation of each column in standard deviations; above zero."""
    found = np.empty(left.shape[1])
    for t, column in enumerate(left.T):
        sizes = np.abs(column - _median(column, weights))
        # Half the rows may have residuals of zero.
        spare = weights @ sizes / weights.sum()
        found[t] = DEVIATION * max(_median(sizes, weights), 1e-3 * spare) or 1.0
    return found


def _median(values: Array, weights: Array) -> float:
    order = np.argsort(values, kind="stable")
    masses = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(masses, 0.5 * masses[-1])])


def sample_fit_bytes(n: int, m: int, n_targets: int) -> int:
    """Return the bytes of a choice of lambda and of its fit.

    Parameters
    ----------
    n : int
        Rows of the sample.
    m : int
        Number of centres.
    n_targets : int
        Number of targets.
    """
    # The columns, a copy while they are made, those of the rows that are kept, and of the weighted or squared ones;
    # the outputs of squares are kept for the end.
    rows = 8 * n * (4 * (m + 1) + 9 * n_targets)
    return rows + 8 * (9 * (m + 1) ** 2 + (2 * KEPT_PAIRS + 10) * (m + 1) * n_targets)
