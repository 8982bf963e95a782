"""A job with a learnt metric: planned, trained, resumed, described, evaluated and predicted by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import distkern as dk
from distkern.storage import read_predictions, write_dataset
from tests.cli.command_line import Call, job_text

JOB: dict[str, dict[str, object]] = {
    "data": {"train": "train.zarr", "test": "test.zarr"},
    "model": {"metric": "diagonal", "kernel": "auto", "sigma": "median", "metric_rounds": 1, "max_centers": 20},
    "output": {"model": "it.model", "run": "it.run"},
}


@pytest.fixture
def job(here: Path) -> Path:
    """A job on rows whose target needs two of four features."""
    X = np.random.default_rng(0).normal(size=(300, 4))
    y = np.sin(2 * X[:, 2]) + X[:, 1]
    for name, part in (("train", slice(200)), ("test", slice(200, None))):
        write_dataset(here / f"{name}.zarr", X[part], y[part], chunk_rows=64, feature_names=["a", "b_b", "c", "d"])
    place = here / "job.toml"
    place.write_text(job_text(**JOB))
    return place


def test_every_command_takes_a_learnt_metric(job: Path, call: Call) -> None:
    (job.parent / "plain.toml").write_text(job_text(**{**JOB, "model": {"max_centers": 20, "sigma": "median"}}))
    planned, plain = (json.loads(call("plan", "--json", name).out) for name in (job, "plain.toml"))
    terms = {name for name in planned["memory"] if name.startswith("metric_")}
    assert terms == {"metric_sample", "metric_model", "metric_map"}
    assert planned["passes"] == plain["passes"] + 1
    assert planned["bytes_read"] == plain["bytes_read"] + 200 * (4 + 1) * 8
    assert planned["planned_peak_driver"] > sum(planned["memory"][name] for name in terms)
    shown = call("plan", job).out
    assert "rounds in the driver" in shown
    assert shown.index("Memory of the driver") < shown.index("metric sample")

    done = call("train", "--json", job)
    assert done.code == 0, done.err
    trained = json.loads(done.out)
    assert trained["bytes_read"] == planned["bytes_read"]
    model = dk.load_model("it.model")
    assert model.metric_.shape == (4,)
    assert set(np.argsort(-model.feature_importances_)[:2]) == {1, 2}

    resumed = call("train", "--json", "--resume", job)
    assert resumed.code == 0, resumed.err
    assert json.loads(resumed.out)["gcv"] == trained["gcv"]

    facts = json.loads(call("info", "--json", "it.model").out)["metric"]
    assert facts["kernel"] == model.kernel_.name
    assert facts["rounds"] == len(model.metric_rounds_)
    assert set(list(facts["importances"])[:2]) == {"b_b", "c"}
    errors = [made["error"] for made in model.metric_rounds_]
    assert json.loads(call("info", "--json", "it.run").out)["metric"] == {
        "rounds": len(errors),
        "lowest_error": min(errors),
    }

    assert json.loads(call("evaluate", "--json", "it.model", "test.zarr").out)["rmse"] == trained["test"]["rmse"]
    assert call("predict", "it.model", "test.zarr", "--out", "p.zarr").code == 0
    np.testing.assert_array_equal(read_predictions("p.zarr").prediction[:], model.predict(dk.open_dataset("test.zarr")))


@pytest.mark.parametrize(
    ("setting", "text"),
    [('metric="round"', "isotropic"), ("metric_rounds=-1", "metric_rounds"), ('method="krls"', "metric")],
)
def test_values_that_make_no_sense_are_refused(job: Path, call: Call, setting: str, text: str) -> None:
    done = call("train", job, "--set", f"model.{setting}")
    assert done.code == 2
    assert text in done.err
    assert not Path("it.run").exists()
