from __future__ import annotations

from functools import reduce
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distkern.errors import DataError
from distkern.numerics.moments import Moments, weighted_median_distance

seeds = st.integers(0, 2**32 - 1)
dtypes = st.sampled_from(["float64", "float32", "float16", "int64", "int16", "uint8", "bool"])


def rows(seed: int, n: int, d: int, dtype: str, offset: float = 0.0) -> npt.NDArray[Any]:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random((n, d)) < 0.5
    if dtype == "uint8":
        return rng.integers(0, 256, (n, d), dtype=np.uint8)
    X = 10.0 * rng.standard_normal((n, d)) + offset
    X[:, 0] = 3.0
    X[rng.random(n) < 0.3] = X[0]
    return X.astype(dtype)


def reference(X: npt.NDArray[Any], w: npt.NDArray[Any]) -> tuple[Any, Any]:
    X, w = X.astype(np.longdouble), w.astype(np.longdouble)
    mean = (w[:, None] * X).sum(axis=0) / w.sum()
    return mean, (w[:, None] * (X - mean) ** 2).sum(axis=0)


def same(a: Moments, b: Moments) -> bool:
    return a.count == b.count and a.mean.tobytes() == b.mean.tobytes() and a.m2.tobytes() == b.m2.tobytes()


def assert_close(a: Moments, mean: Any, m2: Any, scale: float) -> None:
    np.testing.assert_allclose(a.mean, mean.astype(float), rtol=1e-13, atol=1e-13 * scale)
    np.testing.assert_allclose(a.m2, m2.astype(float), rtol=1e-10, atol=1e-24 * a.count * scale**2)


@settings(deadline=None)
@given(seeds, st.integers(1, 60), st.integers(1, 5), dtypes, st.sampled_from([0.0, 1e3, 3e4]), st.booleans())
def test_moments_equal_the_definition(seed: int, n: int, d: int, dtype: str, offset: float, weighted: bool) -> None:
    if dtype in ("float16", "int16"):
        offset = min(offset, 1e3)
    X = rows(seed, n, d, dtype, offset)
    w = np.random.default_rng(seed).exponential(size=n) if weighted else np.ones(n)
    moments = Moments.from_rows(X, w if weighted else None)
    mean, m2 = reference(X, w)
    assert moments.count == pytest.approx(w.sum(), rel=1e-14)
    assert_close(moments, mean, m2, max(offset, 100.0))
    np.testing.assert_allclose(moments.variance(), moments.m2 / moments.count)
    np.testing.assert_allclose(moments.std() ** 2, moments.variance())


@settings(deadline=None)
@given(seeds, st.integers(2, 200), st.sampled_from([1e6, 1e9, 1e12]))
def test_a_large_offset_does_not_cancel(seed: int, n: int, offset: float) -> None:
    X = np.random.default_rng(seed).standard_normal((n, 2)) + offset
    mean, m2 = reference(X, np.ones(n))
    moments = Moments.from_rows(X)
    np.testing.assert_allclose(moments.mean, mean.astype(float), rtol=1e-15)
    np.testing.assert_allclose(moments.m2, m2.astype(float), rtol=1e-9)


@settings(deadline=None)
@given(seeds, st.integers(1, 30), st.floats(-1e12, 1e12), st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_a_constant_column_stays_exact(seed: int, n: int, value: float, sizes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    parts = [
        Moments.from_rows(np.full((k, 2), value), None if k % 2 else rng.exponential(size=k) + 1e-3)
        for k in [n, *sizes]
    ]
    for moments in [*parts, reduce(Moments.merge, parts)]:
        assert (moments.mean == value).all()
        assert (moments.m2 == 0.0).all()


@settings(deadline=None)
@given(seeds, st.integers(1, 80), dtypes, st.lists(st.integers(0, 80), max_size=5), st.booleans())
def test_merging_blocks_equals_one_block(seed: int, n: int, dtype: str, cuts: list[int], weighted: bool) -> None:
    X = rows(seed, n, 3, dtype, 100.0)
    w = np.random.default_rng(seed).integers(0, 4, n).astype(float) if weighted else np.ones(n)
    w[0] = 1.0
    edges = sorted({0, n, *(c for c in cuts if c < n)})
    parts = [Moments.from_rows(X[a:b], w[a:b]) for a, b in pairwise(edges)]
    merged = reduce(Moments.merge, parts, Moments.empty(3))
    mean, m2 = reference(X, w)
    assert merged.count == w.sum()
    assert_close(merged, mean, m2, 200.0)


@settings(deadline=None)
@given(seeds, st.integers(1, 40), dtypes)
def test_weights_equal_repeated_rows_and_zero_rows_are_absent(seed: int, n: int, dtype: str) -> None:
    X = rows(seed, n, 2, dtype)
    w = np.random.default_rng(seed).integers(0, 3, n)
    w[n // 2] = 2
    weighted = Moments.from_rows(X, w)
    repeated = Moments.from_rows(np.repeat(X, w, axis=0))
    assert weighted.count == repeated.count
    np.testing.assert_allclose(weighted.mean, repeated.mean, rtol=1e-13, atol=1e-12)
    np.testing.assert_allclose(weighted.m2, repeated.m2, rtol=1e-12, atol=1e-20)
    assert same(weighted, Moments.from_rows(X[w > 0], w[w > 0]))


def test_rows_of_weight_zero_may_hold_anything() -> None:
    X = np.array([[np.nan, np.inf], [1.0, 2.0], [3.0, 2.0]])
    moments = Moments.from_rows(X, np.array([0.0, 1.0, 1.0]))
    assert moments.mean.tolist() == [2.0, 2.0]
    assert moments.m2.tolist() == [2.0, 0.0]


@settings(deadline=None)
@given(seeds, st.integers(1, 50), st.integers(1, 4), st.booleans())
def test_bits_do_not_depend_on_memory_order_or_dtype(seed: int, n: int, d: int, weighted: bool) -> None:
    X = rows(seed, n, d, "float32", 10.0)
    w = np.random.default_rng(seed).random(n) if weighted else None
    first = Moments.from_rows(X, w)
    assert same(first, Moments.from_rows(np.asfortranarray(X), w))
    assert same(first, Moments.from_rows(X.astype(np.float64), w))
    assert same(first, Moments.from_rows(np.repeat(X, 2, axis=0)[::2], w))


def test_an_outlier_of_tiny_weight_spoils_nothing() -> None:
    X = np.array([[1e15], [1.0], [2.0]])
    moments = Moments.from_rows(X, np.array([1e-300, 1.0, 1.0]))
    assert moments.mean[0] == 1.5
    assert moments.variance()[0] == 0.25


def test_empty_is_neutral() -> None:
    moments = Moments.from_rows(np.arange(6.0).reshape(3, 2))
    empty = Moments.empty(2)
    assert same(empty.merge(moments), moments)
    assert same(moments.merge(empty), moments)
    assert same(Moments.from_rows(np.zeros((0, 2))), empty)
    assert same(Moments.from_rows(np.ones((3, 2)), np.zeros(3)), empty)
    assert empty.variance().tolist() == [0.0, 0.0]


@pytest.mark.parametrize("function", [Moments.from_rows, weighted_median_distance])
def test_bad_weights_are_refused(function: Any) -> None:
    X = np.ones((3, 1))
    with pytest.raises(DataError, match=r"weights has shape \(2,\), but X has 3 rows") as error:
        function(X, np.ones(2))
    assert error.value.kind == "shape-mismatch"
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(DataError, match=r"weights\[1\] is") as error:
            function(X, np.array([1.0, bad, 1.0]))
        assert error.value.kind == "invalid-weights"


def median_reference(X: npt.NDArray[Any], w: list[int]) -> float:
    X = np.repeat(X, w, axis=0)
    distances = sorted(float(np.linalg.norm(a - b)) for a, b in combinations(X, 2) if (a != b).any())
    return distances[(len(distances) - 1) // 2] if distances else 0.0


@settings(deadline=None)
@given(seeds, st.lists(st.integers(0, 3), min_size=1, max_size=9), st.sampled_from(["float64", "float32"]))
def test_median_distance_equals_all_repeated_pairs(seed: int, w: list[int], dtype: str) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (len(w), 2)).astype(dtype) + rng.choice([0.0, 1e6])
    expected = median_reference(X.astype(float), w)
    repeated = np.repeat(X, w, axis=0)
    weighted = weighted_median_distance(X, np.array(w))
    assert weighted == weighted_median_distance(repeated)
    assert weighted == weighted_median_distance(X, np.ldexp(np.array(w, dtype=float), -600))
    assert weighted == pytest.approx(expected, rel=1e-14)


def test_median_distance_is_the_lower_one_and_ignores_duplicates() -> None:
    X = np.array([[0.0], [0.0], [0.0], [3.0]])
    assert weighted_median_distance(X) == 3.0
    triangle = np.array([[0.0, 0.0], [1.0, 1.0], [3.0, 0.0]])
    assert weighted_median_distance(triangle) == 5.0**0.5
    assert weighted_median_distance(triangle, norm="l1") == 3.0
    assert weighted_median_distance(np.array([[0.0], [1.0], [3.0], [7.0]])) == 3.0
    assert weighted_median_distance(np.array([[0.0], [1.0]])) == 1.0
    assert weighted_median_distance(np.ones((4, 2))) == 0.0
    assert weighted_median_distance(np.ones((4, 2)), np.arange(4)) == 0.0
    assert weighted_median_distance(np.ones((1, 2))) == 0.0
    assert weighted_median_distance(np.ones((0, 2))) == 0.0
