"""Trainings by the command line, each in its own process, so that peaks of memory are those of the training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Trained:
    """Result of a training."""

    code: int
    """Exit code."""
    seconds: float
    """Wall time of the process, including its start and its cluster."""
    summary: Mapping[str, Any]
    """The JSON object of ``--json``; empty after a failure."""
    message: str
    """Last line on standard error after a failure."""

    def value(self, name: str) -> Any:
        """Return a value of the summary, None if it has no such name."""
        return self.summary.get(name)

    def outcome(self) -> str:
        """Return "done", or exit code and message of a failure."""
        return "done" if self.code == 0 else f"exit {self.code}: {self.message}"


def train(folder: Path, sections: Mapping[str, Mapping[str, Any]]) -> Trained:
    """Run ``distkern train`` on a job.

    Parameters
    ----------
    folder : Path
        Folder of the job file, and the base of relative paths.
    sections : mapping
        Content of the job file; keys with the value None are left out.
    """
    job = folder / "job.toml"
    job.write_text(job_text(sections))
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    started = perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "distkern", "train", str(job), "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = perf_counter() - started
    if done.returncode == 0:
        return Trained(0, seconds, json.loads(done.stdout.splitlines()[-1]), "")
    lines = done.stderr.strip().splitlines()
    return Trained(done.returncode, seconds, {}, lines[-1] if lines else "no message")


def on_workers(
    train_store: Path, test_store: Path, out: Path, model: Mapping[str, Any], workers: int, memory: str
) -> dict[str, Any]:
    """Train the model `out` on workers of bounded memory, and return what a table shows of it."""
    trained = train(
        out.parent,
        {
            "data": {"train": str(train_store), "test": str(test_store)},
            "model": model,
            "cluster": {"workers": workers, "memory": memory},
            "output": {"model": str(out)},
        },
    )
    planned, worker = trained.value("planned_peak_bytes"), trained.value("peak_rss_worker")
    return {
        "outcome": trained.outcome(),
        "rmse": (trained.value("test") or {}).get("rmse"),
        "s": trained.value("seconds"),
        "s with start": trained.seconds,
        "GB read": (trained.value("bytes_read") or 0) / 1e9,
        "planned MiB": planned and planned / (1 << 20),
        "worker MiB": worker and worker / (1 << 20),
        "driver MiB": (trained.value("peak_rss_driver") or 0) / (1 << 20),
    }


def job_text(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of a job file; strings, numbers and truth values have the same form in JSON and TOML."""
    lines: list[str] = []
    for section, keys in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{name} = {json.dumps(value)}" for name, value in keys.items() if value is not None]
    return "\n".join(lines) + "\n"
