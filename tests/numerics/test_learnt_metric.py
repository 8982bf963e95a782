"""The linear map of a learnt metric: its update against the equations, its metric, and its map from raw features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import fractional_matrix_power

from distkern.numerics.learnt_metric import DAMPING, LinearMap
from distkern.numerics.scaling import DirectionScaling, FeatureScaling

Array = NDArray[Any]


def a_map(d: int = 4, k: int | None = None, seed: int = 0) -> LinearMap:
    rng = np.random.default_rng(seed)
    return LinearMap(rng.uniform(0.5, 2.0, d) if k is None else rng.standard_normal((k, d)))


def outer_products(d: int, seed: int = 1) -> Array:
    gradients = np.random.default_rng(seed).standard_normal((50, d)) * np.linspace(0.1, 1.0, d)
    return np.asarray(gradients.T @ gradients / 50)


def test_a_full_update_multiplies_by_a_power_of_the_outer_products() -> None:
    space, outer = a_map(4, 4), outer_products(4)
    power = fractional_matrix_power(outer / np.linalg.eigvalsh(outer)[-1], DAMPING)
    np.testing.assert_allclose(space.updated(outer).factors, power @ space.factors, rtol=1e-9)


def test_a_diagonal_update_is_the_full_one_of_a_diagonal_matrix() -> None:
    space, squares = a_map(5), np.array([4.0, 1.0, 0.25, 0.0, 2.0])
    full = LinearMap(np.diag(space.factors)).updated(np.diag(squares))
    np.testing.assert_allclose(np.diag(space.updated(squares).factors), full.factors, atol=1e-12)


@pytest.mark.parametrize("diagonal", [True, False])
def test_a_direction_without_a_gradient_keeps_a_part_of_its_scale(diagonal: bool) -> None:
    squares = np.array([1.0, 0.0])
    updated = LinearMap.identity(2, diagonal=diagonal).updated(squares if diagonal else np.diag(squares))
    assert updated.apply(np.array([[0.0, 1.0]]))[0, 1] == pytest.approx(1e-3)


def test_no_gradient_changes_nothing() -> None:
    space = a_map(3)
    np.testing.assert_array_equal(space.updated(np.zeros(3)).factors, space.factors)


@given(d=st.integers(1, 6), seed=st.integers(0, 20))
def test_the_metric_gives_the_distances_of_the_mapped_rows(d: int, seed: int) -> None:
    a, b = np.random.default_rng(seed).standard_normal((2, 1, d))
    for space in (a_map(d, seed=seed), a_map(d, max(1, d - 1), seed=seed)):
        metric = space.metric()
        squared = (a - b) @ (np.diag(metric) if space.diagonal else metric) @ (a - b).T
        assert np.square(space.apply(a) - space.apply(b)).sum() == pytest.approx(float(squared[0, 0]))


@given(d=st.integers(1, 6), seed=st.integers(0, 20))
def test_importances_are_those_of_gradients_with_respect_to_the_features(d: int, seed: int) -> None:
    gradients = np.random.default_rng(seed).standard_normal((30, d))
    space = a_map(d, d, seed=seed)
    squares = np.square(gradients @ space.factors).mean(axis=0)
    np.testing.assert_allclose(
        space.importances(gradients.T @ gradients / 30), squares / squares.sum(), rtol=1e-9, atol=1e-12
    )
    own = a_map(d, seed=seed)
    squares = np.square(gradients * own.factors).mean(axis=0)
    np.testing.assert_allclose(own.importances(np.square(gradients).mean(axis=0)), squares / squares.sum(), rtol=1e-9)


def test_importances_are_those_of_the_variance_that_a_feature_makes() -> None:
    gradients = np.random.default_rng(0).standard_normal((30, 3))
    own, variances = a_map(3, seed=1), np.array([1.0, 0.2, 0.0])
    squares = np.square(gradients * own.factors).mean(axis=0) * variances
    found = own.importances(np.square(gradients).mean(axis=0), variances)
    np.testing.assert_allclose(found, squares / squares.sum(), rtol=1e-12)


def test_importances_without_a_gradient_are_equal() -> None:
    np.testing.assert_array_equal(a_map(4).importances(np.zeros(4)), np.full(4, 0.25))


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_the_leading_directions_are_the_best_map_of_that_rank(rank: int) -> None:
    space = a_map(5, 5)
    left, lengths, right = np.linalg.svd(space.factors)
    best = (left[:, :rank] * lengths[:rank]) @ right[:rank]
    leading = space.leading(rank)
    assert leading.width == rank
    np.testing.assert_allclose(leading.metric(), best.T @ best, atol=1e-10)
    largest = np.abs(leading.factors).argmax(axis=1)
    assert (leading.factors[np.arange(rank), largest] > 0).all()


def test_the_simplest_form_of_a_diagonal_matrix_is_its_factors() -> None:
    assert LinearMap(np.diag([1.0, 2.0])).simplest.diagonal
    assert not a_map(3, 3).simplest.diagonal
    assert not a_map(3, 2).simplest.diagonal
    assert not LinearMap(np.diag([2.0, 2.0])).changes
    assert LinearMap(np.array([1.0, 2.0])).changes
    assert a_map(3, 2).changes


@pytest.mark.parametrize("k", [None, 2, 4])
def test_the_map_from_raw_features(k: int | None) -> None:
    rng = np.random.default_rng(3)
    scaling, space = FeatureScaling(rng.standard_normal(4), rng.uniform(0.5, 2.0, 4)), a_map(4, k)
    X = rng.standard_normal((3000, 4))
    mapped = space.onto(scaling)
    assert isinstance(mapped, DirectionScaling) == (k is not None)
    expected = space.apply((X - scaling.shift) / scaling.scale)
    np.testing.assert_allclose(mapped.apply(X, np.dtype(float)), expected, atol=1e-12)
    out = np.empty((len(X), mapped.width), dtype=np.float32)
    assert mapped.apply(X.astype(np.float32), out.dtype, out=out) is out
    np.testing.assert_allclose(out, expected, atol=1e-5)
