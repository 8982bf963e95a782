from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distkern.cli.main import main
from tests.cli.command_line import Call, Finished, environment


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(here: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command line in this process."""

    def run(*arguments: object) -> Finished:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return run


@pytest.fixture
def shell(here: Path) -> Call:
    """Runs a command line as a user does, in a process of its own."""

    def run(*arguments: object, timeout: float = 300) -> Finished:
        done = subprocess.run(
            [sys.executable, "-m", "distkern", *map(str, arguments)],
            cwd=here,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def blobs(here: Path) -> Path:
    """Two dataset stores of three classes with text labels: blobs.zarr and blobs-test.zarr."""
    from sklearn.datasets import make_blobs

    from distkern.storage import write_dataset

    X, codes = make_blobs(600, n_features=4, centers=3, cluster_std=2.0, random_state=0)
    y = np.array(["ant", "bee", "cat"])[codes]
    write_dataset(here / "blobs.zarr", X[:400], y[:400], chunk_rows=128, task="classification")
    write_dataset(here / "blobs-test.zarr", X[400:], y[400:], chunk_rows=128, task="classification")
    return here


@pytest.fixture
def waves(here: Path) -> Path:
    """Two dataset stores of a regression: waves.zarr and waves-test.zarr."""
    from distkern.storage import write_dataset

    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 2))
    y = 100 + 5 * np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(600)
    write_dataset(here / "waves.zarr", X[:400], y[:400], chunk_rows=128, task="regression")
    write_dataset(here / "waves-test.zarr", X[400:], y[400:], chunk_rows=128, task="regression")
    return here
