"""The dictionary and the sums of kernel recursive least squares against the recursion row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.linalg import solve_triangular

from distkern.kernels import Gaussian, Kernel, Linear, Polynomial, Sigmoid
from distkern.methods.krls import Dictionary, ReducedSums, Snapshot, packed_size, reduced_weights, unpacked
from distkern.numerics.scaling import FeatureScaling
from tests.krls_references import filtered, plus_one, recurse, reduced_rows

Array = Any
EDGE = 1e-9


def plain(d: int) -> FeatureScaling:
    return FeatureScaling(np.zeros(d), np.ones(d))


def grown(kernel: Kernel, X: Array, nu: float, most: int | None = None) -> Dictionary:
    dictionary = Dictionary(kernel, plain(X.shape[1]), nu, most)
    dictionary.consider(np.arange(len(X)), X)
    return dictionary


def sums(snapshot: Snapshot, X: Array, y: Array, weights: Array | None = None, dtype: str = "float64") -> ReducedSums:
    return ReducedSums.of(snapshot, np.arange(len(X)), X, y, weights, dtype)


def rows_of(seed: int, n: int, d: int, T: int, repeats: float, constant: bool) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((n, d)), rng.standard_normal((n, T))
    again = rng.random(n) < repeats
    X[again] = X[rng.integers(0, n, again.sum())]
    if constant:
        X[:, 0] = 3.0
    return X, y


@st.composite
def problems(draw: Any) -> tuple[Kernel, Array, Array, float]:
    kernel = draw(st.sampled_from([Gaussian(1.0), Gaussian(0.3), Polynomial(2, 1.0), Linear()]))
    X, y = rows_of(
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(1, 300)),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 3)),
        draw(st.sampled_from([0.0, 0.5])),
        draw(st.booleans()),
    )
    return kernel, X, y, draw(st.sampled_from([0.01, 0.1, 0.7, 1.0]))


@given(problems())
def test_dictionary_and_weights_are_those_of_the_recursion(problem: Any) -> None:
    kernel, X, y, nu = problem
    expected = recurse(kernel, X, y, nu)
    assume(np.abs(expected.deltas - nu).min() > EDGE)
    dictionary = grown(kernel, X, nu)
    assert dictionary.rows.tolist() == expected.rows
    np.testing.assert_array_equal(dictionary.features, X[expected.rows])
    weights = reduced_weights(dictionary.factor, sums(dictionary.snapshot(), X, y))
    K = plus_one(kernel, X, X[expected.rows])
    np.testing.assert_allclose(K @ weights, K @ expected.weights, atol=1e-7 * np.abs(K @ expected.weights).max())


@given(problems(), st.data())
def test_no_bit_of_the_dictionary_depends_on_when_rows_are_looked_at(problem: Any, data: Any) -> None:
    kernel, X, _, nu = problem
    whole = grown(kernel, X, nu)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(X)), max_size=6)))
    pieces = Dictionary(kernel, plain(X.shape[1]), nu)
    old = pieces.snapshot()
    for first, last in zip([0, *cuts], [*cuts, len(X)], strict=True):
        left = np.arange(first, last)[old.outside(X[first:last])]
        pieces.consider(left, X[left])
        if data.draw(st.booleans()):
            old = pieces.snapshot()
    assert pieces.rows.tobytes() == whole.rows.tobytes()
    assert pieces.factor.tobytes() == whole.factor.tobytes()
    rebuilt = Dictionary.of(kernel, plain(X.shape[1]), nu, whole.rows, whole.features)
    assert rebuilt.factor.tobytes() == whole.factor.tobytes()


@given(problems())
def test_factor_and_sums_are_what_they_are_called(problem: Any) -> None:
    kernel, X, y, nu = problem
    dictionary = grown(kernel, X, nu)
    m = len(dictionary)
    assume(m)
    U = unpacked(dictionary.factor, m)
    K = plus_one(kernel, dictionary.features, dictionary.features)
    np.testing.assert_allclose(U.T @ U, K, atol=1e-9 * K.max())
    R = reduced_rows(kernel, X, dictionary.rows.tolist())
    found = sums(dictionary.snapshot(), X, y)
    gram = unpacked(found.gram, m)
    scale = np.abs(R).max() ** 2 * len(X)
    np.testing.assert_allclose(gram, np.triu(R.T @ R), atol=1e-7 * scale)
    np.testing.assert_allclose(found.products, R.T @ y, atol=1e-7 * scale)
    full = np.triu(gram) + np.triu(gram, 1).T
    assert np.linalg.eigvalsh(full).min() > 1 - 1e-7 * scale
    assert found.largest <= nu + EDGE


@given(problems(), st.data())
def test_sums_of_parts_add_up(problem: Any, data: Any) -> None:
    kernel, X, y, nu = problem
    snapshot = grown(kernel, X, nu).snapshot()
    cut = data.draw(st.integers(0, len(X)))
    rows = np.arange(len(X))
    parts = [ReducedSums.of(snapshot, rows[p], X[p], y[p], None) for p in (slice(cut), slice(cut, None))]
    whole, merged = sums(snapshot, X, y), parts[0].merge(parts[1])
    scale = np.abs(whole.gram).max()
    np.testing.assert_allclose(merged.gram, whole.gram, atol=1e-9 * scale)
    np.testing.assert_allclose(merged.products, whole.products, atol=1e-9 * scale * np.abs(y).max())
    other_way = parts[1].merge(parts[0])
    assert other_way.gram.tobytes() == merged.gram.tobytes()


@given(problems(), st.integers(0, 100))
def test_a_weight_counts_as_repeated_rows(problem: Any, seed: int) -> None:
    kernel, X, y, nu = problem
    counts = np.random.default_rng(seed).integers(1, 4, len(X))
    once, often = grown(kernel, X, nu), grown(kernel, np.repeat(X, counts, axis=0), nu)
    np.testing.assert_array_equal(once.features, often.features)
    weighted = sums(once.snapshot(), X, y, counts.astype(float))
    repeated = sums(often.snapshot(), np.repeat(X, counts, axis=0), np.repeat(y, counts, axis=0))
    np.testing.assert_allclose(weighted.gram, repeated.gram, atol=1e-8 * np.abs(weighted.gram).max(initial=0))


def test_the_weights_are_those_of_the_equation() -> None:
    kernel, nu = Gaussian(1.0), 0.1
    X, y = rows_of(3, 200, 2, 2, 0.2, False)
    dictionary = grown(kernel, X, nu)
    R = reduced_rows(kernel, X, dictionary.rows.tolist())
    K = plus_one(kernel, dictionary.features, dictionary.features)
    direct = np.linalg.solve(K, np.linalg.lstsq(R, y)[0])
    ours = reduced_weights(dictionary.factor, sums(dictionary.snapshot(), X, y))
    np.testing.assert_allclose(ours, direct, rtol=1e-8)
    np.testing.assert_allclose(ours, np.linalg.lstsq(R @ K, y)[0], rtol=1e-8)


@pytest.mark.parametrize(("nu", "tolerance"), [(0.1, 1e-12), (1e-3, 1e-9), (1e-6, 1e-4)])
def test_sums_of_reduced_rows_lose_little(nu: float, tolerance: float) -> None:
    """The condition of R'R is far below that of K~, whose factor is applied last."""
    kernel = Gaussian(1.0)
    X, y = rows_of(6, 600, 2, 1, 0.0, False)
    dictionary = grown(kernel, X, nu)
    U = unpacked(dictionary.factor, len(dictionary))
    values = solve_triangular(U, plus_one(kernel, dictionary.features, X), trans="T")
    cut = np.where(
        np.arange(len(U))[:, None] <= np.searchsorted(dictionary.rows, np.arange(600), "right") - 1, values, 0
    )
    R = solve_triangular(U, cut).T
    fitted = values.T @ solve_triangular(U, np.linalg.lstsq(R, y)[0], trans="T")
    weights = reduced_weights(dictionary.factor, sums(dictionary.snapshot(), X, y))
    np.testing.assert_allclose(plus_one(kernel, X, dictionary.features) @ weights, fitted, atol=tolerance)
    assert np.linalg.cond(R) < np.linalg.cond(U)


def test_filtering_from_the_final_p_counts_every_row_twice() -> None:
    """Algorithm 4 as printed starts with P_m, which holds all rows already, and so halves the weights."""
    kernel, nu = Gaussian(1.0), 0.1
    X, y = rows_of(4, 150, 2, 1, 0.0, False)
    expected = recurse(kernel, X, y, nu)
    R = reduced_rows(kernel, X, expected.rows)
    K = plus_one(kernel, X[expected.rows], X[expected.rows])
    printed = filtered(np.linalg.inv(K), R, R @ K, y, expected.P)
    np.testing.assert_allclose(printed, expected.weights / 2, rtol=1e-6)


@pytest.mark.parametrize("kernel", [Gaussian(0.5), Gaussian(5.0), Polynomial(3, 1.0), Linear()])
@pytest.mark.parametrize("nu", [1e-9, 1e-3])
def test_repeated_rows_never_join_again(kernel: Kernel, nu: float) -> None:
    X = np.random.default_rng(0).standard_normal((150, 3))
    first = grown(kernel, X, nu).rows
    np.testing.assert_array_equal(grown(kernel, np.concatenate([X, X[::-1]]), nu).rows, first)
    np.testing.assert_array_equal(grown(kernel, np.repeat(X, 2, axis=0), nu).rows, 2 * first)


def test_an_indefinite_kernel_still_gives_a_factor() -> None:
    kernel = Sigmoid(1.0, -0.5)
    X = np.random.default_rng(1).standard_normal((120, 2))
    dictionary = grown(kernel, X, 0.05)
    U = unpacked(dictionary.factor, len(dictionary))
    assert len(dictionary) > 3
    np.testing.assert_allclose(U.T @ U, plus_one(kernel, dictionary.features, dictionary.features), atol=1e-10)


def test_rows_at_the_edge_are_decided_by_one_computation() -> None:
    """Rows that differ from each other by rounding only: products over many of them would not agree."""
    rng = np.random.default_rng(5)
    kernel, base = Gaussian(1.0), rng.standard_normal((40, 3))
    deltas = recurse(kernel, base, np.zeros((40, 1)), 1e-12).deltas
    nu = float(np.sort(deltas)[20])
    X = np.concatenate([base, base + 1e-15 * rng.standard_normal((40, 3))])[rng.permutation(80)]
    whole = grown(kernel, X, nu)
    for size in (1, 3, 17):
        pieces = Dictionary(kernel, plain(3), nu)
        for start in range(0, 80, size):
            part = np.arange(start, min(start + size, 80))
            left = part[pieces.snapshot().outside(X[part])]
            pieces.consider(left, X[left])
        assert pieces.factor.tobytes() == whole.factor.tobytes()


def test_a_full_dictionary_refuses_rows() -> None:
    X, y = rows_of(0, 200, 3, 1, 0.0, False)
    free, full = grown(Gaussian(1.0), X, 0.1), grown(Gaussian(1.0), X, 0.1, most=10)
    assert full.full
    np.testing.assert_array_equal(full.rows, free.rows[:10])
    assert 0.1 < full.refused <= sums(full.snapshot(), X, y).largest
    exactly = grown(Gaussian(1.0), X, 0.1, most=len(free))
    assert not exactly.full
    again = full.copy(0.1, None)
    assert not again.full
    assert len(full) == 10
    again.consider(np.arange(200, 400), X)
    assert len(full) == 10 < len(again)


def test_weights_that_differ_by_many_orders_of_magnitude() -> None:
    X, y = rows_of(2, 60, 2, 1, 0.0, False)
    dictionary = grown(Gaussian(1.0), X, 0.1)
    for tiny in (1e-12, 1e-40):
        weights = np.where(np.arange(60) % 3 == 0, tiny, 1.0)
        found = reduced_weights(dictionary.factor, sums(dictionary.snapshot(), X, y, weights))
        assert np.isfinite(found).all()


def test_float32_kernel_values_change_little() -> None:
    X, y = rows_of(2, 3000, 2, 2, 0.0, False)
    snapshot = grown(Gaussian(1.0), X, 0.1).snapshot()
    exact, rough = sums(snapshot, X, y), sums(snapshot, X, y, dtype="float32")
    np.testing.assert_allclose(rough.gram, exact.gram, atol=1e-4 * np.abs(exact.gram).max())


def test_centres_that_depend_on_each_other_are_no_dictionary() -> None:
    X = np.ones((2, 2))
    with pytest.raises(ValueError, match="depend"):
        Dictionary.of(Gaussian(1.0), plain(2), 0.1, np.arange(2), X)


class Transposed(Gaussian):
    """Gives its values in the other memory order."""

    def block(self, X: Any, C: Any, out: Any = None) -> Any:
        return np.asfortranarray(super().block(X, C, out))


def test_a_kernel_may_give_any_memory_order() -> None:
    X, y = rows_of(2, 200, 2, 1, 0.0, False)
    ours, theirs = grown(Transposed(1.0), X, 0.1), grown(Gaussian(1.0), X, 0.1)
    assert ours.factor.tobytes() == theirs.factor.tobytes()
    assert sums(ours.snapshot(), X, y).gram.tobytes() == sums(theirs.snapshot(), X, y).gram.tobytes()


def test_packed_triangles() -> None:
    assert packed_size(4) == 10
    np.testing.assert_array_equal(unpacked(np.arange(1.0, 7.0), 3), [[1, 2, 4], [0, 3, 5], [0, 0, 6]])
    np.testing.assert_array_equal(unpacked(np.arange(1.0, 7.0), 2), [[1, 2], [0, 3]])
    assert unpacked(np.empty(0), 0).shape == (0, 0)
