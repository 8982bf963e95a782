from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distkern.cli.main import main
from tests.cli.command_line import Call, Finished, environment, job_text


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


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dataset stores to be copied: three classes with text labels, and a regression."""
    from sklearn.datasets import make_blobs

    from distkern.storage import write_dataset

    folder = tmp_path_factory.mktemp("stores")
    X, codes = make_blobs(600, n_features=4, centers=3, cluster_std=2.0, random_state=0)
    y = np.array(["ant", "bee", "cat"])[codes]
    write_dataset(folder / "blobs.zarr", X[:400], y[:400], chunk_rows=128, task="classification")
    write_dataset(folder / "blobs-test.zarr", X[400:], y[400:], chunk_rows=128, task="classification")
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 2))
    y = 100 + 5 * np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(600)
    write_dataset(folder / "waves.zarr", X[:400], y[:400], chunk_rows=128, task="regression")
    write_dataset(folder / "waves-test.zarr", X[400:], y[400:], chunk_rows=128, task="regression")
    return folder


def copied(stores: Path, here: Path, *names: str) -> Path:
    for name in names:
        shutil.copytree(stores / name, here / name)
    return here


@pytest.fixture
def blobs(stores: Path, here: Path) -> Path:
    """Two dataset stores of three classes with text labels: blobs.zarr and blobs-test.zarr."""
    return copied(stores, here, "blobs.zarr", "blobs-test.zarr")


@pytest.fixture
def waves(stores: Path, here: Path) -> Path:
    """Two dataset stores of a regression: waves.zarr and waves-test.zarr."""
    return copied(stores, here, "waves.zarr", "waves-test.zarr")


@pytest.fixture(scope="session")
def trained_once(stores: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of the blobs, to be copied."""
    folder = tmp_path_factory.mktemp("trained")
    copied(stores, folder, "blobs.zarr")
    (folder / "job.toml").write_text(
        job_text(
            data={"train": "blobs.zarr"},
            model={"sigma": 2.0, "max_centers": 20},
            output={"model": "blobs.model", "run": "blobs.run"},
        )
    )
    with contextlib.chdir(folder):
        assert main(["train", "job.toml"]) == 0
    return folder


@pytest.fixture
def trained(trained_once: Path, blobs: Path) -> Path:
    """The blobs with job.toml, blobs.model and blobs.run."""
    shutil.copy(trained_once / "job.toml", blobs)
    return copied(trained_once, blobs, "blobs.model", "blobs.run")
