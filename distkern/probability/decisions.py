"""From the outputs of a classifier to class codes, for every way of posing several classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from .pairwise import class_pairs, dag_decision


def decide(outputs: Array, n_classes: int, multiclass: str) -> NDArray[np.intp]:
    """Return the code of the class that the outputs speak for, shape (n,).

    Parameters
    ----------
    outputs : array, shape (n, 1), (n, n_classes) or (n, n_pairs)
        One output for two classes, above zero for the second; one a class, or one a pair of classes in the order
        (0, 1), (0, 2), ..., above zero for the second of the pair.
    n_classes : int
        Classes.
    multiclass : {"shared", "one-vs-rest", "one-vs-one", "dag"}
        What the outputs are, and for pairs whether all vote or a graph asks few of them.
    """
    if outputs.shape[1] == 1:
        return np.asarray(outputs[:, 0] > 0, dtype=np.intp)
    if multiclass in ("shared", "one-vs-rest"):
        return np.asarray(outputs.argmax(axis=1), dtype=np.intp)
    if multiclass == "dag":
        return dag_decision(-pair_matrix(outputs, n_classes))
    return np.asarray(pair_scores(outputs, n_classes).argmax(axis=1), dtype=np.intp)


def output_count(n_classes: int, multiclass: str) -> int:
    """Outputs of a model for some classes."""
    if n_classes == 2:
        return 1
    return n_classes if multiclass in ("shared", "one-vs-rest") else n_classes * (n_classes - 1) // 2


def pair_matrix(outputs: Array, n_classes: int) -> Array:
    """Outputs of all pairs as a table, shape (n, n_classes, n_classes): above zero where the second class wins."""
    table = np.zeros((len(outputs), n_classes, n_classes))
    for column, (first, second) in enumerate(class_pairs(n_classes)):
        table[:, first, second] = outputs[:, column]
        table[:, second, first] = -outputs[:, column]
    return table


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
    table = pair_matrix(outputs, n_classes)
    # At zero the first of a pair wins.
    first = np.triu(np.ones((n_classes, n_classes), dtype=bool), k=1)
    votes = np.where(first, table > 0, (table > 0) | ((table == 0) & first.T)).sum(axis=1)
    sums = table.sum(axis=1)
    return np.asarray(votes + sums / (3 * (np.abs(sums) + 1)))
