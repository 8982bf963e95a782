"""Kinds of queues against programs that stand in for them: what is submitted, refused, replaced and cancelled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from distkern.errors import ClusterError
from distkern.scheduler import TlsFiles, WorkerSize, await_workers, queue_client
from distkern.scheduler.clusters.batch_queue import QUEUE_SYSTEMS
from distkern.scheduler.clusters.worker_settings import NANNY_BYTES
from distkern.scheduler.planning.plan import BASELINE
from tests.deploy.conftest import model_bits, write_job
from tests.deploy.programs import DEPLOY, Finished, distkern_command, environment, program, run
from tests.markers import variants
from tests.waiting import wait_until

MIB = 1 << 20
SUBMIT = """
exec 9> {folder}/lock && flock 9  # several jobs are submitted at once
number=$(( $(ls {folder} | grep -c sh$) + 1 ))
cp "${{@: -1}}" {folder}/$number.sh
setsid bash {folder}/$number.sh > {folder}/$number.out 2>&1 < /dev/null 9>&- &
echo $! > {folder}/$number.pid
echo "{answer}"
"""
CANCEL = """
for number in "$@"; do kill -- -$(cat {folder}/$number.pid) && touch {folder}/$number.cancelled; done
true
"""
CANCELS = {"slurm": "scancel", "pbs": "qdel", "sge": "qdel", "lsf": "bkill", "oar": "oardel", "moab": "canceljob"}


class StandIn:
    """A queue that starts every job at once on this machine."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.jobs = folder / "jobs"
        self.jobs.mkdir()
        self.programs = folder / "bin"
        self.programs.mkdir(exist_ok=True)
        self.submit = QUEUE_SYSTEMS[kind].program
        program(self.programs / self.submit, SUBMIT.format(folder=self.jobs, answer="Submitted batch job $number"))
        program(self.programs / CANCELS[kind], CANCEL.format(folder=self.jobs))

    def refuse(self, words: str) -> None:
        program(self.programs / self.submit, f'echo "{words}" >&2; exit 1')

    def script(self, number: int) -> str:
        return (self.jobs / f"{number}.sh").read_text()

    def submitted(self) -> set[int]:
        return {int(path.stem) for path in self.jobs.glob("*.sh")}

    def cancelled(self) -> set[int]:
        return {int(path.stem) for path in self.jobs.glob("*.cancelled")}

    def kill(self, number: int) -> None:
        os.killpg(int((self.jobs / f"{number}.pid").read_text()), signal.SIGKILL)


MakeQueue = Callable[[str], StandIn]


@pytest.fixture
def make_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeQueue:
    """Makes the programs of a queue, first in the PATH."""

    def make(kind: str) -> StandIn:
        queue = StandIn(tmp_path, kind)
        monkeypatch.setenv("PATH", f"{queue.programs}{os.pathsep}{os.environ['PATH']}")
        return queue

    return make


HEADERS = {
    "slurm": ["#SBATCH -p batch", "#SBATCH -A me", "#SBATCH -t 01:00:00", "#SBATCH --cpus-per-task=6", "#SBATCH --x=1"],
    "pbs": ["#PBS -q batch", "#PBS -A me", "#PBS -l walltime=01:00:00", "#PBS -l select=1:ncpus=6:mem=", "#PBS --x=1"],
    "sge": ["#$ -q batch", "#$ -P me", "#$ -l h_rt=01:00:00", "#$ --x=1"],
    "lsf": ["#BSUB -q batch", '#BSUB -P "me"', "#BSUB -W 01:00:00", "#BSUB -n 6", "#BSUB --x=1"],
    "moab": ["#PBS -q batch", "#PBS -A me", "#PBS -l walltime=01:00:00", "#PBS --x=1"],
}


@pytest.mark.parametrize("kind", HEADERS)
def test_what_a_queue_is_asked_for(make_queue: MakeQueue, kind: str) -> None:
    queue = make_queue(kind)
    # One of them reads the script from its standard input.
    program(
        queue.programs / queue.submit,
        f'if [ $# -gt 0 ]; then cat "${{@: -1}}"; else cat; fi > {queue.jobs}/1.sh; exit 1',
    )
    options: dict[str, Any] = {
        "workers_per_job": 2,
        "walltime": "01:00:00",
        "queue": "batch",
        "account": "me",
        "directives": ["--x=1"],
        "setup": ["module load python", 'source "$HOME/it"'],
        "python": "/there/python",
        "local_directory": "$TMPDIR",
        "host": "127.0.0.1",
    }
    size = WorkerSize(4, 512 * MIB, 3)
    with pytest.raises(ClusterError), queue_client(kind, size, **options):
        pass
    script = queue.script(1)
    for header in HEADERS[kind]:
        assert header in script
    worker = next(line for line in script.splitlines() if "dask_worker" in line)
    assert worker.startswith("/there/python -m distributed.cli.dask_worker tcp://127.0.0.1:")
    assert "--nthreads 3" in worker
    assert "--nworkers 2" in worker
    assert "--local-directory $TMPDIR" in worker
    lines = script.splitlines()
    assert lines.index("module load python") < lines.index('source "$HOME/it"') < lines.index(worker)


def test_a_job_has_room_for_its_workers_and_what_starts_them() -> None:
    size = WorkerSize(4, 512 * MIB)
    assert size.together(2) == 2 * (BASELINE + 512 * MIB) + NANNY_BYTES
    with pytest.raises(ValueError, match="memory limit"):
        WorkerSize(4).together(2)


def test_a_queue_that_refuses_is_quoted(make_queue: MakeQueue) -> None:
    make_queue("slurm").refuse("sbatch: error: invalid partition specified: nosuch")
    with pytest.raises(ClusterError) as error, queue_client("slurm", WorkerSize(2, 256 * MIB)):
        pass
    assert error.value.kind == "queue-refused"
    assert "invalid partition specified: nosuch" in error.value.message
    assert "[cluster.job]" in error.value.message


def test_a_machine_without_the_queue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(ClusterError, match="no qsub on this machine") as error,
        queue_client("pbs", WorkerSize(1, 256 * MIB)),
    ):
        pass
    assert error.value.kind == "no-queue"


def test_an_address_that_is_not_here(make_queue: MakeQueue) -> None:
    make_queue("slurm")
    with (
        pytest.raises(ClusterError, match=r"203\.0\.113\.1.*host under \[cluster\]") as error,
        queue_client("slurm", WorkerSize(1, 256 * MIB), host="203.0.113.1"),
    ):
        pass
    assert error.value.kind == "no-scheduler"


@pytest.mark.cluster
@pytest.mark.slow
def test_workers_that_do_not_come_are_counted(make_queue: MakeQueue) -> None:
    queue = make_queue("slurm")
    setup = ['if [ "$(basename "$0")" = 2.sh ]; then exit 1; fi']
    with queue_client("slurm", WorkerSize(2, 256 * MIB), setup=setup, host="127.0.0.1") as client:
        await_workers(client, 1, seconds=120)
        with pytest.raises(ClusterError, match="1 of 2 workers came within 1 s") as error:
            await_workers(client, 2, seconds=1)
        assert error.value.kind == "no-workers"
        assert "min_workers" in error.value.message
    assert queue.submitted() == {1, 2}
    assert queue.cancelled() >= {1}


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize(("workers_per_job", "killed"), variants([(1, 2)], [(1, 1), (2, 1)]))
def test_a_job_that_ends_is_replaced(
    make_queue: MakeQueue, workers_per_job: int, killed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Workers that dask started in this process leave it behind, and jobs inherit it.
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)

    def settings() -> tuple[Any, ...]:
        import os

        import dask

        names = ("target", "spill", "pause", "terminate")
        memory = tuple(dask.config.get(f"distributed.worker.memory.{name}") for name in names)
        return (*memory, os.environ.get("MALLOC_TRIM_THRESHOLD_"))

    queue = make_queue("slurm")
    size = WorkerSize(2 * workers_per_job, 256 * MIB)
    options: dict[str, Any] = {"workers_per_job": workers_per_job, "host": "127.0.0.1", "replace_after": 3.0}
    with queue_client("slurm", size, **options) as client:
        await_workers(client, size.workers, seconds=120)
        assert queue.submitted() == {1, 2}
        sleep(1.0)  # jobs that ended before they were seen to have a worker are left alone
        queue.kill(killed)
        wait_until(lambda: queue.submitted() == {1, 2, 3}, 120)
        await_workers(client, size.workers, seconds=120)
        limits = {worker["memory_limit"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()}
        assert all(limit >= BASELINE + 256 * MIB for limit in limits)
        assert set(client.run(settings).values()) == {(False, False, False, False, None)}
    wait_until(lambda: queue.cancelled() >= {1, 2, 3} - {killed}, 60)
    assert queue.submitted() == {1, 2, 3}


@pytest.mark.cluster
@pytest.mark.nightly
def test_jobs_that_talk_tls(make_queue: MakeQueue, certificates: dict[str, str]) -> None:
    queue = make_queue("slurm")
    tls = TlsFiles(**certificates)
    with queue_client("slurm", WorkerSize(1, 256 * MIB), host="127.0.0.1", tls=tls) as client:
        await_workers(client, 1, seconds=120)
        assert client.scheduler.address.startswith("tls://")
        assert all(worker.startswith("tls://") for worker in client.nthreads())
    assert f"--tls-ca-file {certificates['ca']}" in queue.script(1)


def train_script(script: Path, folder: Path, **variables: str) -> Finished:
    return run("bash", script, cwd=folder, env=environment(folder / "bin", **variables))


@pytest.mark.cluster
@pytest.mark.nightly
def test_the_pbs_script_trains_and_goes_on(make_queue: MakeQueue, here: Path) -> None:
    make_queue("pbs")
    cluster = {"kind": "pbs", "workers": 2, "memory": "256MiB", "host": "127.0.0.1"}
    settings = ["output.model=whole", "output.run=whole.run"]
    job = write_job(here)
    env = environment(here / "bin")
    done = distkern_command("train", job, *(p for s in settings for p in ("--set", s)), cwd=here, env=env)
    assert done.code == 0, done.err
    write_job(here, cluster=cluster)
    script = DEPLOY / "pbs" / "train-jobs.sh"
    variables = {"PBS_O_WORKDIR": str(here), "JOB_FILE": "job.toml"}
    stopped = train_script(script, here, **variables, STOP_AFTER="0.5s")
    assert stopped.code == 130, stopped.err
    done = train_script(script, here, **variables)
    assert done.code == 0, done.err
    assert model_bits(here / "waves.model") == model_bits(here / "whole")


@pytest.mark.cluster
@pytest.mark.nightly
def test_jobs_are_cancelled_when_the_driver_is_terminated_before_they_begin(make_queue: MakeQueue, here: Path) -> None:
    queue = make_queue("slurm")
    cluster = {"kind": "slurm", "workers": 2, "memory": "256MiB", "host": "127.0.0.1", "job": {"setup": ["sleep 600"]}}
    command = [sys.executable, "-m", "distkern", "train", str(write_job(here, cluster=cluster))]
    with subprocess.Popen(
        command, cwd=here, env=environment(here / "bin"), stderr=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stderr is not None
        assert "waiting up to 3600 s for 2 workers, 0 are here" in driver.stderr.readline()
        driver.terminate()
        assert driver.wait(60) == 130
    assert queue.cancelled() == {1, 2}
    assert not (here / "waves.run").exists()


def test_a_network_interface_that_is_not_here(make_queue: MakeQueue) -> None:
    make_queue("slurm")
    with (
        pytest.raises(ClusterError, match=r"nosuch0.*interface under \[cluster\.job\]") as error,
        queue_client("slurm", WorkerSize(2, 256 * MIB), interface="nosuch0"),
    ):
        pass
    assert error.value.kind == "no-scheduler"
