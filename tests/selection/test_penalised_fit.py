"""Weights by conjugate gradients against the normal equations, solved densely."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distkern.errors import DataError
from distkern.kernels import Gaussian, Sigmoid
from distkern.selection import penalised_fit
from distkern.selection.penalised_fit import PenalisedFit, PenalisedSystem, RightSums, fit_weights

Array = np.ndarray[Any, Any]
LAMBDAS = np.array([0.01, 0.1, 1.0])


class Case:
    """Rows, weights and targets, and the sums over them."""

    def __init__(self, n: int, m: int, T: int, *, copies: int = 0, weighted: bool = False, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((n, 2))
        self.centers = self.X[:m].copy()
        self.centers[m - min(copies, m - 1) :] = self.centers[0]
        self.w = rng.integers(1, 4, n).astype(np.float64) if weighted else np.ones(n)
        self.W = float(self.w.sum())
        Y = np.sin(2 * self.X @ rng.standard_normal((2, T))) + 0.1 * rng.standard_normal((n, T))
        self.Y = Y - self.w @ Y / self.W
        self.kernel = Gaussian(1.0)
        self.K = self.kernel.block(self.X, self.centers)
        self.start = np.zeros((m, T))
        self.start[: m // 2] = 0.1 * rng.standard_normal((m // 2, T))
        self.signs = rng.choice([-1.0, 1.0], n) / np.sqrt(self.w)
        self.more = self.X[-m:]
        self.jitter = 0.0

    def product(self, P: Array) -> Array:
        return np.asarray((self.K * self.w[:, None]).T @ (self.K @ P))

    def right(self) -> RightSums:
        left = self.Y - self.K @ self.start
        columns = np.column_stack([left, np.ones(len(left)), self.signs])
        return RightSums(
            (self.K * self.w[:, None]).T @ columns,
            (self.w[:, None] * left**2).sum(axis=0),
            self.w @ left,
            np.array([self.w @ self.signs]),
        )

    def fit(self, dtype: str = "float64", most: int = 500, lambdas: Array = LAMBDAS, **how: Any) -> PenalisedFit:
        centers, more = self.centers.astype(dtype), self.more.astype(dtype)
        system = PenalisedSystem(centers, self.kernel, more, lambdas, self.W)
        self.jitter = system.jitter
        return fit_weights(system, self.right(), self.product, self.start, self.W, most=most, **how)

    def dense(self, lambda_: float, *, intercept: bool = True) -> tuple[Array, Array, float]:
        """Weights, squared errors and trace of the fit from the normal equations (as a least-squares problem)."""
        G = self.kernel.block(self.centers, self.centers.copy())
        values, vectors = np.linalg.eigh(G + self.jitter * np.eye(len(G)))
        root = np.sqrt(lambda_ * np.maximum(values, 0.0))[:, None] * vectors.T
        design = np.column_stack([np.full(len(self.K), float(intercept)), self.K]) * np.sqrt(self.w)[:, None]
        whole = np.vstack([design, np.column_stack([np.zeros(len(G)), root])])
        sides = np.vstack([self.Y * np.sqrt(self.w)[:, None], np.zeros((len(G), self.Y.shape[1]))])
        weights = np.linalg.lstsq(whole, sides, rcond=1e-13)[0]
        errors = ((design @ weights - sides[: len(design)]) ** 2).sum(axis=0)
        basis, sizes, _ = np.linalg.svd(whole, full_matrices=False)
        upper = basis[: len(design), sizes > 1e-13 * sizes[0]]
        return weights, errors, float((upper**2).sum())

    def predictions(self, weights: Array) -> Array:
        return weights[0] + self.K @ weights[1:]


@settings(max_examples=25)
@given(
    st.integers(20, 90), st.integers(2, 15), st.integers(1, 3), st.integers(0, 6), st.booleans(), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_the_weights_solve_the_normal_equations(
    n: int, m: int, T: int, copies: int, weighted: bool, intercept: bool, per_target: bool
) -> None:
    case = Case(n, m, T, copies=copies, weighted=weighted, seed=n)
    # A lambda that is given up has no exact weights, so none is.
    with mock.patch.multiple(penalised_fit, EXCESS=1e-18, GIVEN_UP=1e30):
        fit = case.fit(intercept=intercept, per_target=per_target)
    scores = np.empty((3, T))
    for i, lambda_ in enumerate(LAMBDAS):
        weights, errors, _ = case.dense(lambda_, intercept=intercept)
        found = case.predictions(fit.all_weights[i])
        np.testing.assert_allclose(found, case.predictions(weights), atol=1e-5)
        scores[i] = case.W * errors / (case.W - fit.tried[i, 2]) ** 2
    np.testing.assert_allclose(fit.tried[:, 1], scores.sum(axis=1), rtol=1e-5)
    best = scores.argmin(axis=0) if per_target else np.full(T, scores.sum(axis=1).argmin())
    np.testing.assert_array_equal(fit.lambdas, LAMBDAS[best] if per_target else LAMBDAS[best[:1]])
    np.testing.assert_array_equal(fit.weights, fit.all_weights[best, :, np.arange(T)].T)
    assert fit.gcv == pytest.approx(scores[best, np.arange(T)].sum(), rel=1e-5)


def test_signs_estimate_the_trace() -> None:
    """The mean over many draws is the trace."""
    case = Case(60, 12, 1, weighted=True)
    estimates = []
    with mock.patch.object(penalised_fit, "EXCESS", 1e-12):
        for seed in range(100):
            case.signs = np.random.default_rng(seed).choice([-1.0, 1.0], 60) / np.sqrt(case.w)
            estimates.append(case.fit().tried[:, 2])
    wanted = [case.dense(lambda_)[2] for lambda_ in LAMBDAS]
    spread = np.std(estimates, axis=0) / np.sqrt(len(estimates))
    assert (np.abs(np.mean(estimates, axis=0) - wanted) < 4 * spread + 1e-9).all()


def test_single_precision_changes_the_path_and_not_the_solution() -> None:
    case = Case(400, 40, 2)
    with mock.patch.object(penalised_fit, "EXCESS", 1e-12):
        coarse = case.fit("float32")
    for i, lambda_ in enumerate(LAMBDAS):
        wanted = case.predictions(case.dense(lambda_)[0])
        np.testing.assert_allclose(case.predictions(coarse.all_weights[i]), wanted, atol=5e-3)


def test_iterations_end_where_the_excess_is_small() -> None:
    case = Case(500, 40, 1)
    seen: list[float] = []

    def watch(number: int, excess: float) -> bool:
        seen.append(excess)
        assert number == len(seen)
        return True

    fit = case.fit(watch=watch)
    assert fit.converged
    assert fit.iterations == len(seen)
    assert seen[-1] <= penalised_fit.EXCESS < seen[-2]
    objectives = []
    for weights in (fit.all_weights[0], case.dense(LAMBDAS[0])[0]):
        G = case.kernel.block(case.centers, case.centers.copy())
        left = case.Y - case.predictions(weights)
        objectives.append((left**2).sum() + LAMBDAS[0] * float((weights[1:] * (G @ weights[1:])).sum()))
    # The preconditioner estimates the excess; with few rows for each centre it is a multiple of the estimate.
    assert objectives[0] <= objectives[1] * 1.15


def test_a_watcher_ends_the_iterations() -> None:
    fit = Case(200, 30, 1).fit(watch=lambda number, excess: number < 2)
    assert fit.iterations == 2
    assert not fit.converged


def test_a_kernel_that_is_not_positive_definite_is_refused() -> None:
    centers = np.random.default_rng(0).standard_normal((30, 2))
    with pytest.raises(DataError, match="not positive definite") as error:
        PenalisedSystem(centers, Sigmoid(kappa=1.0, theta=-1.0), centers, LAMBDAS, 30.0)
    assert error.value.kind == "indefinite"


@pytest.mark.parametrize("lambdas", [np.array([0.0]), np.array([0.3])])
def test_one_lambda_is_taken_as_it_is(lambdas: Array) -> None:
    fit = Case(80, 10, 2).fit(lambdas=lambdas)
    np.testing.assert_array_equal(fit.lambdas, lambdas)
