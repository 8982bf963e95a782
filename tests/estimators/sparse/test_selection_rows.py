"""Estimators that choose centres on a sample of the rows: prefixes, stores, and the rows that count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distkern as dk
from distkern.monitoring.events import RunEnded
from tests.estimators.fits import ALL, assert_equal_models, classes, data_for, fitted, regression
from tests.references import dense_kernel_columns

SAMPLE = {"selection_rows": 60, "stop": None}


@pytest.mark.parametrize("cls", ALL)
def test_prefixes_are_nested(cls: Any) -> None:
    whole = fitted(cls, **SAMPLE)
    assert whole.n_centers_ == 15
    for m in (1, 7, 15):
        shorter = whole.truncate(m)
        np.testing.assert_array_equal(shorter.center_indices_, whole.center_indices_[:m])
        np.testing.assert_array_equal(shorter.history_, whole.history_[:m])
        assert shorter.gcv_ == whole.history_["gcv"][m - 1]
        assert shorter.lambda_ == whole.history_["lambda_"][m - 1]
    assert_equal_models(whole.truncate(9).truncate(4), whole.truncate(4))


@pytest.mark.parametrize("cls", ALL)
def test_every_prefix_is_the_dense_fit_of_its_centres_over_all_rows(cls: Any) -> None:
    """With lambda = 0, least squares."""
    parameters = {} if "NPD" in cls.__name__ else {"regularization": "none"}
    whole = fitted(cls, n=200, standardize=False, epsilon=0.2, **SAMPLE, **parameters)
    X, y = data_for(cls, 200)
    targets = y[:, None] if "Regressor" in cls.__name__ else np.where(y[:, None] == np.unique(y), 1.0, -1.0)
    Z = X - X.mean(axis=0)
    for m in (3, 15):
        model = whole.truncate(m)
        rows = model.center_indices_
        A = np.column_stack([np.ones(200), dense_kernel_columns(dk.Gaussian(1.0), Z, Z[rows], rows, 0.2)])
        expected = np.linalg.lstsq(A, targets, rcond=None)[0]
        np.testing.assert_allclose(np.vstack([model.intercept_, model.coef_]), expected, atol=1e-7)


@pytest.mark.parametrize("cls", ALL)
def test_as_many_rows_as_there_are_change_nothing(cls: Any) -> None:
    assert_equal_models(fitted(cls, selection_rows=120), fitted(cls))


def test_the_sample_decides_the_centres_and_all_rows_the_weights() -> None:
    X, y = regression(200)
    parameters = {"sigma": 1.0, "max_centers": 10, "standardize": False}
    model = dk.OROLSRegressor(**parameters, **SAMPLE).fit(X, y)
    changed = y.copy()
    changed[np.setdiff1d(np.arange(200), _sampled(X, y))[:20]] += 1.0
    other = dk.OROLSRegressor(**parameters, **SAMPLE).fit(X, changed)
    assert other.center_indices_.tolist() == model.center_indices_.tolist()
    assert np.abs(other.coef_ - model.coef_).max() > 1e-3


def _sampled(X: Any, y: Any) -> Any:
    """Rows of the sample: all rows are candidates, and they all become centres."""
    every = dk.OROLSRegressor(sampler="all", max_centers=60, sigma=0.05, regularization="none", **SAMPLE).fit(X, y)
    return every.center_indices_


def test_the_centres_are_rows_of_the_sample() -> None:
    X, y = regression(200)
    assert len(_sampled(X, y)) > 50
    assert set(fitted(dk.OROLSRegressor, 200, **SAMPLE).center_indices_) <= set(_sampled(X, y))


def test_weights_count_as_repeated_rows_in_the_final_fit() -> None:
    """Centres are given by the same sample; the weights then follow from all rows."""
    X, y = classes(150)
    weights = np.where(np.arange(150) < 75, 2.0, 1.0)
    model = dk.NPDClassifier(sigma=1.0, max_centers=8, standardize=False, **SAMPLE).fit(X, y, weights)
    twice = np.concatenate([np.arange(150), np.arange(75)])
    Z = X[twice] - np.average(X, axis=0, weights=weights)
    rows = model.center_indices_
    A = np.column_stack([np.ones(225), dense_kernel_columns(dk.Gaussian(1.0), Z, Z[rows], rows, 0.0)])
    expected = np.linalg.lstsq(A, np.where(y[twice][:, None] == np.unique(y), 1.0, -1.0), rcond=None)[0]
    np.testing.assert_allclose(np.vstack([model.intercept_, model.coef_]), expected, atol=1e-8)


@pytest.mark.parametrize("stop", ["gcv", "validation", "lambda"])
def test_the_stop_reason_is_the_selections(stop: str) -> None:
    ended: list[Any] = []
    X, y = regression(400, noise=0.5)
    model = dk.OROLSRegressor(
        sigma=0.7,
        selection_rows=150,
        stop=stop,
        patience=8 if stop != "lambda" else 3,
        max_centers=80,
        callbacks=[ended.append],
    ).fit(X, y)
    reasons = {"gcv": "gcv-risen", "validation": "validation-risen", "lambda": "lambda-converged"}
    assert str(model.stop_reason_) == reasons[stop]
    assert model.n_centers_ == len(model.history_)
    (event,) = (e for e in ended if isinstance(e, RunEnded))
    assert (event.n_centers, event.stop_reason) == (model.n_centers_, reasons[stop])
    whole = model.truncate(len(model._result.paths[0].rows))
    if stop == "gcv":
        assert whole.n_centers_ > model.n_centers_


def test_a_model_keeps_the_parameter_in_its_store(tmp_path: Path) -> None:
    model = fitted(dk.OROLSClassifier, **SAMPLE)
    model.save(tmp_path / "model")
    again = dk.load_model(tmp_path / "model")
    assert again.selection_rows == 60
    assert again.summary_["passes"] == 3  # to choose centres, to fit them, to calibrate
    X, _ = data_for(dk.OROLSClassifier)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
