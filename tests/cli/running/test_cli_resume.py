"""``distkern train --resume``: after a kill at any moment, after signals, with more centres, on other workers."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from distkern.cli.main import main
from distkern.storage import RunDirectory, recorded, write_dataset
from tests.cli.command_line import Call, environment, job_text, model_bits, tree, undisturbed
from tests.markers import variants

Killed = Callable[[Callable[[], bool]], int]


def write_job(folder: Path, rows: int, centers: int) -> Path:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, 4))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + X[:, 2] + 0.1 * rng.standard_normal(rows)
    write_dataset(folder / "rows.zarr", X, y, chunk_rows=rows // 4, task="regression")
    text = job_text(
        data={"train": "rows.zarr"},
        model={"sigma": 1.5, "max_centers": centers, "stop": "none"},
        output={"model": "m", "run": "r"},
    )
    (folder / "job.toml").write_text(text)
    return folder / "job.toml"


@pytest.fixture
def job(here: Path) -> Path:
    """A job that is done at once."""
    return write_job(here, 800, 60)


@pytest.fixture
def long_job(here: Path) -> Path:
    """A job that takes a second or two: 20 rounds and more on 6000 rows."""
    return write_job(here, 6000, 320)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bits of the model of the long job, trained without a disturbance."""
    folder = tmp_path_factory.mktemp("undisturbed")
    write_job(folder, 6000, 320)
    with contextlib.chdir(folder):
        assert main(["train", "job.toml"]) == 0
    return model_bits(folder / "m")


def start(job: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "distkern", "train", str(job), *arguments],
        cwd=job.parent,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_rounds(place: Path, count: int, timeout: float = 120) -> None:
    deadline = time.monotonic() + timeout
    events = place / "events.jsonl"
    while not events.exists() or events.read_text().count("RoundDone") < count:
        assert time.monotonic() < deadline, "no round ended in time"
        time.sleep(0.01)


def test_a_run_that_does_not_exist_starts(job: Path, call: Call) -> None:
    done = call("train", job, "--resume")
    assert done.code == 0, done.err
    assert model_bits(job.parent / "m") == undisturbed(call, job)


def test_a_finished_run_gives_the_same_model(job: Path, call: Call) -> None:
    assert call("train", job).code == 0
    first = model_bits(job.parent / "m")
    done = call("train", job, "--resume", "--json")
    assert done.code == 0, done.err
    assert model_bits(job.parent / "m") == first
    assert json.loads(done.out)["n_centers"] == 60
    assert call("train", job).code == 6, "without --resume the run exists"


def test_more_centres(job: Path, call: Call) -> None:
    assert call("train", job, "--set", "model.max_centers=30").code == 0
    done = call("train", job, "--resume")
    assert done.code == 0, done.err
    assert model_bits(job.parent / "m") == undisturbed(call, job)
    assert RunDirectory.open("r").job["model"]["max_centers"] == 60


def test_a_model_of_another_job_is_not_replaced(job: Path, call: Call) -> None:
    assert call("train", job).code == 0
    assert call("train", job, "--set", "output.model=other", "--set", "output.run=other.run").code == 0
    before = {path: path.read_bytes() for path in job.parent.rglob("*") if path.is_file()}
    done = call("train", job, "--resume", "--set", "output.model=other")
    assert done.code == 6
    assert "other exists already" in done.err
    assert {path: path.read_bytes() for path in job.parent.rglob("*") if path.is_file()} == before


def test_a_url_that_cannot_exclude_a_second_driver_is_refused(job: Path, call: Call) -> None:
    before = tree(job.parent)
    for more in ([], ["--resume"]):
        done = call("train", job, "--set", "output.run=memory://bucket/x", *more)
        assert done.code == 6
        assert "two processes must not write at once" in done.err
    assert tree(job.parent) == before


def test_another_job_is_refused_and_named(job: Path, call: Call) -> None:
    assert call("train", job).code == 0
    before = {path: path.read_bytes() for path in job.parent.rglob("*") if path.is_file()}
    done = call("train", job, "--resume", "--set", "model.sigma=2.5")
    assert done.code == 6
    assert "model.sigma was 1.5 and is 2.5" in done.err
    assert {path: path.read_bytes() for path in job.parent.rglob("*") if path.is_file()} == before


def test_other_data_are_refused(job: Path, call: Call) -> None:
    assert call("train", job).code == 0
    rng = np.random.default_rng(1)
    write_dataset("rows.zarr", rng.random((800, 4)), rng.random(800), chunk_rows=200, overwrite=True)
    done = call("train", job, "--resume")
    assert done.code == 6
    assert "data.content was" in done.err


def test_flags_that_contradict(job: Path, call: Call) -> None:
    before = tree(job.parent)
    done = call("train", job, "--resume", "--overwrite")
    assert done.code == 2
    assert "exclude each other" in done.err
    job.write_text(job_text(data={"train": "rows.zarr"}, output={"model": "m"}))
    done = call("train", job, "--resume")
    assert done.code == 2
    assert "[output] run" in done.err
    assert tree(job.parent) == before


def test_something_else_is_not_resumed(job: Path, call: Call) -> None:
    (job.parent / "r").mkdir()
    done = call("train", job, "--resume")
    assert done.code == 6
    assert "not a run" in done.err


@pytest.mark.parametrize("number", variants([signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]))
def test_a_signal_ends_the_training_and_reports_how_to_resume(
    number: int, long_job: Path, call: Call, expected: bytes
) -> None:
    job = long_job
    process = start(job)
    wait_for_rounds(job.parent / "r", 2)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "to stop at once" in err
    assert err.splitlines()[-1] == "distkern: error: interrupted; the run is kept in r: resume with --resume"
    assert not (job.parent / "m").exists()
    kept = len(recorded(job.parent / "r")[0])
    done = call("train", job, "--resume")
    assert done.code == 0, done.err
    assert model_bits(job.parent / "m") == expected
    resumed = [event for event in RunDirectory.open("r").events() if event["event"] == "RunResumed"]
    assert [event["exchanges"] for event in resumed] == [kept]


@pytest.mark.slow
def test_without_a_run_a_signal_reports_that_nothing_is_kept(long_job: Path) -> None:
    job = long_job
    text = job.read_text().replace('run = "r"', "")
    job.write_text(text.replace("max_centers = 320", "max_centers = 3000"))
    process = start(job, "-v")
    assert process.stderr is not None
    for line in process.stderr:
        if "training on" in line:
            break
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "nothing is kept" in err


@pytest.mark.slow
def test_a_second_signal_ends_at_once(long_job: Path) -> None:
    job = long_job
    process = start(job, "--set", "model.max_centers=3000")
    wait_for_rounds(job.parent / "r", 2)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in err


@pytest.mark.slow
@pytest.mark.parametrize("seed", variants(range(2), range(30)))
def test_a_driver_killed_at_any_moment(seed: int, long_job: Path, call: Call, expected: bytes) -> None:
    """The record has all exchanges of the events, and the model has the bits of an undisturbed run."""
    job = long_job
    draw = random.Random(seed)
    process = start(job)
    if seed % 3:
        wait_for_rounds(job.parent / "r", draw.randrange(1, 18))
        time.sleep(draw.uniform(0, 0.1))
    else:
        time.sleep(draw.uniform(0.2, 2.5))
    process.kill()
    process.communicate()
    exchanges = 0
    if (job.parent / "r").exists():
        exchanges = sum(event["event"] == "ExchangeDone" for event in RunDirectory.open("r").events())
        assert len(recorded(job.parent / "r")[0]) >= exchanges
    done = call("train", job, "--resume")
    assert done.code == 0, done.err
    assert model_bits(job.parent / "m") == expected
    assert not [name for name in tree(job.parent) if "partial" in name.split("/")[-1] and name.startswith(".m")]


@pytest.mark.slow
@pytest.mark.cluster
def test_a_driver_of_workers_killed_and_resumed_on_another_number(long_job: Path, call: Call, expected: bytes) -> None:
    job = long_job
    process = start(job, "--workers", "1")
    wait_for_rounds(job.parent / "r", 4)
    process.kill()
    process.communicate()
    done = call("train", job, "--workers", "2", "--resume")
    assert done.code == 0, done.err
    assert model_bits(job.parent / "m") == expected


@pytest.mark.slow
@pytest.mark.cluster
def test_a_driver_killed_in_an_iteration_and_resumed_on_other_workers(here: Path, call: Call) -> None:
    job = write_job(here, 8000, 240)
    solver = ("--set", "model.solver=conjugate-gradients")
    process = start(job, "--workers", "1", *solver)
    deadline, events = time.monotonic() + 120, here / "r" / "events.jsonl"
    while not events.exists() or events.read_text().count("solve-weights") < 3:
        assert time.monotonic() < deadline, "no iteration ended in time"
        assert process.poll() is None, "the training ended before"
        time.sleep(0.01)
    process.kill()
    process.communicate()
    kept = len(recorded(here / "r")[0])
    done = call("train", job, "--workers", "2", "--resume", *solver)
    assert done.code == 0, done.err
    resumed = [event for event in RunDirectory.open("r").events() if event["event"] == "RunResumed"]
    assert [event["exchanges"] for event in resumed] == [kept]
    bits = model_bits(here / "m")
    assert bits == undisturbed(call, job, *solver)
