"""Commands on stores that lie, lack chunks or are damaged: the right exit code, soon, and nothing left behind."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
import zarr

from tests.cli.command_line import Call, job_text, tree

ROWS = 10**12
PLAIN = {
    "data": {"x": "X", "y": "y", "task": "regression"},
    "model": {"max_centers": 5},
    "output": {"model": "m", "run": "r"},
}


def write_job(folder: Path, **sections: Any) -> Path:
    path = folder / "job.toml"
    path.write_text(job_text(**sections))
    return path


def plain_arrays(here: Path, rows: int, x_chunk: int, y_chunk: int, written: int) -> None:
    """Two arrays that declare many rows and hold few."""
    rng = np.random.default_rng(0)
    X = zarr.create_array(here / "X", shape=(rows, 2), chunks=(x_chunk, 2), dtype="f8")
    y = zarr.create_array(here / "y", shape=(rows,), chunks=(y_chunk,), dtype="f8")
    if written:
        X[:written] = rng.normal(size=(written, 2))
        y[:written] = rng.normal(size=written)


@pytest.mark.parametrize(
    ("command", "x_chunk", "y_chunk", "written", "code"),
    [
        ("train", 10, 10, 0, 3),
        ("plan", 10, 10, 20, 4),
        ("train", 10**5, 10**5, 10, 4),
        ("plan", 10**7, 10**7, 0, 3),
        ("train", 10**7, 10**3, 10, 4),
    ],
)
def test_a_million_million_rows(
    here: Path, call: Call, command: str, x_chunk: int, y_chunk: int, written: int, code: int
) -> None:
    plain_arrays(here, ROWS, x_chunk, y_chunk, written)
    # With a sample any number of rows fits into the memory: the training would read them all.
    job = write_job(here, **{**PLAIN, "model": {"max_centers": 5, "selection_rows": "none"}})
    before, started = tree(here), perf_counter()
    done = call(command, job)
    assert done.code == code, done.err
    assert perf_counter() - started < 10
    assert tree(here) == before
    assert str(ROWS) in done.err or "memory" in done.err


def test_absent_rows_are_reported(here: Path, call: Call) -> None:
    plain_arrays(here, 600, 100, 100, 300)
    done = call("train", write_job(here, **PLAIN), "--json")
    assert done.code == 0, done.err
    assert "3 chunks of X" in done.err
    assert "3 chunks of y" in done.err
    assert "3/0, 4/0, 5/0" in done.err
    events = [json.loads(line) for line in (here / "r" / "events.jsonl").read_text().splitlines()]
    absent = [(event["array"], event["count"], event["chunks"]) for event in events if event["event"] == "ChunksAbsent"]
    assert absent == [("X", 3, [[3, 0], [4, 0], [5, 0]]), ("y", 3, [[3], [4], [5]])]


@pytest.mark.parametrize(
    ("damage", "workers"),
    [("missing", 0), ("flipped", 0), ("rewritten", 0), pytest.param("flipped", 2, marks=pytest.mark.cluster)],
)
def test_a_damaged_dataset(waves: Path, call: Call, damage: str, workers: int) -> None:
    chunk = waves / "waves.zarr" / "X" / "c" / "1" / "0"
    data = bytearray(chunk.read_bytes())
    if damage == "missing":
        chunk.unlink()
    elif damage == "flipped":
        data[len(data) // 2] ^= 4
        chunk.write_bytes(data)
    else:
        zarr.open_array(waves / "waves.zarr", path="X", mode="r+")[128:256] = 0.5
    sections: dict[str, Any] = {"data": {"train": "waves.zarr"}, "output": {"model": "m", "run": "r"}}
    job = write_job(waves, **sections, **({"cluster": {"workers": workers, "memory": "256MiB"}} if workers else {}))
    before = tree(waves)
    done = call("train", job)
    assert done.code == 3, done.err
    assert "chunk 1 of" in done.err
    assert "waves.zarr" in done.err
    assert tree(waves) == before


def test_arrays_that_would_run_code(here: Path, call: Call) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(here / "sprung"),)

    plain_arrays(here, 600, 100, 100, 600)
    for name in ("X", "y"):
        (here / name / "zarr.json").unlink()
        shape = [600, 2] if name == "X" else [600]
        metadata = {"zarr_format": 2, "shape": shape, "chunks": shape, "dtype": "<f8", "order": "C", "fill_value": 0}
        filters = [{"id": "delta", "dtype": "<f8"}, {"id": "pickle"}]
        (here / name / ".zarray").write_text(json.dumps(metadata | {"filters": filters, "compressor": None}))
        (here / name / ("0.0" if name == "X" else "0")).write_bytes(pickle.dumps(Trap()))
    done = call("train", write_job(here, **PLAIN))
    assert done.code == 3
    assert "pickle" in done.err
    assert not (here / "sprung").exists()
