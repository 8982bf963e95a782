"""Trained models against dense computations of the equations of the paper and the thesis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import distkern as dk
from tests.estimators.fits import ALL, classes, data_for, regression
from tests.markers import every_value, name_of
from tests.references import (
    DenseResidualOROLS,
    dense_kernel_columns,
    error_reductions,
    gaussian_gram,
    greedy_error_reduction,
    order_recursive_pseudoinverse,
)

Array = NDArray[Any]

KERNELS = [dk.Gaussian(0.8), dk.Matern(0.8), dk.Wendland(2.0), dk.Polynomial(3, 1.0), dk.Sigmoid(0.2, 0.1)]


def design(model: Any, X: Array, epsilon: float = 0.0) -> Array:
    """[1 K + epsilon I] of a model trained without standardising; the kernel sees what the engine showed it."""
    shift = X.mean(axis=0) if model.kernel_.stationary else 0.0
    rows = model.center_indices_
    K = dense_kernel_columns(model.kernel_, X - shift, X[rows] - shift, rows, epsilon)
    return np.column_stack([np.ones(len(X)), K])


def encoded(cls: Any, y: Array) -> Array:
    if "Regressor" in cls.__name__:
        return y.reshape(len(y), -1)
    return np.where(y[:, None] == np.unique(y), 1.0, -1.0)


def all_weights(model: Any) -> Array:
    return np.vstack([model.intercept_, model.coef_])


@pytest.mark.parametrize("regularize", [True, False])
@pytest.mark.parametrize("n", [60, 130])
def test_criterion_residual_is_algorithm_1(regularize: bool, n: int) -> None:
    X, y = regression(n)
    model = dk.OROLSRegressor(
        criterion="residual",
        max_centers=25,
        stop=None,
        sigma=0.7,
        standardize=False,
        regularization="gcv" if regularize else "none",
    ).fit(X, y)
    reference = DenseResidualOROLS(gaussian_gram(X, 0.7), y, 25, regularize=regularize)
    assert model.center_indices_.tolist() == reference.rows
    np.testing.assert_allclose(model.history_["q_norm"] ** 2, reference.s[1:], rtol=1e-8)
    np.testing.assert_allclose(model.history_["lambda_"], reference.lambdas[1:], rtol=1e-6)
    weights = reference.weights()
    np.testing.assert_allclose(all_weights(model)[:, 0], weights, atol=1e-7 * np.abs(weights).max())


def test_criterion_residual_on_two_classes_is_algorithm_1() -> None:
    """Targets of +-1 tie in the first steps: the lowest row is next."""
    X, y = classes(100, 2)
    model = dk.OROLSClassifier(criterion="residual", max_centers=25, stop=None, sigma=1.0, standardize=False).fit(X, y)
    reference = DenseResidualOROLS(gaussian_gram(X, 1.0), 2.0 * y - 1, 25)
    assert model.center_indices_.tolist() == reference.rows
    np.testing.assert_allclose(model.history_["lambda_"], reference.lambdas[1:], rtol=1e-6)


@pytest.mark.parametrize("n_targets", [0, 3])
@pytest.mark.parametrize("panel", [1, 4, 16])
def test_criterion_error_reduction_is_forward_selection(n_targets: int, panel: int) -> None:
    """With every row a candidate, in panels of any width."""
    X, y = regression(80, n_targets=n_targets)
    model = dk.OROLSRegressor(
        max_centers=14, panel=panel, stop=None, sigma=1.0, standardize=False, regularization="none"
    ).fit(X, y)
    gram, targets, ones = gaussian_gram(X, 1.0), y.reshape(80, -1) - y.reshape(80, -1).mean(axis=0), np.ones((80, 1))
    assert model.center_indices_.tolist() == greedy_error_reduction(gram, ones, targets, 14)


def test_every_choice_is_the_best_of_all_rows_under_lambda_too() -> None:
    """The reduction does not depend on lambda, so the choice is the same."""
    X, y = classes(90, 3)
    model = dk.OROLSClassifier(max_centers=12, stop=None, sigma=1.0, standardize=False).fit(X, y)
    gram, targets = gaussian_gram(X, 1.0), encoded(dk.OROLSClassifier, y)
    targets = targets - targets.mean(axis=0)
    for i, row in enumerate(model.center_indices_):
        basis = np.column_stack([np.ones(90), gram[:, model.center_indices_[:i]]])
        gains = error_reductions(gram, basis, targets)
        assert gains[row] >= gains.max() * (1 - 1e-8)


@pytest.mark.parametrize(("cls", "kernel", "epsilon"), every_value(ALL, KERNELS, [0.0, 0.3]), ids=name_of)
def test_weights_without_lambda_are_least_squares(cls: Any, kernel: Any, epsilon: float) -> None:
    X, y = data_for(cls)
    parameters = {} if "NPD" in cls.__name__ else {"regularization": "none"}
    model = cls(kernel=kernel, max_centers=8, stop=None, standardize=False, epsilon=epsilon, **parameters).fit(X, y)
    A = design(model, X, epsilon)
    targets = encoded(cls, y)
    expected = np.linalg.lstsq(A, targets, rcond=None)[0]
    accurate = 1e-15 * np.linalg.cond(A) ** 2 + 1e-10
    assert accurate < 1e-3
    np.testing.assert_allclose(A @ all_weights(model), A @ expected, atol=1e-8)
    np.testing.assert_allclose(all_weights(model), expected, atol=accurate * np.abs(expected).max())


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.5])
@pytest.mark.parametrize("cls", [dk.NPDRegressor, dk.NPDClassifier])
def test_npd_weights_are_the_order_recursive_pseudoinverse(cls: Any, epsilon: float) -> None:
    """Thesis (3.62) on the columns of K + epsilon I, in the order of selection."""
    X, y = data_for(cls, 80)
    model = cls(max_centers=12, stop=None, sigma=0.6, standardize=False, epsilon=epsilon).fit(X, y)
    inverse = order_recursive_pseudoinverse(list(design(model, X, epsilon)[:, 1:].T))
    expected = inverse @ encoded(cls, y)
    np.testing.assert_allclose(all_weights(model), expected, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("cls", ALL)
def test_epsilon_changes_a_column_at_its_own_row_only(cls: Any) -> None:
    """The choice of centres and every step see K + epsilon I; prediction sees K."""
    X, y = data_for(cls, 60)
    epsilon = 0.4
    parameters: dict[str, Any] = {} if "NPD" in cls.__name__ else {"regularization": "none"}
    model = cls(max_centers=10, stop=None, sigma=1.0, standardize=False, epsilon=epsilon, **parameters).fit(X, y)
    columns = gaussian_gram(X, 1.0) + epsilon * np.eye(60)
    targets = encoded(cls, y)
    targets = targets - targets.mean(axis=0)
    assert model.center_indices_.tolist() == greedy_error_reduction(columns, np.ones((60, 1)), targets, 10)
    values = gaussian_gram(X, 1.0)[:, model.center_indices_] @ model.coef_ + model.intercept_
    shown = model.predict(X)[:, None] if "Regressor" in cls.__name__ else model.decision_function(X)
    np.testing.assert_allclose(shown, values, rtol=1e-9, atol=1e-9)


def test_epsilon_with_criterion_residual() -> None:
    X, y = regression(70)
    model = dk.OROLSRegressor(
        criterion="residual", max_centers=20, stop=None, sigma=0.7, standardize=False, epsilon=0.1
    ).fit(X, y)
    reference = DenseResidualOROLS(gaussian_gram(X, 0.7) + 0.1 * np.eye(70), y, 20)
    assert model.center_indices_.tolist() == reference.rows
    np.testing.assert_allclose(model.history_["lambda_"], reference.lambdas[1:], rtol=1e-6)


@pytest.mark.parametrize("lam", [0.01, 5.0])
def test_a_fixed_lambda_is_ridge_on_the_orthogonal_columns(lam: float) -> None:
    X, y = regression()
    model = dk.OROLSRegressor(max_centers=10, stop=None, sigma=1.0, standardize=False, regularization=lam).fit(X, y)
    A = design(model, X)
    q, r = np.linalg.qr(A)
    lengths = np.diag(r)
    q, u = q * lengths, r / lengths[:, None]
    targets = y - y.mean()
    expected = np.linalg.solve(u, q.T @ targets / (lam + lengths**2))
    expected[0] += y.mean()
    np.testing.assert_allclose(all_weights(model)[:, 0], expected, rtol=1e-6)


def test_standardising_is_standardising() -> None:
    X, y = regression()
    X = X * [1e3, 1e-3] + 50
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    a = dk.OROLSRegressor(max_centers=12, stop=None, sigma=1.0).fit(X, y)
    b = dk.OROLSRegressor(max_centers=12, stop=None, sigma=1.0, standardize=False).fit(Z, y)
    np.testing.assert_array_equal(a.center_indices_, b.center_indices_)
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-6)


def test_far_from_the_origin_nothing_is_lost() -> None:
    X, y = regression()
    here = dk.OROLSRegressor(max_centers=12, stop=None, sigma=1.0, standardize=False).fit(X, y)
    there = dk.OROLSRegressor(max_centers=12, stop=None, sigma=1.0, standardize=False).fit(X + 2.0**20, y)
    np.testing.assert_array_equal(here.center_indices_, there.center_indices_)
    np.testing.assert_allclose(here.predict(X), there.predict(X + 2.0**20), atol=1e-6)
