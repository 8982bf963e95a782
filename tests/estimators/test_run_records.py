"""The run directory of a training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fits import ALL, assert_equal_models, fitted, regression

import distkern as dk
from distkern.events import Event
from distkern.storage import RunDirectory


@pytest.mark.parametrize("cls", ALL)
def test_a_run_directory_holds_job_events_and_summary(cls: Any, tmp_path: Path) -> None:
    heard: list[Event] = []
    model = fitted(cls, run_dir=tmp_path / "run", callbacks=[heard.append], tol=0.01, kernel=dk.Gaussian(1.0))
    assert {file.name for file in (tmp_path / "run").iterdir()} == {"job.json", "events.jsonl", "summary.json"}
    run = RunDirectory.open(tmp_path / "run")

    assert run.job["estimator"] == cls.__name__
    parameters = run.job["parameters"]
    assert parameters["max_centers"] == 15
    assert parameters["tol"] == 0.01
    assert parameters["kernel"] == "Gaussian(sigma=1.0)"
    assert not {"client", "callbacks"} & set(parameters)
    assert set(parameters) == set(model.get_params(deep=False)) - {"client", "callbacks"}

    assert list(run.events()) == [json.loads(json.dumps(event.as_record())) for event in heard]
    kinds = [record["event"] for record in run.events()]
    assert kinds[0] == "RunStarted"
    assert kinds[-1] == "RunEnded"
    assert set(kinds[1:-1]) <= {"RoundDone"}

    summary = run.summary
    assert summary is not None
    assert summary["stop_reason"] == str(model.stop_reason_)
    assert summary["n_centers"] == model.n_centers_
    assert summary == json.loads(json.dumps({**model.summary_, "stop_reason": str(model.stop_reason_)}))


def test_the_run_directory_changes_nothing(tmp_path: Path) -> None:
    assert_equal_models(fitted(dk.OROLSRegressor, run_dir=tmp_path / "run"), fitted(dk.OROLSRegressor))


def test_a_second_run_needs_a_directory_of_its_own(tmp_path: Path) -> None:
    model = fitted(dk.OROLSRegressor, run_dir=tmp_path / "run")
    events = (tmp_path / "run" / "events.jsonl").read_bytes()
    with pytest.raises(dk.RunError) as caught:
        model.fit(*regression())
    assert caught.value.kind == "exists"
    assert (tmp_path / "run" / "events.jsonl").read_bytes() == events


def test_input_that_is_refused_leaves_no_run(tmp_path: Path) -> None:
    X, y = regression()
    X[3, 0] = np.nan
    with pytest.raises(dk.DataError):
        dk.OROLSRegressor(run_dir=tmp_path / "run").fit(X, y)
    with pytest.raises(dk.JobError):
        dk.OROLSRegressor(run_dir=tmp_path / "run", max_centers=0).fit(*regression())
    assert not (tmp_path / "run").exists()


def test_a_training_that_fails_leaves_a_run_without_summary(tmp_path: Path) -> None:
    """What turns out in the first exchange: the run is there, and says that it did not end."""
    X, y = regression()
    with pytest.raises(dk.DataError):
        dk.OROLSRegressor(run_dir=tmp_path / "run").fit(np.ones_like(X), y)
    assert RunDirectory.open(tmp_path / "run").summary is None


def test_numpy_numbers_as_parameters(tmp_path: Path) -> None:
    fitted(dk.OROLSRegressor, run_dir=tmp_path / "run", max_centers=np.int64(5), sigma=np.float32(1.5))
    parameters = RunDirectory.open(tmp_path / "run").job["parameters"]
    assert parameters["max_centers"] in (5, "5", "np.int64(5)")
    assert parameters["sigma"] in (1.5, "1.5", "np.float32(1.5)")
