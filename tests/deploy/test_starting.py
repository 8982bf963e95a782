"""Clusters that are found by a file, waited for, or cannot be started: their messages, and the plan before."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from distkern.cli.job.job_file import parse_job
from distkern.cli.running.cluster_client import open_client
from distkern.errors import ClusterError
from distkern.scheduler import WorkerSize, await_workers, connect_by_file, kubernetes_client, worker_wait
from distkern.scheduler.clusters.clients import require_address, required
from tests.deploy.conftest import write_job
from tests.deploy.programs import environment
from tests.markers import variants
from tests.waiting import wait_until

SIZE = {"workers": 3, "memory": "64MiB", "cores": 2, "min_workers": 2}
KINDS: dict[str, dict[str, Any]] = {
    "slurm": {"kind": "slurm", **SIZE, "job": {"queue": "batch"}},
    "pbs": {"kind": "pbs", **SIZE},
    "ssh": {"kind": "ssh", **SIZE, "ssh": {"hosts": ["a", "b", "c"]}},
    "kubernetes": {"kind": "kubernetes", **SIZE, "kubernetes": {"image": "here/distkern"}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_starts_nothing(here: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is for the workers that training begins with, none of which could be had here."""
    from distkern.cli.main import main

    job = write_job(here, cluster=KINDS[kind])
    before = sorted(here.rglob("*"))
    assert main(["plan", str(job), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["n_workers"], record["threads"], record["memory_limit"]) == (2, 2, 64 << 20)
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("kind", variants(["slurm"], KINDS))
def test_a_job_that_does_not_fit_is_refused_before_anything_starts(
    here: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from distkern.cli.main import main

    job = write_job(here, cluster={**KINDS[kind], "memory": "1MiB"})
    assert main(["train", str(job)]) == 4
    assert "memory" in capsys.readouterr().err


def test_a_package_that_is_missing_names_the_extra() -> None:
    with pytest.raises(ClusterError, match=r"pip install 'distkern\[jobqueue\]'") as error:
        required("no_such_package", kind="slurm", extra="jobqueue")
    assert error.value.kind == "missing-package"
    assert error.value.exit_code == 5


def test_an_error_of_starting_reaches_the_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is missing here: nothing half-written is left."""
    from distkern.cli.main import main

    cluster = {"kind": "slurm", "workers": 1, "memory": "64MiB", "host": "203.0.113.1"}
    assert main(["train", str(write_job(here, cluster=cluster))]) == 5
    assert "203.0.113.1" in capsys.readouterr().err
    assert not (here / "waves.run").exists()
    assert not (here / "waves.model").exists()


def test_no_kubernetes_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_kubernetes", reason="of the kubernetes extra")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    size = WorkerSize(2, 1 << 28)
    with (
        pytest.raises(ClusterError, match=r"kubectl.*\[cluster.kubernetes\]") as error,
        kubernetes_client(size, "image"),
    ):
        pass
    assert error.value.kind == "no-kubernetes"


def test_a_scheduler_file_that_never_comes(tmp_path: Path) -> None:
    with worker_wait(0.1), pytest.raises(ClusterError, match=r"s\.json.*0\.1 s.*scheduler_file") as error:
        connect_by_file(str(tmp_path / "s.json"))
    assert error.value.kind == "no-scheduler"
    (tmp_path / "s.json").write_text('{"id": "no address"}')
    with worker_wait(0.1), pytest.raises(ClusterError, match="KeyError"):
        connect_by_file(str(tmp_path / "s.json"))


def test_addresses_that_can_and_cannot_be_listened_on() -> None:
    for host in (None, "127.0.0.1", "0.0.0.0", "localhost"):
        require_address(host)
    for host in ("203.0.113.1", "no host of that name"):
        with pytest.raises(ClusterError, match=r"host under \[cluster\]"):
            require_address(host)


@pytest.mark.cluster
@pytest.mark.slow
def test_a_scheduler_and_workers_that_start_later(tmp_path: Path) -> None:
    """As when all of them are steps of one batch job."""
    file, env, started = tmp_path / "s.json", environment(tmp_path), []

    def start(*command: str) -> None:
        quiet = subprocess.DEVNULL
        started.append(subprocess.Popen([sys.executable, "-m", "dask", *command], env=env, stdout=quiet, stderr=quiet))

    def start_all() -> None:
        sleep(0.5)
        start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        wait_until(file.exists)
        start("worker", "--scheduler-file", str(file), "--no-dashboard", "--local-directory", str(tmp_path))

    later = threading.Thread(target=start_all)
    later.start()
    try:
        section = parse_job(
            {"data": {"train": "a"}, "cluster": {"scheduler_file": str(file), "min_workers": 1, "wait": 120}}
        ).cluster
        with open_client(section) as client:
            assert len(client.nthreads()) == 1
            with pytest.raises(ClusterError, match=r"1 of 2 workers came within 0\.5 s"):
                await_workers(client, 2, seconds=0.5)
    finally:
        later.join()
        for process in reversed(started):
            process.terminate()
            process.wait(30)
