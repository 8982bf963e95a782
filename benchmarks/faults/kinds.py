"""The kinds of faults of a campaign: each is a function that makes trouble during a run, at a moment of the seed."""

from __future__ import annotations

import random
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

import psutil

from benchmarks.cluster.many_workers import read_notes
from benchmarks.cluster.processes import running
from benchmarks.faults.hosts import Hosts, await_, limited, signal_to

LOST_SECONDS = 40.0
PRESSURE_SECONDS = 1.0
PRESSURE_BYTES = 1 << 20
FILE_BYTES = 1 << 14
"""Longest file of a process whose disk is full."""


@dataclass
class Scene:
    """A run under way, and what a fault may touch."""

    hosts: Hosts
    draw: random.Random
    driver: int
    notes: Path
    data: Path
    server: Any
    start_driver: Callable[[], int]
    """Starts the driver again, which resumes the run."""

    def lost(self) -> bool:
        """Return whether the driver has reported a lost worker, or has ended."""
        return any(note["event"] == "WorkerLost" for note in read_notes(self.notes)) or not running(self.driver)

    def loading(self) -> bool:
        """Return whether a worker holds the run, or the driver has ended."""
        return any(item.startswith("run ") for item in self.hosts.held() or ()) or not running(self.driver)


def _kill(scene: Scene, number: int = 0) -> None:
    signal_to(scene.hosts.workers[number].pid, signal.SIGKILL)


def kill(scene: Scene) -> None:
    """Kill a worker, and start another one."""
    _kill(scene)
    scene.hosts.replace(scene.hosts.workers[0])


def kill_in_replay(scene: Scene) -> None:
    """Kill a worker, and the next one while the blocks of the first are rebuilt."""
    _kill(scene)
    _wait(scene.lost, LOST_SECONDS)
    sleep(scene.draw.uniform(0.0, 0.2))
    _kill(scene, 1)
    for worker in scene.hosts.workers[:2]:
        scene.hosts.replace(worker)


def kill_all(scene: Scene) -> None:
    """Kill all workers at once, and start others."""
    for number in range(len(scene.hosts.workers)):
        _kill(scene, number)
    for worker in list(scene.hosts.workers):
        scene.hosts.replace(worker)


def freeze(scene: Scene) -> None:
    """Stop a worker until the driver has replaced it."""
    signal_to(scene.hosts.workers[0].pid, signal.SIGSTOP)
    _wait(scene.lost, LOST_SECONDS)
    signal_to(scene.hosts.workers[0].pid, signal.SIGCONT)


def partition(scene: Scene) -> None:
    """Cut a worker off, and connect it again after the driver has replaced it, or before."""
    signal_to(scene.hosts.workers[0].network, signal.SIGSTOP)
    if scene.draw.random() < 0.5:
        _wait(scene.lost, LOST_SECONDS)
    else:
        sleep(scene.draw.uniform(0.5, 4.0))
    signal_to(scene.hosts.workers[0].network, signal.SIGCONT)


def restart_scheduler(scene: Scene) -> None:
    """Kill the scheduler and start another one."""
    scene.hosts.restart_scheduler()


def kill_driver(scene: Scene) -> None:
    """Kill the driver, and start another one, as on another host."""
    signal_to(scene.driver, signal.SIGKILL)
    await_(lambda: not running(scene.driver), LOST_SECONDS, "the driver did not end")
    scene.driver = scene.start_driver()


def disk_full(scene: Scene) -> None:
    """Let the disk of driver or workers be full until the run has failed, or a few seconds."""
    if scene.draw.random() < 0.5:
        with limited(scene.driver, resource.RLIMIT_FSIZE, FILE_BYTES):
            _wait(lambda: not running(scene.driver), 5.0)
        return
    pid = scene.hosts.workers[0].pid
    with limited(pid, resource.RLIMIT_FSIZE, FILE_BYTES):
        _wait(lambda: not running(scene.driver), 5.0)


def corrupted_chunk(scene: Scene) -> None:
    """Change bytes of a chunk, and kill all workers, which read it again."""
    chunks = sorted((scene.data / "X" / "c").rglob("*"))
    chunk = scene.draw.choice([path for path in chunks if path.is_file()])
    body = bytearray(chunk.read_bytes())
    for place in range(len(body) // 2, min(len(body), len(body) // 2 + 64)):
        body[place] ^= 0xFF
    before = chunk.read_bytes()
    try:
        chunk.write_bytes(bytes(body))
        kill_all(scene)
        _wait(lambda: not running(scene.driver), 20.0)
    finally:
        chunk.write_bytes(before)


def clock_step(scene: Scene) -> None:
    """Set the clock of the driver, of the scheduler or of a worker by an hour, and back."""
    there = scene.draw.choice([scene.driver, scene.hosts.scheduler, scene.hosts.workers[0].pid])
    steps = [signal.SIGUSR1, signal.SIGUSR2]
    scene.draw.shuffle(steps)
    for number in steps:
        signal_to(there, number)
        sleep(scene.draw.uniform(0.5, 2.0))


def memory_pressure(scene: Scene) -> None:
    """Let a worker get no more memory for a second."""
    pid = scene.hosts.workers[0].pid
    taken = psutil.Process(pid).memory_info().data if running(pid) else 0
    with limited(pid, resource.RLIMIT_DATA, taken + PRESSURE_BYTES):
        sleep(PRESSURE_SECONDS)


def rolling_restart(scene: Scene) -> None:
    """End and start every worker, one after another."""
    for worker in list(scene.hosts.workers):
        signal_to(worker.pid, signal.SIGTERM)
        await_(lambda pid=worker.pid: not running(pid), LOST_SECONDS, "a worker did not end")  # type: ignore[misc]
        scene.hosts.replace(worker)
        sleep(scene.draw.uniform(0.0, 0.5))


def shrink(scene: Scene) -> None:
    """Retire all workers but one, as an adaptive cluster does."""
    scene.hosts.client.retire_workers([worker.address for worker in scene.hosts.workers[1:]])


def nothing(_: Scene) -> None:
    """Reads are in trouble from the beginning."""


@dataclass(frozen=True)
class Kind:
    """A kind of faults."""

    act: Callable[[Scene], None]
    in_load: bool = False
    """Whether it begins while the blocks are loaded."""
    remote: bool = False
    """Whether the rows are on object storage."""
    training: bool = False
    """Whether it is for trainings only."""
    reads: tuple[tuple[str, Any], ...] = ()
    """Trouble of the server of the rows: ``latency`` or ``status``."""


KINDS: dict[str, Kind] = {
    "kill": Kind(kill),
    "kill-in-load": Kind(kill, in_load=True, training=True),
    "kill-in-replay": Kind(kill_in_replay),
    "kill-all": Kind(kill_all),
    "freeze": Kind(freeze),
    "partition": Kind(partition),
    "scheduler-restart": Kind(restart_scheduler),
    "kill-driver": Kind(kill_driver),
    "disk-full": Kind(disk_full),
    "reads-fail": Kind(nothing, remote=True, training=True, reads=(("status", 503),)),
    "reads-slow": Kind(nothing, remote=True, training=True, reads=(("latency", 0.15),)),
    "corrupted-chunk": Kind(corrupted_chunk, training=True),
    "clock-step": Kind(clock_step),
    "memory-pressure": Kind(memory_pressure),
    "rolling-restart": Kind(rolling_restart),
    "shrink-to-one": Kind(shrink),
}
"""All kinds of faults."""


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition for some time; the run goes on either way."""
    try:
        await_(condition, seconds, "")
    except TimeoutError:
        return


@contextmanager
def reads_in_trouble(kind: Kind, server: Any, draw: random.Random) -> Iterator[None]:
    """Let the server of the rows be slow, or fail some reads, within the context."""
    try:
        for what, value in kind.reads:
            if what == "latency":
                server.order(latency=value)
            else:
                for chunk in draw.sample(range(12), 4):
                    server.fail(f"*/X/c/{chunk}/0", times=2, status=value)
        yield
    finally:
        if kind.reads:
            server.reset()
