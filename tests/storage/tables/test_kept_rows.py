"""Rows that ingest keeps in scratch: the store is that of a second reading, and nothing is left of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from distkern.errors import DataError
from distkern.storage import ingest
from distkern.storage.ingest import raw_csv
from distkern.storage.io.scratch import ScratchFile
from distkern.storage.tables import kept_rows
from distkern.storage.tables.kept_rows import KeptRows
from tests.small_disk import small_disk

RNG = np.random.default_rng(0)
N = 400


def table(**more: Any) -> pd.DataFrame:
    """Return rows with every kind of column, gaps in all of them, and a category of many levels."""
    moments = pd.date_range("2024-01-01", periods=N, freq="7h")
    columns = {
        "few": RNG.choice(["u", "v", None], N),
        "many": [f"l{code}" for code in RNG.integers(0, 60, N)],
        "size": np.where(RNG.random(N) < 0.1, np.nan, RNG.normal(size=N)),
        "flag": RNG.choice([True, False, None], N),
        "when": moments.where(RNG.random(N) < 0.9),
        "zoned": moments.tz_localize("UTC").where(RNG.random(N) < 0.9),
        "y": RNG.normal(size=N),
    }
    return pd.DataFrame(columns | more)


def holes(values: Any) -> np.ndarray:
    return np.where(RNG.random(N) < 0.1, np.nan, values)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "numbers": ({}, {}),
    "labels": ({"y": RNG.choice(["p", "q", "rr"], N)}, {}),
    "whole numbers that are classes": ({"y": RNG.integers(0, 5, N)}, {}),
    "several targets": ({"z": RNG.integers(0, 500, N)}, {"target": ["y", "z"]}),
    "weights": ({"w": RNG.integers(1, 4, N)}, {"weight": "w"}),
    "no targets": ({}, {"target": None, "no_target": True, "drop": ["y"]}),
    "gaps by the mean": ({}, {"missing": "mean"}),
    "rows with gaps left out": ({"y": holes(RNG.normal(size=N))}, {"missing": "drop"}),
    "numbers as a category": ({"code": RNG.integers(0, 70, N)}, {"categorical": ["code"]}),
}


def contents(place: Path) -> dict[str, Any]:
    group = zarr.open_group(place, mode="r")
    return {name: group[name][:].tobytes() for name in group.array_keys()} | {"facts": dict(group.attrs)}


def read_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kept_rows, "SHARE", 1 << 60)


def counted_reads(patch: pytest.MonkeyPatch) -> list[int]:
    """Return the list that gets a number for each reading of a table from its first block to its last."""
    found: list[int] = []
    pieces = raw_csv.RawCsv.pieces

    def counting(self: Any, types: Any) -> Any:
        yield from pieces(self, types)
        found.append(1)

    patch.setattr(raw_csv.RawCsv, "pieces", counting)
    return found


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("name", CASES)
def test_the_store_is_that_of_a_second_reading(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more, options = CASES[name]
    frame, file = table(**more), tmp_path / f"t.{kind}"
    if kind == "csv":
        frame.to_csv(file, index=False)
    else:
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), file, row_group_size=150)
    monkeypatch.setattr(raw_csv.RawCsv, "_block_bytes", 4096)
    reads = counted_reads(monkeypatch)
    settings = {"target": "y", **options}
    ingest(file, tmp_path / "kept", **settings)
    assert len(reads) == (kind == "csv")
    with monkeypatch.context() as patch:
        read_twice(patch)
        ingest(file, tmp_path / "read", **settings)
    assert len(reads) == 3 * (kind == "csv")
    assert contents(tmp_path / "kept") == contents(tmp_path / "read")
    assert {path.name for path in tmp_path.iterdir()} == {file.name, "kept", "read"}


CHANGES: dict[str, tuple[dict[str, Any], int]] = {
    "text after numbers": ({"size": [*(row % 9 for row in range(N - 1)), "x"]}, 2),
    "targets that are whole at first": ({"y": [*map(str, range(N - 1)), "0.5"]}, 2),
    "targets that are labels later": ({"y": [*range(N - 1), "p"]}, 3),
    "as many labels as rows": ({"y": [f"label {row}" for row in range(N)]}, 2),
    "a row without weight": ({"w": [*[1] * (N - 1), 0]}, 2),
}
"""Columns, and the number of readings from the first row to the last."""


@pytest.mark.parametrize("name", CHANGES)
def test_tables_that_change_are_read_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, n_reads = CHANGES[name]
    table(**columns).to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr(raw_csv.RawCsv, "_block_bytes", 4096)
    monkeypatch.setattr(kept_rows, "MOST_LABELS", 20)
    options = {"target": "y", "weight": "w" if "w" in columns else None}
    reads = counted_reads(monkeypatch)
    ingest(tmp_path / "t.csv", tmp_path / "kept", **options)
    assert len(reads) == n_reads
    with monkeypatch.context() as patch:
        read_twice(patch)
        ingest(tmp_path / "t.csv", tmp_path / "read", **options)
    assert contents(tmp_path / "kept") == contents(tmp_path / "read")


def test_a_disk_without_room_for_the_rows_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table().to_csv(tmp_path / "t.csv", index=False)
    reads = counted_reads(monkeypatch)
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        # The scratch file is full before the store is begun.
        monkeypatch.setattr(ScratchFile, "allocate", lambda self, nbytes: allocate(self, nbytes + (1 << 20)))
        ingest(tmp_path / "t.csv", disk / "d", target="y")
        assert len(reads) == 2
        assert [path.name for path in disk.iterdir()] == ["d"]
    ingest(tmp_path / "t.csv", tmp_path / "d", target="y")


allocate = ScratchFile.allocate


def test_a_quarter_of_the_disk_is_the_most_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table().to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr(raw_csv.RawCsv, "_block_bytes", 4096)
    reads, taken = counted_reads(monkeypatch), []
    monkeypatch.setattr(ScratchFile, "allocate", lambda self, nbytes: (taken.append(nbytes), allocate(self, nbytes))[1])
    ingest(tmp_path / "t.csv", tmp_path / "a", target="y")
    whole = sum(taken)
    for room, expected in ((whole, 1), (whole - 1, 2)):
        reads.clear(), taken.clear()
        usage = type("Usage", (), {"free": 4 * room + 3})
        monkeypatch.setattr(kept_rows.shutil, "disk_usage", lambda folder, usage=usage: usage)
        # Compressed files take fewer bytes than the rows.
        with KeptRows(tmp_path, 1) as kept, monkeypatch.context() as patch:
            patch.setattr(kept_rows, "KeptRows", lambda folder, nbytes, kept=kept: kept)
            ingest(tmp_path / "t.csv", tmp_path / f"{expected}", target="y")
        assert len(reads) == expected
        assert sum(taken) <= room
        assert contents(tmp_path / f"{expected}") == contents(tmp_path / "a")


@pytest.mark.parametrize(
    ("values", "nbytes"),
    [
        ([1.0, -128.0], 1),
        ([0.0, -0.0], 8),
        ([1.0, 128.0], 2),
        ([*range(100), 0.5], 8),
        ([1.0, np.nan], 8),
        ([1.0, 2.0**31 - 1], 4),
        ([1.0, 2.0**31], 8),
        ([1e300, 2.0], 8),
    ],
)
def test_whole_numbers_take_few_bytes(values: list[float], nbytes: int) -> None:
    given = np.array(values, dtype=np.float64)
    with KeptRows(".", 0) as kept:
        kept.restart()
        kept.add([(given,)], None, None)
        assert kept.nbytes == nbytes * len(values)
        ((found,),) = next(kept.pieces()).columns
    assert found.tobytes() == given.tobytes()


def test_the_file_is_closed_where_the_store_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(y=[0.5] * N).to_csv(tmp_path / "t.csv", index=False)
    closed: list[ScratchFile] = []
    close = ScratchFile.close
    monkeypatch.setattr(ScratchFile, "close", lambda self: (closed.append(self), close(self)))
    with pytest.raises(DataError):
        ingest(tmp_path / "t.csv", tmp_path / "d", target="y", task="classification")
    assert len(closed) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 50), st.booleans(), st.booleans())
def test_pieces_are_those_that_were_added(sizes: list[int], most: int, labelled: bool, weighted: bool) -> None:
    rng = np.random.default_rng(len(sizes))
    added: list[Any] = []
    with KeptRows(".", 0) as kept:
        kept.restart()
        kept.add([(np.ones(3),)], np.ones(3), None)
        kept.restart()
        assert kept.complete
        assert kept.nbytes == 0
        for n in sizes:
            columns = [(rng.normal(size=n),), (rng.integers(0, 9, n).astype(np.uint8),), (rng.normal(size=n),) * 2]
            y = rng.choice(["a", "bcd"], n) if labelled else rng.normal(size=(n, 2))
            weights = rng.random(n) if weighted else None
            kept.add(columns, y, weights)
            added.append((columns, y, weights))
        pieces = list(kept.pieces())
        for (columns, y, weights), piece in zip(added, pieces, strict=True):
            parts = list(piece.split(most))
            assert all(len(part.y) <= most for part in parts)
            for place, values in enumerate(columns):
                for part_of, expected in enumerate(values):
                    found = np.concatenate([part.columns[place][part_of] for part in parts])
                    assert found.dtype == expected.dtype
                    np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), y)
            assert (piece.weights is None) == (weights is None)
            if weights is not None:
                np.testing.assert_array_equal(np.concatenate([part.weights for part in parts]), weights)
    assert not kept.complete
