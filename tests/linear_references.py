"""Slow dense references of the linear methods, straight from their equations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def within_scatter(X: Array, labels: Array, weights: Array) -> Array:
    """S_W (thesis 3.7)."""
    total = np.zeros((X.shape[1], X.shape[1]), dtype=X.dtype)
    for label in np.unique(labels):
        rows, own = X[labels == label], weights[labels == label]
        deviations = rows - np.average(rows, axis=0, weights=own)
        total += (own[:, None] * deviations).T @ deviations
    return total


def augmented(X: Array) -> Array:
    return np.concatenate([np.ones((len(X), 1)), X], axis=1)


def lms(Y: Array, targets: Array, weights: Array, rate: Any, normalized: bool, passes: int) -> Array:
    """Row after row; `rate` is a function of the pass and of the weight seen so far, both from 1."""
    a = np.zeros((Y.shape[1], targets.shape[1]))
    seen = 0.0
    for number in range(1, passes + 1):
        for y, target, weight in zip(Y, targets, weights, strict=True):
            eta = rate(number, seen + 1)
            step = min(eta if normalized else eta * (y @ y), 1.0) / (y @ y)
            for _ in range(int(weight)):
                a += step * np.outer(y, target - y @ a)
            seen += weight
    return a


def ho_kashyap(Y: Array, rate: float, max_iter: int, tol: float) -> tuple[Array, Array, bool | None, int]:
    """Slides 5.9 on rows of which those of the negative side are negated; b begins with ones."""
    inverse = np.linalg.pinv(Y)
    b = np.ones(len(Y))
    a = inverse @ b
    for iteration in range(1, max_iter + 1):
        e = Y @ a - b
        beyond = (e + np.abs(e)) / 2
        if (Y @ a).min() > 1e-12 * np.abs(Y @ a).max():
            return a, b, True, iteration
        short = beyond - e
        if beyond.sum() <= tol * short.sum() and short.sum() > 0:
            return a, b, False, iteration
        if iteration < max_iter:
            b = b + 2 * rate * beyond
            a = inverse @ b
    return a, b, None, max_iter
