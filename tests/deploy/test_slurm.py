"""The Slurm scripts in a real Slurm: they train, stop on a signal, and resume from there."""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.deploy.conftest import model_bits, write_job
from tests.deploy.programs import DEPLOY, distkern_command, environment
from tests.deploy.slurm_cluster import Slurm

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(900)]

SRUN = DEPLOY / "slurm" / "train-srun.sh"
JOBS = DEPLOY / "slurm" / "train-jobs.sh"
FEW = ("--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", "--mem-per-cpu=1G")
QUEUED = {
    "kind": "slurm",
    "workers": 2,
    "memory": "256MiB",
    "job": {"walltime": "10:00", "queue": "batch", "local_directory": "/tmp"},
}


def submit(slurm: Slurm, folder: Path, script: Path, *options: str, arguments: tuple[str, ...] = ("--json",)) -> str:
    command = ["sbatch", "--parsable", "--output=%x-%j.out", *options, str(script), "job.toml", *arguments]
    return slurm.call(*command, cwd=folder, **environment(folder / "bin"))


def output(folder: Path, job: str) -> str:
    path = folder / f"distkern-{job}.out"
    return path.read_text() if path.exists() else ""


def undisturbed(folder: Path, **sections: dict[str, Any]) -> bytes:
    """The bits of the same model, trained in one process."""
    settings = ["output.model=whole", "output.run=whole.run"]
    flags = [part for setting in settings for part in ("--set", setting)]
    job = write_job(folder, **sections)
    done = distkern_command("train", job, *flags, cwd=folder, env=environment(folder / "bin"))
    assert done.code == 0, done.err
    return model_bits(folder / "whole")


def test_scheduler_and_workers_of_one_job(slurm: Slurm, here: Path) -> None:
    expected = undisturbed(here)
    job = submit(slurm, here, SRUN, *FEW)
    assert slurm.wait_for(job, "COMPLETED", "FAILED") == "COMPLETED", output(here, job)
    record = json.loads([line for line in output(here, job).splitlines() if line.startswith("{")][-1])
    assert record["n_centers"] == 60
    assert record["peak_rss_worker"] > 0
    assert model_bits(here / "waves.model") == expected
    assert not list(here.glob("distkern-*-*"))


def test_workers_that_are_jobs_of_their_own(slurm: Slurm, here: Path) -> None:
    expected = undisturbed(here)
    write_job(here, cluster=QUEUED)
    before = set(slurm.states())
    job = submit(slurm, here, JOBS)
    assert slurm.wait_for(job, "COMPLETED", "FAILED") == "COMPLETED", output(here, job)
    assert model_bits(here / "waves.model") == expected
    workers = set(slurm.states()) - before - {job}
    assert len(workers) == 2
    for worker in workers:
        assert slurm.wait_for(worker, "CANCELLED", "COMPLETED", seconds=60)


@pytest.mark.parametrize("script", [SRUN, JOBS], ids=["srun", "jobs"])
def test_a_job_that_is_terminated_resumes_when_it_is_submitted_again(slurm: Slurm, here: Path, script: Path) -> None:
    """The signal that Slurm sends to the batch shell alone before the time limit."""
    model = {"sigma": 0.7, "max_centers": 200, "stop": "none", "candidates": 64, "panel": 1}
    expected = undisturbed(here, model=model)
    write_job(here, model=model, cluster=QUEUED if script == JOBS else {})
    options = FEW if script == SRUN else ()
    job = submit(slurm, here, script, *options)
    end = monotonic() + 120
    while "training on" not in output(here, job):
        assert monotonic() < end, output(here, job)
        sleep(0.2)
    slurm.call("scancel", "--signal=TERM", "--batch", job)
    assert slurm.wait_for(job, "COMPLETED", "FAILED") == "FAILED", output(here, job)
    assert "stopping after the current exchange" in output(here, job)
    assert "--resume" in output(here, job)
    assert not (here / "waves.model").exists()
    again = submit(slurm, here, script, *options)
    assert slurm.wait_for(again, "COMPLETED", "FAILED") == "COMPLETED", output(here, again)
    assert model_bits(here / "waves.model") == expected
