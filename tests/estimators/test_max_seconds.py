"""`max_seconds`: a fit that ends in time with a model, and is resumed in its run directory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import distkern as dk
from distkern.errors import JobError, RunError
from distkern.monitoring.events import Event, ExchangeDone, RoundDone
from distkern.storage import RunDirectory

NONE = 1e-6
"""Seconds that end at once."""


def rows(n: int = 600) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(n)


def classes(n: int = 600) -> tuple[Any, Any]:
    X, y = rows(n)
    return X, np.array(["low", "mid", "high"])[np.digitize(y, [-0.5, 0.5])]


ESTIMATORS = {
    "regressor": (dk.OROLSRegressor(sigma=0.7, max_centers=60, stop=None), rows()),
    "pseudo-discriminants": (dk.NPDRegressor(sigma=0.7, max_centers=60, stop=None), rows()),
    "norm": (dk.OROLSRegressor(sigma=0.7, max_centers=60, stop=None, refit="rkhs"), rows()),
    "classifier": (dk.OROLSClassifier(sigma=0.7, max_centers=60, stop=None), classes()),
    "pairs": (dk.OROLSClassifier(sigma=0.7, max_centers=40, stop=None, multiclass="one-vs-one"), classes()),
    "sample": (dk.OROLSClassifier(sigma=0.7, max_centers=60, stop=None, selection_rows=300), classes()),
    "leave-one-out": (dk.LOOForwardClassifier(sigma=0.7, max_centers=5, stop=None), classes(200)),
}


def bits(model: Any) -> bytes:
    parts = (model.centers_, model.coef_, model.intercept_, model.center_indices_)
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_model_in_time_and_the_same_bits_in_the_end(name: str, tmp_path: Path) -> None:
    estimator, (X, y) = ESTIMATORS[name]
    whole = clone(estimator).fit(X, y)
    short = clone(estimator).set_params(max_seconds=NONE, run_dir=tmp_path / "run").fit(X, y)
    assert short.stop_reason_ == "time-limit"
    assert 0 < short.n_centers_ < whole.n_centers_
    assert short.predict(X).shape == y.shape
    if hasattr(short, "predict_proba"):
        assert np.isfinite(short.predict_proba(X)).all()
    summary = RunDirectory.open(tmp_path / "run").summary
    assert summary is not None
    assert summary["stop_reason"] == "time-limit"
    again = short.set_params(max_seconds=None).fit(X, y)
    assert again.stop_reason_ == "max-centers"
    assert bits(again) == bits(whole)


def test_the_time_is_used() -> None:
    """With exchanges that take a twentieth of a second, selection gets somewhere and ends before it is through."""
    X, y = rows()

    def slow(event: Event) -> None:
        if isinstance(event, ExchangeDone):
            time.sleep(0.05)

    limited = dk.OROLSRegressor(sigma=0.7, max_centers=500, stop=None, panel=1, max_seconds=1.5, callbacks=[slow])
    few = dk.OROLSRegressor(sigma=0.7, max_centers=500, stop=None, panel=1, max_seconds=NONE).fit(X, y)
    limited.fit(X, y)
    assert limited.stop_reason_ == "time-limit"
    assert few.n_centers_ <= limited.n_centers_ < 500


def test_advice_and_store(tmp_path: Path) -> None:
    X, y = rows()
    model = dk.OROLSRegressor(max_centers=60, stop=None, max_seconds=NONE).fit(X, y)
    assert "max_seconds" in model.stop_reason_.advice
    model.save(tmp_path / "model")
    loaded = dk.load_model(tmp_path / "model")
    assert loaded.stop_reason_ == "time-limit"
    assert loaded.max_seconds is None, "a limit on one fit is no part of the model"
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.slow
def test_a_search_that_takes_longer_is_an_error(tmp_path: Path) -> None:
    X, y = rows(200)
    model = dk.OROLSRegressor(sigma="cv", max_centers=20, max_seconds=NONE, run_dir=tmp_path / "run")
    with pytest.raises(RunError, match="max_seconds") as caught:
        model.fit(X, y)
    assert caught.value.kind == "time-limit"
    grid = dk.GridSearch(dk.OROLSRegressor(max_centers=60, max_seconds=NONE), {"sigma": [0.5, 1.0]})
    with pytest.raises(RunError, match="max_seconds"):
        grid.fit(X, y)
    with pytest.raises(JobError, match="max_seconds"):
        dk.GridSearch(dk.OROLSRegressor(), {"max_seconds": [1.0, 2.0]}).fit(X, y)
    model.set_params(max_seconds=1000.0).fit(X, y)
    assert bits(model) == bits(dk.OROLSRegressor(sigma="cv", max_centers=20).fit(X, y))


@pytest.mark.slow
def test_a_search_that_was_finished_is_not_made_again(tmp_path: Path) -> None:
    """A run that is resumed after its search reads the rows for the training only."""
    X, y = rows(120)
    events: list[Event] = []

    def cut(event: Event) -> None:
        if isinstance(event, RoundDone):
            raise dk.Cancelled()

    model = dk.OROLSRegressor(sigma="cv", max_centers=20, panel=4, stop=None, run_dir=tmp_path / "run")
    with pytest.raises(dk.Cancelled):
        model.set_params(callbacks=[cut]).fit(X, y)
    model.set_params(callbacks=[events.append], max_seconds=NONE).fit(X, y)
    assert model.stop_reason_ == "time-limit"
    model.set_params(max_seconds=None).fit(X, y)
    assert not any(isinstance(event, ExchangeDone) and "score" in event.name for event in events)
    whole = dk.OROLSRegressor(sigma="cv", max_centers=20, panel=4, stop=None, callbacks=[events.append]).fit(X, y)
    assert any(isinstance(event, ExchangeDone) and "score" in event.name for event in events)
    assert bits(model) == bits(whole)
    for name, values in whole.cv_results_.items():
        np.testing.assert_array_equal(model.cv_results_[name], values)


def test_a_search_leaves_the_rest_of_the_time_to_the_fit() -> None:
    X, y = rows(200)
    grid = dk.GridSearch(dk.OROLSRegressor(max_centers=20, max_seconds=500.0), {"sigma": [0.5, 1.0]}).fit(X, y)
    assert grid.best_estimator_.max_seconds == 500.0
    assert grid.best_estimator_.stop_reason_ != "time-limit"
