"""New rows against a schema: one rule, the same messages and the same bits from files and frames of every kind."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import distkern as dk
from distkern.storage import RowFiles
from tests.estimators.base.test_raw_frames import raw, target

Change = Callable[[pd.DataFrame], pd.DataFrame]

TRAINING = raw()
NEW = raw(60, 1)
PARTITION = 20


def polars_frame(table: pd.DataFrame) -> Any:
    return pytest.importorskip("polars", reason="polars is not installed").from_pandas(table)


def dask_frame(table: pd.DataFrame) -> Any:
    return pytest.importorskip("dask.dataframe", reason="dask has no frames").from_pandas(table, chunksize=PARTITION)


FRAMES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda table: table,
    "polars": polars_frame,
    "arrow": lambda table: pa.Table.from_pandas(table, preserve_index=False),
    "dask": dask_frame,
}
FILES: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "csv": lambda table, path: table.to_csv(path, index=False),
    "parquet": lambda table, path: table.to_parquet(path),
}


@pytest.fixture(scope="module")
def encoder() -> Any:
    return dk.TableEncoder().fit(TRAINING, target(TRAINING))


def encoded(encoder: Any, container: str, table: pd.DataFrame, folder: Path) -> Any:
    """The encoded rows of a table in a container, as estimators and commands encode them."""
    if container in FRAMES:
        return np.asarray(encoder.transform(FRAMES[container](table)))
    path = folder / f"rows.{container}"
    FILES[container](table, path)
    schema = encoder.table_schema_
    rows = RowFiles([path], schema.n_encoded, schema.encoded_names, schema=schema)
    return np.concatenate([part for part, _ in rows.pieces()])


@contextmanager
def notes() -> Iterator[list[str]]:
    """Messages of the warnings, without the name of the rows."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    found += [plain(str(warning.message)) for warning in caught if warning.category is dk.TableWarning]


def plain(message: str) -> str:
    """A message without the name of the rows.

    Rows of frames are counted from 0, those of files from 1, and those of dask frames in their partition.
    """

    def from_zero(match: re.Match[str]) -> str:
        return f"row {int(match[1]) - int(match[2]) + PARTITION * int(match[3] or 0)}"

    message = re.sub(r"row (\d+) \(counted from (\d)(?: over all files| in partition (\d))?\)", from_zero, message)
    message = re.split("; the columns are|: give the values", message)[0]
    return re.sub(r"^(X|\S+/rows\.\w+)(?=:| has no)", "ROWS", message)


def with_text(table: pd.DataFrame, name: str, row: int, text: str) -> pd.DataFrame:
    """A column as text, which is read as what it was, but for one row."""
    values = [None if value is pd.NaT or value != value else str(value) for value in table[name]]
    values[row] = text
    return table.assign(**{name: pd.Series(values, table.index, dtype=object)})


ACCEPTED: dict[str, tuple[Change, list[str]]] = {
    "as they are": (lambda table: table, []),
    "another order and more columns": (lambda table: table.assign(more=1)[["more", *table.columns[::-1]]], []),
    "numbers as text": (lambda table: with_text(table, "count", 0, str(table["count"][0])), []),
    "truth values as numbers": (lambda table: table.assign(wet=table["wet"].astype(int)), []),
    "an unknown level": (
        lambda table: table.assign(kind=table["kind"].where(table.index != 40, "yew")),
        ["ROWS: column 'kind' has levels that the training did not have: 'yew'. An unknown level"],
    ),
    "an unknown level of many": (
        lambda table: table.assign(place=table["place"].where(table.index != 40, "nowhere")),
        ["ROWS: column 'place' has levels that the training did not have: 'nowhere'. An unknown level"],
    ),
    "new gaps": (
        lambda table: table.assign(count=table["count"].astype("Int64").where(table.index % 30 > 0)),
        ["ROWS: column 'count' has 2 gaps and had none. An unknown level"],
    ),
}
"""Changes of new rows, and the beginnings of the warnings."""

REFUSED: dict[str, tuple[Change, str, str]] = {
    "a missing column": (
        lambda table: table.drop(columns="kind"),
        "unknown-column",
        "ROWS has no column 'kind', which the model was trained on",
    ),
    "a column of another name": (
        lambda table: table.rename(columns={"place": "places"}),
        "unknown-column",
        "ROWS has no column 'place', which the model was trained on (did you mean 'places'?)",
    ),
    "a number that is text": (
        lambda table: with_text(table, "length", 43, "long"),
        "type-changed",
        "column 'length' holds the text 'long' in row 43, and it held numbers before",
    ),
    "a date that is text": (
        lambda table: with_text(table, "when", 2, "soon"),
        "type-changed",
        "column 'when' holds the text 'soon' in row 2, and it held dates without time zone before",
    ),
    "a truth value of another number": (
        lambda table: table.assign(wet=table["wet"].astype(int).where(table.index != 50, 7)),
        "type-changed",
        "column 'wet' holds 7 in row 50, and it held truth values before",
    ),
}
"""Changes of new rows, the kind of the error and its message."""


def message_in(container: str, expected: str) -> str:
    """Text of a file is not yet numbers where it is refused."""
    return expected.replace("holds 7 in", "holds the text '7' in") if container == "csv" else expected


@pytest.mark.parametrize("container", [*FILES, *FRAMES])
@pytest.mark.parametrize("change", ACCEPTED)
def test_changes_that_are_accepted(container: str, change: str, encoder: Any, tmp_path: Path) -> None:
    apply, beginnings = ACCEPTED[change]
    with notes() as expected:
        wanted = encoded(encoder, "arrow", apply(NEW), tmp_path)
    with notes() as found:
        rows = encoded(encoder, container, apply(NEW), tmp_path)
    assert rows.tobytes() == wanted.tobytes()
    if container == "dask":  # a warning for each partition
        found = [message for message in found if "2 gaps" not in message.replace("1 gap ", "2 gaps ")] or expected
    assert found == expected
    assert [message[: len(start)] for message, start in zip(found, beginnings, strict=True)] == beginnings
    if not beginnings:
        assert rows.tobytes() == encoded(encoder, "pandas", NEW, tmp_path).tobytes()


@pytest.mark.parametrize("container", [*FILES, *FRAMES])
@pytest.mark.parametrize("change", REFUSED)
def test_changes_that_are_refused(container: str, change: str, encoder: Any, tmp_path: Path) -> None:
    apply, kind, message = REFUSED[change]
    with notes(), pytest.raises(dk.DataError) as caught:
        encoded(encoder, container, apply(NEW), tmp_path)
    assert caught.value.kind == kind
    assert plain(str(caught.value)) == message_in(container, message)
