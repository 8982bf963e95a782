"""A campaign of faults: workers and drivers are killed or frozen at random moments, reads fail, the model is the same.

Each run trains on the same worker processes with the faults of its seed. It is compared with an undisturbed run: it
must give the same bits, end in time, and leave nothing on the workers.
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
"""All kinds of faults."""

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
"""Seconds that workers may take to report their state, before the query is repeated."""

ROOT = Path(__file__).parents[1]
PATIENCE = 60.0
"""Seconds that a run may take in addition to a multiple of the undisturbed time."""


@dataclass
class Outcome:
    """Result of one run."""

    seconds: float
    limit: float
    result: bytes
    """Digest of the model's arrays; empty after a failure."""
    message: str
    """Last line on standard error after a failure."""
    failed_workers: int
    """Number of failed workers."""
    replays: int
    """Number of times that blocks were rebuilt."""
    resumed: int
    """Exchanges that a resumed driver read from the record."""
    retried: int
    """Reads that failed and were retried."""
    leftovers: list[str]
    """State and files that remained on workers."""


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
            raise RuntimeError(f"the undisturbed run failed: {self.undisturbed.message}")
        self._exchanges = len(self._events(folder / "undisturbed.run", "ExchangeDone"))

    def run(self, kind: str, seed: int) -> Outcome:
        """Train once with the faults of a kind."""
        everything = 1 + (kind in ("kill-all", "kill-driver"))
        limit = self.undisturbed.seconds * everything * 1.5 + PATIENCE
        return self._train(f"{kind}-{seed}", kind, seed, limit)

    def _train(self, name: str, kind: str, seed: int, limit: float) -> Outcome:
        self._client.wait_for_workers(WORKERS, timeout=120)
        run = self._folder / f"{name}.run"
        parameters = dict(self._parameters)
        if seed % 2:
            # A small limit: most of Q and of the pool is in scratch files.
            parameters["memory_limit"] = 72 << 20
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
            message="" if process.returncode == 0 else (err.strip().splitlines() or ["no message"])[-1],
            failed_workers=len(self._events(run, "WorkerLost")),
            replays=len(self._events(run, "BlocksReplayed")),
            resumed=sum(event["exchanges"] for event in self._events(run, "RunResumed")),
            retried=sum(event["count"] for event in self._events(run, "StorageRetried")),
            leftovers=self._leftovers(),
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
        """Apply the faults of a kind to the run; return the process that is its driver afterwards."""
        if kind in ("none", "reads-fail"):
            return process
        pids = list(self._client.run(os.getpid).values())
        draw.shuffle(pids)
        if kind == "kill-in-load":
            # A worker that is killed before it owns blocks does not affect the run.
            _await(lambda: any(item.startswith("run ") for item in self._held_now() or ()), process)
            time.sleep(draw.uniform(0.0, 0.2))
        else:
            moment = draw.randrange(1, max(2, self._exchanges - 4))
            _await(lambda: len(self._events(run, "ExchangeDone")) >= moment, process)
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
            _await(lambda: bool(self._events(run, "WorkerLost")), process)
            time.sleep(draw.uniform(0.0, 0.1))
            os.kill(pids[1], signal.SIGKILL)
        return process

    def _events(self, run: Path, kind: str) -> list[dict[str, Any]]:
        try:
            events = list(RunDirectory.open(run).events())
        except Exception:
            return []
        return [event for event in events if event["event"] == kind]

    def _leftovers(self) -> list[str]:
        """Return state and scratch files of ended runs, after some time for their removal."""
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
        """Return the state that the workers hold; None where one does not answer, such as a worker that is killed."""
        answers = ask_workers(self._client, _held, ANSWER_SECONDS)
        return None if answers is None else [item for items in answers.values() for item in items]


def _held() -> list[str]:
    """Return the runs and scratch files that this worker process holds."""
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
    """Return the kind of each run, in the proportions of `PROPORTIONS` and mixed."""
    total = sum(PROPORTIONS.values())
    kinds = [kind for kind in KINDS for _ in range(PROPORTIONS[kind])]
    return [kinds[(number * 7) % total] for number in range(runs)]


def campaign(runs: int, seed: int, rows: int, features: int, centers: int) -> Iterator[dict[str, Any]]:
    """Run a campaign; yield a row of the table for each run."""
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
                "lost": outcome.failed_workers,
                "replays": outcome.replays,
                "resumed at": outcome.resumed,
                "retried": outcome.retried,
                "left": "; ".join(outcome.leftovers),
                "message": outcome.message,
            }
