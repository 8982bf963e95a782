"""dask DataFrames and Series as rows: numeric columns in their order, partition by partition.

The lengths of partitions are unknown before they are computed. A training computes the lengths of one column first; a
prediction needs none. Nothing here imports dask.dataframe: a process with a frame has already imported it. The arrays
are read by `dask_arrays`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.redaction import displayed_cause, redact
from distkern.storage.arrays.lazy import compute_options, is_dask_frame, is_dask_series, partitions


def partition_lengths(**values: Any) -> dict[str, list[int] | None]:
    """Compute the numbers of rows of the partitions of frames and Series, in one call; None for other values.

    Raises
    ------
    DataError
        ``not-numeric``, as for `frame_array`, before anything is computed; ``unreadable``.
    """
    lengths: dict[str, list[int] | None] = dict.fromkeys(values)
    frames = {name: value for name, value in values.items() if is_dask_frame(value) or is_dask_series(value)}
    if not frames:
        return lengths
    import dask

    for name, value in frames.items():
        if is_dask_frame(value):
            _common_dtype(value, name)
    parts = {name: partitions(value) for name, value in frames.items()}
    sizes = [dask.delayed(len)(part) for name in parts for part in parts[name]]
    options = compute_options(*sizes)
    try:
        found = iter(dask.compute(*sizes, **options))
    except (ArithmeticError, LookupError, TypeError, ValueError) as cause:
        raise DataError(
            f"{' and '.join(frames)} cannot be computed: {type(cause).__name__}: {redact(str(cause))}",
            kind="unreadable",
        ) from displayed_cause(cause)
    return lengths | {name: [int(next(found)) for _ in parts[name]] for name in parts}


def frame_array(frame: Any, what: str, lengths: Sequence[int] | None = None) -> Any:
    """Return a DataFrame as a lazy matrix; its partitions become row chunks.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        Columns of numbers and bools; missing values become NaN.
    what : str
        Name for messages.
    lengths : sequence of int, optional
        Number of rows of each partition; without it the chunks have unknown sizes.

    Returns
    -------
    dask.array.Array, shape (n_rows, n_columns)

    Raises
    ------
    DataError
        ``not-numeric``, with the name of the first column without numbers.
    """
    dtype = _common_dtype(frame, what)
    convert = partial(numbers_of, what=what, names=list(frame.columns))
    return _array(frame, convert, dtype, (len(frame.columns),), lengths)


def series_array(series: Any, lengths: Sequence[int]) -> Any:
    """Return a Series of numbers or labels as a lazy array; its partitions become chunks.

    Parameters
    ----------
    series : dask.dataframe.Series
        Numbers, or labels of any type.
    lengths : sequence of int
        Number of rows of each partition.

    Returns
    -------
    dask.array.Array, shape (n_rows,)
    """
    dtype = series.dtype if isinstance(series.dtype, np.dtype) else np.dtype(object)
    return _array(series, np.asarray, dtype, (), lengths)


def numbers_of(part: Any, what: str, names: list[Any]) -> NDArray[Any]:
    """Return the numbers of a partition, shape (n, d); refuse other columns than the `names` of the frame."""
    found = list(getattr(part, "columns", ()))
    if found != names:
        raise DataError(
            f"a partition of {what}, a dask frame, has the columns {found}, but the frame declares {names}: give the "
            "right meta where it is made, for example to map_partitions",
            kind="shape-mismatch",
        )
    dtype = _common_dtype(part, what)
    if dtype.kind == "f":
        return np.ascontiguousarray(part.to_numpy(dtype=dtype, na_value=np.nan))
    return np.ascontiguousarray(part.to_numpy(dtype=dtype))


def _array(frame: Any, convert: Any, dtype: np.dtype[Any], tail: tuple[int, ...], lengths: Sequence[int] | None) -> Any:
    import dask
    import dask.array as da

    parts = partitions(frame)
    pieces = [
        da.from_delayed(dask.delayed(convert)(part), shape=(length, *tail), dtype=dtype)
        for part, length in zip(parts, [float("nan")] * len(parts) if lengths is None else lengths, strict=True)
        if length != 0
    ]
    return da.concatenate(pieces) if pieces else da.empty((0, *tail), dtype=dtype)


def _common_dtype(frame: Any, what: str) -> np.dtype[Any]:
    """Return the dtype that holds all columns; float64 where a value may be missing."""
    if not len(frame.columns):
        raise DataError(f"{what} has no columns: give at least one", kind="zero-features")
    kinds: list[np.dtype[Any]] = []
    for name, dtype in frame.dtypes.items():
        kind = getattr(dtype, "kind", "O")
        if kind not in "biuf":
            raise DataError(
                f"column {name!r} of {what} has dtype {dtype}: only real numbers can be trained on, encode or drop "
                "what is not a number",
                kind="not-numeric",
            )
        if not isinstance(dtype, np.dtype):
            kinds.append(np.dtype(np.float64))
        else:
            kinds.append(np.dtype(np.uint8) if kind == "b" else dtype)
    return np.result_type(*kinds)
