"""The run directory of a training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distkern as dk
from distkern.monitoring.events import Event, RoundDone, RunResumed
from distkern.storage import RunDirectory
from tests.estimators.fits import ALL, assert_equal_models, fitted, regression


@pytest.mark.parametrize("cls", ALL)
def test_a_run_directory_holds_job_events_and_summary(cls: Any, tmp_path: Path) -> None:
    events: list[Event] = []
    model = fitted(cls, run_dir=tmp_path / "run", callbacks=[events.append], tol=0.01, kernel=dk.Gaussian(1.0))
    assert {file.name for file in (tmp_path / "run").iterdir()} == {
        "job.json",
        "training.json",
        "log-0001.bin",
        "events.jsonl",
        "summary.json",
        "sums-0000",
    }
    run = RunDirectory.open(tmp_path / "run")

    assert run.job["estimator"] == cls.__name__
    parameters = run.job["parameters"]
    assert parameters["max_centers"] == 15
    assert parameters["tol"] == 0.01
    assert parameters["kernel"] == "Gaussian(sigma=1.0)"
    assert not {"client", "callbacks"} & set(parameters)
    assert set(parameters) == set(model.get_params(deep=False)) - {"client", "callbacks"}

    assert list(run.events()) == [json.loads(json.dumps(event.as_record())) for event in events]
    kinds = [record["event"] for record in run.events()]
    assert kinds[0] == "ExchangeDone"  # rows are loaded
    assert kinds[1] == "RunStarted"
    assert kinds[-1] == "RunEnded"
    assert set(kinds[2:-1]) == {"RoundDone", "ExchangeDone"}

    summary = run.summary
    assert summary is not None
    assert summary["stop_reason"] == str(model.stop_reason_)
    assert summary["n_centers"] == model.n_centers_
    figures = {"stop_reason": str(model.stop_reason_), "lambda": model.lambda_, "gcv": model.gcv_}
    assert summary == json.loads(json.dumps({**model.summary_, **figures}))


def test_the_run_directory_changes_nothing(tmp_path: Path) -> None:
    assert_equal_models(fitted(dk.OROLSRegressor, run_dir=tmp_path / "run"), fitted(dk.OROLSRegressor))


@pytest.mark.parametrize("change", [{"sigma": 2.0}, {"standardize": False}, {"random_state": 1}, {"dtype": "float32"}])
def test_another_training_needs_a_directory_of_its_own(change: dict[str, Any], tmp_path: Path) -> None:
    fitted(dk.OROLSRegressor, run_dir=tmp_path / "run")
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    with pytest.raises(dk.RunError) as caught:
        fitted(dk.OROLSRegressor, run_dir=tmp_path / "run", **change)
    assert caught.value.kind == "changed"
    name = {"random_state": "seed"}.get(next(iter(change)), next(iter(change)))
    assert f"model.{name} was" in str(caught.value)
    assert {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()} == before


def test_other_data_need_a_directory_of_their_own(tmp_path: Path) -> None:
    X, y = regression()
    model = dk.OROLSRegressor(run_dir=tmp_path / "run", max_centers=5).fit(X, y)
    for other in ((X, y + 1), (X[1:], y[1:]), (X.astype(np.float32), y), (X, y, np.full(len(y), 2.0))):
        with pytest.raises(dk.RunError) as caught:
            model.fit(*other)
        assert caught.value.kind == "changed"
        assert "data." in str(caught.value)


def test_a_finished_run_gives_its_model_again(tmp_path: Path) -> None:
    first = fitted(dk.OROLSRegressor, run_dir=tmp_path / "run")
    again = fitted(dk.OROLSRegressor, run_dir=tmp_path / "run")
    assert_equal_models(first, again)
    events = list(RunDirectory.open(tmp_path / "run").events())
    names = [event["event"] for event in events]
    assert names[names.index("RunEnded") + 1 :] == ["RunStarted", "RunResumed", "RunEnded"]
    assert again.summary_["exchanges"] == first.summary_["exchanges"]
    # The time that the recorded exchanges took counts as time of the run; the last one is recorded before its event.
    taken = [event["seconds"] for event in events if event["event"] == "ExchangeDone"]
    assert again.summary_["seconds"] >= max(taken[:-1])


def test_something_else_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    with pytest.raises(dk.RunError) as caught:
        fitted(dk.OROLSRegressor, run_dir=tmp_path / "run")
    assert caught.value.kind == "exists"
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_input_that_is_refused_leaves_no_run(tmp_path: Path) -> None:
    X, y = regression()
    X[3, 0] = np.nan
    with pytest.raises(dk.DataError):
        dk.OROLSRegressor(run_dir=tmp_path / "run").fit(X, y)
    with pytest.raises(dk.JobError):
        dk.OROLSRegressor(run_dir=tmp_path / "run", max_centers=0).fit(*regression())
    assert not (tmp_path / "run").exists()


def test_a_training_that_could_never_run_leaves_nothing(tmp_path: Path) -> None:
    """The first exchange finds the error."""
    X, y = regression()
    with pytest.raises(dk.DataError):
        dk.OROLSRegressor(run_dir=tmp_path / "run").fit(np.ones_like(X), y)
    assert not (tmp_path / "run").exists()


def test_a_callback_may_end_a_training_and_the_next_fit_resumes_it(tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, RoundDone):
            raise dk.Cancelled("enough for today")

    with pytest.raises(dk.Cancelled, match="enough"):
        fitted(dk.OROLSRegressor, run_dir=tmp_path / "run", callbacks=[stop], max_centers=60)
    assert RunDirectory.open(tmp_path / "run").summary is None
    events: list[Event] = []
    model = fitted(dk.OROLSRegressor, run_dir=tmp_path / "run", callbacks=[events.append], max_centers=60)
    assert_equal_models(model, fitted(dk.OROLSRegressor, max_centers=60))
    assert sum(isinstance(event, RunResumed) for event in events) == 1
    assert RunDirectory.open(tmp_path / "run").summary is not None


def test_numpy_numbers_as_parameters(tmp_path: Path) -> None:
    fitted(dk.OROLSRegressor, run_dir=tmp_path / "run", max_centers=np.int64(5), sigma=np.float32(1.5))
    parameters = RunDirectory.open(tmp_path / "run").job["parameters"]
    assert parameters["max_centers"] in (5, "5", "np.int64(5)")
    assert parameters["sigma"] in (1.5, "1.5", "np.float32(1.5)")
