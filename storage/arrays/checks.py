"""Checks of rows: numeric dtypes, finite values, equal lengths, valid row weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError

from .plain import column_name, computed, frame_columns, plain_array, require_numbers, stack_columns

__all__ = [
    "check_rows_agree",
    "check_weights",
    "column_name",
    "numeric_dtype",
    "require_extent",
    "require_finite",
    "to_numeric",
]


def numeric_dtype(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    """Return the dtype in which numbers of a given dtype are stored and read; `what` names the data in the message.

    float32, float64 and integers keep their dtype in native byte order, bool becomes uint8, other real floats float64.

    Raises
    ------
    DataError
        ``not-numeric``: the dtype holds no real numbers.
    """
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind in "iuf":
        native = dtype.newbyteorder("=")
        return native if dtype.kind != "f" or native in (np.float32, np.float64) else np.dtype(np.float64)
    if dtype.kind == "c":
        raise DataError(
            f"{what} has dtype {dtype}. Complex data not supported: give real and imaginary parts as columns",
            kind="not-numeric",
        )
    raise DataError(
        f"{what} has dtype {dtype}: only real numbers can be trained on, encode or drop what is not a number",
        kind="not-numeric",
    )


def to_numeric(values: Any, what: str, first_row: int = 0) -> NDArray[Any]:
    """Return an array of the dtype that `numeric_dtype` returns; objects that hold numbers are converted.

    Parameters
    ----------
    values : object
        Numbers in any container that `plain_array` takes.
    what : str
        Name of the data for messages.
    first_row : int, default 0
        Row number of ``values[0]`` in the whole data, from 0.

    Raises
    ------
    DataError
        ``not-numeric``: the values are no real numbers, named by column in a frame, by row and column in an array of
        objects; ``not-finite``: an entry is missing or masked; ``shape-mismatch``: the rows have different lengths.
    """
    values = computed(values, what)  # a lazy frame once, not once for each column
    columns = None if isinstance(values, np.ndarray) else frame_columns(values)
    if columns is None:
        return _numbers(plain_array(values, what, first_row), what, first_row)
    if not columns:
        return np.empty((len(values), 0))
    return stack_columns(
        [_numbers(plain_array(part, what, first_row), what, first_row, f"column {name!r}") for name, part in columns],
        len(values),
    )


def _numbers(array: NDArray[Any], what: str, first_row: int, column: str | None = None) -> NDArray[Any]:
    if array.dtype.kind == "O":
        return require_numbers(array, what, first_row, column)
    return array.astype(numeric_dtype(array.dtype, what if column is None else f"{column} of {what}"), copy=False)


def require_finite(
    values: NDArray[Any], what: str, first_row: int = 0, names: Sequence[str] | None = None, first_column: int = 0
) -> None:
    """Refuse NaN and infinity; the error names row and column of the first.

    Parameters
    ----------
    values : array, shape (n_rows,) or (n_rows, n_columns)
        Numbers; other dtypes pass.
    what : str
        Name of the data for the message.
    first_row : int, default 0
        Row number of ``values[0]`` in the whole data, from 0.
    names : sequence of str, optional
        Column names.
    first_column : int, default 0
        Number of the first column in the whole data, from 0.

    Raises
    ------
    DataError
        ``not-finite``.
    """
    if values.dtype.kind != "f":
        return
    with np.errstate(all="ignore"):
        if math.isfinite(values.sum()):
            return
    bad = ~np.isfinite(values)
    if not bad.any():
        return
    position = np.unravel_index(int(np.argmax(bad)), values.shape)
    place = f"row {first_row + int(position[0])} (counted from 0)"
    if values.ndim > 1:
        place += f", {column_name(first_column + int(position[1]), names)}"
    value = "NaN" if np.isnan(values[position]) else str(values[position])
    raise DataError(
        f"{what} holds {value} in {place}: every value must be finite, so fill it in or leave the "
        f"row out (distkern ingest does either with --missing mean or --missing drop)",
        kind="not-finite",
    )


def check_rows_agree(n_rows: int, n_targets: int, what: str = "y") -> None:
    """Refuse an array, named `what` (default "y"), whose number of rows is not that of X.

    Raises
    ------
    DataError
        ``shape-mismatch``.
    """
    if n_rows != n_targets:
        raise DataError(
            f"X has {n_rows} rows but {what} has {n_targets}: give one entry of {what} for each row of X",
            kind="shape-mismatch",
        )


def require_extent(n_rows: int, n_features: int) -> None:
    """Refuse X without rows or without columns.

    Raises
    ------
    DataError
        ``too-few-rows`` or ``zero-features``.
    """
    if n_rows == 0:
        raise DataError(f"X has 0 rows (and {n_features} features): give the rows to train on", kind="too-few-rows")
    if n_features == 0:
        raise DataError(f"X has 0 features (and {n_rows} rows): give at least one column", kind="zero-features")


def check_weights(weights: Any, n_rows: int, first_row: int = 0) -> NDArray[np.float64]:
    """Return row weights as a contiguous float64 array.

    Parameters
    ----------
    weights : array-like, shape (n_rows,)
        Weights, finite and at least 0.
    n_rows : int
        Number of rows of X.
    first_row : int, default 0
        Row number of ``weights[0]``, from 0.

    Raises
    ------
    DataError
        ``shape-mismatch`` or ``invalid-weights``.
    """
    numeric = to_numeric(weights, "sample_weight", first_row)
    if numeric.ndim != 1:
        raise DataError(
            f"sample_weight has shape {numeric.shape}: it must be one-dimensional, one weight for each row",
            kind="shape-mismatch",
        )
    check_rows_agree(n_rows, len(numeric), "sample_weight")
    result = np.ascontiguousarray(numeric, dtype=np.float64)
    bad = ~((result >= 0.0) & (result < np.inf))
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"sample_weight is {result[row]} in row {first_row + row} (counted from 0): a weight must be "
            f"finite and at least 0",
            kind="invalid-weights",
        )
    return result
