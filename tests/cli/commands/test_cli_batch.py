"""Batch jobs: time limits, ``--resume auto``, one JSON object in every case."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distkern.cli.console.terminal import Terminal
from distkern.storage import RunDirectory, write_dataset
from tests.cli.command_line import Call, Finished, environment, job_text, model_bits, undisturbed
from tests.markers import marked, variants

NONE = "0.000001"
"""Seconds that are over at once."""


@pytest.fixture
def job(waves: Path) -> Path:
    text = job_text(
        data={"train": "waves.zarr", "test": "waves-test.zarr"},
        model={"sigma": 0.7, "max_centers": 60, "panel": 8, "stop": "none"},
        output={"model": "m", "run": "r"},
    )
    (waves / "job.toml").write_text(text)
    return waves / "job.toml"


def record_of(done: Finished, code: int = 0) -> dict[str, Any]:
    assert done.code == code, done.err
    record = json.loads(done.out.splitlines()[-1])
    assert isinstance(record, dict)
    return record


def files(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_a_training_ends_in_time_and_resumes(job: Path, call: Call) -> None:
    short = record_of(call("train", job, "--max-seconds", NONE, "--json"))
    assert short["stop_reason"] == "time-limit"
    assert 0 < short["n_centers"] < 60
    assert "rmse" in short["test"]
    assert call("evaluate", "m", "waves-test.zarr").code == 0
    assert "can go on" in call("info", "r").out
    pieces = 0
    while (again := record_of(call("train", job, "--resume", "auto", "--max-seconds", NONE, "--json")))[
        "stop_reason"
    ] == "time-limit":
        assert again["exchanges"] > short["exchanges"]
        short, pieces = again, pieces + 1
    assert pieces > 3
    assert again["n_centers"] == 60
    assert model_bits(job.parent / "m") == undisturbed(call, job)


def test_a_limit_in_the_job_file(job: Path, call: Call) -> None:
    limited = ("--set", f"model.max_seconds={NONE}")
    assert record_of(call("train", job, "--json", *limited))["stop_reason"] == "time-limit"
    assert record_of(call("train", job, "--json", "--resume", *limited))["stop_reason"] == "time-limit"
    assert record_of(call("train", job, "--json", "--resume"))["stop_reason"] == "max-centers"
    done = call("train", job, "--max-seconds", "0")
    assert done.code == 2
    assert "max_seconds = 0" in done.err
    assert "above 0" in done.err


def test_the_time_of_the_command_counts_and_not_that_of_the_job(job: Path, call: Call) -> None:
    """A day is enough, and the record says what was asked for."""
    assert record_of(call("train", job, "--json", "--max-seconds", 86400))["stop_reason"] == "max-centers"
    assert RunDirectory.open("r").job["model"]["max_seconds"] == 86400


def test_auto_starts_resumes_and_does_not_change_a_complete_run(job: Path, call: Call) -> None:
    first = call("train", job, "--resume", "auto", "--max-seconds", NONE, "--json")
    assert record_of(first)["stop_reason"] == "time-limit"
    second = call("train", job, "--resume", "auto", "--json")
    assert record_of(second)["stop_reason"] == "max-centers"
    before = files(job.parent)
    for flags in ((), ("--max-seconds", 5), ("--memory", "1GiB")):
        third = call("train", job, "--resume", "auto", "--json", *flags)
        assert third.code == 0
        assert third.out == second.out
    shown = call("train", job, "--resume", "auto")
    assert shown.code == 0
    assert "max-centers: The limit" in shown.out
    assert "test rmse" in shown.out
    assert files(job.parent) == before


def test_auto_leaves_a_run_that_a_url_names_alone(job: Path, call: Call) -> None:
    command = ("train", job, "--set", f"output.run={(job.parent / 'r').as_uri()}", "--resume", "auto", "--json")
    first = call(*command)
    before = files(job.parent)
    again = call(*command)
    assert record_of(again) == record_of(first)
    assert files(job.parent) == before


def test_auto_of_classes_and_of_a_run_without_a_model(blobs: Path, call: Call) -> None:
    text = job_text(
        data={"train": "blobs.zarr"}, model={"max_centers": 5, "multiclass": "one-vs-rest"}, output={"run": "r"}
    )
    (blobs / "job.toml").write_text(text)
    first = call("train", "job.toml", "--resume", "auto", "--json")
    assert isinstance(record_of(first)["lambda"], list)
    before = files(blobs)
    assert call("train", "job.toml", "--resume", "auto", "--json").out == first.out
    assert files(blobs) == before


def test_auto_writes_a_missing_or_damaged_model_again(job: Path, call: Call) -> None:
    first = record_of(call("train", job, "--resume", "auto", "--json"))
    bits = model_bits(job.parent / "m")
    shutil.rmtree(job.parent / "m")
    assert record_of(call("train", job, "--resume", "auto", "--json"))["test"] == first["test"]
    assert model_bits(job.parent / "m") == bits
    (damaged,) = (job.parent / "m").rglob("coef*")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert call("train", job, "--resume", "auto").code == 0
    assert model_bits(job.parent / "m") == bits


@pytest.mark.parametrize("summary", [{}, {"stop_reason": "none such"}, {"n_rows": "many"}])
def test_auto_of_a_run_with_a_strange_summary_trains(summary: dict[str, Any], job: Path, call: Call) -> None:
    first = record_of(call("train", job, "--resume", "auto", "--json"))
    run = RunDirectory.open("r")
    assert run.summary is not None
    run.write_summary(summary and {**run.summary, **summary})
    assert record_of(call("train", job, "--resume", "auto", "--json"))["test"] == first["test"]
    assert (RunDirectory.open("r").summary or {}).keys() == first.keys()


def test_auto_with_more_centres_or_other_test_data_resumes(job: Path, call: Call) -> None:
    first = record_of(call("train", job, "--resume", "auto", "--json"))
    longer = record_of(call("train", job, "--resume", "auto", "--json", "--set", "model.max_centers=70"))
    assert longer["n_centers"] == 70
    other = record_of(call("train", job, "--resume", "auto", "--json", "--set", "data.test=waves.zarr"))
    assert other["n_centers"] == 60
    assert other["test"] != first["test"]


@pytest.mark.parametrize("finished", [True, False])
def test_auto_refuses_another_job_and_names_what_differs(finished: bool, job: Path, call: Call) -> None:
    limit = () if finished else ("--max-seconds", NONE)
    assert call("train", job, "--resume", "auto", *limit).code == 0
    before = files(job.parent)
    changes = ("--set", "model.sigma=2.5", "--set", "model.candidates=100")
    done = call("train", job, "--resume", "auto", "--json", *changes)
    error = record_of(done, code=6)["error"]
    assert error["kind"] == "changed"
    assert error["exit_code"] == 6
    assert "model.sigma was 0.7 and is 2.5" in error["message"]
    assert "model.candidates was 384 and is 100" in error["message"]
    assert "max_centers" not in error["message"].split(":", 1)[1].split("Restore")[0]
    assert files(job.parent) == before


def test_auto_refuses_other_rows_and_does_without_any(job: Path, call: Call) -> None:
    first = call("train", job, "--resume", "auto", "--json")
    shutil.move("waves.zarr", "elsewhere.zarr")
    assert call("train", job, "--resume", "auto", "--json").out == first.out
    rng = np.random.default_rng(1)
    write_dataset("waves.zarr", rng.random((400, 2)), rng.random(400), chunk_rows=128, task="regression")
    error = record_of(call("train", job, "--resume", "auto", "--json"), code=6)["error"]
    assert error["kind"] == "changed"
    assert "data.content" in error["message"]


def test_auto_of_plain_arrays(job: Path, call: Call) -> None:
    plain = job_text(
        data={"x": "waves.zarr/X", "y": "waves.zarr/y"}, model={"max_centers": 9}, output={"model": "m", "run": "r"}
    )
    job.write_text(plain)
    first = call("train", job, "--resume", "auto", "--json")
    before = files(job.parent)
    assert call("train", job, "--resume", "auto", "--json").out == first.out
    assert files(job.parent) == before


def test_auto_of_a_run_that_python_made(job: Path, call: Call) -> None:
    import distkern as dk

    dataset = dk.open_dataset("waves.zarr")
    dk.OROLSRegressor(sigma=0.7, max_centers=60, panel=8, stop=None, run_dir="r").fit(dataset)
    assert record_of(call("train", job, "--resume", "auto", "--json"))["n_centers"] == 60


@pytest.mark.parametrize(
    "words",
    [
        ["--resume=auto", "JOB"],
        ["--resume", "JOB"],
        ["--resume", "-q", "JOB", "--resume", "auto"],
        *marked(pytest.mark.nightly, ["--resume", "auto", "JOB"], ["JOB", "--json", "--resume", "auto", "-q"]),
    ],
)
def test_where_the_flag_may_stand(words: list[str], job: Path, call: Call) -> None:
    call("train", job, "--max-seconds", NONE)
    done = call("train", *(str(job) if word == "JOB" else word for word in words))
    assert done.code == 0, done.err
    assert (RunDirectory.open("r").summary or {})["n_centers"] == 60


def test_flags_that_make_no_sense(job: Path, call: Call) -> None:
    assert (
        "exclude each other"
        in record_of(call("train", job, "--resume", "auto", "--overwrite", "--json"), 2)["error"]["message"]
    )
    assert call("train", job, "--resume=perhaps").code == 2
    assert call("train", job, "--max-seconds", "soon").code == 2
    job.write_text(job_text(data={"train": "waves.zarr"}, output={"model": "m"}))
    assert "[output] run" in call("train", job, "--resume", "auto").err


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (["train", "none.toml"], 2, "job-file-missing"),
        (["train", "job.toml", "--nonsense"], 2, "usage"),
        (["train", "job.toml", "--set", "model.sigma=-1"], 2, "invalid-job"),
        (["train", "job.toml", "--set", "data.train=none.zarr"], 3, "missing"),
        (["train", "job.toml", "--memory", "4KiB"], 4, "memory"),
        pytest.param(
            ["train", "job.toml", "--scheduler", "tcp://127.0.0.1:1"], 5, "no-scheduler", marks=pytest.mark.nightly
        ),
        (["info", "none"], 3, "missing"),
        (["evaluate", "none", "waves.zarr"], 6, "missing"),
    ],
)
def test_errors_are_printed_as_json_too(words: list[str], code: int, kind: str, job: Path, call: Call) -> None:
    del job
    done = call(*words, "--json")
    error = record_of(done, code)["error"]
    assert done.out.count("\n") == 1
    assert (error["kind"], error["exit_code"]) == (kind, code)
    assert error["message"]
    plain = call(*words)
    assert (plain.code, plain.out) == (code, "")
    assert error["message"].splitlines()[0] in plain.err


def test_an_existing_run_is_an_error_in_json(job: Path, call: Call) -> None:
    assert call("train", job).code == 0
    assert record_of(call("train", job, "--json"), 6)["error"]["kind"] == "exists"


@pytest.mark.slow
@pytest.mark.parametrize("number", variants([signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]))
def test_a_signal_is_an_error_in_json_and_auto_resumes(number: int, job: Path, call: Call) -> None:
    settings = ("model.sigma=0.1", "model.max_centers=350", "model.panel=1")
    words = ["train", str(job), "--json", "--resume", "auto", *(f"--set={setting}" for setting in settings)]
    process = subprocess.Popen(
        [sys.executable, "-m", "distkern", *words, "-v"],
        cwd=job.parent,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "training on" in line:
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    error = json.loads(out)["error"]
    assert (error["kind"], error["exit_code"]) == ("interrupted", 130)
    assert "--resume" in error["message"]
    assert record_of(call(*words))["n_centers"] == 350


def test_the_codes_are_in_the_help(call: Call) -> None:
    text = " ".join(call("--help").out.split())
    for code in ("0 done", "2 usage", "3 data", "4 does", "5 cluster", "6 run", "130 interrupted", "1 a fault"):
        assert code in text


@pytest.mark.slow
@pytest.mark.cluster
def test_in_time_on_workers_and_on_without_them(job: Path, call: Call) -> None:
    short = record_of(call("train", job, "--workers", 2, "--max-seconds", NONE, "--resume", "auto", "--json"))
    assert short["stop_reason"] == "time-limit"
    assert record_of(call("train", job, "--resume", "auto", "--json"))["n_centers"] == 60
    assert model_bits(job.parent / "m") == undisturbed(call, job)


@pytest.mark.parametrize(("own", "least"), [(True, 0.001), (False, 0.0)])
def test_the_time_of_a_command_begins_with_its_process(own: bool, least: float) -> None:
    terminal = Terminal()
    terminal.owns_process = own
    age = terminal.seconds()
    assert age == 0.0 if not own else least < age < 1e6


@pytest.mark.slow
def test_a_process_of_its_own_trains_in_time(job: Path, shell: Call) -> None:
    assert record_of(shell("train", job, "--json", "--max-seconds", NONE))["stop_reason"] == "time-limit"
