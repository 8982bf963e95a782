"""Columns of Arrow batches as numbers, truth values, times and levels; text stands for what it can be read as.

Covers the kinds of Arrow types and the conversion of one column of one batch to a kind, with errors that name the
column and the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from distkern.errors import DataError

__all__ = [
    "ANY_TEXT",
    "Kind",
    "RowCount",
    "as_instants",
    "as_levels",
    "as_numbers",
    "casts",
    "first_failure",
    "kind_of",
]

MICROSECONDS = 1_000_000
DAY = 86_400 * MICROSECONDS
"""Microseconds of a day."""

ANY_TEXT = "text"
"""Kind of a column of text before it is known what all its values can be read as."""

FIRST_VALUES = 32
"""Values that are cast before all others."""

INSTANT = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")

LEVELS = pa.dictionary(pa.int32(), pa.string())

TEXT_TYPES: tuple[tuple[str, str | None, Any], ...] = (
    ("number", None, pa.float64()),
    ("boolean", None, pa.bool_()),
    ("date", None, LOCAL),
    ("date", "UTC", INSTANT),
)
"""Kinds, time zones and types that text is read as, the first that all values have."""

_SAID = {"number": "numbers", "boolean": "truth values", "date": "dates", "category": "categories"}


@dataclass(frozen=True)
class Kind:
    """Kind of a column: one of `COLUMN_KINDS`, or `ANY_TEXT`."""

    name: str
    zone: str | None = None
    """Time zone of a date, default None: dates without."""

    @property
    def words(self) -> str:
        """The kind in a message."""
        zone = f" of the time zone {self.zone}" if self.zone else " without time zone" if self.name == "date" else ""
        return _SAID.get(self.name, self.name) + zone


@dataclass(frozen=True)
class RowCount:
    """Numbers of the rows of a batch in messages."""

    first: int = 0
    """Row of the table, from 0, that the batch begins with, default 0."""
    base: int = 0
    """Number of the first row of the table in messages, default 0."""
    within: str = ""
    """Words for a part of the table that the rows are counted in, as " in partition 2", default "": the table."""

    def place(self, row: int) -> str:
        """Return the words for a row of the batch."""
        over = self.within or (" over all files" if self.base else "")
        return f"row {self.first + self.base + row} (counted from {self.base}{over})"


def kind_of(name: str, kind: Any, what: str = "the table") -> Kind:
    """Return the kind of a column of an Arrow type.

    Parameters
    ----------
    name : str
        Name of the column, for messages.
    kind : pyarrow.DataType
        Type.
    what : str, default "the table"
        Name of the rows, for messages.

    Raises
    ------
    DataError
        ``column-type``: lists, structures, bytes.
    """
    if pa.types.is_dictionary(kind):
        return Kind("category")
    if is_text(kind):
        return Kind(ANY_TEXT)
    if pa.types.is_boolean(kind):
        return Kind("boolean")
    if _is_number(kind) or pa.types.is_null(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        return Kind("number")
    if pa.types.is_date(kind):
        return Kind("date")
    if pa.types.is_timestamp(kind):
        return Kind("date", kind.tz)
    raise DataError(
        f"column {name!r} of {what} holds values of the type {kind}: a column must hold numbers, truth values, dates "
        "or text; leave it out, or make such columns of it",
        kind="column-type",
    )


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def casts(values: Any, kind: Any) -> bool:
    """Return whether all values of an Arrow array can be cast to a type."""
    try:
        # A cast that fails takes far longer than one that does not: most fail on the first values.
        pc.cast(values.slice(0, FIRST_VALUES), kind)
        pc.cast(values, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def first_failure(values: Any, kind: Any) -> int:
    """Return the first entry of an Arrow array that cannot be cast to a type, where there is one."""
    low, size = 0, len(values)
    while size > 1:
        half = size // 2
        if casts(values.slice(low, half), kind):
            low, size = low + half, size - half
        else:
            size = half
    return low


def trimmed(text: Any) -> Any:
    """Return text without blanks around it, null where nothing is left."""
    text = pc.utf8_trim_whitespace(text if pa.types.is_string(text.type) else pc.cast(text, pa.string()))
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def _flat(column: Any) -> Any:
    """Return one array, not a dictionary."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def text_kind(columns: Any) -> Kind:
    """Return the first kind that all values of text, an array or a chunked array, can be read as."""
    text = trimmed(columns)
    for name, zone, kind in TEXT_TYPES:
        if casts(text, kind):
            return Kind(name, zone)
    return Kind("category")


def text_types(kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """Return the Arrow types that text columns of some kinds are read as."""
    types = {Kind(name, zone): kind for name, zone, kind in TEXT_TYPES}
    return {name: types.get(kind, LEVELS) for name, kind in kinds.items()}


def as_numbers(column: Any, name: str, rows: RowCount, kind: str = "number") -> NDArray[np.float64]:
    """Return a column as float64, NaN where a value is missing.

    Parameters
    ----------
    column : pyarrow.Array
        Numbers, truth values, durations and times of the day in seconds, or text that can be read as such.
    name : str
        Name for messages.
    rows : RowCount
        Rows for messages.
    kind : str, default "number"
        "number" or "boolean", whose values are 0 and 1.

    Raises
    ------
    DataError
        ``type-changed`` or ``not-finite``.
    """
    column = _flat(column)
    wanted = Kind(kind)
    if is_text(column.type):
        column = _read(trimmed(column), pa.bool_() if kind == "boolean" else pa.float64(), name, rows, wanted)
    found = column.type
    if pa.types.is_time(found) or pa.types.is_duration(found):
        unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[found.unit]
        bits = pa.int32() if pa.types.is_time32(found) else pa.int64()
        return np.asarray(column.cast(bits).to_numpy(zero_copy_only=False), dtype=np.float64) / unit
    if not (_is_number(found) or pa.types.is_boolean(found) or pa.types.is_null(found)):
        raise _changed(name, f"values of the type {found}", wanted)
    if pa.types.is_boolean(found):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(found) or pa.types.is_null(found):
        column = column.cast(pa.float64())
    values = np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
    infinite = np.isinf(values)
    if infinite.any():
        raise DataError(
            f"column {name!r} is infinite in {rows.place(int(np.argmax(infinite)))}: every value must be finite or "
            "missing",
            kind="not-finite",
        )
    if kind == "boolean":
        other = ~((values == 0) | (values == 1) | np.isnan(values))
        if other.any():
            row = int(np.argmax(other))
            raise _changed(name, f"{values[row]:g} in {rows.place(row)}", wanted)
    return values


def as_instants(
    column: Any, zone: str | None, name: str, rows: RowCount
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return dates as days since 1970 in universal time, and as local times.

    Parameters
    ----------
    column : pyarrow.Array
        Dates, times with or without a zone, or text that can be read as such.
    zone : str or None
        Time zone of the column; None for dates without.
    name : str
        Name for messages.
    rows : RowCount
        Rows for messages.

    Returns
    -------
    days : array, shape (n,)
        NaN where missing.
    times : array, shape (n,)
        Local times in microseconds since 1970, 0 where missing.

    Raises
    ------
    DataError
        ``type-changed`` or ``not-finite``.
    """
    column = _flat(column)
    wanted = Kind("date", zone)
    if is_text(column.type):
        column = _read(trimmed(column), LOCAL if zone is None else INSTANT, name, rows, wanted)
    elif pa.types.is_null(column.type):
        column = column.cast(LOCAL if zone is None else INSTANT)
    found = column.type
    if not (pa.types.is_date(found) or pa.types.is_timestamp(found)):
        raise _changed(name, f"values of the type {found}", wanted)
    zoned = pa.types.is_timestamp(found) and found.tz is not None
    if zoned != (zone is not None):
        raise _changed(name, Kind("date", found.tz if zoned else None).words, wanted)
    try:
        instants = pc.cast(column, pa.timestamp("us", zone), safe=False)
        local = instants if zone is None else pc.local_timestamp(instants)
    except pa.ArrowException as cause:
        raise DataError(
            f"column {name!r} holds dates that cannot be used: {cause}; leave the column out", kind="not-finite"
        ) from cause
    days = np.asarray(pc.cast(instants, pa.int64()).to_numpy(zero_copy_only=False), dtype=np.float64) / DAY
    times = pc.fill_null(pc.cast(local, pa.int64()), 0)
    return days, np.asarray(times.to_numpy(zero_copy_only=False))


def as_levels(column: Any, name: str) -> tuple[Any, NDArray[np.int64]]:
    """Return the distinct levels of a column, and the number of the level of each row, -1 where it is missing.

    Numbers are levels by their text, whole numbers without a decimal point, so that they equal those of a text file.

    Parameters
    ----------
    column : pyarrow.Array
        Text, a dictionary, or values with a text.
    name : str
        Name for messages.

    Returns
    -------
    levels : pyarrow.Array of text
    codes : array, shape (n,)

    Raises
    ------
    DataError
        ``column-type``.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind_of(name, column.type)
    if not pa.types.is_dictionary(column.type):
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        column = pc.dictionary_encode(column)
    codes = np.asarray(pc.fill_null(pc.cast(column.indices, pa.int64()), -1).to_numpy(zero_copy_only=False))
    values = _level_text(column.dictionary, name)
    unique = pc.dictionary_encode(values)  # trimmed texts may be equal, and null
    mapping = np.asarray(pc.fill_null(pc.cast(unique.indices, pa.int64()), -1).to_numpy(zero_copy_only=False))
    codes = np.append(mapping, -1)[codes]
    # A dictionary may have levels that no row has.
    used = np.flatnonzero(np.bincount(codes + 1, minlength=len(unique.dictionary) + 1)[1:])
    if len(used) == len(unique.dictionary):
        return unique.dictionary, codes
    places = np.full(len(unique.dictionary) + 1, -1)
    places[used] = np.arange(len(used))
    return unique.dictionary.take(pa.array(used)), places[codes]


def _level_text(values: Any, name: str) -> Any:
    kind = values.type
    if pa.types.is_boolean(kind):
        return pc.cast(values, pa.string())
    if pa.types.is_floating(kind):
        numbers = [None if value is None or value != value else value for value in values.to_pylist()]
        texts = [None if n is None else str(int(n)) if n == int(n) else repr(n) for n in numbers]
        return pa.array(texts, pa.string())
    try:
        return trimmed(pc.cast(values, pa.string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as cause:
        raise DataError(
            f"column {name!r} holds values of the type {kind}, which are no levels of a category: leave it out",
            kind="column-type",
        ) from cause


def _read(text: Any, kind: Any, name: str, rows: RowCount, wanted: Kind) -> Any:
    """Return text as values of a type."""
    try:
        return pc.cast(text, kind)
    except pa.ArrowInvalid:
        row = first_failure(text, kind)
        raise _changed(name, f"the text {text[row].as_py()!r:.60} in {rows.place(row)}", wanted) from None


def _changed(name: str, found: str, wanted: Kind) -> DataError:
    return DataError(
        f"column {name!r} holds {found}, and it held {wanted.words} before: give the values of the first rows' type",
        kind="type-changed",
    )
