"""The parameter `solver`: what fitted models have, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import distkern as dk
from distkern.errors import JobError
from distkern.scheduler.training import solver


@pytest.fixture(autouse=True)
def few_are_selected() -> Iterator[None]:
    with mock.patch.object(solver, "SELECTED_CENTERS", 20):
        yield


def rows(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.05 * rng.standard_normal(n)


def test_a_regressor_with_drawn_centres(tmp_path: Path) -> None:
    X, y = rows()
    model = dk.OROLSRegressor(sigma=1.0, max_centers=60, solver="conjugate-gradients", stop=None).fit(X, y)
    few = dk.OROLSRegressor(sigma=1.0, max_centers=20, stop=None).fit(X, y)
    assert model.n_centers_ == len(model.history_) == 60
    assert model.solver_ == model.summary_["solver"] == "conjugate-gradients"
    assert few.solver_ == "factors"
    np.testing.assert_array_equal(model.center_indices_[:20], few.center_indices_)
    X_test, y_test = rows(2000)
    assert np.square(model.predict(X_test) - y_test).mean() < np.square(few.predict(X_test) - y_test).mean()
    assert model.truncate(60).n_centers_ == 60
    with pytest.raises(JobError, match="solved together"):
        model.truncate(30)
    with pytest.raises(JobError, match="orthogonal columns"):
        model.transform(X)
    model.save(tmp_path / "m")
    again = dk.load_model(tmp_path / "m")
    assert again.solver_ == "conjugate-gradients"
    np.testing.assert_array_equal(again.predict(X_test), model.predict(X_test))


@pytest.mark.parametrize("multiclass", ["shared", "one-vs-rest", "one-vs-one", "dag"])
def test_a_classifier_with_drawn_centres(multiclass: str) -> None:
    X, y = rows(900)
    labels = np.digitize(y, [-0.5, 0.5])
    model = dk.OROLSClassifier(sigma=1.0, max_centers=50, solver="conjugate-gradients", multiclass=multiclass)
    model.fit(X[:600], labels[:600])
    assert model.score(X[600:], labels[600:]) > 0.8
    probabilities = model.predict_proba(X[600:])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)


@pytest.mark.parametrize("kind", [dk.NPDRegressor, dk.OROLSRegressor])
def test_without_a_penalty(kind: type) -> None:
    X, y = rows()
    own = {} if kind is dk.NPDRegressor else {"regularization": "none"}
    model = kind(sigma=1.0, max_centers=40, solver="conjugate-gradients", **own).fit(X, y)
    assert model.lambda_ == 0.0
    assert np.square(model.predict(X) - y).mean() < 0.05 * y.var()


def test_auto_asks_for_the_number_of_centres() -> None:
    X, y = rows()
    with mock.patch.object(solver, "LARGE", 30):
        assert dk.OROLSRegressor(sigma=1.0, max_centers=40, stop=None).fit(X, y).solver_ == "conjugate-gradients"
        assert dk.OROLSRegressor(sigma=1.0, max_centers=40, refit="rkhs").fit(X, y).solver_ == "factors"
        assert dk.OROLSRegressor(sigma=1.0, max_centers=30).fit(X, y).solver_ == "factors"


@pytest.mark.parametrize(
    ("name", "value"),
    [("refit", "rkhs"), ("regularization", "evidence"), ("sigma", [1.0, 2.0]), ("kernel", "sigmoid")],
)
def test_what_conjugate_gradients_cannot_serve_is_refused(name: str, value: object) -> None:
    X, y = rows(50)
    model = dk.OROLSRegressor(**{"solver": "conjugate-gradients", "sigma": 1.0, name: value})
    with pytest.raises(JobError, match="conjugate gradients"):
        model.fit(X, y)


def test_a_search_compares_the_selected_centres() -> None:
    X, y = rows()
    model = dk.OROLSRegressor(sigma="cv", folds=2, max_centers=60, solver="conjugate-gradients", stop=None).fit(X, y)
    assert model.n_centers_ == 60
    assert np.nanmax(model.cv_results_["n_centers"]) <= 20
