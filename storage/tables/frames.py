"""Frames of pandas, polars and pyarrow, and arrays, as Arrow tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distkern.errors import DataError, DataTypeError

from ..arrays.plain import frame_columns, is_missing
from .arrow_columns import ANY_TEXT, Kind, kind_of, text_kind
from .encode import TableEncoding
from .raw_rows import BATCH_ROWS

__all__ = ["array_table", "encoded_table", "frame_table", "needs_encoding"]

_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""Errors of the conversion of objects that Arrow has no type for."""


def frame_table(frame: Any, what: str = "X") -> Any:
    """Return a frame as an Arrow table; columns keep their order, and get their names as text.

    Parameters
    ----------
    frame : frame of pandas, polars or pyarrow
        Rows.
    what : str, default "X"
        Name for messages.

    Raises
    ------
    DataTypeError
        ``mixed-types``: a column holds values of several types.
    DataError
        ``feature-names``: two columns have one name.
    """
    columns = frame_columns(frame)
    assert columns is not None
    names = [str(name) for name, _ in columns]
    return array_table([column for _, column in columns], names, what)


def array_table(columns: Sequence[Any], names: Sequence[str], what: str = "X") -> Any:
    """Return columns in memory as an Arrow table; see `frame_table` for the parameters (what: default "X")."""
    name, count = Counter(names).most_common(1)[0] if names else ("", 1)
    if count > 1:
        raise DataError(
            f"{what} has {count} columns with the name {name!r}: give each column its own name", kind="feature-names"
        )
    return pa.table([_arrow(column, name, what) for column, name in zip(columns, names, strict=True)], names=[*names])


def _arrow(column: Any, name: str, what: str) -> Any:
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column
    if getattr(column, "sparse", None) is not None:
        column = column.sparse.to_dense()
    try:
        return column.to_arrow() if hasattr(column, "to_arrow") else pa.array(column, from_pandas=True)
    except _REFUSED as cause:
        present = [(row, value) for row, value in enumerate(column) if not is_missing(value)]
        first = type(present[0][1]) if present else None
        row, other = next(((row, value) for row, value in present if type(value) is not first), (None, None))
        if row is None:
            raise DataTypeError(
                f"column {name!r} of {what} holds values of the type {getattr(first, '__name__', 'object')} that "
                f"cannot be used ({cause}), and a column must hold numbers, truth values, dates or text: leave it out, "
                "or make such columns of it",
                kind="column-type",
            ) from cause
        raise DataTypeError(
            f"column {name!r} of {what} holds {other!r:.40} ({type(other).__name__}) in row {row} (counted from 0) "
            f"beside values of the type {getattr(first, '__name__', 'object')}: give values of one type",
            kind="mixed-types",
        ) from cause


def needs_encoding(frame: Any) -> bool:
    """Return whether a frame in memory has a column that is neither numbers nor truth values.

    Text that is numbers counts as numbers; a column that Arrow has no type for counts as one of numbers, which it is
    refused as.
    """
    for name, column in frame_columns(frame) or ():
        if getattr(getattr(column, "dtype", None), "kind", "O") in "biufc":
            continue
        try:
            values = _arrow(column, str(name), "X")
            kind = kind_of(str(name), values.type)
        except DataError:
            continue
        if kind.name == ANY_TEXT:
            kind = Kind("number") if values.null_count == len(values) else text_kind(values)
        if kind.name in ("category", "date"):
            return True
    return False


def encoded_table(made: TableEncoding, table: Any, what: str = "X", first: int = 0, within: str = "") -> NDArray[Any]:
    """Return the encoded rows of an Arrow table, shape (n, n_encoded), and warn of what the training did not have.

    Parameters
    ----------
    made : TableEncoding
        Encoding.
    table : pyarrow.Table
        Raw rows.
    what : str, default "X"
        Name for messages.
    first : int, default 0
        Global row of the first row.
    within : str, default ""
        Words for a part of the table that rows are counted in, see `RowCount`.
    """
    out = np.empty((table.num_rows, made.schema.n_encoded))
    done = 0
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        out[done : done + batch.num_rows] = made.encode(batch, first + done, what=what, within=within)
        done += batch.num_rows
    if not table.num_rows:
        made.encode(pa.record_batch([pa.array([], column.type) for column in table.columns], names=table.column_names))
    made.warn(what)
    return out
