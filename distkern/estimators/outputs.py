"""From fitted targets to what an estimator returns: plain functions, which travel to workers without the estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.calibration import AnyCalibration
from distkern.decisions import decide
from distkern.scheduler.threads import single_threaded_blas

Array = NDArray[np.float64]

SMALLEST_PROBABILITY = 1e-6

SMALLEST_PRIOR = 1e-12
"""Share that a class without training rows is given."""


def all_targets(values: Array) -> Array:
    """Return every target, shape (n, T)."""
    return values


def only_target(values: Array) -> Array:
    """Return the one target, shape (n,)."""
    return values[:, 0]


def labels(values: Array, classes: NDArray[Any], multiclass: str = "shared") -> NDArray[Any]:
    """Return the class that the outputs speak for, shape (n,)."""
    return np.asarray(classes[decide(values, len(classes), multiclass)])


def probabilities(values: Array, calibration: AnyCalibration | None = None) -> Array:
    """Return class probabilities, shape (n, n_classes): calibrated, or else a linear estimate from targets of +-1."""
    if calibration is not None:
        # Far from the data a probability may be below the smallest number.
        return np.maximum(np.exp(log_posteriors(values, calibration)), np.finfo(np.float64).tiny)
    if values.shape[1] == 1:
        values = np.concatenate([-values, values], axis=1)
    estimates = (values + 1) / 2
    # Where no class reaches an even share, the best one is lifted to it: clipping must not make ties.
    lift = 1 / estimates.shape[1] - estimates.max(axis=1, keepdims=True)
    estimates = np.maximum(estimates + np.maximum(lift, 0.0), SMALLEST_PROBABILITY)
    return np.asarray(estimates / estimates.sum(axis=1, keepdims=True))


def log_posteriors(values: Array, calibration: AnyCalibration | None) -> Array:
    """Return the logarithms of the class probabilities, shape (n, n_classes)."""
    if calibration is None:
        return np.log(probabilities(values))
    with single_threaded_blas():
        return calibration.log_posteriors(values)


def log_likelihoods(values: Array, calibration: AnyCalibration | None, priors: Array) -> Array:
    """Return log P(class | x) - log P(class), shape (n, n_classes)."""
    return np.asarray(log_posteriors(values, calibration) - np.log(np.maximum(priors, SMALLEST_PRIOR)))


def labels_and_probabilities(
    values: Array, classes: NDArray[Any], multiclass: str, calibration: AnyCalibration | None = None
) -> tuple[NDArray[Any], Array]:
    """Return both for one evaluation."""
    return labels(values, classes, multiclass), probabilities(values, calibration)


def odds_probabilities(values: Array) -> Array:
    """Return probabilities from log odds of the second class, or from log posteriors up to a constant a row."""
    if values.shape[1] == 1:
        values = np.concatenate([np.zeros_like(values), values], axis=1)
    shares = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def labels_and_odds_probabilities(values: Array, classes: NDArray[Any]) -> tuple[NDArray[Any], Array]:
    """Return both for one evaluation."""
    return labels(values, classes), odds_probabilities(values)
