"""A campaign of faults: workers and drivers are killed or frozen at random moments and reads fail, and the model stays.

Each run trains on the same worker processes, meets the faults of its seed, and is held against an undisturbed run: the
same bits, in time, and nothing left on the workers.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import zarr

from benchmarks import generated
from benchmarks.fault_driver import Settings
from distkern.scheduler import local_client
from distkern.scheduler.clusters.worker_queries import ask_workers
from distkern.storage import RunDirectory

KINDS = ("kill", "kill-in-load", "kill-in-replay", "kill-all", "freeze", "kill-driver", "reads-fail")
"""Every fault there is."""

PROPORTIONS = {
    "kill": 5,
    "kill-in-load": 5,
    "kill-in-replay": 5,
    "kill-all": 5,
    "freeze": 5,
    "kill-driver": 10,
    "reads-fail": 5,
}
"""Runs of each kind in a campaign of 40."""

WORKERS = 3
ANSWER_SECONDS = 10.0
"""How long workers may take to say what they hold, before they are asked again."""

ROOT = Path(__file__).parents[1]
PATIENCE = 60.0
"""Seconds a run may take on top of a multiple of the undisturbed one's."""


@dataclass
class Outcome:
    """How one run went."""

    seconds: float
    limit: float
    result: bytes
    """Digest of the model's arrays; empty where there are none."""
    complaint: str
    lost: int
    """Times that a worker was lost."""
    replays: int
    """Times that blocks were rebuilt."""
    resumed: int
    """Exchanges that a resumed driver did not make again."""
    retried: int
    """Reads that failed and were tried again."""
    left: list[str]
    """What stayed behind on workers."""


class Campaign:
    """Worker processes and data that all runs share."""

    def __init__(self, client: Any, folder: Path, rows: int, features: int, centers: int) -> None:
        self._client = client
        self._folder = folder
        X, y = generated.in_memory(generated.waves(rows, features))
        for name, array in (("X", X), ("y", y)):
            stored = zarr.create_array(
                folder / name, shape=array.shape, chunks=(rows // 16, *array.shape[1:]), dtype=array.dtype
            )
            stored[:] = array
        self._parameters = {"sigma": float(np.sqrt(features)), "max_centers": centers, "stop": None}
        self.undisturbed = self._train("undisturbed", "none", 0, float("inf"))
        if not self.undisturbed.result:
            raise RuntimeError(f"the undisturbed run failed: {self.undisturbed.complaint}")
        self._exchanges = len(self._told(folder / "undisturbed.run", "ExchangeDone"))

    def run(self, kind: str, seed: int) -> Outcome:
        """Train once and meet the faults of a kind."""
        everything = 1 + (kind in ("kill-all", "kill-driver"))
        limit = self.undisturbed.seconds * everything * 1.5 + PATIENCE
        return self._train(f"{kind}-{seed}", kind, seed, limit)

    def _train(self, name: str, kind: str, seed: int, limit: float) -> Outcome:
        self._client.wait_for_workers(WORKERS, timeout=120)
        run = self._folder / f"{name}.run"
        parameters = dict(self._parameters)
        if seed % 2:
            # Most of Q and of the pool goes to scratch.
            parameters["memory_limit"] = 60 << 20
        settings = Settings(
            scheduler=self._client.scheduler.address,
            data=str(self._folder),
            run=str(run),
            result=str(self._folder / f"{name}.npz"),
            parameters=parameters,
            failing=0.25 if kind == "reads-fail" else 0.0,
            seed=seed,
        )
        started = time.monotonic()
        process = self._start(settings)
        frozen: list[int] = []
        try:
            process = self._disturb(kind, random.Random(seed), run, settings, process, frozen)
            _, err = process.communicate(timeout=max(1.0, min(limit, 3600.0) - (time.monotonic() - started)))
        except subprocess.TimeoutExpired:
            process.kill()
            err = f"no end within {limit:.0f} s"
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
        seconds = time.monotonic() - started
        result = Path(settings.result)
        return Outcome(
            seconds=seconds,
            limit=limit,
            result=_digest(result) if process.returncode == 0 and result.exists() else b"",
            complaint="" if process.returncode == 0 else (err.strip().splitlines() or ["no message"])[-1],
            lost=len(self._told(run, "WorkerLost")),
            replays=len(self._told(run, "BlocksReplayed")),
            resumed=sum(event["exchanges"] for event in self._told(run, "RunResumed")),
            retried=sum(event["count"] for event in self._told(run, "StorageRetried")),
            left=self._left_behind(),
        )

    def _start(self, settings: Settings) -> subprocess.Popen[str]:
        path = Path(f"{settings.run}.json")
        settings.write(path)
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.fault_driver", str(path)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _disturb(
        self,
        kind: str,
        draw: random.Random,
        run: Path,
        settings: Settings,
        process: subprocess.Popen[str],
        frozen: list[int],
    ) -> subprocess.Popen[str]:
        """Do to the run what its kind says; return the process that drives it afterwards."""
        if kind in ("none", "reads-fail"):
            return process
        pids = list(self._client.run(os.getpid).values())
        draw.shuffle(pids)
        if kind == "kill-in-load":
            # A worker that dies before it was given blocks is no loss to the run.
            _await(lambda: any(item.startswith("run ") for item in self._held_now() or ()), process)
            time.sleep(draw.uniform(0.0, 0.2))
        else:
            moment = draw.randrange(1, max(2, self._exchanges - 4))
            _await(lambda: len(self._told(run, "ExchangeDone")) >= moment, process)
            time.sleep(draw.uniform(0.0, 0.05))
        if kind == "kill-driver":
            process.kill()
            process.communicate()
            return self._start(replace(settings))
        if kind == "freeze":
            os.kill(pids[0], signal.SIGSTOP)
            frozen.append(pids[0])
            return process
        for pid in pids if kind == "kill-all" else pids[:1]:
            os.kill(pid, signal.SIGKILL)
        if kind == "kill-in-replay":
            _await(lambda: bool(self._told(run, "WorkerLost")), process)
            time.sleep(draw.uniform(0.0, 0.1))
            os.kill(pids[1], signal.SIGKILL)
        return process

    def _told(self, run: Path, kind: str) -> list[dict[str, Any]]:
        try:
            events = list(RunDirectory.open(run).events())
        except Exception:
            return []
        return [event for event in events if event["event"] == kind]

    def _left_behind(self) -> list[str]:
        """Look for state and scratch of ended runs; it may take a moment to go."""
        deadline = time.monotonic() + ANSWER_SECONDS
        self._client.wait_for_workers(WORKERS, timeout=120)
        while True:
            held = self._held_now()
            if held is None and time.monotonic() > deadline + PATIENCE:
                return ["a worker that does not answer"]
            if held is not None and (not held or time.monotonic() > deadline):
                return held
            time.sleep(0.1)

    def _held_now(self) -> list[str] | None:
        """Ask the workers what they hold; None where one keeps the answer back, as one that is being killed may."""
        answers = ask_workers(self._client, _held, ANSWER_SECONDS)
        return None if answers is None else [item for items in answers.values() for item in items]


def _held() -> list[str]:
    """Name what this worker process still holds of trainings."""
    from distkern.scheduler.blocks import block_registry as memo

    runs = [f"run {run}" for _, run in memo.held_runs()]
    files = []
    for entry in Path("/proc/self/fd").iterdir() if Path("/proc/self/fd").exists() else ():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if "dask-scratch-space" in target and "(deleted)" in target:
            files.append(f"file {target}")
    return runs + files


def _await(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not condition() and process.poll() is None:
        time.sleep(0.005)


def _digest(path: Path) -> bytes:
    state = hashlib.blake2b(digest_size=8)
    with np.load(path) as arrays:
        for name in sorted(arrays):
            state.update(arrays[name].tobytes())
    return state.digest()


def schedule(runs: int) -> list[str]:
    """Share runs among the kinds in their proportions, mixed."""
    total = sum(PROPORTIONS.values())
    kinds = [kind for kind in KINDS for _ in range(PROPORTIONS[kind])]
    return [kinds[(number * 7) % total] for number in range(runs)]


def campaign(runs: int, seed: int, rows: int, features: int, centers: int) -> Iterator[dict[str, Any]]:
    """Run a campaign; yield a row of the table per run."""
    with TemporaryDirectory(prefix="distkern-faults-") as name, local_client(WORKERS) as client:
        shared = Campaign(client, Path(name), rows, features, centers)
        for number, kind in enumerate(schedule(runs)):
            outcome = shared.run(kind, seed + number)
            yield {
                "seed": seed + number,
                "fault": kind,
                "s": outcome.seconds,
                "undisturbed s": shared.undisturbed.seconds,
                "in time": outcome.seconds <= outcome.limit,
                "same bits": outcome.result == shared.undisturbed.result,
                "lost": outcome.lost,
                "replays": outcome.replays,
                "resumed at": outcome.resumed,
                "retried": outcome.retried,
                "left": "; ".join(outcome.left),
                "complaint": outcome.complaint,
            }
