"""Runs under a URL: a driver that is killed at any moment is resumed elsewhere, with the same bits."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distkern.storage import RunDirectory
from distkern.storage.io.remote_folders import RemoteFolder
from tests.cli.command_line import Call, environment, model_bits
from tests.cli.running.test_cli_resume import write_job
from tests.markers import variants
from tests.s3_server import BUCKET, S3Server

pytest.importorskip("moto")
pytest.importorskip("obstore")


@pytest.fixture(scope="module")
def trained(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """A job whose every place is in the bucket, and the bits of its model from a run on a disk."""
    from distkern.cli.main import main

    folder = tmp_path_factory.mktemp("undisturbed")
    job = write_job(folder, 6000, 320)
    server.upload(folder / "rows.zarr", "rows.zarr")
    assert (
        main(["train", str(job), *(f"--set=data.train=s3://{BUCKET}/rows.zarr",), *outputs(str(folder / "local"))]) == 0
    )
    text = job.read_text().replace("rows.zarr", f"s3://{BUCKET}/rows.zarr")
    return text, model_bits(folder / "local.model")


def outputs(place: str) -> tuple[str, ...]:
    return f"--set=output.model={place}.model", f"--set=output.run={place}.run"


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "distkern", "train", "job.toml", *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def parts(url: str) -> int:
    """Number of parts of the record of a run so far; few requests, as the driver shares the server."""
    parts = [name for name in RemoteFolder(url).listing()[1] if name.startswith("log-")]
    return sum(len(RemoteFolder(url).listing(part)[0]) for part in parts)


@pytest.mark.slow
@pytest.mark.parametrize("seed", variants(range(2), range(20)))
def test_a_driver_killed_at_any_moment_is_resumed_elsewhere(
    seed: int, server: S3Server, trained: tuple[str, bytes], tmp_path: Path, call: Call
) -> None:
    """Nothing is left of the first machine: another directory, another process, and the bucket."""
    server.reset(latency=0.005)
    text, expected = trained
    draw, place = random.Random(seed), f"s3://{BUCKET}/killed-{seed}"
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "job.toml").write_text(text)
    process = start(first, *outputs(place))
    wanted, deadline = draw.randrange(35) if seed % 4 else 0, time.monotonic() + 400
    while parts(f"{place}.run") < wanted and process.poll() is None:
        assert time.monotonic() < deadline, "no part was written in time"
        time.sleep(0.1)
    time.sleep(draw.uniform(0, 0.3) if wanted else draw.uniform(0.5, 6))
    process.kill()
    process.communicate()
    shutil.rmtree(first)
    os.chdir(second)
    done = call("train", "job.toml", *outputs(place), "--resume")
    assert done.code == 0, done.err
    assert model_bits(f"{place}.model") == expected  # type: ignore[arg-type]
    run = RunDirectory.open(f"{place}.run")
    assert (run.summary or {})["n_centers"] == 320
    assert not [name for name in os.listdir(second) if name != "job.toml"]
    # A finished run is read from its record and gives the same again.
    assert call("train", "job.toml", *outputs(place), "--resume").code == 0
    assert model_bits(f"{place}.model") == expected  # type: ignore[arg-type]


@pytest.mark.slow
def test_of_two_drivers_one_is_refused(server: S3Server, trained: tuple[str, bytes], here: Path) -> None:
    server.reset(latency=0.05)
    text, expected = trained
    (here / "job.toml").write_text(text)
    place = f"s3://{BUCKET}/contended"
    first = start(here, *outputs(place))
    deadline = time.monotonic() + 400
    while parts(f"{place}.run") < 5:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    # A machine that was paused, as by its host, goes on after another has taken its run over.
    first.send_signal(signal.SIGSTOP)
    second = start(here, *outputs(place), "--resume")
    while (driver := RunDirectory.open(f"{place}.run").driver()) is None or driver.pid != second.pid:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first.send_signal(signal.SIGCONT)
    _, refusal = first.communicate(timeout=240)
    _, other = second.communicate(timeout=240)
    assert (first.returncode, second.returncode) == (6, 0), other
    (line,) = [line for line in refusal.splitlines() if "another driver" in line]
    assert f"process {second.pid} on" in line
    assert "Traceback" not in refusal
    assert model_bits(f"{place}.model") == expected  # type: ignore[arg-type]


def test_info_report_metrics_and_append_of_a_run_under_a_url(server: S3Server, here: Path, call: Call) -> None:
    server.reset()
    write_job(here, 400, 20)
    server.upload(here / "rows.zarr", "small.zarr")
    place = f"s3://{BUCKET}/small"
    job = ("train", "job.toml", *outputs(place), f"--set=data.train=s3://{BUCKET}/small.zarr")
    assert call("plan", *job[1:]).code == 0
    assert call(*job).code == 0
    done = call(*job)
    assert done.code == 6
    assert "exists already" in done.err
    for command in ("info", "metrics"):
        shown = call(command, f"{place}.run")
        assert shown.code == 0, shown.err
    assert "finished" in call("info", f"{place}.run").out
    followed = call("info", f"{place}.run", "--follow")
    assert followed.code == 0, followed.err
    assert call("report", f"{place}.run").code == 0
    assert "small.run" in (here / "report.html").read_text()
    assert call(*job, "--resume", "auto").code == 0
    (here / "more").mkdir()
    write_job(here / "more", 440, 20)
    appended = call(*job, "--append", here / "more" / "rows.zarr")
    assert appended.code == 0, appended.err
    assert (RunDirectory.open(f"{place}.run").sums() or (None,))[0] == 1
    assert call(*job, "--overwrite").code == 0
    assert (RunDirectory.open(f"{place}.run").sums() or (None,))[0] == 0
