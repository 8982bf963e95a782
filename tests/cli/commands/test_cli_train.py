from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distkern.cli.job.model_section import METHODS
from tests.cli.command_line import Call, Finished, environment, job_text, tree
from tests.markers import marked

KEYS = {
    "model",
    "run",
    "n_rows",
    "selection_rows",
    "solver",
    "loss",
    "n_features",
    "n_targets",
    "n_centers",
    "lambda",
    "gcv",
    "stop_reason",
    "seconds",
    "rounds",
    "exchanges",
    "kernel_columns",
    "bytes_read",
    "planned_peak_bytes",
    "peak_rss_driver",
    "peak_rss_worker",
}

BLOBS = {
    "data": {"train": "blobs.zarr", "test": "blobs-test.zarr"},
    "model": {"sigma": 2.0, "max_centers": 20},
    "output": {"model": "blobs.model", "run": "blobs.run"},
}


def write_job(folder: Path, **sections: dict[str, Any]) -> Path:
    path = folder / "job.toml"
    path.write_text(job_text(**sections))
    return path


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} in JSON")


def record_of(done: Finished) -> dict[str, Any]:
    assert done.code == 0, done.err
    record = json.loads(done.out.splitlines()[-1], parse_constant=refuse_constant)
    assert isinstance(record, dict)
    return record


def test_json_is_the_last_line_and_has_exactly_the_keys(blobs: Path, call: Call) -> None:
    done = call("train", write_job(blobs, **BLOBS), "--json")
    record = record_of(done)
    assert set(record) == KEYS | {"test"}
    assert done.out.count("\n") == 1
    assert (record["n_rows"], record["n_features"], record["n_targets"]) == (400, 4, 3)
    assert 1 <= record["n_centers"] <= 20
    assert (record["model"], record["run"]) == ("blobs.model", "blobs.run")
    assert set(record["test"]) == {"error"}
    assert 0 <= record["test"]["error"] < 0.1
    assert record["seconds"] > 0
    assert record["peak_rss_driver"] > 1e6
    assert isinstance(record["stop_reason"], str)
    assert "training on 400 rows" in done.err
    assert "\x1b" not in done.err + done.out
    assert (blobs / "blobs.model").is_dir()
    assert (blobs / "blobs.run").is_dir()


def test_the_saved_model_is_the_trained_one(blobs: Path, call: Call) -> None:
    from distkern.estimators import load_model

    record = record_of(call("train", write_job(blobs, **BLOBS), "--json"))
    model = load_model("blobs.model")
    assert model.n_centers_ == record["n_centers"]
    assert list(model.classes_) == ["ant", "bee", "cat"]


def test_without_json_the_summary_is_for_a_person(blobs: Path, call: Call) -> None:
    done = call("train", write_job(blobs, **BLOBS), "--set", "model.stop=none", "--set", "model.max_centers=7")
    assert done.code == 0, done.err
    for part in ("400 x 4", "max-centers", "max_centers was reached", "blobs.model", "test error"):
        assert part in done.out
    assert "\x1b" not in done.out


def test_without_output_nothing_is_saved_and_the_summary_reports_it(blobs: Path, call: Call) -> None:
    job = write_job(blobs, data={"train": "blobs.zarr"}, model={"max_centers": 5})
    before = tree(blobs)
    done = call("train", job)
    assert done.code == 0, done.err
    assert "not saved" in done.out
    assert tree(blobs) == before
    record = record_of(call("train", job, "--json"))
    assert set(record) == {*KEYS, "chosen"}
    assert record["chosen"]["rows"] == record["n_rows"]
    assert "chosen by evidence" in done.out
    assert record["model"] is None
    assert record["run"] is None


def test_quiet_leaves_standard_error_empty(blobs: Path, call: Call) -> None:
    done = call("train", write_job(blobs, **BLOBS), "--json", "-q")
    assert record_of(done)["n_rows"] == 400
    assert done.err == ""


def test_regression_reports_rmse_in_the_units_of_y(waves: Path, call: Call) -> None:
    job = write_job(
        waves,
        data={"train": "waves.zarr", "test": "waves-test.zarr"},
        model={"sigma": 0.5, "max_centers": 120, "stop": "none"},
    )
    record = record_of(call("train", job, "--json"))
    assert set(record["test"]) == {"rmse"}
    assert 0.05 < record["test"]["rmse"] < 1.0
    assert record["n_targets"] == 1


def test_selection_on_a_row_sample_reads_everything_once_more(blobs: Path, call: Call) -> None:
    job = write_job(blobs, data={"train": "blobs.zarr"}, model={"sigma": 2.0, "max_centers": 9, "stop": "none"})
    whole, sample = (
        record_of(call("train", job, "--set", f"model.selection_rows={rows}", "--json")) for rows in ("none", 100)
    )
    # Beside the pass that fits the centres there is the one that calibrates.
    assert 2 * sample["bytes_read"] == 3 * whole["bytes_read"]
    assert sample["n_centers"] == whole["n_centers"] == 9


def test_settings_reach_the_estimator(blobs: Path, call: Call) -> None:
    record = record_of(
        call(
            "train",
            write_job(blobs, **BLOBS),
            "--json",
            "--set",
            "model.max_centers=3",
            "--set",
            "model.stop=none",
        )
    )
    assert record["n_centers"] == 3
    assert record["stop_reason"] == "max-centers"


def test_sigma_may_be_a_list_of_widths(blobs: Path, call: Call) -> None:
    from distkern.estimators import load_model

    job = write_job(blobs, **{**BLOBS, "model": {"sigma": [0.5, 2.0], "max_centers": 20}})
    assert call("plan", job).code == 0
    record = record_of(call("train", job, "--json"))
    assert record["test"]["error"] < 0.2
    model = load_model("blobs.model")
    assert set(model.kernel_.sigma) <= {0.5, 2.0}
    assert call("evaluate", "blobs.model", "blobs-test.zarr", "--json").code == 0
    assert call("info", "blobs.model").code == 0
    again = record_of(
        call("train", job, "--json", "--resume", "--set", "model.max_centers=22", "--set", "output.model=longer")
    )
    assert again["n_centers"] <= 22
    assert len(load_model("longer").kernel_.sigma) == again["n_centers"]


def test_npd_is_a_method(blobs: Path, call: Call) -> None:
    job = write_job(blobs, **{**BLOBS, "model": {"method": "npd", "sigma": 2.0, "max_centers": 20}})
    assert record_of(call("train", job, "--json"))["test"]["error"] < 0.2


@pytest.mark.parametrize("dtype", ["i8", "f8", "U3", "?"])
def test_plain_arrays_train_and_their_type_decides_the_task(here: Path, call: Call, dtype: str) -> None:
    zarr = pytest.importorskip("zarr")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    y = (X[:, 0] > 0).astype(dtype)
    for name, values in (("X", X), ("y", y), ("Xt", X[:50]), ("yt", y[:50])):
        zarr.save_array(str(here / f"{name}.zarr"), values, zarr_format=2 if dtype == "U3" else 3)
    job = write_job(
        here,
        data={"x": "X.zarr", "y": "y.zarr", "test_x": "Xt.zarr", "test_y": "yt.zarr"},
        model={"sigma": 1.0, "max_centers": 20},
    )
    done = call("train", job, "--json")
    assert set(record_of(done)["test"]) == {"rmse" if dtype == "f8" else "error"}
    assert "names no task" in done.err


def test_the_task_can_be_named(here: Path, call: Call) -> None:
    zarr = pytest.importorskip("zarr")
    X = np.linspace(0, 1, 100)[:, None]
    zarr.save_array(str(here / "X.zarr"), X)
    zarr.save_array(str(here / "y.zarr"), np.arange(100))
    data = {"x": "X.zarr", "y": "y.zarr", "test_x": "X.zarr", "test_y": "y.zarr", "task": "regression"}
    job = write_job(here, data=data, model={"max_centers": 10})
    assert set(record_of(call("train", job, "--json"))["test"]) == {"rmse"}


@pytest.mark.parametrize("taken", ["blobs.model", "blobs.run"])
def test_outputs_that_exist_are_refused_before_training(blobs: Path, call: Call, taken: str) -> None:
    (blobs / taken).mkdir()
    (blobs / taken / "mine").write_text("keep me")
    job = write_job(blobs, **BLOBS)
    before = tree(blobs)
    done = call("train", job)
    assert done.code == 6
    assert taken in done.err
    assert "--overwrite" in done.err
    assert "training on" not in done.err
    assert tree(blobs) == before


@pytest.mark.parametrize(
    ("output", "code", "part"),
    [
        ({"model": "/proc/nowhere/m"}, 6, "cannot be written"),
        ({"run": "/proc/nowhere/r"}, 6, "cannot be written"),
        ({"model": "m", "run": "m/run"}, 2, "lie inside each other"),
        ({"model": "same", "run": "same"}, 2, "lie inside each other"),
        ({"model": "blobs.zarr/model"}, 2, "lie inside each other"),
    ],
)
def test_outputs_that_cannot_be_written_are_refused_before_training(
    blobs: Path, call: Call, output: dict[str, str], code: int, part: str
) -> None:
    job = write_job(blobs, data={"train": "blobs.zarr"}, output=output)
    before = tree(blobs)
    done = call("train", job)
    assert done.code == code, done.err
    assert part in done.err
    assert "training on" not in done.err
    assert tree(blobs) == before


def test_overwrite_replaces_model_and_run(blobs: Path, call: Call) -> None:
    job = write_job(blobs, **BLOBS)
    assert call("train", job).code == 0
    assert call("train", job).code == 6
    record = record_of(
        call("train", job, "--overwrite", "--json", "--set", "model.max_centers=3", "--set", "model.stop=none")
    )
    assert record["n_centers"] == 3


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=[pytest.mark.slow, pytest.mark.cluster], id="2 workers")])
def test_an_interrupt_of_all_processes_ends_with_130_and_leaves_no_model(here: Path, workers: int) -> None:
    from distkern.storage import write_dataset

    rng = np.random.default_rng(0)
    write_dataset(here / "big.zarr", rng.standard_normal((20_000, 8)), rng.standard_normal(20_000))
    job = write_job(
        here,
        data={"train": "big.zarr"},
        model={"sigma": 0.5, "max_centers": 4000, "stop": "none"},
        output={"model": "big.model"},
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "distkern", "train", str(job), *(["--workers", "2"] if workers else [])],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "training on" in line:
            break
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=25)
    assert process.returncode == 130, err
    assert out == ""
    assert "interrupted" in err
    assert "Traceback" not in err
    assert not (here / "big.model").exists()


@pytest.mark.slow
@pytest.mark.cluster
def test_workers_give_the_same_model(blobs: Path, shell: Call) -> None:
    from distkern.estimators import load_model

    job = write_job(blobs, **BLOBS)
    record_of(shell("train", job, "--json"))
    alone = load_model("blobs.model")
    record = record_of(shell("train", job, "--json", "--workers", 2, "--memory", "1GiB", "--overwrite"))
    shared = load_model("blobs.model")
    assert np.array_equal(alone.centers_, shared.centers_)
    assert np.array_equal(alone.coef_, shared.coef_)
    assert record["peak_rss_worker"] > 1e6


@pytest.mark.slow
@pytest.mark.cluster
def test_a_running_cluster_trains_and_stays(blobs: Path, shell: Call) -> None:
    from distkern.scheduler import local_client

    with local_client(2) as client:
        record = record_of(shell("train", write_job(blobs, **BLOBS), "--json", "--scheduler", client.scheduler.address))
        assert record["test"]["error"] < 0.1
        assert len(client.scheduler_info()["workers"]) == 2


@pytest.mark.slow
@pytest.mark.cluster
def test_the_command_waits_for_workers_as_long_as_the_job_says(blobs: Path, shell: Call) -> None:
    from distributed import LocalCluster

    job = write_job(blobs, **BLOBS)
    with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as cluster:
        done = shell("train", job, "--scheduler", cluster.scheduler_address, "--set", "cluster.wait=0.3")
    assert done.code == 5
    assert "waiting up to 0.3 s" in done.err
    assert "no worker was usable within 0.3 s (the cluster has none)" in " ".join(done.err.split())
    assert not (blobs / "blobs.model").exists()


QUICK = ("orols", "krls", "mse", "ls-svm")
CLASSIFIERS = [name for name, (_, classifier) in METHODS.items() if classifier is not None]
OTHERS = [name for name in CLASSIFIERS if name not in QUICK]


@pytest.mark.parametrize(
    "method", [*QUICK, *marked(pytest.mark.slow, *(name for name in CLASSIFIERS if name not in QUICK))]
)
def test_every_method_plans_trains_saves_and_predicts(blobs: Path, call: Call, method: str) -> None:
    job = write_job(
        blobs,
        data={"train": "blobs.zarr", "test": "blobs.zarr"},
        model={"method": method},
        output={"model": "any.model"},
    )
    planned = call("plan", job, "--json")
    assert planned.code == 0, planned.err
    assert json.loads(planned.out)["planned_peak_bytes"] > 0
    done = call("train", job, "--json", "-q")
    assert done.code == 0, done.err
    record = json.loads(done.out.splitlines()[-1])
    assert record["test"]["error"] < 0.5
    assert record["model"] == "any.model"
    shown = call("train", job, "--overwrite")
    assert shown.code == 0, shown.err
    done = call("evaluate", "any.model", "blobs.zarr", "--json")
    assert json.loads(done.out)["error"] == pytest.approx(record["test"]["error"])
    assert call("predict", "any.model", "blobs.zarr", "--out", "any.zarr", "--proba").code == 0


def test_methods_for_the_other_task_and_runs_they_do_not_keep(waves: Path, blobs: Path, call: Call) -> None:
    done = call("train", write_job(waves, data={"train": "waves.zarr"}, model={"method": "fisher"}))
    assert done.code == 2
    assert "'fisher' is for classification" in done.err
    job = write_job(blobs, data={"train": "blobs.zarr"}, model={"method": "krls"}, output={"run": "krls.run"})
    done = call("train", job)
    assert done.code == 2
    assert "keeps no record of a run" in done.err
