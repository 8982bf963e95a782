"""A disk of 64 MB that fills up in the middle of a training, in scratch and in the record of the run."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from distkern.cli.main import main
from distkern.storage import write_dataset
from tests.cli.command_line import Call, job_text, model_bits

pytestmark = pytest.mark.slow

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MB, where the system lets us have one."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def write_job(folder: Path) -> Path:
    """14 000 rows and 400 centres: 45 MB of Q, and pool and work space of 34 MB."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (14_000, 4))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + X[:, 2] + 0.1 * rng.standard_normal(14_000)
    write_dataset(folder / "rows.zarr", X, y, task="regression")
    text = job_text(
        data={"train": "rows.zarr"},
        model={"sigma": 1.0, "max_centers": 400, "stop": "none"},
        output={"model": "m", "run": "small/r"},
    )
    (folder / "job.toml").write_text(text)
    return folder / "job.toml"


@pytest.fixture
def job(here: Path) -> Path:
    return write_job(here)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bits of the model, trained without a disturbance."""
    folder = tmp_path_factory.mktemp("undisturbed")
    write_job(folder)
    with contextlib.chdir(folder):
        assert main(["train", "job.toml", "--set", "output.run=r"]) == 0
    return model_bits(folder / "m")


@pytest.mark.nightly
def test_scratch_that_fills_up(
    small_disk: Path, job: Path, shell: Call, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = "output.run=r"
    monkeypatch.setenv("TMPDIR", str(small_disk))
    full = shell("train", job, "--memory", "80MiB", "--set", run)
    assert full.code == 6, full.err
    assert "scratch needs" in full.err
    assert "bytes" in full.err
    assert " free" in full.err
    assert (job.parent / "r" / "events.jsonl").read_text().count("RoundDone") > 5, "it was in the middle"
    assert not (job.parent / "m").exists()
    assert not any(small_disk.iterdir())
    monkeypatch.setenv("TMPDIR", str(job.parent))
    done = shell("train", job, "--memory", "80MiB", "--set", run, "--resume")
    assert done.code == 0, done.err
    assert model_bits(job.parent / "m") == expected


def test_a_record_that_fills_up(small_disk: Path, job: Path, shell: Call, expected: bytes) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(62 * MIB))
    full = shell("train", job)
    assert full.code == 6, full.err
    assert "bytes are needed and" in full.err
    assert "can be resumed when there is more room" in full.err
    assert not (job.parent / "m").exists()
    again = shell("train", job, "--resume")
    assert again.code == 6, "there is still no room"
    ballast.unlink()
    done = shell("train", job, "--resume")
    assert done.code == 0, done.err
    assert model_bits(job.parent / "m") == expected


@pytest.mark.nightly
def test_a_model_that_does_not_fit(small_disk: Path, job: Path, shell: Call, expected: bytes) -> None:
    ballast = small_disk / "ballast"
    model = ("--set", "output.model=small/m", "--set", "output.run=r")
    size = small_disk.stat().st_blksize
    ballast.write_bytes(bytes(64 * MIB - 2 * size))
    full = shell("train", job, *model)
    assert full.code == 6, full.err
    assert "free" in full.err
    ballast.unlink()
    done = shell("train", job, *model, "--resume")
    assert done.code == 0, done.err
    assert model_bits(small_disk / "m") == expected
