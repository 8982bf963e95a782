"""Classes from the outputs of all pairs of classes: pairwise coupling (thesis 4.8) and decision graphs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array

SMALLEST_CHANCE = 1e-12
"""Pairwise probabilities are cut to the range from this to one minus this."""


def class_pairs(n_classes: int) -> list[tuple[int, int]]:
    """Return the pairs of classes in the order of a model's outputs; an output above zero predicts the second class."""
    return list(combinations(range(n_classes), 2))


def pairwise_coupling(chances: Array) -> Array:
    """Couple the probabilities of pairs: 1 / P(i | x) = sum_{j != i} 1 / nu_ij - (C - 2), then scaled to sum one.

    Exact where the pairs are consistent, nu_ij = P_i / (P_i + P_j) (Price et al., 1995).

    Parameters
    ----------
    chances : array, shape (n, C, C)
        nu[:, i, j] = 1 - nu[:, j, i] is the probability of class i if the class is i or j; the diagonal is ignored.

    Returns
    -------
    array, shape (n, C)
        Probabilities, above zero.
    """
    n_classes = chances.shape[1]
    bounded = np.clip(chances, SMALLEST_CHANCE, 1 - SMALLEST_CHANCE)
    # The paper's sum less C - 2 cancels. With 1 / nu - 1 in each term it is 1 plus a sum of positive numbers.
    against = 1 / bounded - 1
    against[:, np.arange(n_classes), np.arange(n_classes)] = 0.0
    coupled = 1 / (1 + against.sum(axis=2))
    return np.asarray(coupled / coupled.sum(axis=1, keepdims=True))


def dag_decision(decisions: Array) -> NDArray[np.intp]:
    """Decide among classes by a directed acyclic graph of pairs (Platt et al., 2000).

    The first and the last class of a list of all classes are compared and the loser is removed, until one class
    remains. Each row uses C - 1 of the C (C - 1) / 2 decisions.

    Parameters
    ----------
    decisions : array, shape (n, C, C)
        decisions[:, i, j] with i < j is at least 0 where class i wins against j; other entries are ignored.

    Returns
    -------
    array, shape (n,)
        Classes, counted from 0.
    """
    n, n_classes = decisions.shape[:2]
    rows = np.arange(n)
    first, last = np.zeros(n, dtype=np.intp), np.full(n, n_classes - 1, dtype=np.intp)
    for _ in range(n_classes - 1):
        won = decisions[rows, first, last] >= 0
        last = np.where(won, last - 1, last)
        first = np.where(won, first, first + 1)
    return first
