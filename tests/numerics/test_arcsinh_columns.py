"""Arcsinh of single columns: which columns it takes, its centre and width, and its bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import kurtosis

from distkern.numerics.arcsinh_columns import ArcsinhColumns
from distkern.numerics.learnt_metric import LinearMap
from distkern.numerics.moments import Moments
from distkern.numerics.scaling import DirectionScaling, FeatureScaling

Array = NDArray[Any]
FLOAT = np.dtype(np.float64)


def columns(n: int = 4000, seed: int = 0) -> Array:
    """A normal, a uniform, a constant and a rare binary column, then three whose tails are heavy or uneven."""
    rng = np.random.default_rng(seed)
    return np.column_stack(
        [
            rng.standard_normal(n),
            rng.uniform(size=n),
            np.full(n, 3.0),
            rng.uniform(size=n) < 0.01,
            rng.lognormal(0.0, 1.5, n),
            rng.standard_t(2, n),
            np.where(rng.uniform(size=n) < 0.6, 0.0, rng.standard_cauchy(n)),
        ]
    )


def fitted(rows: Array, weights: Array | None = None, allowed: Array | None = None) -> ArcsinhColumns:
    found = ArcsinhColumns.fit(rows, weights, allowed)
    assert found is not None
    return found


def test_columns_with_heavy_or_uneven_tails_are_mapped() -> None:
    X = columns()
    found = fitted(X)
    assert found.columns.tolist() == [4, 5, 6]
    assert (kurtosis(found.apply(X)) < 0.1 * kurtosis(X[:, 4:])).all()
    assert ArcsinhColumns.fit(X[:, :4]) is None
    assert fitted(X, allowed=np.arange(7) != 5).columns.tolist() == [4, 6]


def test_the_map_is_arcsinh_of_the_distance_from_the_centre() -> None:
    X = columns(500)
    found = fitted(X)
    expected = np.log((own := (X[:, found.columns] - found.centers) / found.widths) + np.sqrt(own**2 + 1))
    np.testing.assert_allclose(found.apply(X), expected, atol=1e-9)
    order = np.argsort(X[:, 4])
    assert (np.diff(found.apply(X)[order, 0]) >= 0).all()


def test_a_weight_is_a_repeated_row() -> None:
    X, weights = columns(600), np.random.default_rng(1).integers(1, 4, 600)
    some, repeated = fitted(X, weights.astype(float)), fitted(np.repeat(X, weights, axis=0))
    np.testing.assert_array_equal(some.columns, repeated.columns)
    np.testing.assert_array_equal(some.centers, repeated.centers)
    np.testing.assert_array_equal(some.widths, repeated.widths)


@given(seed=st.integers(0, 50), scale=st.floats(1e-6, 1e6), shift=st.floats(-10, 10))
def test_units_do_not_matter(seed: int, scale: float, shift: float) -> None:
    X = columns(300, seed)
    own = fitted(X)
    other = fitted(X * scale + shift * scale)
    np.testing.assert_array_equal(other.columns, own.columns)
    moved = own.of_raw(np.full(7, shift * scale), np.full(7, scale))
    np.testing.assert_allclose(moved.apply(X * scale + shift * scale), own.apply(X), atol=1e-4)


@given(seed=st.integers(0, 50))
def test_the_spread_is_a_bound(seed: int) -> None:
    X = columns(200, seed)
    found = fitted(X)
    bound = found.spread(X.mean(axis=0), X.var(axis=0))
    assert (found.apply(X).std(axis=0) <= bound * (1 + 1e-9)).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_scaling_maps_the_columns_first(dtype: Any) -> None:
    X = columns(300)
    found = fitted(X)
    shift, scale = np.random.default_rng(2).uniform(0.5, 2.0, (2, 7))
    mapped = X.copy()
    mapped[:, found.columns] = np.arcsinh((X[:, found.columns] - found.centers) / found.widths)
    plain, scaling = FeatureScaling(shift, scale), FeatureScaling(shift, scale, arcsinh=found)
    expected = plain.apply(mapped, FLOAT)
    tolerance = 1e-12 if dtype == np.float64 else 1e-6
    np.testing.assert_allclose(scaling.apply(X, np.dtype(dtype)), expected, rtol=tolerance, atol=tolerance)
    for factors in (np.linspace(0.5, 2.0, 7), np.random.default_rng(3).standard_normal((3, 7))):
        onto = LinearMap(factors).onto(scaling)
        assert isinstance(onto, DirectionScaling) == (factors.ndim == 2)
        np.testing.assert_allclose(onto.apply(X, FLOAT), LinearMap(factors).apply(expected), rtol=1e-9, atol=1e-9)
    moments = Moments.from_rows(X)
    assert (scaling.spread(moments) >= expected.std(axis=0) * (1 - 1e-9) - 1e-12).all()
    np.testing.assert_array_equal(plain.spread(moments), moments.std() / scale)
    np.testing.assert_allclose(scaling.deviations(X[5]), np.abs(expected[5]) / 2, rtol=1e-9)


@pytest.mark.parametrize(
    "changed",
    [
        {"columns": np.array([4, 5, 7])},
        {"columns": np.array([5, 4, 6])},
        {"columns": np.array([4.0, 5.0, 6.0])},
        {"centers": np.zeros(2)},
        {"centers": np.full(3, np.nan)},
        {"widths": np.zeros(3)},
        {"columns": np.empty(0, dtype=int), "centers": np.empty(0), "widths": np.empty(0)},
    ],
)
def test_arrays_that_are_no_map_are_refused(changed: dict[str, Array]) -> None:
    found = fitted(columns())
    found.require_features(7)
    with pytest.raises(ValueError, match="arcsinh"):
        replace(found, **changed).require_features(7)
