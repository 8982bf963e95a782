"""Trainings on dozens of small workers, each in a network namespace of this machine.

Measured is what grows with the number of workers: processor time of the driver for an exchange, and the bytes that
driver and scheduler receive and send. Then a worker is taken off the network, and others are made slow. The model must
have the bits of a training in one process.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep, time
from typing import Any

import numpy as np
import zarr

from benchmarks import generated
from benchmarks.cluster.network_hosts import Host, network, not_permitted
from benchmarks.cluster.processes import Processes, running

BLOCKS = 96
START_SECONDS = 300.0
RUN_SECONDS = 600.0
SCHEDULER_PORT, WORKER_PORT, CONTACT_PORT = 8786, 40000, 40001
PAUSE_SECONDS = 0.09
"""A slow host runs for a tenth of this, and then is stopped for this long."""


@dataclass
class Course:
    """Result of a training on small processes."""

    digest: str
    """Of the model; empty if there is none."""
    notes: list[dict[str, Any]] = field(default_factory=list)
    driver_bytes: int = 0
    scheduler_bytes: int = 0

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the notes about one kind of event."""
        return [note for note in self.notes if note["event"] == name]

    def late(self, what: str) -> list[float]:
        """Return a value of the exchanges of the second half of the selection."""
        exchanges = [note[what] for note in self.events("ExchangeDone") if note["name"] != "load-blocks"]
        return exchanges[len(exchanges) // 2 :]


class Cluster:
    """A scheduler and workers on hosts of a network.

    Parameters
    ----------
    hosts : list of Host
        The first is the switch, the second has the scheduler, the third the driver, all others a worker each.
    folder : Path
        Holds data, logs and scratch.
    delay : float
        Seconds that the network holds back what goes to or from a worker.
    rate : str, optional
        Bandwidth of what a worker sends, as for ``tc``.
    slow_reads : float
        Seconds by which every read of the last worker is delayed.
    """

    def __init__(
        self, hosts: list[Host], folder: Path, delay: float, rate: str | None = None, slow_reads: float = 0.0
    ) -> None:
        self._scheduler_host, self._driver_host, *self.workers = hosts[1:]
        self._folder = folder
        self._processes = Processes()
        self.pids: list[int] = []
        address = f"tcp://{self._scheduler_host.address}:{SCHEDULER_PORT}"
        self._address = address
        log = folder / "processes.log"
        try:
            self._processes.start(
                "scheduler",
                self._scheduler_host.namespace,
                log,
                host=self._scheduler_host.address,
                port=SCHEDULER_PORT,
            )
            if delay:
                self._delay(delay, log)
            for number, host in enumerate(self.workers):
                if rate is not None:
                    host.limit_bandwidth(rate)
                pid = self._processes.start(
                    "worker",
                    host.namespace,
                    log,
                    scheduler=f"tcp://127.0.0.1:{SCHEDULER_PORT}" if delay else address,
                    host=host.address,
                    port=WORKER_PORT,
                    contact=f"tcp://{host.address}:{CONTACT_PORT if delay else WORKER_PORT}",
                    folder=str(folder / "scratch"),
                    slow_reads=slow_reads if number == len(self.workers) - 1 else 0.0,
                )
                self.pids.append(pid)
        except BaseException:
            self.close()
            raise

    def _delay(self, seconds: float, log: Path) -> None:
        scheduler = (self._scheduler_host.address, SCHEDULER_PORT)
        routes = [
            route
            for host in self.workers
            for route in (
                {"namespace": host.namespace, "listen": ("127.0.0.1", SCHEDULER_PORT), "to": scheduler},
                {
                    "namespace": host.namespace,
                    "listen": (host.address, CONTACT_PORT),
                    "to": (host.address, WORKER_PORT),
                },
            )
        ]
        ready = self._folder / "network-ready"
        self._processes.start("network", "", log, routes=routes, seconds=seconds, ready=str(ready))
        _await(ready.exists, START_SECONDS, "the network did not start")

    def train(self, name: str, parameters: dict[str, Any], during: Callable[[Path], None] | None = None) -> Course:
        """Train, calling `during` with the file of the notes meanwhile."""
        notes, result = (self._folder / f"{name}.{suffix}" for suffix in ("notes", "result"))
        before = self._driver_host.traffic(), self._scheduler_host.traffic()
        pid = self._processes.start(
            "driver",
            self._driver_host.namespace,
            self._folder / "processes.log",
            data=str(self._folder),
            notes=str(notes),
            result=str(result),
            parameters=parameters,
            scheduler=self._address,
            n_workers=len(self.workers),
        )
        if during is not None:
            during(notes)
        _await(lambda: not running(pid), RUN_SECONDS, f"{name} did not end")
        if not result.exists():
            raise RuntimeError(f"{name} failed: {(self._folder / 'processes.log').read_text()[-2000:]}")
        after = self._driver_host.traffic(), self._scheduler_host.traffic()
        moved = [sum(b) - sum(a) for a, b in zip(before, after, strict=True)]
        return Course(json.loads(result.read_text())["digest"], read_notes(notes), *moved)

    def close(self) -> None:
        """End all processes."""
        self._processes.close()


def read_notes(path: Path) -> list[dict[str, Any]]:
    """Return the notes of a driver so far."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def _await(condition: Callable[[], bool], seconds: float, otherwise: str) -> None:
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            raise TimeoutError(f"{otherwise} within {seconds:g} s")
        sleep(0.02)


@contextmanager
def _stuttering(pid: int) -> Iterator[None]:
    """Let a process run for a tenth of the time only."""
    stop = threading.Event()

    def stutter() -> None:
        while not stop.is_set():
            os.kill(pid, signal.SIGSTOP)
            stop.wait(PAUSE_SECONDS)
            os.kill(pid, signal.SIGCONT)
            stop.wait(PAUSE_SECONDS / 10)

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def run(workers: tuple[int, ...], rows: int, centers: int, delay: float, rate: str | None) -> Iterator[dict[str, Any]]:
    """Train with each number of workers, and with the largest one in trouble; yield a row of the table for each.

    Parameters
    ----------
    workers : tuple of int
        Numbers of workers.
    rows : int
        Rows of the table, in `BLOCKS` blocks.
    centers : int
        Centres to select.
    delay : float
        Milliseconds that the network holds back what goes to or from a worker.
    rate : str or None
        Bandwidth of what a worker sends, as for ``tc``.
    """
    reason = not_permitted()
    if reason is not None:
        raise RuntimeError(reason)
    parameters = {"sigma": 3.0, "max_centers": centers, "stop": None, "selection_rows": None}
    parameters["memory_limit"] = 256 << 20  # the share of dozens of workers of one machine would be nothing
    with TemporaryDirectory(prefix="distkern-cluster-") as name:
        folder = Path(name)
        X, y = generated.in_memory(generated.waves(rows, 8))
        for part, array in (("X", X), ("y", y)):
            chunks = (-(-rows // BLOCKS), *array.shape[1:])
            zarr.create_array(folder / part, shape=array.shape, chunks=chunks, dtype=array.dtype)[:] = array
        expected = _in_one_process(folder, parameters)
        first: float | None = None
        for n_workers in workers:
            with _cluster(n_workers, folder, delay, rate) as cluster:
                course = cluster.train(f"with-{n_workers}", parameters)
            own = median(course.late("own"))
            first = first or own
            yield _row(n_workers, "none", course, expected, first)
        for trouble in ("off the network", "stopped nine tenths of the time", "reads 0.5 s late"):
            late = 0.5 if trouble.startswith("reads") else 0.0
            with _cluster(max(workers), folder, delay, rate, late) as cluster, ExitStack() as stack:
                if trouble.startswith("stopped"):
                    stack.enter_context(_stuttering(cluster.pids[-1]))
                unplugged: list[float] = []

                def unplug(notes: Path, cluster: Cluster = cluster, unplugged: list[float] = unplugged) -> None:
                    _await(lambda: len(read_notes(notes)) > 8, RUN_SECONDS, "the training did not begin")
                    cluster.workers[len(cluster.workers) // 2].unplug()
                    unplugged.append(time())

                course = cluster.train(trouble.split()[0], parameters, unplug if trouble.startswith("off") else None)
                row = _row(max(workers), trouble, course, expected, first)
                if unplugged:
                    lost = course.events("WorkerLost")
                    rebuilt = [note for note in course.events("BlocksReplayed") if note["time"] > unplugged[0]]
                    row["noticed s"] = min((note["time"] for note in lost), default=np.nan) - unplugged[0]
                    row["replaced s"] = max((note["time"] for note in rebuilt), default=np.nan) - unplugged[0]
                yield row


@contextmanager
def _cluster(
    n_workers: int, folder: Path, delay: float, rate: str | None, slow_reads: float = 0.0
) -> Iterator[Cluster]:
    (folder / "network-ready").unlink(missing_ok=True)
    with network(n_workers + 3) as hosts:
        cluster = Cluster(hosts, folder, delay / 1e3, rate, slow_reads)
        try:
            yield cluster
        finally:
            cluster.close()


def _in_one_process(folder: Path, parameters: dict[str, Any]) -> str:
    processes = Processes()
    try:
        result = folder / "serial.result"
        pid = processes.start(
            "driver",
            "",
            folder / "processes.log",
            data=str(folder),
            notes=str(folder / "serial.notes"),
            result=str(result),
            parameters=parameters,
        )
        _await(lambda: not running(pid), RUN_SECONDS, "the training in one process did not end")
        return str(json.loads(result.read_text())["digest"])
    finally:
        processes.close()


def _row(n_workers: int, trouble: str, course: Course, expected: str, first: float | None) -> dict[str, Any]:
    own, wall = course.late("own"), course.late("wall")
    rounds = max(1, len(course.events("ExchangeDone")))
    return {
        "workers": n_workers,
        "trouble": trouble,
        "rounds": rounds,
        "driver ms a round": 1e3 * median(own),
        "times that of the first": median(own) / first if first else np.nan,
        "wall ms a round": 1e3 * median(wall),
        "driver kB a round": course.driver_bytes / rounds / 1e3,
        "scheduler kB a round": course.scheduler_bytes / rounds / 1e3,
        "lost": len(course.events("WorkerLost")),
        "noticed s": None,
        "replaced s": None,
        "same bits": course.digest == expected,
    }
