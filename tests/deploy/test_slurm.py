"""The Slurm scripts in a real Slurm: they train, stop when told to, and go on from there."""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic, sleep

import pytest
from conftest import model_bits, write_job
from programs import DEPLOY, distkern_command, environment
from slurm_cluster import Slurm

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

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
    return (folder / f"distkern-{job}.out").read_text()


def undisturbed(folder: Path) -> bytes:
    """The bits of the same model, trained in one process."""
    settings = ["output.model=whole", "output.run=whole.run"]
    flags = [part for setting in settings for part in ("--set", setting)]
    job = write_job(folder)
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
