"""Which rows select centres by default, and that paths on a sample end where all rows end them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distkern as dk
from distkern.scheduler.search.search import _on_common_rows
from distkern.scheduler.training import automatic_sample
from distkern.scheduler.training.driver_loop import TrainingJob
from tests.scheduler.trainings import make_job


def job(**settings: Any) -> TrainingJob:
    return make_job(**{"selection_rows": "auto", "max_centers": 1000, **settings})


@pytest.mark.parametrize(
    ("n_rows", "settings", "expected"),
    [
        (7499, {}, 0),
        (7500, {}, 5000),
        (10**9, {}, 5000),
        (10**9, {"max_centers": 10}, 5000),
        (10**9, {"max_centers": 4000}, 20_000),
        (29_999, {"max_centers": 4000}, 0),
        (30_000, {"max_centers": 4000}, 20_000),
        (10**6, {"criterion": "residual"}, 0),
        (10**6, {"criterion": "loo-error", "stop": "loo"}, 0),
        (10**6, {"sampler": "all"}, 0),
        (10**6, {"stop": "validation"}, 0),
        (10**6, {"multiclass": "one-vs-one"}, 0),
        (10**6, {"multiclass": "one-vs-rest"}, 5000),
        (10**6, {"selection_rows": None}, 0),
        (10**6, {"selection_rows": 77}, 77),
        (77, {"selection_rows": 77}, 0),
    ],
)
def test_the_number_of_rows(n_rows: int, settings: dict[str, Any], expected: int) -> None:
    assert job(**settings).sampled_rows(n_rows) == expected


def test_settings_of_a_search_have_the_same_rows() -> None:
    several = [job(max_centers=m) for m in (100, 4000, 2000)]
    assert [j.selection_rows for j in _on_common_rows(several, 10**6)] == [20_000] * 3
    assert [j.selection_rows for j in _on_common_rows([*several, job(stop="validation")], 10**6)] == [None] * 4
    assert [j.selection_rows for j in _on_common_rows(several, 1000)] == [None] * 3
    assert [j.selection_rows for j in _on_common_rows([job(selection_rows=50)], 1000)] == [50]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic_sample, "LEAST_SELECTING", 150)
    monkeypatch.setattr(automatic_sample, "SELECTING_A_CENTER", 1)


def rows(n: int = 1200) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("stop", ["gcv", "bic", "mdl", "lambda"])
@pytest.mark.usefixtures("small")
def test_a_sample_does_not_end_the_path(stop: str) -> None:
    """On the rows of the sample alone the path is shorter, and its model worse."""
    X, y = rows()
    settings = {"sigma": 0.7, "stop": stop, "max_centers": 120}
    model = dk.OROLSRegressor(**settings).fit(X, y)
    assert model.summary_["selection_rows"] == 150
    assert model.summary_["passes"] == 2
    everything = dk.OROLSRegressor(**settings, selection_rows=None).fit(X, y)
    assert everything.summary_["selection_rows"] == 1200
    assert everything.summary_["passes"] == 1
    X_test, y_test = rows(3000)
    assert model.score(X_test, y_test) > 1 - 1.5 * (1 - everything.score(X_test, y_test))
    assert len(model._result.paths[0].rows) >= model.n_centers_
    if model.n_centers_ < len(model._result.paths[0].rows):
        assert str(model.stop_reason_) in {"gcv-risen", "bic", "mdl", "lambda-converged"}


@pytest.mark.usefixtures("small")
def test_a_search_selects_on_the_sample() -> None:
    X, y = rows()
    model = dk.OROLSRegressor(sigma="cv", folds=2, max_centers=20).fit(X, y)
    assert model.summary_["selection_rows"] == 150
    assert model.cv_results_["n_centers"].max() <= 20
