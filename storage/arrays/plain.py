"""The one place where values of any container in memory become a plain numpy array.

Every entry that takes rows, targets or weights calls `plain_array` first. It covers lists, masked arrays, frames, lazy
collections, and dtypes and objects that numpy alone would convert silently. Numbers and labels are checked in `checks`
and `labels`. Stored arrays are read block by block in `storage.datasets`; blocks of dask arrays come here one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError, DataTypeError

from .conventions import decoded
from .lazy import compute_options

__all__ = ["column_name", "computed", "frame_columns", "is_missing", "plain_array", "require_numbers", "stack_columns"]

NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)


def column_name(column: int, names: Sequence[str] | None) -> str:
    """Return the name of a column for messages; its number from 0 where columns have no names."""
    return f"column {names[column]!r}" if names else f"column {column} (counted from 0)"


def is_missing(value: Any) -> bool:
    """Return whether an object stands for a missing value: None, NaN, a masked entry, NA or NaT of pandas."""
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating, np.datetime64, np.timedelta64)) and bool(value != value)


def frame_columns(values: Any) -> list[tuple[Any, Any]] | None:
    """Return the names and columns of a frame of pandas, polars or pyarrow; None for other values."""
    if hasattr(values, "iloc") and getattr(values, "ndim", 0) == 2:
        return [(name, values.iloc[:, place]) for place, name in enumerate(values.columns)]
    if hasattr(values, "get_columns"):
        return [(column.name, column) for column in values.get_columns()]
    if hasattr(values, "column_names") and hasattr(values, "columns"):
        return list(zip(values.column_names, values.columns, strict=True))
    return None


def plain_array(values: Any, what: str, first_row: int = 0, first_column: int = 0) -> NDArray[Any]:
    """Return values as an array of any dtype, without a copy where they are one.

    Parameters
    ----------
    values : object
        Array, list, frame, or lazy collection, which is computed.
    what : str
        Name of the data for messages.
    first_row, first_column : int, default 0
        Numbers of ``values[0]`` and of its first column in the whole data, from 0.

    Raises
    ------
    DataError
        ``not-finite`` for a masked entry; ``shape-mismatch`` for rows of different lengths, or a lazy collection of
        another shape than it declares.
    DataTypeError
        ``invalid-input``: the values are sparse, or no array can be made of them.
    """
    values = computed(values, what)
    if isinstance(values, (list, tuple)) and any(isinstance(part, np.ma.MaskedArray) for part in values):
        _require_no_mask(np.array([part is np.ma.masked for part in values]), what, first_row, first_column)
        values = np.ma.array(values)
    if isinstance(values, np.ma.MaskedArray):
        _require_no_mask(np.ma.getmaskarray(values), what, first_row, first_column)
        values = values.data
    if hasattr(values, "nnz") or hasattr(values, "todense"):
        raise DataTypeError(
            f"{what} is sparse ({type(values).__name__}), but dense arrays are needed: convert it, for example by "
            ".toarray()",
            kind="invalid-input",
        )
    columns = frame_columns(values)
    if columns is not None:
        return stack_columns([plain_array(column, what, first_row) for _, column in columns], len(values))
    return _as_array(values, what)


def computed(values: Any, what: str) -> Any:
    """Return the values of a lazy collection, and the array of an xarray object; others as they are."""
    if any(kind.__name__ == "DataArray" for kind in type(values).__mro__):
        values = values.data
    if not hasattr(values, "__dask_graph__"):
        return values
    if hasattr(values, "map_blocks"):
        values = decoded(values, what)
    declared = getattr(values, "shape", ())
    values = values.compute(**compute_options(values))
    found = getattr(values, "shape", ())
    if len(declared) != len(found) or any(type(a) is int and a != b for a, b in zip(declared, found, strict=True)):
        raise DataError(
            f"{what} is a dask collection that declares the shape {declared}, but its values have the shape {found}: "
            "declare the right shape where it is made",
            kind="shape-mismatch",
        )
    return values


def _require_no_mask(mask: NDArray[Any], what: str, first_row: int, first_column: int) -> None:
    if mask.dtype.names is not None or not mask.any():
        return
    position = np.unravel_index(int(np.argmax(mask)), mask.shape)
    row = first_row + int(position[0]) if position else first_row
    place = f"row {row} (counted from 0)"
    if len(position) > 1:
        place += f", {column_name(first_column + int(position[1]), None)}"
    raise DataError(
        f"{what} is masked in {place}: a masked entry is a missing value, so fill it in or leave the row out",
        kind="not-finite",
    )


def _as_array(values: Any, what: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
        # numpy makes texts of numbers and missing values beside texts.
        if array.dtype.kind in "US" and isinstance(values, (list, tuple)):
            objects = np.asarray(values, dtype=object)
            return array if all(isinstance(value, (str, bytes)) for value in objects.flat) else objects
        return array
    except TypeError:
        return _as_objects(values, what)
    except ValueError as cause:
        lengths = [len(row) if hasattr(row, "__len__") else 0 for row in values] if hasattr(values, "__iter__") else []
        row = next((row for row, length in enumerate(lengths) if length != lengths[0]), None)
        found = "" if row is None else f": row 0 has {lengths[0]} entries, row {row} (counted from 0) {lengths[row]}"
        raise DataError(
            f"{what} is no array{found}; give the same number of entries for each row", kind="shape-mismatch"
        ) from cause


def _as_objects(values: Any, what: str) -> NDArray[Any]:
    """Return an array of objects, of values without a common type such as dates beside numbers."""
    try:
        return np.asarray(values, dtype=object)
    except Exception as cause:  # any object may be here
        raise DataTypeError(
            f"{what} is of type {type(values).__name__}, which is no array: give an array, a list or a frame",
            kind="invalid-input",
        ) from cause


def stack_columns(columns: list[NDArray[Any]], n_rows: int) -> NDArray[Any]:
    """Return columns side by side: numbers in the type that holds all of them, others as objects."""
    numeric = all(column.dtype.kind in "biuf" for column in columns)
    alike = len({column.dtype for column in columns}) == 1
    dtype = np.result_type(*(column.dtype for column in columns)) if columns and (numeric or alike) else np.dtype("O")
    stacked = np.empty((n_rows, len(columns)), dtype=dtype)
    for place, column in enumerate(columns):
        stacked[:, place] = column
    return stacked


def require_numbers(values: NDArray[Any], what: str, first_row: int = 0, column: str | None = None) -> NDArray[Any]:
    """Return objects, or texts, as an array of float64.

    Parameters
    ----------
    values : array of objects or texts, shape (n_rows,) or (n_rows, n_columns)
        Numbers, and texts that are numbers.
    what : str
        Name of the data for messages.
    first_row : int, default 0
        Row number of ``values[0]``, from 0.
    column : str, optional
        Name of the column that all values belong to, for messages.

    Raises
    ------
    DataError
        ``not-finite``: an entry is missing.
    DataTypeError
        ``not-numeric``: an entry is no real number.
    """
    flat = values.ravel().tolist()
    kinds = set(map(type, flat))
    # numpy counts durations among the integers.
    if np.timedelta64 in kinds or not all(issubclass(kind, NUMBERS) for kind in kinds):
        flat = [_number(value, values, index, what, first_row, column) for index, value in enumerate(flat)]
    try:
        return np.array(flat, dtype=np.float64).reshape(values.shape)
    except OverflowError:
        index = next(index for index, value in enumerate(flat) if not abs(value) < np.finfo(np.float64).max)
        raise DataError(
            f"{what} holds a number beyond float64 in {_place(values, index, first_row, column)}: scale it",
            kind="not-finite",
        ) from None


def _number(
    value: Any, values: NDArray[Any], index: int, what: str, first_row: int, column: str | None
) -> float | np.floating[Any]:
    """Return entry `index` of `values` as a number."""
    missing = is_missing(value)
    if not missing and not isinstance(value, (np.datetime64, np.timedelta64, np.ndarray)):
        with suppress(Exception):  # any object may be here
            return float(value)
    place = _place(values, index, first_row, column)
    if missing:
        name = "NaN" if isinstance(value, float | np.floating) else f"{value}, a missing value,"
        raise DataError(
            f"{what} holds {name} in {place}: every value must be finite, so fill it in or leave the row out",
            kind="not-finite",
        )
    shown = f"{value!r:.60}" if isinstance(value, str | bytes) else f"{value!s:.60} ({type(value).__name__})"
    raise DataTypeError(
        f"{what} holds {shown} in {place}: an entry of this argument must be a number or a string of a number, so "
        "encode or drop what is not a number",
        kind="not-numeric",
    )


def _place(values: NDArray[Any], index: int, first_row: int, column: str | None) -> str:
    position = np.unravel_index(index, values.shape)
    place = f"row {first_row + int(position[0]) if position else first_row} (counted from 0)"
    if column is not None:
        return f"{place}, {column}"
    return f"{place}, {column_name(int(position[1]), None)}" if len(position) > 1 else place
