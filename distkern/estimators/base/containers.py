"""Rows in the containers of other libraries: xarray Datasets and DataArrays, dask DataFrames and Series.

They are converted to numpy, zarr or dask arrays without a read. xarray types are recognised by their names, without an
import of xarray.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from distkern.scheduler import frame_array, is_dask_array, series_array
from distkern.scheduler.prediction.dask_blocks import checked_blocks
from distkern.storage import Dataset, is_dask_frame, is_dask_series, names_of, numeric_dtype

from ...errors import DataError


@dataclass(frozen=True)
class OpenedRows:
    """Rows of features as an array, and the conversion of results to the container of the rows."""

    X: Any
    """numpy, zarr or dask array, Dataset, or another container that scikit-learn takes."""
    names: list[str] | None = None
    """Names of the columns, where all are texts and scikit-learn does not find them in `X`; default None."""
    wrap: Callable[[Any], Any] = lambda values: values
    """Function that converts values with a row for each row of `X` to the container of the rows; none by default."""

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Suppress scikit-learn's warning of missing column names, where the names were compared already."""
        with warnings.catch_warnings():
            if self.names is not None:
                warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
            yield


def open_rows(X: Any, lengths: Sequence[int] | None = None, *, finite: bool = True) -> OpenedRows:
    """Open rows of features.

    Parameters
    ----------
    X : object
        Rows in any container.
    lengths : sequence of int, optional
        Number of rows of each partition of a dask DataFrame; unknown by default.
    finite : bool, default True
        Whether blocks of dask arrays refuse NaN; a training does so when it reads a block.

    Raises
    ------
    DataError
        ``shape-mismatch``, ``not-numeric``, or ``no-variable`` for an xarray Dataset without X.
    """
    if is_xarray(X, "Dataset"):
        X = variable(X, "X")
    if is_xarray(X, "DataArray"):
        if X.ndim != 2:
            raise DataError(
                f"X is a DataArray with the dimensions {X.dims}: it must have two, rows and features",
                kind="shape-mismatch",
            )
        array = _checked(_data(X), "X", finite=finite)
        return OpenedRows(array, names_of(X), lambda values: _wrapped(X, values))
    if is_dask_frame(X):
        array = frame_array(X, "X", lengths)
        return OpenedRows(_checked(array, "X", finite=finite), names_of(X))
    return OpenedRows(_checked(X, "X", finite=finite), names_of(X) if isinstance(X, Dataset) else None)


def open_column(values: Any, what: str, lengths: Sequence[int] | None) -> Any:
    """Open targets or weights, named `what` in messages.

    `lengths` are the numbers of rows of the partitions of a dask Series or DataFrame.
    """
    if is_xarray(values, "DataArray"):
        values = _data(values)
    elif is_dask_series(values):
        values = series_array(values, lengths)
    elif is_dask_frame(values):
        values = frame_array(values, what, lengths)
    return _checked(values, what)


def _checked(values: Any, what: str, *, finite: bool = False) -> Any:
    if not is_dask_array(values):
        return values
    if what == "X":
        numeric_dtype(np.dtype(values.dtype), what)
    return checked_blocks(values, what, finite=finite)


def targets_with(X: Any, y: Any) -> Any:
    """Return y, or the variable y of an xarray Dataset.

    Raises
    ------
    DataError
        ``target``: both are given; ``no-variable``: neither is.
    """
    if not is_xarray(X, "Dataset"):
        return y
    if y is None:
        return variable(X, "y")
    if "y" in X.data_vars:
        raise DataError(
            "y is given, but X is an xarray Dataset with a variable y: leave y out, or give its X alone", kind="target"
        )
    return y


def require_same_rows(X: Any, values: Any, name: str) -> None:
    """Refuse xarray targets or weights whose rows are not those of X in its order; other containers pass.

    `name` is the name of `values` in messages.

    Raises
    ------
    DataError
        ``row-labels``: the first dimension or the row labels of X and of `values` differ.
    """
    if is_xarray(X, "Dataset"):
        X = variable(X, "X")
    if not (is_xarray(X, "DataArray") and is_xarray(values, "DataArray")) or X.ndim != 2 or values.ndim == 0:
        return
    rows, ours = X.dims[0], values.dims[0]
    if rows != ours:
        raise DataError(
            f"X has the dimensions {X.dims} and {name} {values.dims}: rows come first and have one name, "
            "so transpose or rename one of them",
            kind="row-labels",
        )
    labels, theirs = X.indexes.get(rows), values.indexes.get(rows)
    if labels is None or theirs is None or len(labels) != len(theirs) or labels.equals(theirs):
        return
    row = next((i for i, pair in enumerate(zip(labels, theirs, strict=True)) if pair[0] != pair[1]), None)
    if row is None:
        return
    raise DataError(
        f"X and {name} have other labels along {rows!r}: row {row} (counted from 0) is {labels[row]} in X and "
        f"{theirs[row]} in {name}; xarray.align brings them together",
        kind="row-labels",
    )


def is_xarray(value: Any, name: str) -> bool:
    """Return whether `value` is of the xarray type of a name."""
    return any(kind.__name__ == name and kind.__module__.split(".")[0] == "xarray" for kind in type(value).__mro__)


def variable(dataset: Any, name: str) -> Any:
    """Return a variable of an xarray Dataset; `DataError` ``no-variable`` without it."""
    if name not in dataset.data_vars:
        found = ", ".join(str(known) for known in dataset.data_vars) or "none"
        raise DataError(
            f"the xarray Dataset has no variable {name} (it has {found}): rename one, or give DataArrays as X and y",
            kind="no-variable",
        )
    return dataset[name]


def _data(array: Any) -> Any:
    """Return the array of a DataArray: its own in memory or in dask, else a dask array, which is loaded in parts."""
    if array.chunks is None and not getattr(array.variable, "_in_memory", True):
        rows = array.dims[0]
        preferred = array.encoding.get("preferred_chunks") or {}
        array = array.chunk({rows: preferred.get(rows, "auto"), **dict.fromkeys(array.dims[1:], -1)})
    return array.data if is_dask_array(array.data) else np.asarray(array.data)


def _wrapped(array: Any, values: Any) -> Any:
    """Return a DataArray of values with the rows of another one."""
    rows, features = array.dims
    kept = array.isel({features: 0}, drop=True)
    dims = (rows, "output", "bound")[: values.ndim]
    return type(array)(values, coords=kept.coords, dims=dims)
