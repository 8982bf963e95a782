"""Models without a constant: dense least squares, leave-one-out outputs, samples, solvers and stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import distkern as dk
from tests.estimators.fits import classes, data_for, regression

Array = NDArray[Any]
AWAY = np.full((1, 2), 1e3)


def columns(model: Any, X: Array) -> Array:
    rows, centers = (model._model.scaling.apply(a, np.float64) for a in (X, model.centers_))
    return np.asarray(model.kernel_.block(rows, centers))


@pytest.mark.parametrize("selection_rows", [None, 60])
@pytest.mark.parametrize("criterion", ["error-reduction", "residual"])
def test_weights_are_those_of_least_squares_on_the_columns_alone(criterion: str, selection_rows: int | None) -> None:
    X, y = regression(150, n_targets=2)
    y += 3.0
    model = dk.NPDRegressor(
        sigma=1.0, max_centers=15, fit_intercept=False, criterion=criterion, selection_rows=selection_rows
    ).fit(X, y)
    expected = np.linalg.lstsq(columns(model, X), y, rcond=None)[0]
    np.testing.assert_allclose(model.coef_, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(model.intercept_, 0.0)
    np.testing.assert_array_equal(model.predict(AWAY), 0.0)


@pytest.mark.parametrize(
    "settings",
    [
        *({}, {"selection_rows": 50}, {"refit": "rkhs"}, {"solver": "conjugate-gradients"}, {"stop": "validation"}),
        *({"loss": "robust"}, {"loss": "robust", "selection_rows": 50}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("cls", [dk.OROLSRegressor, dk.OROLSClassifier])
def test_every_way_to_the_weights_has_no_constant(cls: Any, settings: dict[str, Any]) -> None:
    X, y = data_for(cls, 150)
    if "loss" in settings:
        settings = settings | {"loss": "huber" if cls is dk.OROLSRegressor else "logistic"}
    model = cls(sigma=1.0, max_centers=15, fit_intercept=False, **settings).fit(X, y)
    np.testing.assert_array_equal(model.intercept_, 0.0)
    assert model.score(X, y) > 0.7


def test_outputs_without_a_row_are_those_of_explicit_fits() -> None:
    X, y = regression(60)
    y += 2.0
    model = dk.OROLSRegressor(sigma=1.0, max_centers=8, fit_intercept=False, regularization=0.01, stop=None).fit(X, y)
    path = model._result.paths[0]
    q = columns(model, X) @ np.linalg.inv(path.u[1:, 1:])
    left = model._outputs_left_out()[:, 0]
    for row in range(0, 60, 7):
        rest = np.arange(60) != row
        w = np.linalg.solve(q[rest].T @ q[rest] + 0.01 * np.eye(8), q[rest].T @ y[rest])
        assert left[row] == pytest.approx(q[row] @ w, rel=1e-9)


def test_deviations_have_no_part_of_a_constant() -> None:
    X, y = regression(80)
    model = dk.OROLSRegressor(sigma=1.0, max_centers=8, fit_intercept=False, regularization=0.1, stop=None).fit(X, y)
    deviation = model.predict(AWAY, return_std=True)[1]
    assert deviation[0] == pytest.approx(np.sqrt(model._leverage().variance[0]), rel=1e-12)


def test_stores_runs_and_pickles_keep_it(tmp_path: Path) -> None:
    X, y = classes(120)
    model = dk.OROLSClassifier(sigma=1.0, max_centers=10, fit_intercept=False, run_dir=tmp_path / "a.run").fit(X, y)
    model.save(tmp_path / "model")
    for loaded in (dk.load_model(tmp_path / "model"), dk.load_model(tmp_path / "a.run")):
        assert loaded.fit_intercept is False
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_the_default_has_a_constant() -> None:
    X, y = regression(100)
    model = dk.OROLSRegressor(sigma=1.0, max_centers=8).fit(X, y + 5.0)
    assert model.fit_intercept
    assert model.predict(AWAY) == pytest.approx(5.0, abs=2.0)
