from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import distkern.cli

ROOT = Path(distkern.cli.__file__).parents[2]


@dataclass
class Finished:
    code: int
    out: str
    err: str


Call = Callable[..., Finished]


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def tree(folder: Path) -> set[str]:
    """Everything in a folder, to see what a command left behind."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def model_bits(place: Path) -> bytes:
    """Return the bytes of centres, weights and intercept of a stored model."""
    from distkern.estimators import load_model

    model = load_model(place)
    return b"".join(np.ascontiguousarray(a).tobytes() for a in (model.centers_, model.coef_, model.intercept_))


def undisturbed(call: Call, job: Path, *settings: str) -> bytes:
    """Train a job into places of its own and return the bits of its model."""
    done = call("train", job, "--set", "output.model=whole", "--set", "output.run=whole.run", *settings)
    assert done.code == 0, done.err
    return model_bits(job.parent / "whole")


def job_text(**sections: dict[str, object]) -> str:
    """TOML of a job file; values are written as JSON, which TOML reads alike for what jobs hold."""
    lines = []
    for section, keys in sections.items():
        lines += [f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in keys.items())]
    return "\n".join(lines)
