"""Conjugate gradients with several right-hand sides, and what preconditions them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.errors import DataError
from distkern.numerics.conjugate_gradients import LowRankPreconditioner, conjugate_gradients, pivoted_cholesky
from tests.references import gaussian_gram


def kernel_system(n: int, seed: int, ridge: float = 0.01) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    K = gaussian_gram(rng.standard_normal((n, 2)), 1.0)
    return K, ridge * rng.uniform(0.5, 2.0, n), rng.standard_normal((n, 3))


@given(st.integers(2, 60), st.integers(0, 60), st.integers(0, 1000))
def test_every_right_hand_side_is_solved(n: int, rank: int, seed: int) -> None:
    K, D, B = kernel_system(n, seed)
    B[:, 1] = 0.0
    H = K + np.diag(D)
    factor = pivoted_cholesky(lambda j: K[:, j], K.diagonal(), D, rank)
    found = conjugate_gradients(lambda P: H @ P, B, LowRankPreconditioner(factor, D), 1e-10, 500)
    assert found.converged
    assert found.residual <= 1e-10
    np.testing.assert_allclose(H @ found.solution, B, atol=1e-9 * np.abs(B).max() * n)
    assert not found.solution[:, 1].any()


def test_the_residual_is_the_true_one_and_too_few_iterations_are_reported() -> None:
    K, D, B = kernel_system(80, 1, ridge=1e-5)
    H = K + np.diag(D)
    found = conjugate_gradients(lambda P: H @ P, B, LowRankPreconditioner(np.empty((0, 80)), D), 1e-12, 7)
    assert found.iterations == 7
    assert not found.converged
    left = np.linalg.norm(B - H @ found.solution, axis=0) / np.linalg.norm(B, axis=0)
    assert found.residual == pytest.approx(left.max(), rel=1e-6)


def test_a_tolerance_beyond_rounding_ends_at_the_limit() -> None:
    K, D, B = kernel_system(30, 2)
    H = K + np.diag(D)
    found = conjugate_gradients(lambda P: H @ P, B, LowRankPreconditioner(np.empty((0, 30)), D), 1e-30, 120)
    assert found.iterations == 120
    assert not found.converged
    np.testing.assert_allclose(found.solution, np.linalg.solve(H, B), rtol=1e-8, atol=1e-8)


def test_low_rank_saves_iterations() -> None:
    K, D, B = kernel_system(200, 3, ridge=1e-4)
    H = K + np.diag(D)
    counts = []
    for rank in (0, 10, 40):
        factor = pivoted_cholesky(lambda j: K[:, j], K.diagonal(), D, rank)
        found = conjugate_gradients(lambda P: H @ P, B, LowRankPreconditioner(factor, D), 1e-8, 2000)
        assert found.converged
        counts.append(found.iterations)
    assert counts[0] > 2 * counts[1] > 4 * counts[2]


@given(st.integers(1, 40), st.integers(0, 1000))
def test_the_factor_of_full_rank_is_the_matrix(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, max(1, n // 2)))
    K = A @ A.T
    factor = pivoted_cholesky(lambda j: K[:, j], K.diagonal(), np.ones(n), n)
    assert len(factor) <= A.shape[1]
    np.testing.assert_allclose(factor.T @ factor, K, atol=1e-5 * np.abs(K).max())


@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 1000))
def test_the_preconditioner_is_the_inverse_of_what_it_says(n: int, rank: int, seed: int) -> None:
    K, D, _ = kernel_system(n, seed, ridge=0.1)
    factor = pivoted_cholesky(lambda j: K[:, j], K.diagonal(), D, rank)
    R = np.random.default_rng(seed).standard_normal((n, 2))
    np.testing.assert_allclose(
        LowRankPreconditioner(factor, D)(R), np.linalg.solve(factor.T @ factor + np.diag(D), R), rtol=1e-7, atol=1e-8
    )


def test_an_indefinite_matrix_is_refused() -> None:
    H = np.diag([1.0, -1.0])
    with pytest.raises(DataError, match="not positive definite"):
        conjugate_gradients(lambda P: H @ P, np.array([[0.1], [1.0]]), lambda R: R.copy(), 1e-8, 10)


def test_a_criterion_of_the_caller_ends_each_right_hand_side() -> None:
    """Also where no direction is left: the second right-hand side is outside the range of a singular matrix."""
    H = np.diag([1.0, 2.0, 4.0, 0.0])
    B = np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]]).T
    seen: list[int] = []

    def converged(X: Any, R: Any, energy: Any, iteration: int) -> Any:
        np.testing.assert_allclose(R, B - H @ X, atol=1e-12)
        np.testing.assert_allclose(energy, np.square(R).sum(axis=0))
        seen.append(iteration)
        return energy < 1e-20

    solved = conjugate_gradients(lambda P: H @ P, B, lambda R: R, 0.0, 20, converged=converged)
    np.testing.assert_allclose(solved.solution[:, 0], [1.0, 0.5, 0.25, 0.0], atol=1e-10)
    np.testing.assert_allclose(solved.solution[:, 2], [1.0, 0.0, 0.0, 0.0], atol=1e-12)
    assert not solved.solution[:, 1].any()
    assert seen == list(range(solved.iterations + 1))
    assert solved.products == solved.iterations == 3
