"""``refit="rkhs"``: the weights of a path's prefixes by the norm in the kernel's space."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import distkern as dk
from distkern.errors import BudgetError, JobError
from distkern.monitoring.events import ExchangeDone
from tests.estimators.fits import assert_equal_models, classes, fitted, regression
from tests.references import gaussian_gram

Array = NDArray[Any]

KINDS = (dk.OROLSRegressor, dk.OROLSClassifier)


def dense_weights(model: Any, X: Array, targets: Array, mu: float, weights: Array, epsilon: float = 0.0) -> Array:
    """Intercept and weights that minimise |y - b - K a|^2 + mu a'K_mm a, by the normal equations."""
    shift = weights @ X / weights.sum()
    shift = np.zeros_like(shift) if not model.kernel_.stationary else shift
    gram = gaussian_gram(X - shift, model.kernel_.sigma) + epsilon * np.eye(len(X))
    rows = model.center_indices_
    columns = np.column_stack([np.ones(len(X)), gram[:, rows]])
    penalty = np.zeros((len(rows) + 1, len(rows) + 1))
    penalty[1:, 1:] = mu * gram[np.ix_(rows, rows)]
    return np.asarray(
        np.linalg.solve(columns.T @ (weights[:, None] * columns) + penalty, columns.T @ (weights * targets))
    )


def check(model: Any, X: Array, encoded: Array, weights: Array | None = None, epsilon: float = 0.0) -> None:
    """Hold a shared model's weights to the dense solution with its own mu."""
    weights = np.ones(len(X)) if weights is None else weights
    mus = np.broadcast_to(model.lambda_, encoded.shape[1])
    for t, mu in enumerate(mus):
        expected = dense_weights(model, X, encoded[:, t], float(mu), weights, epsilon)
        ours = np.append(model.intercept_[t], model.coef_[:, t])
        np.testing.assert_allclose(ours, expected, atol=1e-6 * np.abs(expected).max())


def encoded(y: Array) -> Array:
    return np.where(y[:, None] == np.unique(y), 1.0, -1.0)


@pytest.mark.parametrize("regularization", ["gcv", "gcv-per-target", "evidence", 0.3, "none"])
@pytest.mark.parametrize("n_targets", [0, 3])
def test_weights_are_the_dense_solution(regularization: Any, n_targets: int) -> None:
    X, y = regression(120, n_targets=n_targets)
    model = dk.OROLSRegressor(
        max_centers=12, sigma=0.8, standardize=False, refit="rkhs", regularization=regularization
    ).fit(X, y)
    check(model, X, y.reshape(len(y), -1))
    assert np.size(model.lambda_) == (3 if n_targets and regularization == "gcv-per-target" else 1)
    assert np.isfinite(model.gcv_)


def test_epsilon_belongs_to_the_kernel() -> None:
    X, y = regression(100)
    model = dk.OROLSRegressor(max_centers=10, sigma=0.8, standardize=False, refit="rkhs", epsilon=0.1).fit(X, y)
    check(model, X, y[:, None], epsilon=0.1)


def test_shared_centres_of_several_classes() -> None:
    X, y = classes(150, 3)
    model = dk.OROLSClassifier(max_centers=12, sigma=1.5, standardize=False, refit="rkhs").fit(X, y)
    check(model, X, encoded(y))


def test_row_weights_and_zero_weights() -> None:
    X, y = regression(120)
    weights = np.random.default_rng(0).integers(0, 3, 120).astype(float)
    options: dict[str, Any] = {"max_centers": 10, "sigma": 0.8, "standardize": False, "refit": "rkhs"}
    model = dk.OROLSRegressor(**options).fit(X, y, sample_weight=weights)
    check(model, X, y[:, None], weights)


def test_centres_chosen_on_a_row_sample_are_refitted_over_all_rows() -> None:
    X, y = regression(300)
    model = dk.OROLSRegressor(
        max_centers=10, sigma=0.8, standardize=False, refit="rkhs", selection_rows=80, stop=None
    ).fit(X, y)
    check(model, X, y[:, None])


def test_one_vs_rest_is_a_model_a_class_side_by_side() -> None:
    X, y = classes(120, 3)
    options: dict[str, Any] = {"max_centers": 8, "sigma": 1.0, "stop": None, "refit": "rkhs", "panel": 4}
    model = dk.OROLSClassifier(multiclass="one-vs-rest", **options).fit(X, y)
    alone = [dk.OROLSClassifier(**options).fit(X, (y == c).astype(int)) for c in range(3)]
    np.testing.assert_allclose(model.lambda_, [part.lambda_ for part in alone], rtol=1e-4)
    for c, part in enumerate(alone):
        np.testing.assert_allclose(model.decision_function(X)[:, c], part.decision_function(X), atol=1e-5)
    np.testing.assert_allclose(model.gcv_, np.mean([part.gcv_ for part in alone]), rtol=1e-5)


@pytest.mark.parametrize("cls", KINDS)
def test_prefixes_are_fitted_anew(cls: Any) -> None:
    whole = fitted(cls, max_centers=16, stop=None, refit="rkhs", panel=4)
    for m in (4, 8, 12):
        direct = fitted(cls, max_centers=m, stop=None, refit="rkhs", panel=4)
        assert_equal_models(whole.truncate(m), direct)
    assert_equal_models(whole.truncate(16), whole)


@pytest.mark.parametrize("cls", KINDS)
def test_the_path_is_that_without_a_refit(cls: Any) -> None:
    plain, refitted = (fitted(cls, refit=refit) for refit in (None, "rkhs"))
    np.testing.assert_array_equal(plain.center_indices_, refitted.center_indices_)
    assert plain.history_.tobytes() == refitted.history_.tobytes()
    assert plain.stop_reason_ == refitted.stop_reason_
    assert not np.array_equal(plain.coef_, refitted.coef_)
    assert_equal_models(fitted(cls, refit="none"), plain)


def test_a_long_path_without_lambda_is_repaired() -> None:
    X, clean = regression(2160, noise=0.0, seed=3)
    y = clean[:160] + 0.8 * np.random.default_rng(0).standard_normal(160)
    errors = []
    for refit in (None, "rkhs"):
        model = dk.OROLSRegressor(max_centers=100, sigma=0.5, stop=None, regularization="none", refit=refit)
        model.fit(X[:160], y)
        errors.append(np.sqrt(np.mean((model.predict(X[160:]) - clean[160:]) ** 2)))
    assert errors[1] < 0.8 * errors[0]


def test_no_centre_is_a_constant() -> None:
    X, _ = regression(60)
    model = dk.OROLSRegressor(max_centers=5, refit="rkhs").fit(X, np.full(60, 2.5))
    assert model.n_centers_ == 0
    np.testing.assert_array_equal(model.predict(X[:3]), 2.5)
    assert model.lambda_ == 0.0


def test_saved_and_loaded(tmp_path: Path) -> None:
    model = fitted(dk.OROLSClassifier, refit="rkhs")
    model.save(tmp_path / "model")
    loaded = dk.load_model(tmp_path / "model")
    assert loaded.refit == "rkhs"
    assert_equal_models(loaded, model)


def test_a_finished_run_gives_either_kind_of_weights(tmp_path: Path) -> None:
    """The refit is no part of the training, so that a run need not be repeated for it."""
    exchanges: list[Any] = []

    def listen(event: Any) -> None:
        exchanges.extend([event] if isinstance(event, ExchangeDone) else [])

    plain = fitted(dk.OROLSRegressor, run_dir=tmp_path / "run", callbacks=(listen,))
    assert exchanges
    exchanges.clear()
    refitted = fitted(dk.OROLSRegressor, run_dir=tmp_path / "run", refit="rkhs", callbacks=(listen,))
    assert not exchanges
    assert_equal_models(refitted, fitted(dk.OROLSRegressor, refit="rkhs"))
    assert_equal_models(plain, fitted(dk.OROLSRegressor))


@pytest.mark.parametrize("kernel", ["sigmoid", dk.Sigmoid(0.5, 0.1), dk.Polynomial(2, -1.0)])
@pytest.mark.parametrize("cls", KINDS)
def test_kernels_without_a_norm_are_refused_before_anything_is_read(cls: Any, kernel: Any) -> None:
    with pytest.raises(JobError, match="positive definite kernel") as caught:
        cls(kernel=kernel, refit="rkhs").fit(None, None)
    assert caught.value.kind == "indefinite-kernel"


def test_an_unknown_refit_is_refused() -> None:
    with pytest.raises(JobError, match="refit='ridge': it must be one of 'rkhs'"):
        dk.OROLSRegressor(refit="ridge").fit(*regression())


def test_memory_of_the_refit_is_planned() -> None:
    X, y = regression(3000, 4)
    options: dict[str, Any] = {"max_centers": 1500, "candidates": 4, "panel": 2, "memory_limit": "120MiB"}
    with pytest.raises(BudgetError, match="refit='rkhs'") as caught:
        dk.OROLSRegressor(refit="rkhs", **options).fit(X, y)
    assert caught.value.kind == "memory"
