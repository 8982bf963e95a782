"""The map of features against scikit-learn's scaler, and what it must not do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from distkern.numerics.moments import Moments
from distkern.numerics.scaling import FeatureScaling

Array = NDArray[Any]
DTYPES = [np.float64, np.float32]


def fitted(X: Array, weights: Array | None = None, *, standardize: bool = True, shift: bool = True) -> FeatureScaling:
    return FeatureScaling.fit(Moments.from_rows(X, weights), standardize=standardize, shift_allowed=shift)


def rows(n: int = 200, d: int = 4, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-3, 3, d) + rng.uniform(-100, 100, d)


@pytest.mark.parametrize("weighted", [False, True])
def test_equals_standard_scaler(weighted: bool) -> None:
    X = rows()
    weights = np.random.default_rng(1).integers(0, 4, len(X)).astype(float) if weighted else None
    scaling = fitted(X, weights)
    scaler = StandardScaler().fit(X, sample_weight=weights)
    np.testing.assert_allclose(scaling.shift, scaler.mean_, rtol=1e-11)
    np.testing.assert_allclose(scaling.scale, scaler.scale_, rtol=1e-11)
    np.testing.assert_allclose(scaling.apply(X, np.dtype(float)), scaler.transform(X), atol=1e-9)


def test_a_constant_column_becomes_zero() -> None:
    X = rows()
    X[:, 2] = 0.1
    scaling = fitted(X)
    assert scaling.scale[2] == 1.0
    assert scaling.shift[2] == 0.1
    np.testing.assert_array_equal(scaling.apply(X, np.dtype(float))[:, 2], 0.0)


@pytest.mark.parametrize("standardize", [True, False])
def test_float32_far_from_the_origin_keeps_its_digits(standardize: bool) -> None:
    """In float32 neighbours of 1e8 are 8 apart: the mean goes in float64, before the cast."""
    deviations = np.random.default_rng(0).standard_normal((500, 3))
    X = 1e8 + deviations
    scaled = fitted(X, standardize=standardize).apply(X, np.dtype(np.float32))
    assert scaled.dtype == np.float32
    exact = (X - X.mean(axis=0)) / (X.std(axis=0) if standardize else 1.0)
    np.testing.assert_allclose(scaled, exact, atol=1e-6)


def test_float32_data_far_from_the_origin() -> None:
    X = (1e8 + 64 * np.random.default_rng(0).integers(-8, 9, (100, 2))).astype(np.float32)
    exact = X.astype(np.float64)
    for dtype in DTYPES:
        scaled = fitted(X, standardize=False).apply(X, np.dtype(dtype))
        np.testing.assert_allclose(scaled, exact - exact.mean(axis=0), rtol=1e-6, atol=1e-4)


def test_without_standardising_only_the_mean_goes() -> None:
    X = rows()
    scaling = fitted(X, standardize=False)
    np.testing.assert_allclose(scaling.shift, X.mean(axis=0))
    np.testing.assert_array_equal(scaling.scale, 1.0)


def test_no_shift_for_kernels_that_are_not_stationary() -> None:
    X = rows()
    scaling = fitted(X, standardize=False, shift=False)
    np.testing.assert_array_equal(scaling.shift, 0.0)
    np.testing.assert_array_equal(scaling.scale, 1.0)
    np.testing.assert_array_equal(scaling.apply(X, np.dtype(float)), X)


def test_standardising_shifts_for_any_kernel() -> None:
    X = rows()
    scaling = fitted(X, shift=False)
    np.testing.assert_allclose(scaling.apply(X, np.dtype(float)).mean(axis=0), 0.0, atol=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("given_", [np.float64, np.float32, np.int16, np.uint8])
def test_out_takes_the_same_bits(dtype: Any, given_: Any) -> None:
    X = np.abs(rows()).astype(given_)
    scaling = fitted(X)
    out = np.full(X.shape, np.nan, dtype=dtype)
    returned = scaling.apply(X, np.dtype(dtype), out=out)
    assert returned is out
    assert out.tobytes() == scaling.apply(X, np.dtype(dtype)).tobytes()
    np.testing.assert_allclose(out, (X.astype(float) - scaling.shift) / scaling.scale, rtol=1e-5, atol=1e-5)


def test_rows_are_mapped_alone() -> None:
    """A row's image does not depend on the rows beside it."""
    X = rows()
    scaling = fitted(X)
    whole = scaling.apply(X, np.dtype(float))
    np.testing.assert_array_equal(scaling.apply(X[7:9], np.dtype(float)), whole[7:9])
    assert scaling.apply(X[:0], np.dtype(float)).shape == (0, 4)
