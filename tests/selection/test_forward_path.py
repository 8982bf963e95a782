"""QR forward selection and classical OLS against fits from scratch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import qr_insert

from distkern.selection.forward_path import ForwardPath, Reductions, ThinQR, forward_path
from distkern.selection.stopping import StopReason
from tests.dense_references import least_squares_weights, residual_path
from tests.references import gaussian_gram, greedy_error_reduction


def problem(n: int, T: int, seed: int, sigma: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return gaussian_gram(rng.standard_normal((n, 2)), sigma), rng.standard_normal((n, T)) + 3.0


def qr(
    K: np.ndarray, Y: np.ndarray, m: int, weights: np.ndarray | None = None, tol: float | None = None
) -> ForwardPath:
    return forward_path(lambda row: K[:, row], Y, np.ones(len(K)) if weights is None else weights, m, tol=tol)


def ols(K: np.ndarray, Y: np.ndarray, m: int, weights: np.ndarray | None = None, tolerance: float = 0.0) -> ForwardPath:
    weights = np.ones(len(K)) if weights is None else weights
    return forward_path(K.__getitem__, Y, weights, m, reductions=Reductions(K, weights), tolerance=tolerance)


METHODS: list[Callable[..., ForwardPath]] = [qr, ols]


@given(st.integers(8, 40), st.integers(1, 3), st.integers(1, 6), st.integers(0, 1000))
def test_qr_takes_the_row_with_the_largest_residual(n: int, T: int, m: int, seed: int) -> None:
    K, Y = problem(n, T, seed)
    path = qr(K, Y, m)
    assert path.positions.tolist() == residual_path(K, Y, m)
    assert path.reason is StopReason.MAX_CENTERS


@given(st.integers(8, 40), st.integers(1, 3), st.integers(1, 6), st.integers(0, 1000))
def test_ols_takes_the_column_with_the_largest_error_reduction(n: int, T: int, m: int, seed: int) -> None:
    K, Y = problem(n, T, seed)
    path = ols(K, Y, m)
    assert path.positions.tolist() == greedy_error_reduction(K, np.ones((n, 1)), Y, m)
    centred = Y - Y.mean(axis=0)
    left = centred - np.column_stack([np.ones(n), K[:, path.positions]]) @ least_squares_weights(
        K, path.positions.tolist(), centred
    )
    explained = 1 - np.square(left).sum() / np.square(centred).sum()
    assert path.history["error_reduction"].sum() == pytest.approx(explained, rel=1e-8)


@pytest.mark.parametrize("method", METHODS)
@given(n=st.integers(8, 40), T=st.integers(1, 3), m=st.integers(1, 6), seed=st.integers(0, 1000))
def test_weights_are_those_of_least_squares(method: Any, n: int, T: int, m: int, seed: int) -> None:
    K, Y = problem(n, T, seed)
    path = method(K, Y, m)
    expected = least_squares_weights(K, path.positions.tolist(), Y)
    np.testing.assert_allclose(path.coef, expected[1:], rtol=1e-8, atol=1e-8 * np.abs(expected).max())
    np.testing.assert_allclose(path.intercept, expected[0], rtol=1e-8, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("method", METHODS)
@given(seed=st.integers(0, 1000))
def test_a_weight_is_the_same_as_repeated_rows(method: Any, seed: int) -> None:
    K, Y = problem(20, 2, seed)
    repeats = np.random.default_rng(seed).integers(1, 4, 20)
    index = np.repeat(np.arange(20), repeats)
    weighted = method(K, Y, 5, repeats.astype(float))
    repeated = method(K[np.ix_(index, index)].copy(), Y[index], 5)
    assert weighted.positions.tolist() == index[repeated.positions].tolist()
    np.testing.assert_allclose(weighted.coef, repeated.coef, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_duplicates_are_skipped_until_nothing_is_left(method: Any) -> None:
    K, Y = problem(6, 1, 1)
    index = np.repeat(np.arange(6), 2)
    path = method(K[np.ix_(index, index)].copy(), np.repeat(Y, 2, axis=0), 12)
    assert len(path.positions) == 5  # with the constant that is as many as there are different rows
    assert path.reason is StopReason.CANDIDATES_EXHAUSTED
    assert len(set(index[path.positions])) == 5


@pytest.mark.parametrize("method", METHODS)
def test_equal_targets_leave_nothing_to_explain(method: Any) -> None:
    K, _ = problem(10, 1, 0)
    path = method(K, np.full((10, 2), 4.0), 5)
    assert not len(path.positions)
    assert path.coef.shape == (0, 2)
    np.testing.assert_allclose(path.intercept, 4.0)
    assert path.reason in (StopReason.RESIDUAL_BELOW, StopReason.UNEXPLAINED_BELOW)


def test_tolerances_end_the_paths() -> None:
    K, Y = problem(30, 1, 3)
    path = qr(K, Y, 30, tol=0.5)
    assert path.reason is StopReason.RESIDUAL_BELOW
    left = Y - K[:, path.positions] @ path.coef - path.intercept
    assert np.abs(left).max() <= 0.5 < path.history["residual_max"][-1]
    path = ols(K, Y, 30, tolerance=0.3)
    assert path.reason is StopReason.UNEXPLAINED_BELOW
    reductions = path.history["error_reduction"]
    assert 1 - reductions.sum() < 0.3 <= 1 - reductions[:-1].sum()


@given(st.integers(6, 40), st.integers(1, 5), st.integers(0, 1000))
def test_the_decomposition_is_that_of_scipy_s_insertions(n: int, m: int, seed: int) -> None:
    K, _ = problem(n, 1, seed)
    ours = ThinQR(np.ones(n), m)
    Q, R = np.full((n, 1), 1 / np.sqrt(n)), np.full((1, 1), np.sqrt(n))
    for j in range(m):
        assert ours.append(K[:, j]) is not None
        Q, R = qr_insert(Q, R, K[:, j], j + 1, which="col")
    signs = np.sign(R.diagonal())
    np.testing.assert_allclose(ours.Q, Q * signs, atol=1e-8)
    np.testing.assert_allclose(ours.R, R * signs[:, None], atol=1e-8)
    np.testing.assert_allclose(ours.Q.T @ ours.Q, np.eye(m + 1), atol=1e-13)
