"""Pairwise coupling and decision graphs against loops over rows and classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distkern.probability.pairwise import dag_decision, pairwise_coupling

Array = NDArray[Any]


def pairs_of(posteriors: Array) -> Array:
    """nu_ij = P_i / (P_i + P_j)."""
    return posteriors[:, :, None] / (posteriors[:, :, None] + posteriors[:, None, :])


def coupled(chances: Array) -> Array:
    """4.8 as it stands, then scaled."""
    n_classes = len(chances)
    brackets = [sum(1 / chances[i, j] for j in range(n_classes) if j != i) - (n_classes - 2) for i in range(n_classes)]
    return np.array([1 / b for b in brackets]) / sum(1 / b for b in brackets)


def eliminated(decisions: Array) -> int:
    """Platt's list: the first against the last, the loser goes."""
    left = list(range(len(decisions)))
    while len(left) > 1:
        left.remove(left[-1] if decisions[left[0], left[-1]] >= 0 else left[0])
    return left[0]


@given(seed=st.integers(0, 1000), n_classes=st.integers(2, 7))
def test_coupling_gives_back_the_posteriors_that_pairs_come_from(seed: int, n_classes: int) -> None:
    posteriors = np.random.default_rng(seed).dirichlet(np.ones(n_classes), 5) + 1e-6
    posteriors /= posteriors.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(pairwise_coupling(pairs_of(posteriors)), posteriors, rtol=1e-6)


@given(seed=st.integers(0, 1000), n_classes=st.integers(2, 7))
def test_coupling_is_the_thesis_equation_for_any_pairs(seed: int, n_classes: int) -> None:
    chances = np.random.default_rng(seed).uniform(0.01, 0.99, (8, n_classes, n_classes))
    chances = np.where(np.tri(n_classes, k=-1, dtype=bool), 1 - chances.transpose(0, 2, 1), chances)
    found = pairwise_coupling(chances)
    for row, expected in zip(found, map(coupled, chances), strict=True):
        np.testing.assert_allclose(row, expected, rtol=1e-9)


def test_certain_pairs_couple_to_finite_probabilities() -> None:
    chances = np.zeros((3, 4, 4))
    chances[0] = np.triu(np.ones((4, 4)))
    chances[1, :, 0] = 0.0  # nobody beats anybody
    chances[2] = 1.0
    found = pairwise_coupling(chances)
    assert np.isfinite(found).all()
    assert (found > 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert found[0].argmax() == 0
    np.testing.assert_allclose(found[1:], 0.25)


@given(seed=st.integers(0, 1000), n_classes=st.integers(2, 8))
def test_the_graph_eliminates_as_the_list_does(seed: int, n_classes: int) -> None:
    decisions = np.random.default_rng(seed).standard_normal((20, n_classes, n_classes))
    np.testing.assert_array_equal(dag_decision(decisions), [eliminated(row) for row in decisions])


def test_a_decision_of_zero_is_a_win_of_the_first_class() -> None:
    np.testing.assert_array_equal(dag_decision(np.zeros((2, 4, 4))), [0, 0])
