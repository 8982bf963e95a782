"""Bad and unusual raw tables: each ends in a typed error that names column and row, or in a documented rule."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distkern.errors import DataError, JobError
from distkern.storage import ingest, open_dataset

Files = dict[str, str | bytes | Any]
"""Names of files to texts, bytes or columns."""

UTC = pa.timestamp("us", "UTC")
NOON = datetime(2024, 5, 1, 12)


def codes(n: int, first: str = "k") -> list[str]:
    return [f"{first}{i:06d}" for i in range(n)]


def lines(header: str, *rows: str) -> str:
    return "\n".join([header, *rows]) + "\n"


def csv_of(**columns: list[Any]) -> str:
    return lines(",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)))


NUMBERS = csv_of(a=[1, 2, 3, 4], y=[0.5, 1.5, 2.5, 3.5])
MANY = [*range(40), *range(40)]
TEXT_AND_ONE = [str(value) for value in MANY]

REFUSED: dict[str, tuple[Files, dict[str, Any], str, str]] = {
    "duplicate names": ({"t.csv": lines("a,a,y", "u,1,0.5", "v,2,1.5")}, {}, "duplicate-column", "'a'"),
    "duplicate names after trimming": ({"t.csv": lines("a, a,y", "u,1,0.5")}, {}, "duplicate-column", "'a'"),
    "an encoded name that exists": (
        {"t.csv": lines("a,a=u,y", "u,1,0.5", "v,2,1.5")}, {}, "duplicate-column", "'a=u'",
    ),
    "an empty file": ({"t.csv": ""}, {}, "empty-file", "t.csv"),
    "a header alone": ({"t.csv": "a,b,y\n"}, {}, "empty-file", "no rows"),
    "an empty file of Parquet": ({"t.parquet": b""}, {}, "unreadable", "t.parquet"),
    "parts without rows": ({"1.csv": "a,y\n", "2.csv": "a,y\n"}, {}, "empty-file", "1.csv"),
    "a column without values": ({"t.csv": lines("a,b,y", "u,,0.5", "v,,1.5")}, {}, "empty-column", "'b'"),
    "a column of words for missing values": (
        {"t.csv": lines("a,b,y", "u,NA,0.5", "v,NaN,1.5")}, {}, "empty-column", "'b'",
    ),
    "a column of nulls": (
        {"t.parquet": {"a": ["u", "v"], "b": [None, None], "y": [0.5, 1.5]}}, {}, "empty-column", "'b'",
    ),
    "a column of NaN": (
        {"t.parquet": {"a": ["u", "v"], "b": [np.nan, np.nan], "y": [0.5, 1.5]}}, {}, "empty-column", "'b'",
    ),
    "a typing error among many numbers": (
        {"t.csv": csv_of(a=[*MANY[:-1], "1O"], y=[0.5 * i for i in range(80)])}, {}, "mixed-column",
        r"'a' holds the text '1O' in row 80 .*numbers",
    ),
    "a typing error among many dates": (
        {"t.csv": csv_of(a=[*(f"2024-{1 + i // 28:02d}-{1 + i % 28:02d}" for i in range(60)), "soon"], y=range(61))},
        {"task": "regression"}, "mixed-column", r"'a' holds the text 'soon' in row 61 .*dates",
    ),
    "numbers in one file and many texts in another": (
        {"1.csv": csv_of(a=range(100), y=range(100)), "2.csv": csv_of(a=["x", 1], y=[1, 2])},
        {"task": "regression"}, "mixed-column", r"'x' in row 101 ",
    ),
    "dates in one file and numbers in another": (
        {"1.parquet": {"a": [NOON], "y": [0.5]}, "2.parquet": {"a": [1.0], "y": [0.5]}}, {}, "type-changed",
        r"'a' holds dates.*1\.parquet and numbers in .*2\.parquet",
    ),
    "times with a zone and without": (
        {"1.parquet": {"a": pa.array([NOON], UTC), "y": [0.5]}, "2.parquet": {"a": [NOON], "y": [0.5]}}, {},
        "type-changed", "'a'.*UTC.*without time zone",
    ),
    "dates in one file and text in another": (
        {"1.parquet": {"a": [NOON], "y": [0.5]}, "2.parquet": {"a": ["u"], "y": [0.5]}}, {}, "type-changed", "'a'",
    ),
    "lists": ({"t.parquet": {"a": [[1], [2]], "b": ["u", "v"], "y": [0.5, 1.5]}}, {}, "column-type", "'a'.*list"),
    "structures": ({"t.parquet": {"a": [{"x": 1}, {"x": 2}], "y": [0.5, 1.5]}}, {}, "column-type", "'a'.*struct"),
    "bytes": ({"t.parquet": {"a": [b"u", b"v"], "y": [0.5, 1.5]}}, {}, "column-type", "'a'.*binary"),
    "other bytes than UTF-8": (
        {"t.csv": "a,y\ncaf\xe9,0.5\nv,1.5\n".encode("latin-1")}, {},
        "unreadable", "line 2 has the byte 0xe9 in column 'a'.*utf-8",
    ),
    "files of two encodings": (
        {"1.csv": "a,y\ncafé,0.5\n", "2.csv": "a,y\ncaf\xe9,1.5\n".encode("latin-1")}, {},
        "unreadable", "2.csv.*line 2 has the byte 0xe9",
    ),
    "UTF-16": ({"t.csv": "a,y\nu,0.5\n".encode("utf-16")}, {}, "unreadable", "t.csv.*line 1 .*0xff"),
    "another encoding in a later row": (
        {"t.csv": (csv_of(a=codes(9000), b=[0] * 9000, y=[0.5] * 9000) + "k,caf\xe9,1\n").encode("latin-1")}, {},
        "unreadable", "line 9002 has the byte 0xe9 in column 'b'",
    ),
    "a damaged compressed file": ({"t.csv.gz": gzip.compress(b"a,y\nu,0.5\n" * 9)[:-9]}, {}, "unreadable", "t.csv.gz"),
    "a row with too many values": (
        {"t.csv": lines("a,b,y", "u,1,0.5", "v,2,1.5,9")}, {}, "ragged-row", "row 2 ",
    ),
    "a row with too few values": ({"t.csv": lines("a,b,y", "u,1,0.5", "v,2")}, {}, "ragged-row", "row 2 "),
    "an open quote in a label": (
        {"t.csv": 'a,y\nu,"p\nv,q\nw,p"\nx,q\n'}, {}, "line-break", "row 1 ",
    ),
    "another delimiter": ({"t.csv": lines("a;y", "u;0.5", "v;1.5")}, {}, "unknown-column", "--delimiter"),
    "no header": ({"t.csv": lines("u,1.5,0.5", "v,2.5,1.5")}, {"target": "y"}, "no-header", "--no-header"),
    "another column in the second file": (
        {"1.csv": lines("a,y", "u,0.5"), "2.csv": lines("b,y", "u,0.5")}, {}, "columns-differ", "'a'",
    ),
    "a target with gaps": ({"t.csv": lines("a,y", "u,0.5", "v,", "u,1.5")}, {}, "missing-value", "target.*row 2 "),
    "a target with gaps in Parquet": (
        {"t.parquet": {"a": ["u", "v"], "y": [0.5, None]}}, {}, "missing-value", "target.*row 2 ",
    ),
    "a target that is NaN": (
        {"t.parquet": {"a": ["u", "v"], "y": [0.5, np.nan]}}, {}, "missing-value", "target.*row 2 ",
    ),
    "a weight with gaps": (
        {"t.csv": lines("a,w,y", "u,1,0.5", "v,,1.5")}, {"weight": "w"}, "missing-value", "weight.*row 2 ",
    ),
    "a weight that is text": (
        {"t.csv": lines("a,w,y", "u,1,0.5", "v,much,1.5")}, {"weight": "w"}, "text-column", "'w'.*'much'.*row 2 ",
    ),
    "gaps that are refused": (
        {"t.csv": lines("a,b,y", "u,1,0.5", ",2,1.5")}, {"missing": "error"}, "missing-value", "'a'.*row 2 ",
    ),
    "an infinite number": ({"t.csv": lines("a,b,y", "u,1,0.5", "v,inf,1.5")}, {}, "not-finite", "'b'.*row 2 "),
    "an infinite number in Parquet": (
        {"t.parquet": {"a": ["u", "v"], "b": [1.0, np.inf], "y": [0.5, 1.5]}}, {}, "not-finite", "'b'.*row 2 ",
    ),
    "a category that is no column": (
        {"t.csv": lines("kind,y", "u,0.5", "v,1.5")}, {"categorical": ["kinds"]}, "unknown-column", "'kinds'.*'kind'",
    ),
    "one column, which is the target": ({"t.csv": lines("y", "0.5", "1.5")}, {}, "zero-features", "'y'"),
    "one row": ({"t.csv": lines("a,y", "u,0.5")}, {}, "too-few-rows", "1 rows"),
    "labels of one class": ({"t.csv": lines("a,y", "u,p", "v,p")}, {}, "single-class", "p"),
    "one level in all rows": ({"t.csv": lines("a,y", "u,0.5", "u,1.5")}, {}, "constant-features", "constant"),
    "a target that is a list": ({"t.parquet": {"a": ["u", "v"], "y": [[1], [2]]}}, {}, "bad-target", "'y'"),
    "two targets, one of them text": (
        {"t.csv": lines("a,y,z", "u,0.5,p", "v,1.5,q")}, {"target": ["y", "z"]}, "bad-target", "'z'",
    ),
}  # fmt: skip


def zones(zone: str) -> Any:
    return pa.array([NOON, NOON + timedelta(days=1)], UTC).cast(pa.timestamp("us", zone))


ALLOWED: dict[str, tuple[Files, dict[str, Any], Callable[[Any], Any]]] = {
    "numbers in one file and few texts in another are levels": (
        {"1.csv": csv_of(a=[7, 8], y=[0.5, 1.5]), "2.csv": csv_of(a=["x", 7], y=[0.5, 1.5])}, {},
        lambda data: data.feature_names == ("a=7", "a=8", "a=x"),
    ),
    "levels that are numbers in one file of Parquet and text in another": (
        {"1.parquet": {"a": [7, 8], "y": [0.5, 1.5]}, "2.parquet": {"a": ["x", "7"], "y": [0.5, 1.5]}}, {},
        lambda data: data.feature_names == ("a=7", "a=8", "a=x"),
    ),
    "text of numbers in one file and numbers in another": (
        {"1.parquet": {"a": [7, 8], "y": [0.5, 1.5]}, "2.parquet": {"a": ["9", "7.5"], "y": [0.5, 1.5]}}, {},
        lambda data: data.feature_names == ("a",) and data.X[:].ravel().tolist() == [7, 8, 9, 7.5],
    ),
    "a dictionary in one file and text in another": (
        {"1.parquet": {"a": pa.array(["u", "v"]).dictionary_encode(), "y": [0.5, 1.5]},
         "2.parquet": {"a": ["v", "w"], "y": [0.5, 1.5]}}, {},
        lambda data: data.feature_names == ("a=u", "a=v", "a=w"),
    ),
    "integers in one file and fractions in another": (
        {"1.parquet": {"a": [1, 2], "c": ["u", "v"], "y": [0.5, 1.5]},
         "2.parquet": {"a": [0.5, None], "c": ["u", "v"], "y": [0.5, 1.5]}}, {},
        lambda data: data.feature_names == ("a", "a missing", "c=u", "c=v"),
    ),
    "a column of nulls in one file and text in another": (
        {"1.parquet": {"a": pa.nulls(2), "y": [0.5, 1.5]}, "2.parquet": {"a": ["u", "v"], "y": [0.5, 1.5]}}, {},
        lambda data: data.feature_names == ("a=u", "a=v", "a missing"),
    ),
    "files with other orders of the columns": (
        {"1.csv": lines("a,b,y", "u,1,0.5"), "2.csv": lines("y,b,a", "1.5,2,v")}, {},
        lambda data: data.X[:].tolist() == [[1, 0, 1], [0, 1, 2]],
    ),
    "a part without rows": (
        {"1.csv": lines("a,y", "u,0.5", "v,1.5"), "2.csv": "a,y\n"}, {}, lambda data: data.n_rows == 2,
    ),
    "100,000 levels": (
        {"t.parquet": {"a": codes(100_000) * 2, "y": np.arange(200_000) % 100_000 / 7.0}}, {},
        lambda data: len(data.table_schema.columns[0].levels) == 100_000 and data.feature_names == ("a target",),
    ),
    "100,000 levels without a target": (
        {"t.parquet": {"a": codes(100_000), "b": np.arange(100_000.0)}}, {"no_target": True, "target": None},
        lambda data: data.n_features == 34 and data.feature_names[32] == "a other",
    ),
    "quoted line breaks and delimiters in levels": (
        {"t.csv": 'a,y\n"u\nv",0.5\n"w,x",1.5\n'}, {}, lambda data: data.feature_names == ("a=u\nv", "a=w,x"),
    ),
    "a byte order mark": (
        {"t.csv": b"\xef\xbb\xbfa,y\nu,0.5\nv,1.5\n"}, {}, lambda data: data.feature_names == ("a=u", "a=v"),
    ),
    "blanks around levels": (
        {"t.csv": lines("a,y", "u,0.5", " u ,1.5", "v,2.5")}, {}, lambda data: data.feature_names == ("a=u", "a=v"),
    ),
    "NaN beside NA": (
        {"t.parquet": {"a": [1.0, np.nan, None, 4.0], "y": [0.5, 1.5, 2.5, 3.5]}}, {"missing": "indicator"},
        lambda data: data.X[:].tolist() == [[1, 0], [2.5, 1], [2.5, 1], [4, 0]],
    ),
    "gaps in words": (
        {"t.csv": lines("a,b,y", "u,1,0.5", "NA,?,1.5", ",nan,2.5")}, {},
        lambda data: data.X[1:].tolist() == [[0, 1, 1, 1], [0, 1, 1, 1]],
    ),
    "gaps that are dropped": (
        {"t.csv": lines("a,b,y", "u,1,0.5", "v,,1.5", "w,3,", "v,5,3.5")}, {"missing": "drop"},
        lambda data: data.n_rows == 2 and data.feature_names == ("a=u", "a=v", "b") and data.notes["rows_dropped"] == 2,
    ),
    "gaps that get the mean alone": (
        {"t.csv": lines("a,b,y", "u,1,0.5", "v,,1.5", "u,3,2.5")}, {"missing": "mean"},
        lambda data: data.feature_names == ("a=u", "a=v", "b") and data.X[1, 2] == 2.0,
    ),
    "two time zones": (
        {"1.parquet": {"a": zones("Asia/Tokyo"), "y": [0.5, 1.5]},
         "2.parquet": {"a": zones("America/New_York"), "y": [0.5, 1.5]}}, {},
        lambda data: data.table_schema.columns[0].zone == "Asia/Tokyo" and len(set(data.X[:, 0].tolist())) == 2,
    ),
    "dates, times of the day, durations and decimals": (
        {"t.parquet": {"d": [date(2024, 5, 1), date(2024, 5, 2)], "t": [time(1), time(2)],
                       "s": [timedelta(seconds=1), timedelta(seconds=3)], "p": [Decimal("1.5"), Decimal("2.5")],
                       "y": [0.5, 1.5]}}, {},
        lambda data: data.X[0].tolist() == [19844, 3600, 1, 1.5],
    ),
    "codes that are categories": (
        {"t.csv": csv_of(a=["01", "1", "02"], y=[0.5, 1.5, 2.5])}, {"categorical": ["a"]},
        lambda data: data.feature_names == ("a=01", "a=02", "a=1"),
    ),
    "labels that are text in a later block": (
        {"1.csv": csv_of(a=["u", "v"], y=[1, 2]), "2.csv": csv_of(a=["u", "v"], y=["p", 1])}, {},
        lambda data: data.class_labels.tolist() == ["1", "2", "p"],
    ),
    "targets that are whole in the first block only": (
        {"1.csv": csv_of(a=["u", "v"], y=[1, 2]), "2.csv": csv_of(a=["u", "w"], y=[0.5, 1])}, {},
        lambda data: data.y[:].tolist() == [1.0, 2.0, 0.5, 1.0] and data.feature_names == ("a=u", "a=v", "a=w"),
    ),
    "gaps that are text in a later block, and targets too": (
        {"1.csv": csv_of(a=["u", "v"], b=[1, 2], y=[1, 2]), "2.csv": csv_of(a=["u", "w"], b=["x", ""], y=["p", 1])}, {},
        lambda data: data.feature_names[3:] == ("b=1", "b=2", "b=x", "b missing"),
    ),
    "text as wide as a block": (
        {"t.csv": lines("a,y", "u" * 100_000 + ",0.5", "v,1.5")}, {}, lambda data: data.n_features == 2,
    ),
}  # fmt: skip


def written(folder: Path, files: Files) -> list[Path]:
    for name, content in files.items():
        if isinstance(content, dict):
            pq.write_table(pa.table(content), folder / name)
        else:
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return [folder / name for name in files]


@pytest.mark.parametrize("name", REFUSED)
def test_refused_tables_are_named_and_leave_nothing(name: str, tmp_path: Path) -> None:
    files, options, kind, said = REFUSED[name]
    with pytest.raises(DataError, match=f"(?s){said}") as caught:
        ingest(written(tmp_path, files), tmp_path / "d", **{"target": "y", **options})
    assert caught.value.kind == kind
    assert {path.name for path in tmp_path.iterdir()} == {*files}


@pytest.mark.parametrize("name", ALLOWED)
def test_unusual_tables_follow_a_rule(name: str, tmp_path: Path) -> None:
    files, options, holds = ALLOWED[name]
    ingest(written(tmp_path, files), tmp_path / "d", **{"target": "y", **options})
    assert holds(open_dataset(tmp_path / "d"))


def test_there_are_sixty_tables() -> None:
    assert len(REFUSED) + len(ALLOWED) >= 60


@pytest.mark.parametrize("options", [{"categorical": ["0"]}, {"missing": "indicator"}])
def test_options_of_raw_columns_are_for_files_with_columns(options: dict[str, Any], tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.ones((4, 2)))
    with pytest.raises(JobError, match="no meaning for npy") as caught:
        ingest(tmp_path / "t.npy", tmp_path / "d", target="1", **options)
    assert caught.value.kind == "unused-option"
