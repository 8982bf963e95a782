"""The programs that scripts call, as they are installed beside this Python."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import distkern

ROOT = Path(distkern.__file__).parents[1]
DEPLOY = ROOT / "deploy"


@dataclass
class Finished:
    code: int
    out: str
    err: str


def installed(folder: Path) -> Path:
    """Make a folder of programs ``distkern`` and ``dask`` that run with this Python, for the PATH of a script."""
    folder.mkdir(exist_ok=True)
    for name in ("distkern", "dask"):
        program(folder / name, f'exec {sys.executable} -m {name} "$@"')
    return folder


def program(path: Path, text: str) -> None:
    """Write a program of shell."""
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def environment(programs: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a login shell of a user of distkern."""
    path = os.pathsep.join([str(programs), os.environ.get("PATH", "")])
    modules = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    quiet = {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}
    return {**os.environ, "PATH": path, "PYTHONPATH": modules, **quiet, **variables}


def run(*command: object, cwd: Path, env: dict[str, str], timeout: float = 300) -> Finished:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def distkern_command(*arguments: object, cwd: Path, env: dict[str, str], timeout: float = 300) -> Finished:
    return run(sys.executable, "-m", "distkern", *arguments, cwd=cwd, env=env, timeout=timeout)
