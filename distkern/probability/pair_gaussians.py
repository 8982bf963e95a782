"""Probabilities by a Gaussian for each pair's output and class, joined by pairwise coupling (thesis 4.6-4.8).

The output of a pair of classes is the model's own with one-vs-one; with targets that all classes share it is the
difference of the outputs of the two. Outputs of real data have longer tails than Gaussians, so `calibration` is the
default; this is what the thesis has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from .calibration import LARGEST_OUTPUT
from .pairwise import class_pairs, pairwise_coupling

__all__ = ["PairGaussians"]

MIXED_IN = 1e-3
"""Share of the mean variance of both classes in that of a class, so that a class of few rows has one."""

LEAST_DEVIATION = 1e-6
"""Least deviation: outputs of training rows may all be the same."""

VALUES_AT_A_TIME = 1 << 21
"""Probabilities of pairs that are computed together."""


@dataclass(frozen=True, eq=False)
class PairGaussians:
    """Means and deviations of each pair's output on the rows of either class."""

    means: Array
    """(n_pairs, 2): of the first and of the second class."""
    deviations: Array
    """(n_pairs, 2): above zero."""
    log_priors: Array
    """(C,): logarithms of the class shares."""
    own_outputs: bool
    """Whether every pair has an output of its own; otherwise that of a pair is a difference of two."""

    @classmethod
    def fit(
        cls, outputs: Array, codes: NDArray[np.intp], weights: Array, n_classes: int, *, own_outputs: bool = False
    ) -> Self:
        """Compute the moments.

        Parameters
        ----------
        outputs : array, shape (n, T)
            Outputs of rows that the model was not trained on, or leave-one-out outputs: one for two classes, one for
            each class, or one for each pair.
        codes : array, shape (n,)
            Classes, counted from 0.
        weights : array, shape (n,)
            Row weights.
        n_classes : int
            Number of classes.
        own_outputs : bool, default False
            Whether every pair has an output of its own.
        """
        outputs = np.clip(outputs, -LARGEST_OUTPUT, LARGEST_OUTPUT)
        counts = np.bincount(codes, weights, n_classes)
        pairs = class_pairs(n_classes)
        means, variances = np.zeros((len(pairs), 2)), np.ones((len(pairs), 2))
        own_outputs = own_outputs or n_classes == 2
        for c in np.flatnonzero(counts > 0).tolist():
            rows = codes == c
            share = weights[rows] / counts[c]
            center = share @ outputs[rows]
            left = outputs[rows] - center
            covariance = None if own_outputs else (left * share[:, None]).T @ left
            spread = share @ np.square(left)
            for side, pair, i, j in _pairs_with(c, pairs):
                if covariance is None:
                    means[pair, side], variances[pair, side] = center[pair], spread[pair]
                else:
                    means[pair, side] = center[j] - center[i]
                    variances[pair, side] = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
        variances = (1 - MIXED_IN) * variances + MIXED_IN * variances.mean(axis=1, keepdims=True)
        deviations = np.maximum(np.sqrt(np.maximum(variances, 0.0)), LEAST_DEVIATION)
        # A class without rows counts as half a row.
        return cls(means, deviations, np.log((counts + 0.5) / (counts + 0.5).sum()), own_outputs)

    def log_posteriors(self, outputs: Array) -> Array:
        """Return the logarithms of the class probabilities, shape (n, n_classes), by 4.7, Bayes' rule and 4.8.

        Parameters
        ----------
        outputs : array, shape (n, T)
            Fitted targets.
        """
        n_classes = len(self.log_priors)
        step = max(1, VALUES_AT_A_TIME // n_classes**2)
        parts = [self._some(outputs[start : start + step]) for start in range(0, len(outputs), step)]
        return np.concatenate(parts) if parts else np.empty((0, n_classes))

    def _some(self, outputs: Array) -> Array:
        n_classes = len(self.log_priors)
        first, second = np.transpose(class_pairs(n_classes))
        values = outputs if self.own_outputs else outputs[:, second] - outputs[:, first]
        logs = [
            -0.5 * np.square((values - self.means[:, side]) / self.deviations[:, side])
            - np.log(self.deviations[:, side])
            + self.log_priors[which]
            for side, which in enumerate((first, second))
        ]
        # The smaller chance of a pair by itself: 1 - p would lose it.
        odds = np.clip(logs[1] - logs[0], -700.0, 700.0)
        chances = np.full((len(values), n_classes, n_classes), 0.5)
        chances[:, first, second], chances[:, second, first] = 1 / (1 + np.exp(odds)), 1 / (1 + np.exp(-odds))
        return np.asarray(np.log(pairwise_coupling(chances)))


def _pairs_with(c: int, pairs: list[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the side of class c in each of its pairs, the pair's number, and both classes."""
    for pair, (i, j) in enumerate(pairs):
        if c in (i, j):
            yield (0 if c == i else 1), pair, i, j
