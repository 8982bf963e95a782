"""From the outputs of a classifier to class codes, for every way of posing several classes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def decide(outputs: Array, n_classes: int, multiclass: str) -> NDArray[np.intp]:
    """Return the code of the class that the outputs speak for, shape (n,).

    Parameters
    ----------
    outputs : array, shape (n, 1), (n, n_classes) or (n, n_pairs)
        One output for two classes, above zero for the second; one a class, or one a pair of classes in the order
        (0, 1), (0, 2), ..., above zero for the second of the pair.
    n_classes : int
        Classes.
    multiclass : {"shared", "one-vs-rest", "one-vs-one"}
        What the outputs are.
    """
    if outputs.shape[1] == 1:
        return np.asarray(outputs[:, 0] > 0, dtype=np.intp)
    if multiclass in ("shared", "one-vs-rest"):
        return np.asarray(outputs.argmax(axis=1), dtype=np.intp)
    return np.asarray(pair_scores(outputs, n_classes).argmax(axis=1), dtype=np.intp)


def pair_scores(outputs: Array, n_classes: int) -> Array:
    """Score of every class from the outputs of all pairs, shape (n, n_classes).

    A score is the number of pairs that the class wins, and a fraction below one half of the sum of its outputs, which
    tells classes with equally many wins apart.

    Parameters
    ----------
    outputs : array, shape (n, n_pairs)
        In the order of `decide`.
    n_classes : int
        Classes.
    """
    votes = np.zeros((len(outputs), n_classes))
    sums = np.zeros((len(outputs), n_classes))
    for column, (first, second) in enumerate(combinations(range(n_classes), 2)):
        value = outputs[:, column]
        votes[:, second] += value > 0
        votes[:, first] += value <= 0
        sums[:, second] += value
        sums[:, first] -= value
    return np.asarray(votes + sums / (3 * (np.abs(sums) + 1)))
