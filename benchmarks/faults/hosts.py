"""A scheduler and a few workers in processes of their own, which a campaign kills, freezes, cuts off and starts again.

Each worker is behind a process that forwards its connections; while that is stopped, the worker is cut off: nothing
arrives, and nothing says so.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from benchmarks.cluster.processes import Processes, running
from distkern.scheduler.clusters.worker_queries import ask_workers

ADDRESS = "127.0.0.1"
START_SECONDS = 120.0
ANSWER_SECONDS = 10.0


def await_(condition: Callable[[], Any], seconds: float, otherwise: str) -> None:
    """Wait for a condition.

    Raises
    ------
    TimeoutError
        It does not hold in time.
    """
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            raise TimeoutError(f"{otherwise} within {seconds:g} s")
        sleep(0.02)


def free_port() -> int:
    """Return a port that nothing listens on, and which the system gives to no connection."""
    while True:
        port = random.randrange(10_000, 32_000)
        with suppress(OSError), socket.create_server((ADDRESS, port)):
            return port


@dataclass
class Worker:
    """The processes of one worker."""

    pid: int
    network: int
    """Process that forwards its connections."""
    address: str


class Hosts:
    """The processes of a cluster.

    Parameters
    ----------
    n_workers : int
        Number of workers.
    folder : Path
        Holds scratch and logs.
    """

    def __init__(self, n_workers: int, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "processes.log"
        self.n_workers = n_workers
        self.processes = Processes()
        self._port = free_port()
        self.address = f"tcp://{ADDRESS}:{self._port}"
        self._started = 0
        self.workers: list[Worker] = []
        self.client: Any = None
        try:
            self.start_scheduler()
            self.workers = [self.start_worker() for _ in range(n_workers)]
            self.connect()
            self.repair()
        except BaseException:
            self.close()
            raise

    def start_scheduler(self) -> None:
        """Start the scheduler, always at the same address."""
        self.scheduler = self.processes.start("scheduler", "", self.log, host=ADDRESS, port=self._port, steps=True)

    def start_worker(self) -> Worker:
        """Start a worker and its network."""
        self._started += 1
        port, contact, up = free_port(), free_port(), free_port()
        ready = self.folder / f"network-{self._started}"
        routes = [
            {"namespace": "", "listen": (ADDRESS, up), "to": (ADDRESS, self._port)},
            {"namespace": "", "listen": (ADDRESS, contact), "to": (ADDRESS, port)},
        ]
        network = self.processes.start("network", "", self.log, routes=routes, seconds=0.0, ready=str(ready))
        await_(ready.exists, START_SECONDS, "a network did not start")
        pid = self.processes.start(
            "worker",
            "",
            self.log,
            scheduler=f"tcp://{ADDRESS}:{up}",
            host=ADDRESS,
            port=port,
            contact=f"tcp://{ADDRESS}:{contact}",
            folder=str(self.folder / "scratch"),
            steps=True,
        )
        return Worker(pid, network, f"tcp://{ADDRESS}:{contact}")

    def connect(self) -> None:
        """Connect a client for questions about the cluster."""
        from distributed import Client

        if self.client is not None:
            with suppress(Exception):
                self.client.close(timeout=1)
        self.client = Client(self.address, set_as_default=False, timeout=START_SECONDS)

    def restart_scheduler(self) -> None:
        """Kill the scheduler and start another one at its address; workers of the old one end, and start again."""
        signal_to(self.scheduler, signal.SIGKILL)
        await_(lambda: not running(self.scheduler), START_SECONDS, "the scheduler did not end")
        self.start_scheduler()
        self.connect()

    def repair(self) -> None:
        """Let every process run, start workers in place of those that ended, and wait until all are there."""
        deadline = monotonic() + START_SECONDS
        while True:
            for worker in self.workers:
                for pid in (worker.pid, worker.network):
                    signal_to(pid, signal.SIGCONT)
                lift_limits(worker.pid)
            self.workers = [worker if self._alive(worker) else self._replaced(worker) for worker in self.workers]
            there = set(self.client.scheduler_info(n_workers=-1)["workers"])
            if {worker.address for worker in self.workers} <= there:
                return
            if monotonic() > deadline:
                raise TimeoutError(f"the workers were not there within {START_SECONDS:g} s")
            sleep(0.1)

    def replace(self, worker: Worker) -> None:
        """Start a worker in place of one that ended."""
        self.workers[self.workers.index(worker)] = self._replaced(worker)

    def _replaced(self, worker: Worker) -> Worker:
        signal_to(worker.network, signal.SIGKILL)
        return self.start_worker()

    def _alive(self, worker: Worker) -> bool:
        return running(worker.pid) and running(worker.network)

    def held(self) -> list[str] | None:
        """Return runs and scratch files that workers hold; None where one does not answer."""
        answers = ask_workers(self.client, held_here, ANSWER_SECONDS)
        return None if answers is None else [item for items in answers.values() for item in items]

    def left_on_disk(self) -> list[str]:
        """Return files with content in the scratch folder."""
        files = [path for path in (self.folder / "scratch").rglob("*") if path.is_file()]
        return [f"file {path.name}" for path in files if path.suffix not in (".lock", ".dirlock") and _size(path)]

    def close(self) -> None:
        """End all processes."""
        if self.client is not None:
            with suppress(Exception):
                self.client.close(timeout=1)
        self.processes.close()


def held_here() -> list[str]:
    """Return the runs and deleted scratch files that this worker process holds."""
    from distkern.scheduler.blocks import block_registry as memo

    runs = [f"run {run}" for _, run in memo.held_runs()]
    files = []
    for entry in Path("/proc/self/fd").iterdir() if Path("/proc/self/fd").exists() else ():
        with suppress(OSError):
            target = os.readlink(entry)
            if "scratch" in target and "(deleted)" in target:
                files.append(f"file {target}")
    return runs + files


def signal_to(pid: int, number: int) -> None:
    """Send a signal to a process, if it still runs."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@contextmanager
def limited(pid: int, which: int, soft: int) -> Iterator[None]:
    """Limit a resource of another process within the context."""
    try:
        resource.prlimit(pid, which, (soft, resource.RLIM_INFINITY))
    except ProcessLookupError:
        yield
        return
    try:
        yield
    finally:
        lift_limits(pid)


def lift_limits(pid: int) -> None:
    """Lift the limits of another process."""
    for which in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE):
        with suppress(ProcessLookupError):
            resource.prlimit(pid, which, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
