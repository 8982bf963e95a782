"""Trainings through the command line, in a process of their own, so that peaks of memory are theirs."""

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
    """How a training ended."""

    code: int
    """Exit code."""
    seconds: float
    """Wall time of the process, its start and its cluster included."""
    record: Mapping[str, Any]
    """What ``--json`` printed; empty where it failed."""
    complaint: str
    """Last line on standard error where it failed."""

    def figure(self, name: str) -> Any:
        """Return a figure of the record, None where there is none."""
        return self.record.get(name)

    def outcome(self) -> str:
        """Return "done", or how it failed."""
        return "done" if self.code == 0 else f"exit {self.code}: {self.complaint}"


def train(folder: Path, sections: Mapping[str, Mapping[str, Any]]) -> Trained:
    """Run ``distkern train`` on a job.

    Parameters
    ----------
    folder : Path
        Where the job file is put and relative paths start.
    sections : mapping
        The job file; None stands for an absent key.
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


def job_text(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Write a job file; strings, numbers and truth values look the same in JSON and TOML."""
    lines: list[str] = []
    for section, keys in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{name} = {json.dumps(value)}" for name, value in keys.items() if value is not None]
    return "\n".join(lines) + "\n"
