"""Trainings one after another on one cluster: the memory of driver, scheduler and workers must stay where it is."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

import numpy as np
import psutil

from benchmarks import generated
from benchmarks.cluster.processes import running
from benchmarks.faults.campaign import BLOCK_ROWS, FEATURES, ROWS, WORKERS
from benchmarks.faults.hosts import Hosts, await_
from distkern.storage import write_dataset

WARM_UP = 5
"""Trainings at the beginning whose memory does not count: caches and pools fill."""

START_SECONDS = 300.0


def run(minutes: float) -> list[dict[str, Any]]:
    """Train for a number of minutes; return the memory of each process and its slope."""
    with TemporaryDirectory(prefix="distkern-soak-") as name:
        folder = Path(name)
        X, y = generated.in_memory(generated.waves(ROWS, FEATURES))
        write_dataset(folder / "rows.zarr", X, y, chunk_rows=BLOCK_ROWS, task="regression")
        hosts = Hosts(WORKERS, folder)
        try:
            return _soak(hosts, folder, minutes)
        finally:
            hosts.close()


def _soak(hosts: Hosts, folder: Path, minutes: float) -> list[dict[str, Any]]:
    notes, stop, result = folder / "trainings", folder / "stop", folder / "result"
    driver = hosts.processes.start(
        "soak-driver",
        "",
        hosts.log,
        scheduler=hosts.address,
        data=str(folder / "rows.zarr"),
        notes=str(notes),
        stop=str(stop),
        result=str(result),
    )
    pids = {"driver": driver, "scheduler": hosts.scheduler}
    pids |= {f"worker {number}": worker.pid for number, worker in enumerate(hosts.workers)}
    memory: dict[str, list[float]] = {who: [] for who in pids}
    deadline = monotonic() + 60 * minutes
    await_(lambda: notes.exists() or not running(driver), START_SECONDS, "no training ended")
    while running(driver):
        done = len(notes.read_text()) if notes.exists() else 0
        if done > len(memory["driver"]):
            sizes = {who: psutil.Process(pid).memory_info().rss / 1e6 for who, pid in pids.items()}
            if all(sizes.values()):  # a driver that has just ended has none
                for who, size in sizes.items():
                    memory[who].append(size)
        if monotonic() > deadline:
            stop.touch()
        sleep(0.02)
    outcome = json.loads(result.read_text()) if result.exists() else {"error": "the driver disconnected"}
    return [
        {
            "process": who,
            "trainings": len(sizes),
            "MB after the warm-up": sizes[min(WARM_UP, len(sizes) - 1)],
            "MB at the end": sizes[-1],
            "MB a training": slope(sizes[WARM_UP:]),
            "different models": outcome.get("digests", outcome.get("error")),
        }
        for who, sizes in memory.items()
    ]


def slope(sizes: list[float]) -> float:
    """Return the slope of the least squares line through sizes, for each step; not a number for fewer than two."""
    if len(sizes) < 2:
        return float("nan")
    return float(np.polyfit(np.arange(len(sizes)), sizes, 1)[0])
