"""The bordered system of least-squares SVMs, and the symmetric systems in it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.errors import DataError
from distkern.numerics.bordered_systems import eliminate_border, solve_bordered, solve_symmetric
from tests.dense_references import bordered
from tests.references import gaussian_gram


@given(st.integers(2, 40), st.integers(1, 4), st.sampled_from([0.1, 1.0, 100.0]), st.integers(0, 1000))
def test_the_border_is_eliminated_as_the_whole_system_says(n: int, T: int, gamma: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    K = gaussian_gram(rng.standard_normal((n, 2)), 1.0)
    Y = rng.standard_normal((n, T))
    A, b = solve_bordered(K + np.eye(n) / gamma, Y)
    expected_A, expected_b = bordered(K, Y, gamma)
    np.testing.assert_allclose(A, expected_A, rtol=1e-8, atol=1e-8 * np.abs(expected_A).max())
    np.testing.assert_allclose(b, expected_b, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(A.sum(axis=0), 0.0, atol=1e-10 * np.abs(A).max() * n)


def test_a_positive_definite_matrix_is_factored_in_place() -> None:
    H = np.eye(5) * 4.0
    np.testing.assert_allclose(solve_symmetric(H, np.ones((5, 1))), 0.25)
    assert H[0, 0] == 2.0


@given(st.integers(2, 30), st.integers(0, 1000))
def test_an_indefinite_matrix_is_solved_all_the_same(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, _ = np.linalg.qr(rng.standard_normal((n, n)))
    values = rng.uniform(1.0, 2.0, n) * np.where(np.arange(n) % 2, -1.0, 1.0)
    H = (vectors * values) @ vectors.T
    H = (H + H.T) / 2
    B = rng.standard_normal((n, 2))
    np.testing.assert_allclose(solve_symmetric(H.copy(), B), np.linalg.solve(H, B), rtol=1e-8, atol=1e-8)


def test_a_singular_matrix_is_refused() -> None:
    with pytest.raises(DataError, match="singular") as caught:
        solve_symmetric(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, -1.0]]), np.ones((3, 1)))
    assert caught.value.kind == "singular"


def test_weights_sum_to_zero() -> None:
    A, b = eliminate_border(np.array([1.0, 3.0]), np.array([[2.0], [6.0]]))
    assert b[0] == 2.0
    assert A.sum() == 0.0
