"""Disks that fill up: the error names the free and the needed bytes, and incomplete stores are removed."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from distkern.errors import DataError, DistkernError, RunError, StoreError
from distkern.storage import (
    DatasetWriter,
    PredictionWriter,
    RunDirectory,
    ScratchFile,
    open_dataset,
    read_model,
    write_dataset,
    write_model,
)
from tests.small_disk import small_disk

MIB = 1 << 20
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60_000, 8))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 2 * MIB) as folder:
        yield folder


def full(write: Callable[[], object], error: type[DistkernError], disk: Path, kind: str = "disk-full") -> list[int]:
    """Expect an error with figures; return them."""
    before = sorted(disk.iterdir())
    with pytest.raises(error) as caught:
        write()
    assert caught.value.kind == kind
    assert str(disk) in str(caught.value)
    assert sorted(disk.iterdir()) == before
    return [int(number) for number in re.findall(r"\d+(?= bytes| more bytes| free|already)", str(caught.value))]


def fill(ballast: Path) -> None:
    """Leave no space at all."""
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as stream:
        while stream.write(b"x" * 4096):
            pass


def test_dataset(disk: Path) -> None:
    free, needed = full(lambda: write_dataset(disk / "d", X, X[:, 0]), DataError, disk)
    assert free < 2 * MIB
    assert needed == X.nbytes + 2 * 8 * len(X)

    def stream() -> None:
        with DatasetWriter(disk / "d", chunk_rows=5000) as writer:
            for start in range(0, len(X), 5000):
                writer.append(X[start : start + 5000], X[start : start + 5000, 0])

    with pytest.raises(DataError, match=r"more than \d+ bytes are needed"):
        stream()
    write_dataset(disk / "d", X[:1000], X[:1000, 0])
    open_dataset(disk / "d").verify()


def test_a_dataset_in_the_way_survives(disk: Path) -> None:
    write_dataset(disk / "d", X[:1000], X[:1000, 0])
    full(lambda: write_dataset(disk / "d", X, X[:, 0], overwrite=True), DataError, disk)
    dataset = open_dataset(disk / "d")
    dataset.verify()
    assert dataset.n_rows == 1000


def test_model(disk: Path) -> None:
    write_model(disk / "m", {}, {"a": X[:100]})
    free, needed = full(lambda: write_model(disk / "m", {}, {"a": X}, overwrite=True), StoreError, disk)
    assert free < 2 * MIB
    assert X.nbytes <= needed < X.nbytes + 1000
    np.testing.assert_array_equal(read_model(disk / "m")[1]["a"], X[:100])


def test_predictions(disk: Path) -> None:
    def predict() -> None:
        labels = np.array(["a", "b", "c"])
        with PredictionWriter(disk / "p", n, class_labels=labels, probability=True) as writer:
            writer.append(labels[RNG.integers(0, 3, n)], RNG.random((n, 3)))

    n = 150_000
    _, needed = full(predict, DataError, disk)
    assert needed == n * (4 + 3 * 8)


def test_run_directory(disk: Path) -> None:
    run = RunDirectory.create(disk / "r", {"a": 1})
    run.record({"event": "one"})
    fill(disk / "ballast")
    note = {"event": "x" * 20_000}
    _, needed = full(lambda: run.record(note), RunError, disk)
    assert needed > 20_000
    full(lambda: run.write_summary(note), RunError, disk)
    assert run.summary is None
    (disk / "ballast").unlink()
    run.record({"event": "two"})
    run.write_summary({"done": True})
    events = [event["event"] for event in run.events()]
    assert events == ["one", "two"]


def test_scratch(disk: Path) -> None:
    with contextlib.closing(ScratchFile(str(disk))) as scratch:
        scratch.allocate(MIB)
        needed, free = full(lambda: scratch.allocate(4 * MIB), RunError, disk, "scratch-full")
        assert needed == 4 * MIB
        assert 0 < free <= MIB


def test_scratch_on_a_file_system_that_reserves_nothing(disk: Path) -> None:
    """The file is made longer without space for it, so that it is the write that fails."""
    with contextlib.closing(ScratchFile(str(disk))) as scratch:
        os.ftruncate(scratch._file.fileno(), 8 * MIB)
        needed, _ = full(lambda: scratch.write(0, np.ones(MIB)), RunError, disk, "scratch-full")
        assert 6 * MIB <= needed <= 8 * MIB
