"""The kernel MSE system against least squares on the whole matrix."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distkern.methods.kernel_mse import solve_full, solve_reduced
from tests.references import gaussian_gram


def problem(n: int, seed: int, sigma: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return gaussian_gram(rng.standard_normal((n, 2)), sigma), rng.standard_normal((n, 2))


def ridge(K: np.ndarray, B: np.ndarray, mu: float) -> np.ndarray:
    m, T = K.shape[1], B.shape[1]
    rows = np.vstack([K, np.sqrt(mu) * np.eye(m)])
    return np.linalg.lstsq(rows, np.vstack([B, np.zeros((m, T))]), rcond=None)[0]


@given(st.integers(1, 25), st.integers(0, 1000), st.sampled_from([0.0, 1e-3, 1.0]))
def test_the_full_system_is_solved(n: int, seed: int, mu: float) -> None:
    K, B = problem(n, seed, 0.05)
    gamma = solve_full(K.copy(), B, np.ones(n), mu)
    np.testing.assert_allclose(K @ gamma, K @ ridge(K, B, mu), rtol=1e-8, atol=1e-8)
    if mu:
        np.testing.assert_allclose(gamma, ridge(K, B, mu), rtol=1e-8, atol=1e-8 * np.abs(gamma).max())


def test_a_repeated_row_makes_a_singular_system_that_has_a_solution() -> None:
    K, B = problem(10, 0, 0.05)
    index = np.array([*range(10), 3])
    gamma = solve_full(K[np.ix_(index, index)].copy(), B[index], np.ones(11), 0.0)
    np.testing.assert_allclose(K[np.ix_(index, index)] @ gamma, B[index], atol=1e-8)
    np.testing.assert_allclose(gamma[3], gamma[10], rtol=1e-6)


@given(st.integers(2, 20), st.integers(0, 1000), st.sampled_from([1e-3, 1.0]))
def test_a_weight_is_the_same_as_repeated_rows(n: int, seed: int, mu: float) -> None:
    K, B = problem(n, seed)
    repeats = np.random.default_rng(seed).integers(1, 4, n)
    index = np.repeat(np.arange(n), repeats)
    weighted = solve_full(K.copy(), B, repeats.astype(float), mu)
    repeated = solve_full(K[np.ix_(index, index)].copy(), B[index], np.ones(len(index)), mu)
    np.testing.assert_allclose(K @ weighted, K[:, index] @ repeated, rtol=1e-7, atol=1e-8)


@given(st.integers(3, 25), st.integers(1, 3), st.integers(0, 1000), st.sampled_from([0.0, 1e-3, 1.0]))
def test_the_reduced_system_is_least_squares(n: int, m: int, seed: int, mu: float) -> None:
    K, B = problem(n, seed)
    weights = np.random.default_rng(seed).uniform(0.5, 2.0, n)
    gamma = solve_reduced(K[:, :m].copy(), B, weights, mu)
    roots = np.sqrt(weights)[:, None]
    np.testing.assert_allclose(gamma, ridge(roots * K[:, :m], roots * B, mu), rtol=1e-7, atol=1e-8)
