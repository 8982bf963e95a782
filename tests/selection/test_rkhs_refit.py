"""Weights by the norm in the kernel's space against dense least squares over the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.errors import JobError
from distkern.kernels import Gaussian, Linear, Polynomial, Sigmoid
from distkern.selection.rkhs_refit import NormFit, fit_in_rkhs_norm, require_norm
from tests.references import gaussian_gram

Array = npt.NDArray[Any]

seeds = st.integers(0, 2**32 - 1)


class Rows:
    """Weighted rows, some of them centres."""

    def __init__(self, seed: int, n: int, m: int, T: int, *, weighted: bool = False, sigma: float = 0.7) -> None:
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, (n, 2))
        kernel = gaussian_gram(X, sigma)
        self.gram = kernel[:m, :m]
        self.weights = rng.integers(1, 4, n).astype(float) if weighted else np.ones(n)
        y = np.sin(2 * X[:, :1]) + 0.3 * rng.standard_normal((n, T))
        self.columns = np.column_stack([np.ones(n), kernel[:, :m]])
        self.targets = y - self.weights @ y / self.weights.sum()

    def fit(self, **options: Any) -> NormFit:
        roots = np.sqrt(self.weights)[:, None]
        q, r = np.linalg.qr(roots * self.columns)
        lengths = r.diagonal()
        targets = roots * self.targets
        z = lengths[:, None] * (q.T @ targets)
        z[0] = 0.0
        norms = np.square(targets).sum(axis=0)
        return fit_in_rkhs_norm(r / lengths[:, None], lengths**2, z, norms, self.gram, **options)

    def solution(self, mu: float, t: int) -> Array:
        """Minimum of |y - b - K a|^2 + mu a'K_mm a by least squares on both stacked."""
        roots = np.sqrt(self.weights)
        values, vectors = np.linalg.eigh(self.gram)
        penalty = np.sqrt(mu * np.maximum(values, 0.0))[:, None] * vectors.T
        stacked = np.vstack([roots[:, None] * self.columns, np.column_stack([np.zeros(len(penalty)), penalty])])
        padded = np.append(roots * self.targets[:, t], np.zeros(len(penalty)))
        return np.asarray(np.linalg.lstsq(stacked, padded, rcond=1e-15)[0])

    def score(self, mu: float, targets: list[int], charge: float) -> float:
        """W ss/(W - 1 - charge p)^2, the degrees of freedom p of the smoother taken row by row."""
        roots, W = np.sqrt(self.weights), self.weights.sum()
        columns = roots[:, None] * self.columns
        penalty = np.zeros((columns.shape[1], columns.shape[1]))
        penalty[1:, 1:] = mu * self.gram
        degrees = np.trace(columns @ np.linalg.solve(columns.T @ columns + penalty, columns.T)) - 1.0
        ss = sum(
            np.sum(self.weights * (self.targets[:, t] - self.columns @ self.solution(mu, t)) ** 2) for t in targets
        )
        trace = W - 1.0 - charge * degrees
        return float(W * ss / trace**2) if trace > 0 else np.inf


@given(seeds, st.integers(1, 10), st.integers(1, 3), st.booleans(), st.booleans())
def test_weights_are_the_dense_solution(seed: int, m: int, T: int, weighted: bool, per_target: bool) -> None:
    rows = Rows(seed, 60, m, T, weighted=weighted)
    fit = rows.fit(per_target=per_target)
    assert fit.weights.shape == (m + 1, T)
    assert fit.mu.shape == ((T,) if per_target else (1,))
    for t in range(T):
        expected = rows.solution(float(fit.mu[t % len(fit.mu)]), t)
        np.testing.assert_allclose(rows.columns @ fit.weights[:, t], rows.columns @ expected, atol=1e-7)
        np.testing.assert_allclose(fit.weights[:, t], expected, atol=1e-5 * max(1.0, np.abs(expected).max()))


@given(seeds, st.integers(1, 8), st.integers(1, 3), st.booleans(), st.booleans())
def test_mu_has_the_lowest_score(seed: int, m: int, T: int, weighted: bool, per_target: bool) -> None:
    rows = Rows(seed, 50, m, T, weighted=weighted)
    fit = rows.fit(per_target=per_target)
    groups = [[t] for t in range(T)] if per_target else [list(range(T))]
    for mu, group in zip(fit.mu, groups, strict=True):
        best = rows.score(float(mu), group, 2.0)
        for other in 10.0 ** np.arange(-8.0, 6.0, 0.5):
            assert best <= rows.score(float(other), group, 2.0) * (1 + 1e-6)
    gcv = sum(rows.score(float(mu), group, 1.0) for mu, group in zip(fit.mu, groups, strict=True))
    assert fit.gcv == pytest.approx(gcv, rel=1e-6)


@given(seeds, st.integers(1, 6))
def test_weights_of_rows_equal_repeated_rows(seed: int, m: int) -> None:
    weighted = Rows(seed, 30, m, 2, weighted=True)
    repeated = Rows(seed, 30, m, 2, weighted=True)
    copies = np.repeat(np.arange(30), weighted.weights.astype(int))
    repeated.columns, repeated.targets = weighted.columns[copies], weighted.targets[copies]
    repeated.weights = np.ones(len(copies))
    ours, theirs = weighted.fit(), repeated.fit()
    np.testing.assert_allclose(ours.mu, theirs.mu, rtol=1e-3)
    np.testing.assert_allclose(weighted.columns @ ours.weights, weighted.columns @ theirs.weights, atol=1e-3)
    assert ours.gcv == pytest.approx(theirs.gcv, rel=1e-4)


def test_a_flat_kernel_matrix_that_is_singular_to_rounding() -> None:
    """Eigenvalues over sixteen decades: the fit agrees with the dense solution where that has digits."""
    rows = Rows(0, 200, 24, 1, sigma=4.0)
    assert np.linalg.cond(rows.gram) > 1e12
    fit = rows.fit()
    assert np.isfinite(fit.weights).all()
    np.testing.assert_allclose(
        rows.columns @ fit.weights[:, 0], rows.columns @ rows.solution(float(fit.mu[0]), 0), atol=1e-6
    )


def test_targets_without_signal_are_shrunk_to_their_mean() -> None:
    rows = Rows(2, 60, 20, 1)
    rows.targets = np.random.default_rng(5).standard_normal((60, 1))
    rows.targets -= rows.targets.mean(axis=0)
    fit = rows.fit()
    assert np.square(rows.columns @ fit.weights).sum() < 0.3 * np.square(rows.targets).sum()


def test_as_many_centres_as_rows_still_have_a_fit() -> None:
    """Every weight is paid for by a penalty, and a large one leaves degrees of freedom."""
    rows = Rows(1, 12, 11, 1)
    fit = rows.fit()
    assert fit.mu[0] > 0.0
    assert np.isfinite(fit.gcv)


def test_an_indefinite_kernel_matrix_is_refused() -> None:
    rows = Rows(0, 40, 5, 1)
    rows.gram = rows.gram - 0.9 * np.eye(5)
    with pytest.raises(JobError, match=r"positive definite kernel.*eigenvalues from") as caught:
        rows.fit()
    assert caught.value.kind == "indefinite-kernel"


@pytest.mark.parametrize("kernel", [Sigmoid(), Polynomial(2, -1.0)])
def test_kernels_that_are_known_to_be_indefinite_are_refused(kernel: Any) -> None:
    with pytest.raises(JobError, match="positive definite kernel") as caught:
        require_norm(kernel)
    assert caught.value.kind == "indefinite-kernel"


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Linear(), Polynomial(3, 0.0)])
def test_kernels_with_a_norm_pass(kernel: Any) -> None:
    require_norm(kernel)
    X = np.random.default_rng(0).normal(size=(12, 3))
    assert np.linalg.eigvalsh(kernel.block(X, X)).min() > -1e-9
