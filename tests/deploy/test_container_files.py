"""The commands of the containers as processes of this machine: scheduler, workers and job find each other and train."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import yaml

from tests.deploy.conftest import model_bits, write_job
from tests.deploy.programs import DEPLOY, distkern_command, environment, program, run
from tests.deploy.slurm_cluster import free_port

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]


def compose_commands(workers: int) -> tuple[dict[str, list[str]], str]:
    """Return the command of each service with no variables set, and the check of the scheduler's health."""
    text = re.sub(r"\$\{DISTKERN_WORKERS:-\d+\}", str(workers), (DEPLOY / "compose.yaml").read_text())
    services = yaml.safe_load(text)["services"]
    assert services["worker"]["deploy"]["replicas"] == workers
    return {name: shlex.split(service["command"]) for name, service in services.items()}, services["scheduler"][
        "healthcheck"
    ]["test"]


def pod_commands(workers: int) -> dict[str, list[str]]:
    """Return the command of each pod of the job."""
    spec = yaml.safe_load((DEPLOY / "kubernetes" / "job.yaml").read_text())["spec"]
    cluster = spec["cluster"]["spec"]
    parts = {"scheduler": cluster["scheduler"], "worker": cluster["worker"], "job": spec["job"]}
    commands = {name: part["spec"]["containers"][0]["args"] for name, part in parts.items()}
    assert f"cluster.min_workers={cluster['worker']['replicas']}" in commands["job"]
    commands["job"] = [re.sub(r"min_workers=\d+", f"min_workers={workers}", part) for part in commands["job"]]
    return commands


def on_this_machine(command: list[str], places: dict[str, str]) -> list[str]:
    """Put addresses and folders of this machine in the place of those of containers."""
    for before, after in places.items():
        command = [part.replace(before, after) for part in command]
    assert all(isinstance(part, str) for part in command)
    return command


@contextmanager
def running(command: list[str], folder: Path, env: dict[str, str], log: str) -> Iterator[None]:
    with (folder / log).open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["compose", "pods"])
def test_the_job_trains_on_the_workers(here: Path, kind: str) -> None:
    n_workers, port, dashboard = 2, free_port(), free_port()
    env = environment(here / "bin")
    whole = [part for setting in ("output.model=whole", "output.run=whole.run") for part in ("--set", setting)]
    assert distkern_command("train", write_job(here), *whole, cwd=here, env=env).code == 0
    places: dict[str, Any] = {"scheduler:8786": f"127.0.0.1:{port}", "8786": str(port), "8787": str(dashboard)}
    places |= {"/data/": f"{here}/", "/job/": f"{here}/", "/scratch": str(here / "scratch")}
    health = None
    if kind == "compose":
        commands, health = compose_commands(n_workers)
    else:
        commands = pod_commands(n_workers)
        # The operator sets these two.
        env["DASK_SCHEDULER_ADDRESS"] = f"tcp://127.0.0.1:{port}"
        places["$(DASK_SCHEDULER_ADDRESS)"] = env["DASK_SCHEDULER_ADDRESS"]
    program(here / "bin" / "python", f'exec {sys.executable} "$@"')
    with ExitStack() as stack:
        stack.enter_context(running(on_this_machine(commands["scheduler"], places), here, env, "scheduler.log"))
        if health is not None:
            end = monotonic() + 60
            while run("sh", "-c", health.replace("8787", str(dashboard)), cwd=here, env=env).code != 0:
                assert monotonic() < end, (here / "scheduler.log").read_text()
                sleep(0.5)
        for number in range(n_workers):
            worker = on_this_machine(commands["worker"], {**places, "$(DASK_WORKER_NAME)": f"worker-{number}"})
            stack.enter_context(running(worker, here, env, f"worker{number}.log"))
        done = run(*on_this_machine(commands["job"], places), cwd=here, env=env)
        assert done.code == 0, done.err
    assert f"workers {n_workers}" in done.err
    assert model_bits(here / "waves.model") == model_bits(here / "whole")
