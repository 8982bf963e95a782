"""Trainings and predictions that leave out far centres, against the dense block."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distkern.kernels import Gaussian, Wendland
from distkern.kernels import near_sums as compact_support
from distkern.kernels.near_sums import NearSums, near_centers
from tests.references import random_model

Array = NDArray[Any]


def dense(model: Any, X: Array) -> Array:
    return np.asarray(replace(model.prepare(), near=None).evaluate(X))


def sparse(model: Any, X: Array) -> Array:
    """Evaluate with the sparse block whatever the density is."""
    with mock.patch.multiple(
        compact_support, MAX_DENSITY=1.0, CENTER_DENSITY=1.0, MIN_CENTERS=1, MIN_ROWS=1, TREE_FEATURES=99
    ):
        prepared = model.prepare()
        assert prepared.near is not None
        assert prepared.near.evaluate(X.astype(prepared.centers.dtype)) is not None
        return np.asarray(prepared.evaluate(X))


@given(
    d=st.integers(1, 9),
    radius=st.floats(0.01, 5.0),
    offset=st.sampled_from([0.0, 1.0, 30.0, 1e6]),
    smoothness=st.integers(0, 3),
    dtype=st.sampled_from(["float64", "float32"]),
    seed=st.integers(0, 99),
)
def test_centres_that_are_left_out_have_zeros_only(
    d: int, radius: float, offset: float, smoothness: int, dtype: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X = (rng.uniform(0, 1, (40, d)) + offset).astype(dtype)
    centers = np.concatenate([rng.uniform(-3, 4, (60, d)) + offset, X[:3] + radius]).astype(dtype)
    kernel = Wendland(radius, smoothness)
    near = near_centers(kernel, X, centers)
    if near is None:
        return
    outside = np.setdiff1d(np.arange(len(centers)), near)
    assert len(outside)
    assert not kernel.columns(centers, X)[outside].any()


def test_which_centres_are_left_out() -> None:
    X, centers = np.array([[0.0, 0.0], [1.0, 2.0]]), np.array([[2.4, 1.0], [2.6, 1.0], [-1.0, 3.0], [-1.2, 3.2]])
    kept = near_centers(Wendland(1.5), X, centers)
    assert kept is not None
    assert kept.tolist() == [0, 2]
    assert near_centers(Wendland(9.0), X, centers) is None
    assert near_centers(Gaussian(0.1), X, centers) is None
    assert near_centers(Wendland(1.5), X[:0], centers) is None


@given(
    n=st.integers(1, 80),
    m=st.integers(1, 80),
    d=st.integers(1, 9),
    n_targets=st.integers(1, 3),
    smoothness=st.integers(0, 3),
    radius=st.sampled_from([1e-3, 0.3, 1.0, 5.0, 1e3]),
    dtype=st.sampled_from(["float64", "float32"]),
    seed=st.integers(0, 99),
)
def test_the_sparse_sums_are_the_dense_ones(
    n: int, m: int, d: int, n_targets: int, smoothness: int, radius: float, dtype: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    model = random_model(Wendland(radius, smoothness), dtype, m, n_targets, d=d)
    X = np.concatenate([rng.standard_normal((n, d)), model.centers[: n // 2]])
    scale = max(1.0, float(np.abs(model.coef).sum(axis=0).max()))
    limit = 1e-12 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(sparse(model, X), dense(model, X), rtol=0, atol=limit * scale)


def test_rows_at_any_distance_beyond_the_radius_get_the_intercept() -> None:
    model = random_model(Wendland(0.2), m=200, d=2)
    X = np.array([[1e300, 0.0], [1e308, -1e308], [0.0, 40.0]] * 20)
    assert model.prepare().near is not None
    np.testing.assert_array_equal(model.evaluate(X), np.tile(model.intercept, (60, 1)))


@pytest.mark.parametrize("crowded", [False, True])
def test_the_density_of_the_rows_decides(crowded: bool) -> None:
    rng = np.random.default_rng(0)
    model = random_model(Wendland(0.3), m=300, d=2)
    # A quarter of the centres around one place, to which all rows come or none.
    model.centers[::4] = 9.0 + 0.01 * rng.standard_normal((75, 2))
    prepared = model.prepare()
    X = 9.0 + 0.01 * rng.standard_normal((500, 2)) if crowded else rng.standard_normal((500, 2))
    near = NearSums.of(prepared.kernel, prepared.centers[1::2], prepared.coef[1::2])
    assert near is not None
    with mock.patch.object(NearSums, "of", return_value=replace(near, centers=prepared.centers)):
        sums = model.prepare().near
    assert sums is not None
    rows = prepared.scaling.apply(X, np.dtype(np.float64))
    assert (sums.evaluate(rows) is None) == crowded


def test_a_rows_sum_does_not_depend_on_the_rows_beside_it() -> None:
    model = random_model(Wendland(0.3), m=300, d=3)
    X = np.random.default_rng(0).standard_normal((200, 3))
    whole = sparse(model, X)
    for part in (slice(0, 7), slice(50, 200), slice(3, 200, 9)):
        np.testing.assert_array_equal(sparse(model, X[part]), whole[part])


def test_where_it_cannot_pay_there_is_no_tree() -> None:
    rng = np.random.default_rng(0)
    for kernel, m, d in (
        (Gaussian(0.1), 300, 2),
        (Wendland(0.1), 10, 2),
        (Wendland(0.1), 300, 20),
        (Wendland(2.0), 300, 2),
    ):
        assert NearSums.of(kernel, rng.standard_normal((m, d)), np.zeros((m, 1))) is None
    assert NearSums.of(Wendland(0.1), rng.standard_normal((300, 2)), np.zeros((300, 1))) is not None
    assert random_model(Wendland(1.0), m=0).evaluate(np.zeros((40, 4))).shape == (40, 3)
