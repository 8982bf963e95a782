"""Class probabilities from fitted targets, in log space.

Gaussians with one covariance for all classes have posteriors that are a softmax of linear functions of the outputs
(thesis 4.6, 4.7). Outputs of real data have long tails, so coefficients from moments give probabilities that are much
too extreme. Here the coefficients maximise the likelihood of the classes instead (multinomial logistic regression with
a ridge). A calibration must be fitted on outputs of rows that the model was not trained on, see
`distkern.probability.leave_one_out`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.special import expit

from ..arrays import Array
from .pairwise import class_pairs, pairwise_coupling

RIDGE = 1.0
"""Penalty on the squared coefficients of outputs of unit variance. It weighs as much as a few rows, and decides where
classes are separable."""

LARGEST_OUTPUT = 3.0
"""Larger outputs are cut to this in the fit: targets are +-1, but a lone row may have any leave-one-out output."""

LEAST_SLOPE = 1e-3
"""Smallest coefficient of two classes, and the share of it that remains where the offset contradicts the output."""

MANY_CLASSES = 100
"""With more classes than this, slopes are a diagonal and a matrix of this rank: a full matrix would take minutes."""

WORK_OF_MANY = 3 * 10**8
"""Number of probabilities that are computed for many classes, in seconds; it decides the number of steps."""

LEAST_STEPS = 30
"""Least number of steps for many classes."""

ROWS_IN_CACHE = 256
"""Rows of many classes whose probabilities are computed together, so that they stay in cache."""

TIE_BREAK = 1e-6
"""Relative lead of the predicted class over a class that shares its probability."""

ITERATIONS = 200
"""Largest number of steps of the maximisation."""

PRECISION = 1e-7
"""Relative change of the likelihood at which the maximisation ends."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """Log-odds that are linear in the outputs, and agree with the predicted class."""

    slopes: Array
    """(T, T), or (1, 1) for two classes: factors of the outputs in the log-odds."""
    offsets: Array
    """(T,), or (1,) for two classes: constants of the log-odds."""

    @classmethod
    def fit(cls, outputs: Array, codes: NDArray[np.intp], weights: Array | None = None) -> Self:
        """Maximise the likelihood of the classes of some rows.

        Parameters
        ----------
        outputs : array, shape (n, T), or (n, 1) for two classes
            Fitted targets of rows that the model was not trained on, or leave-one-out outputs.
        codes : array, shape (n,)
            Classes, counted from 0.
        weights : array, shape (n,), optional
            Row weights; ones by default.
        """
        weights = np.ones(len(outputs)) if weights is None else weights
        outputs = np.clip(outputs, -LARGEST_OUTPUT, LARGEST_OUTPUT)
        total = weights.sum()
        means = weights @ outputs / total
        spreads = np.sqrt(weights @ np.square(outputs - means) / total)
        # A constant output carries no information; its coefficient stays zero.
        spreads = np.where(spreads > 1e-12 * np.abs(outputs).max(initial=1.0), spreads, np.inf)
        scaled = (outputs - means) / spreads
        k = outputs.shape[1]
        fit = _fit_two_classes if k == 1 else _fit_classes if k <= MANY_CLASSES else _fit_many_classes
        slopes, offsets = fit(scaled, codes, weights)
        slopes = slopes / spreads[:, None]
        return cls(slopes, offsets - means @ slopes)

    @classmethod
    def of_log_odds(cls, n_classes: int) -> Self:
        """Return the calibration of outputs that are log odds already, those of a logistic loss."""
        n_outputs = 1 if n_classes == 2 else n_classes
        return cls(np.eye(n_outputs), np.zeros(n_outputs))

    def log_posteriors(self, outputs: Array) -> Array:
        """Return the logarithms of the class probabilities, shape (n, n_classes).

        Where the odds favour another class than the outputs, the classes of larger probability share theirs equally
        with the predicted class: these are the nearest probabilities that agree with the prediction.

        Parameters
        ----------
        outputs : array, shape (n, T), or (n, 1) for two classes
            Fitted targets.
        """
        # dask delivers arrays that may be unaligned, which would change the last bits of products.
        slopes = np.array(self.slopes, order="C")
        if outputs.shape[1] == 1:
            odds = _log_odds(outputs[:, 0], slopes[0], self.offsets)
            return np.column_stack([-np.logaddexp(0.0, odds), -np.logaddexp(0.0, -odds)])
        logs = log_softmax(outputs @ slopes + self.offsets)
        return _agree(logs, outputs.argmax(axis=1))


@dataclass(frozen=True, eq=False)
class PairCalibration:
    """Log-odds of every pair of classes, each linear in the pair's output, joined by pairwise coupling (thesis 4.8)."""

    slopes: Array
    """(n_pairs,): factors of the outputs in the log-odds of the second class of a pair."""
    offsets: Array
    """(n_pairs,): constants of the log-odds."""

    @classmethod
    def fit(cls, outputs: Array, codes: NDArray[np.intp], weights: Array, n_classes: int) -> Self:
        """Fit each pair on the rows of its classes.

        Parameters
        ----------
        outputs : array, shape (n, n_pairs)
            Leave-one-out outputs; of each row only those of the pairs with its class are used.
        codes : array, shape (n,)
            Classes, counted from 0.
        weights : array, shape (n,)
            Row weights.
        n_classes : int
            Number of classes.
        """
        slopes, offsets = np.ones(outputs.shape[1]), np.zeros(outputs.shape[1])
        for pair, (first, second) in enumerate(class_pairs(n_classes)):
            rows = np.flatnonzero((codes == first) | (codes == second))
            if len(rows):
                one = Calibration.fit(outputs[rows, pair : pair + 1], (codes[rows] == second) * 1, weights[rows])
                slopes[pair], offsets[pair] = one.slopes[0, 0], one.offsets[0]
        return cls(slopes, offsets)

    def log_posteriors(self, outputs: Array) -> Array:
        """Return the logarithms of the class probabilities, shape (n, n_classes).

        Parameters
        ----------
        outputs : array, shape (n, n_pairs)
            Fitted targets.
        """
        n_classes = round((1 + np.sqrt(1 + 8 * outputs.shape[1])) / 2)
        first, second = np.transpose(class_pairs(n_classes))
        odds = _log_odds(outputs, self.slopes, self.offsets)
        chances = np.full((len(outputs), n_classes, n_classes), 0.5)
        chances[:, first, second], chances[:, second, first] = expit(-odds), expit(odds)
        return np.asarray(np.log(pairwise_coupling(chances)))


AnyCalibration = Calibration | PairCalibration


def log_softmax(logits: Array) -> Array:
    """Return logits minus the logarithm of the sum of their exponentials, by row."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _log_odds(outputs: Array, slopes: Array, offsets: Array) -> Array:
    """Return the log-odds of the second class of each pair, one column for each pair."""
    least = LEAST_SLOPE * slopes * outputs
    # Both branches rise with the output, which keeps the order of rows; the odds change sign at 0, as the prediction.
    odds = slopes * outputs + offsets
    return np.where(outputs > 0, np.maximum(odds, least), np.minimum(odds, least))


def _agree(logs: Array, predicted: NDArray[np.intp]) -> Array:
    """Replace log probabilities by the nearest whose largest is that of the predicted class, in place."""
    rows = np.flatnonzero(logs.argmax(axis=1) != predicted)
    if not len(rows):
        return logs
    chances = np.exp(logs[rows])
    at = np.arange(len(rows)), predicted[rows]
    own = chances[at]
    chances[at] = -1.0
    ranked = -np.sort(-chances, axis=1)[:, :-1]
    counts = np.arange(2, logs.shape[1] + 1)
    # The means of the own chance with the largest others rise until the next chance is below the mean.
    level = ((own[:, None] + np.cumsum(ranked, axis=1)) / counts).max(axis=1)
    shared = chances >= level[:, None]
    pooled = logs[rows]
    pooled[shared] = np.broadcast_to(np.log(level)[:, None], shared.shape)[shared]
    pooled[at] = np.log(level) + TIE_BREAK
    logs[rows] = log_softmax(pooled)
    return logs


def _fit_classes(scaled: Array, codes: NDArray[np.intp], weights: Array) -> tuple[Array, Array]:
    n, k = scaled.shape
    rows = np.arange(n)

    def negative(x: Array) -> tuple[float, Array]:
        slopes, offsets = x[: k * k].reshape(k, k), x[k * k :]
        logs = log_softmax(scaled @ slopes + offsets)
        value = -float(weights @ logs[rows, codes]) + 0.5 * RIDGE * float(np.square(slopes).sum())
        excess = np.exp(logs)
        excess[rows, codes] -= 1.0
        excess *= weights[:, None]
        return value, np.concatenate([(scaled.T @ excess + RIDGE * slopes).ravel(), excess.sum(axis=0)])

    # Start from the shares of the classes; a class without rows counts as half a row.
    shares = np.bincount(codes, weights, k) + 0.5
    start = np.concatenate([np.eye(k).ravel(), np.log(shares / shares.sum())])
    found = _minimise(negative, start)
    return found[: k * k].reshape(k, k), found[k * k :]


def _fit_many_classes(scaled: Array, codes: NDArray[np.intp], weights: Array) -> tuple[Array, Array]:
    """Fit slopes diag(a) + P V, where P are the directions in which the means of the classes differ most."""
    n, k = scaled.shape
    masses = np.bincount(codes, weights, k)
    sums = np.zeros((k, k))
    np.add.at(sums, codes, weights[:, None] * scaled)
    between = sums.T @ (sums / np.maximum(masses, TIE_BREAK)[:, None])
    basis = eigh(between, subset_by_index=[k - MANY_CLASSES, k - 1])[1]
    # Directions of unit variance, with the penalty that their coefficients have in units of outputs.
    lengths = np.sqrt(weights @ np.square(scaled @ basis) / weights.sum())
    basis /= lengths
    penalty = RIDGE * np.append(lengths**-2.0, 0.0)[:, None]
    projected = np.column_stack([scaled @ basis, np.ones(n)]).astype(np.float32)
    single, mass = scaled.astype(np.float32), weights.astype(np.float32)

    def negative(x: Array) -> tuple[float, Array]:
        diagonal, V = x[:k], x[k:].reshape(-1, k)
        value = 0.5 * float(RIDGE * diagonal @ diagonal + (penalty * np.square(V)).sum())
        own_slopes, slopes = RIDGE * diagonal, penalty * V
        a, v = diagonal.astype(np.float32), V.astype(np.float32)
        for start in range(0, n, ROWS_IN_CACHE):
            rows = slice(start, start + ROWS_IN_CACHE)
            at = np.arange(len(single[rows])), codes[rows]
            logits = projected[rows] @ v
            logits += single[rows] * a
            logits -= logits.max(axis=1, keepdims=True)
            own = logits[at].astype(np.float64)
            excess = np.exp(logits, out=logits)
            totals = excess.sum(axis=1)
            value += float(weights[rows] @ (np.log(totals.astype(np.float64)) - own))
            excess *= (mass[rows] / totals)[:, None]
            excess[at] -= mass[rows]
            own_slopes += (single[rows] * excess).sum(axis=0)
            slopes += projected[rows].T @ excess
        return value, np.concatenate([own_slopes, slopes.ravel()])

    start = np.zeros((MANY_CLASSES + 2, k))
    start[0], start[-1] = 1.0, np.log((masses + 0.5) / (masses + 0.5).sum())
    steps = min(ITERATIONS, max(LEAST_STEPS, WORK_OF_MANY // (n * k)))
    found = _minimise(negative, start.ravel(), maxiter=steps, ftol=1e-6).reshape(-1, k)
    return np.diag(found[0]) + basis @ found[1:-1], found[-1]


def _fit_two_classes(scaled: Array, codes: NDArray[np.intp], weights: Array) -> tuple[Array, Array]:
    signs = np.where(codes == 1, 1.0, -1.0)
    x = scaled[:, 0]

    def negative(w: Array) -> tuple[float, Array]:
        margins = signs * (w[0] * x + w[1])
        value = float(weights @ np.logaddexp(0.0, -margins)) + 0.5 * RIDGE * w[0] ** 2
        pull = -weights * signs * np.exp(-np.logaddexp(0.0, margins))
        return value, np.array([pull @ x + RIDGE * w[0], pull.sum()])

    found = _minimise(negative, np.array([1.0, 0.0]), bounds=[(LEAST_SLOPE, None), (None, None)])
    return found[:1].reshape(1, 1), found[1:]


def _minimise(negative: Any, start: Array, bounds: Any = None, **limits: Any) -> Array:
    options: Any = {"maxiter": ITERATIONS, "ftol": PRECISION, "gtol": 1e-6, **limits}
    found: Array = minimize(negative, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return found
