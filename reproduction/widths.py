"""Cross-validation on training rows: widths of the kernel, and errors of all prefixes of a path."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from distkern.estimators.sparse.kernel_least_squares import KernelLeastSquares

from .sets import Partition

Array = NDArray[np.float64]

FOLDS = 5
"""Folds of every search, as in the sources."""


def cross_validated_width(model: KernelLeastSquares, parts: Sequence[Partition], searches: int) -> float:
    """Return the median of the widths that several cross-validations choose.

    Parameters
    ----------
    model : OROLS, NPD or LOO estimator
        Estimator; each search sets its `sigma` to "cv".
    parts : sequence of Partition
        Partitions, one for each search; their test rows are not used.
    searches : int
        Number of searches; where there are fewer partitions, they are used again with other folds.
    """
    widths = []
    for search in range(searches):
        part, seed = parts[search % len(parts)], search // len(parts)
        trial = clone(model).set_params(sigma="cv", folds=FOLDS, random_state=seed)
        widths.append(trial.fit(part.X, part.y).kernel_.sigma)
    return float(np.median(widths))


def median_distance(X: Array) -> float:
    """Return the median Euclidean distance between the first rows, at most 1000."""
    rows = X[:1000]
    squares = np.square(rows).sum(axis=1)
    gram = squares[:, None] + squares[None, :] - 2 * rows @ rows.T
    return float(np.sqrt(np.median(gram[np.triu_indices(len(rows), 1)])))


def path_errors(model: KernelLeastSquares, part: Partition, lengths: Sequence[int]) -> Array:
    """Train one path and return the errors of its prefixes on the test rows; a shorter path repeats its last error.

    Parameters
    ----------
    model : OROLS or NPD estimator
        Estimator with ``stop=None`` and `max_centers` at least the longest prefix.
    part : Partition
        Rows to train on and to test.
    lengths : sequence of int
        Numbers of centres of the prefixes.

    Returns
    -------
    array, shape (n_lengths,)
        Fraction wrong, or mean squared error.
    """
    model.fit(part.X, part.y)
    longest = model.n_centers_
    return np.array([prediction_error(model.truncate(min(length, longest)), part) for length in lengths])


def prediction_error(model: Any, part: Partition) -> float:
    """Return the fraction wrong, or the mean squared error, on the test rows."""
    predicted = model.predict(part.X_test)
    if model._classification:
        return float(np.mean(predicted != part.y_test))
    return float(np.mean(np.square(predicted - part.y_test)))


def folds_of(part: Partition, n_folds: int = FOLDS) -> list[Partition]:
    """Cut a partition's training rows into seeded folds, by default `FOLDS`; each fold is the test rows once."""
    order = np.random.default_rng(0).permutation(len(part.X))
    bounds = np.linspace(0, len(order), n_folds + 1).astype(int)
    folds = []
    for first, last in pairwise(bounds):
        held, rest = order[first:last], np.concatenate([order[:first], order[last:]])
        folds.append(Partition(part.X[rest], part.y[rest], part.X[held], part.y[held]))
    return folds
