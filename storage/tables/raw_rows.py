"""Raw rows of any origin as Arrow batches, and the pass over them that makes a schema.

Text is read as the first of numbers, truth values, dates and levels that all rows allow. The first batch leads to a
guess; where a later row does not agree, one more pass over the text finds the kinds of all columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.text import did_you_mean

from .arrow_columns import ANY_TEXT, TEXT_TYPES, Kind, RowCount, casts, is_text, kind_of, text_kind, text_types, trimmed
from .kept_rows import KeptRows
from .profile import MAX_ONE_HOT, SMOOTHING, ProfiledTable, TableProfile
from .schema import Column

__all__ = ["GUESS_ROWS", "ArrowRows", "RawPiece", "RawRows", "TextChanged", "cast_text", "profile_rows"]

_MOSTLY = {"numbers": r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$", "dates": r"^\d{4}-\d\d-\d\d"}
"""Words for text, and the regular expression of it."""

GUESS_ROWS = 16_384
"""Rows that lead to the first guess."""

BATCH_ROWS = 65_536
"""Rows of a batch of a table in memory."""


class RawPiece(NamedTuple):
    """Some consecutive raw rows."""

    batch: Any
    """pyarrow.RecordBatch."""
    y: NDArray[Any] | None = None
    """Targets, shape (n,) or (n, T), default None."""
    weights: NDArray[np.float64] | None = None
    """Row weights, shape (n,), default None: weights of one."""


class RawRows(Protocol):
    """Raw rows that can be read again.

    Attributes
    ----------
    kinds : dict of str to Kind
        Kinds of the columns, `ANY_TEXT` for text.
    base : int
        Number of the first row in messages.
    """

    kinds: dict[str, Kind]
    base: int

    def read(self, types: Mapping[str, Any]) -> Iterator[RawPiece]:
        """Yield the rows in order.

        Parameters
        ----------
        types : mapping of str to pyarrow.DataType
            Types that columns of text are read as.

        Raises
        ------
        TextChanged
            A value is not of its type.
        """
        ...


class TextChanged(Exception):
    """Text in a later row is not what the first rows were."""


class ArrowRows:
    """Rows of an Arrow table in memory.

    Parameters
    ----------
    table : pyarrow.Table
        Rows.
    y : array, shape (n,) or (n, T), optional
        Targets.
    weights : array, shape (n,), optional
        Row weights.

    Raises
    ------
    DataError
        ``column-type``.
    """

    base = 0

    def __init__(self, table: Any, y: NDArray[Any] | None = None, weights: NDArray[np.float64] | None = None) -> None:
        self.table, self._y, self._weights = table, y, weights
        self.kinds = {field.name: kind_of(field.name, field.type) for field in table.schema}

    def read(self, types: Mapping[str, Any]) -> Iterator[RawPiece]:
        """Yield the rows in order."""
        first = 0
        for batch in self.table.to_batches(max_chunksize=BATCH_ROWS):
            taken = slice(first, first + batch.num_rows)
            first += batch.num_rows
            beside = (None if values is None else values[taken] for values in (self._y, self._weights))
            yield RawPiece(cast_text(batch, types), *beside)


def cast_text(batch: Any, types: Mapping[str, Any]) -> Any:
    """Return a record batch whose text is cast to some types; raises `TextChanged`."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kind = types.get(name)
        if kind is not None and is_text(column.type) and not (pa.types.is_string(kind) or pa.types.is_dictionary(kind)):
            try:
                column = pc.cast(trimmed(column), kind)
            except pa.ArrowInvalid:
                raise TextChanged(name) from None
        columns.append(column)
    return pa.record_batch(columns, names=batch.schema.names)


def profile_rows(
    rows: RawRows,
    *,
    categorical: Sequence[str] = (),
    task: str | None = None,
    max_one_hot: int = MAX_ONE_HOT,
    smoothing: float = SMOOTHING,
    kept: KeptRows | None = None,
) -> ProfiledTable:
    """Make the schema of raw rows, in one pass where the first batch shows what text is read as.

    Parameters
    ----------
    rows : RawRows
        Training rows.
    categorical : sequence of str, default ()
        Columns that are categories whatever their values are.
    task : {"classification", "regression"}, optional
        As for `TableProfile`.
    max_one_hot : int, default 32
        As for `TableProfile`.
    smoothing : float, default 10.0
        As for `TableProfile`.
    kept : KeptRows, optional
        Gets the rows.

    Raises
    ------
    DataError
        ``unknown-column``: `categorical` names no column; ``mixed-column``: most values of a text are numbers, or
        dates, and it has too many levels for a column each; those of `TableProfile`.
    """
    for name in categorical:
        if name not in rows.kinds:
            raise DataError(
                f"there is no column {name!r} to take as a category{did_you_mean(name, rows.kinds)}",
                kind="unknown-column",
            )
    given = {name: Kind("category") if name in categorical else kind for name, kind in rows.kinds.items()}
    text = [name for name, kind in given.items() if kind.name == ANY_TEXT]
    kinds = given | (_guess(rows, text) if text else {})
    try:
        found = _profiled(rows, kinds, task, max_one_hot, smoothing, kept)
    except TextChanged:
        kinds = given | _scan(rows, text)
        found = _profiled(rows, kinds, task, max_one_hot, smoothing, kept)
    for column in found.schema.columns:
        if column.name in text and column.encoding not in (None, "one-hot"):
            _refuse_mixed(rows, column)
    return found


def _refuse_mixed(rows: RawRows, column: Column) -> None:
    """Refuse text of many levels, most of which are numbers or dates: the others are mistakes, or it is a code."""
    levels = pa.array(column.levels, pa.string())
    for words, pattern in _MOSTLY.items():
        if pc.sum(pc.match_substring_regex(levels, pattern)).as_py() * 2 < len(levels):
            continue
        first = 0
        for batch, *_ in rows.read({column.name: pa.string()}):
            text = trimmed(batch.column(column.name))
            other = pc.fill_null(pc.invert(pc.match_substring_regex(text, pattern)), False)
            if pc.any(other).as_py():
                row = pc.index(other, True).as_py()
                raise DataError(
                    f"column {column.name!r} holds the text {text[row].as_py()!r:.60} in "
                    f"{RowCount(first, rows.base).place(row)}, and most of its other values are {words}: correct it, "
                    "empty the cell, leave the column out (--drop), or name the column as a category (--categorical, "
                    "TableEncoder(categorical=...))",
                    kind="mixed-column",
                )
            first += batch.num_rows


def _profiled(
    rows: RawRows,
    kinds: dict[str, Kind],
    task: str | None,
    max_one_hot: int,
    smoothing: float,
    kept: KeptRows | None,
) -> ProfiledTable:
    profile = TableProfile(kinds, task=task, max_one_hot=max_one_hot, smoothing=smoothing)
    text = {name: kinds[name] for name, kind in rows.kinds.items() if kind.name == ANY_TEXT}
    if kept is not None:
        kept.restart()
    for piece in rows.read(text_types(text)):
        values = profile.add(*piece, base=rows.base)
        if kept is not None:
            kept.add(values, piece.y, piece.weights)
    return profile.finish()


def _guess(rows: RawRows, text: list[str]) -> dict[str, Kind]:
    """Return the kinds of the text columns in the first batch."""
    for batch, *_ in rows.read(dict.fromkeys(text, pa.string())):
        if batch.num_rows:
            return {name: text_kind(batch.column(name).slice(0, GUESS_ROWS)) for name in text}
    return dict.fromkeys(text, Kind("category"))


def _scan(rows: RawRows, text: list[str]) -> dict[str, Kind]:
    """Return the kinds of the text columns in all rows."""
    left = {name: list(TEXT_TYPES) for name in text}
    for batch, *_ in rows.read(dict.fromkeys(text, pa.string())):
        for name, types in left.items():
            if types:
                values = trimmed(batch.column(name))
                types[:] = [kind for kind in types if casts(values, kind[2])]
    return {name: Kind(*types[0][:2]) if types else Kind("category") for name, types in left.items()}
