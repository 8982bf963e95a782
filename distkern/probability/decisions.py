"""Class codes from the outputs of a classifier, for every multi-class scheme."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from .pairwise import class_pairs, dag_decision


def decide(outputs: Array, n_classes: int, multiclass: str) -> NDArray[np.intp]:
    """Return the code of the predicted class, shape (n,).

    Parameters
    ----------
    outputs : array, shape (n, 1), (n, n_classes) or (n, n_pairs)
        For two classes one output, above zero for the second. For more classes one output for each class, or one for
        each pair of classes in the order (0, 1), (0, 2), ..., above zero for the second of the pair.
    n_classes : int
        Number of classes.
    multiclass : {"shared", "one-vs-rest", "one-vs-one", "dag"}
        One output for each class (the first two) or for each pair. With "one-vs-one" all pairs vote; "dag" uses the
        pairs on one path through a decision graph.
    """
    if outputs.shape[1] == 1:
        return np.asarray(outputs[:, 0] > 0, dtype=np.intp)
    if multiclass in ("shared", "one-vs-rest"):
        return np.asarray(outputs.argmax(axis=1), dtype=np.intp)
    if multiclass == "dag":
        return dag_decision(-pair_matrix(outputs, n_classes))
    return np.asarray(pair_scores(outputs, n_classes).argmax(axis=1), dtype=np.intp)


def output_count(n_classes: int, multiclass: str) -> int:
    """Return the number of outputs of a model for `n_classes` classes."""
    if n_classes == 2:
        return 1
    return n_classes if multiclass in ("shared", "one-vs-rest") else n_classes * (n_classes - 1) // 2


def pair_matrix(outputs: Array, n_classes: int) -> Array:
    """Return the outputs of all pairs as a table, shape (n, n_classes, n_classes), above zero where the second wins."""
    table = np.zeros((len(outputs), n_classes, n_classes))
    for column, (first, second) in enumerate(class_pairs(n_classes)):
        table[:, first, second] = outputs[:, column]
        table[:, second, first] = -outputs[:, column]
    return table


def pair_scores(outputs: Array, n_classes: int) -> Array:
    """Return the score of every class from the outputs of all pairs, shape (n, n_classes).

    A score is the number of pairs that the class wins, plus a term below one half in absolute value. The term rises
    with the sum of the class's outputs, and orders classes with equally many wins.

    Parameters
    ----------
    outputs : array, shape (n, n_pairs)
        Outputs in the order of `decide`.
    n_classes : int
        Number of classes.
    """
    table = pair_matrix(outputs, n_classes)
    # At zero the first class of a pair wins.
    first = np.triu(np.ones((n_classes, n_classes), dtype=bool), k=1)
    votes = np.where(first, table > 0, (table > 0) | ((table == 0) & first.T)).sum(axis=1)
    sums = table.sum(axis=1)
    return np.asarray(votes + sums / (3 * (np.abs(sums) + 1)))
