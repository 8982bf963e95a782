"""From fitted targets to what an estimator returns: plain functions, which travel to workers without the estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SMALLEST_PROBABILITY = 1e-6


def all_targets(values: Array) -> Array:
    """Return every target, shape (n, T)."""
    return values


def only_target(values: Array) -> Array:
    """Return the one target, shape (n,)."""
    return values[:, 0]


def labels(values: Array, classes: NDArray[Any]) -> NDArray[Any]:
    """Return the class with the largest target, shape (n,); two classes share one target."""
    codes = (values[:, 0] > 0).astype(np.intp) if values.shape[1] == 1 else values.argmax(axis=1)
    return np.asarray(classes[codes])


def probabilities(values: Array) -> Array:
    """Return probabilities from targets of +-1, shape (n, n_classes)."""
    if values.shape[1] == 1:
        values = np.concatenate([-values, values], axis=1)
    estimates = (values + 1) / 2
    # Where no class reaches an even share, the best one is lifted to it: clipping must not make ties.
    lift = 1 / estimates.shape[1] - estimates.max(axis=1, keepdims=True)
    estimates = np.maximum(estimates + np.maximum(lift, 0.0), SMALLEST_PROBABILITY)
    return np.asarray(estimates / estimates.sum(axis=1, keepdims=True))


def labels_and_probabilities(values: Array, classes: NDArray[Any]) -> tuple[NDArray[Any], Array]:
    """Return both for one evaluation."""
    return labels(values, classes), probabilities(values)
