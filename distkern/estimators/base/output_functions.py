"""Labels, probabilities and intervals from fitted targets: plain functions, sent to workers without the estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from distkern.scheduler.prediction.local import OutputFunction
from distkern.scheduler.runtime.threads import single_threaded_blas

from ...arrays import Array
from ...probability.calibration import AnyCalibration
from ...probability.decisions import decide
from ...probability.pair_gaussians import PairGaussians

SMALLEST_PROBABILITY = 1e-6


def all_targets(values: Array) -> Array:
    """Return every target, shape (n, T)."""
    return values


def only_target(values: Array) -> Array:
    """Return the one target, shape (n,)."""
    return values[:, 0]


def labels(values: Array, classes: NDArray[Any], multiclass: str = "shared") -> NDArray[Any]:
    """Return the predicted class of each row, shape (n,); `multiclass` has the default "shared"."""
    return np.asarray(classes[decide(values, len(classes), multiclass)])


def probabilities(values: Array, calibration: AnyCalibration | PairGaussians | None = None) -> Array:
    """Return class probabilities, shape (n, n_classes), by an optional calibration, else linear in targets of +-1."""
    if calibration is not None:
        # Far from the data a probability may underflow to zero.
        with single_threaded_blas():
            return np.maximum(np.exp(calibration.log_posteriors(values)), np.finfo(np.float64).tiny)
    if values.shape[1] == 1:
        values = np.concatenate([-values, values], axis=1)
    estimates = (values + 1) / 2
    # Where no class has 1/C or more, all are raised until the best one has: clipping must not make ties.
    lift = 1 / estimates.shape[1] - estimates.max(axis=1, keepdims=True)
    estimates = np.maximum(estimates + np.maximum(lift, 0.0), SMALLEST_PROBABILITY)
    return np.asarray(estimates / estimates.sum(axis=1, keepdims=True))


def log_likelihoods(values: Array, probabilities: OutputFunction[Array], priors: Array) -> Array:
    """Return log P(class | x) - log P(class), shape (n, n_classes); minus infinity where P(class) is 0."""
    logs = np.log(np.maximum(probabilities(values), np.finfo(np.float64).tiny))
    scores = logs - np.log(np.where(priors > 0, priors, 1.0))
    return np.where(priors > 0, scores, -np.inf)


def labels_and_probabilities(
    values: Array, classes: NDArray[Any], multiclass: str, probabilities: OutputFunction[Array]
) -> tuple[NDArray[Any], Array]:
    """Return labels and probabilities of one evaluation."""
    return labels(values, classes, multiclass), probabilities(values)


def posteriors(values: Array) -> Array:
    """Return probabilities from log odds, shape (n, 1), or from log posteriors, shape (n, n_classes)."""
    if values.shape[1] == 1:
        return np.concatenate([expit(-values), expit(values)], axis=1)
    return np.asarray(softmax(values, axis=1))


def means_and_deviations(values: Array, n_targets: int) -> Array:
    """Return predictions and standard deviations, shape (n, 2), or (n, T, 2) for several targets."""
    return _side_by_side(values[:, :n_targets], values[:, n_targets:])


def interval(values: Array, halves: Array) -> Array:
    """Return lower and upper ends, shape (n, 2), or (n, T, 2) for several targets.

    Parameters
    ----------
    values : array, shape (n, T) or (n, 2 T)
        Fitted targets, and the scales of the residuals after them where the width follows the row.
    halves : array, shape (T,)
        Half the width, or its ratio to the scale.
    """
    middle, scales = values[:, : len(halves)], values[:, len(halves) :]
    reach = halves * scales if scales.size else np.broadcast_to(halves, middle.shape)
    return _side_by_side(middle - reach, middle + reach)


def _side_by_side(first: Array, second: Array) -> Array:
    both = np.stack([first, second], axis=2)
    return both[:, 0] if both.shape[1] == 1 else both


def predictions_and_interval(
    values: Array, predictions: OutputFunction[NDArray[Any]], halves: Array
) -> tuple[NDArray[Any], Array]:
    """Return predictions and intervals of one evaluation."""
    return predictions(values[:, : len(halves)]), interval(values, halves)
