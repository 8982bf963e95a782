"""Dataset stores of rows in memory, zarr arrays and dask frames."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from distkern.errors import DataError, JobError

from ..arrays.checks import check_rows_agree, check_weights, to_numeric
from ..arrays.chunks import read_slab
from ..arrays.column_names import names_of, require_names
from ..arrays.labels import as_targets, plain_labels
from ..arrays.lazy import computed_partition, is_dask_frame, partitions
from ..arrays.plain import frame_columns
from ..io.trust import trusted
from ..tables.schema import TableSchema
from .dataset import Dataset, open_dataset
from .writer import DatasetWriter

__all__ = ["write_dataset"]


def write_dataset(
    path: str | os.PathLike[str],
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    chunk_rows: int | None = None,
    task: str | None = None,
    feature_names: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Dataset:
    """Write a dataset store.

    Parameters
    ----------
    path : path-like
        Local path or URL of the store, which appears only when it is complete.
    X : array-like, dask frame or zarr.Array, shape (n_rows, n_features)
        Finite numbers. float32, float64 and integers keep their dtype, bool becomes uint8, other numbers float64. A
        zarr array is read a chunk at a time, and a dask frame a partition at a time; the names of a frame's columns
        are kept. A frame whose columns are not all numbers is encoded as by `TableEncoder`, and the store keeps its
        schema.
    y : array-like or zarr.Array, shape (n_rows,) or (n_rows, n_targets), optional
        Labels or numbers; a store of rows to predict has none.
    sample_weight : array-like or zarr.Array, shape (n_rows,), optional
        Row weights, which trainings on the store use.
    chunk_rows, task, feature_names : optional
        As for `DatasetWriter`.
    overwrite : bool, default False
        Whether to replace a dataset at `path`.

    Returns
    -------
    Dataset
        The store, opened.

    Raises
    ------
    DataError, JobError
        As for `DatasetWriter`.
    """
    names = names_of(X)
    settings: dict[str, Any] = {"chunk_rows": chunk_rows, "task": task, "overwrite": overwrite}
    if is_dask_frame(X):
        _write_partitions(path, X, y, sample_weight, feature_names, settings)
        return open_dataset(path)
    schema = None
    if frame_columns(X) is not None:
        X, schema = _encoded(X, y, sample_weight, task)
    if schema is not None:
        _require_own_names(feature_names)
        names = schema.encoded_names
    if feature_names is not None:
        feature_names = [str(name) for name in feature_names]
        require_names(names, feature_names, "X", "feature_names")
    X = trusted(X, "X") if isinstance(X, zarr.Array) else to_numeric(X, "X")
    if y is not None:
        y = trusted(y, "y") if isinstance(y, zarr.Array) else as_targets(y)
    if sample_weight is not None:
        sample_weight = (
            trusted(sample_weight, "sample_weight")
            if isinstance(sample_weight, zarr.Array)
            else to_numeric(sample_weight, "sample_weight")
        )
    if X.ndim != 2:
        raise DataError(f"X has shape {X.shape}: it must have two dimensions, rows and features", kind="shape-mismatch")
    for values, name in ((y, "y"), (sample_weight, "sample_weight")):
        if values is not None:
            check_rows_agree(X.shape[0], values.shape[0] if values.ndim else 0, name)
    with DatasetWriter(
        path,
        n_rows=X.shape[0],
        feature_names=names if feature_names is None else feature_names,
        table_schema=schema,
        **settings,
    ) as writer:
        step = X.chunks[0] if isinstance(X, zarr.Array) else max(1, X.shape[0])
        for start in range(0, X.shape[0], step):
            stop = min(start + step, X.shape[0])
            parts = (("X", X), ("y", y), ("sample_weight", sample_weight))
            writer.append(*(None if values is None else _rows(values, start, stop, what) for what, values in parts))
    return open_dataset(path)


def _require_own_names(feature_names: Any) -> None:
    if feature_names is not None:
        raise JobError(
            "feature_names is given, but the columns of a raw frame are encoded, and named by its own columns: "
            "leave it out, or rename the columns of the frame",
            kind="feature-names",
        )


def _targets_of(task: str | None) -> Callable[[Any, int], NDArray[Any]]:
    """Return the conversion of targets, given these and the number of their first row, for statistics of levels."""

    def convert(values: Any, first: int) -> NDArray[Any]:
        values = as_targets(values, first)
        return to_numeric(values, "y", first) if task == "regression" else plain_labels(values, first)

    return convert


def _weights_of(values: Any, first: int) -> NDArray[np.float64]:
    return check_weights(values, len(values), first)


def _encoded(frame: Any, y: Any, sample_weight: Any, task: str | None) -> tuple[Any, TableSchema | None]:
    """Encode a frame whose columns are not all numbers; return the rows and the schema, None for numbers."""
    # Every worker imports this room, so pyarrow is loaded only where it is used.
    from ..tables.encode import TableEncoding
    from ..tables.frames import encoded_table, frame_table, needs_encoding
    from ..tables.raw_rows import ArrowRows, profile_rows

    if not needs_encoding(frame):
        return frame, None
    table = frame_table(frame)
    beside: list[NDArray[Any] | None] = []
    for values, what, convert in ((y, "y", _targets_of(task)), (sample_weight, "sample_weight", _weights_of)):
        if values is not None:
            values = read_slab(values, 0, values.shape[0], what) if isinstance(values, zarr.Array) else values
            values = convert(values, 0)
            check_rows_agree(table.num_rows, values.shape[0] if values.ndim else 0, what)
        beside.append(values)
    found = profile_rows(ArrowRows(table, *beside), task=task)
    return encoded_table(TableEncoding(found.schema, found.out_of_fold), table), found.schema


def _write_partitions(
    path: str | os.PathLike[str],
    frame: Any,
    y: Any,
    sample_weight: Any,
    feature_names: Sequence[str] | None,
    settings: dict[str, Any],
) -> None:
    """Write a dask frame, one partition in memory at a time; see `write_dataset`."""
    from ..tables.encode import TableEncoding
    from ..tables.partitions import PartitionRows, RowColumn, aligned
    from ..tables.raw_rows import profile_rows

    beside = (
        None if y is None else RowColumn(y, "y", _targets_of(settings["task"])),
        None if sample_weight is None else RowColumn(sample_weight, "sample_weight", _weights_of),
    )
    if all(getattr(dtype, "kind", "O") in "biufcm" for dtype in frame.dtypes):
        numbers = (to_numeric(computed_partition(part, "X"), "X") for part in partitions(frame))
        names = names_of(frame)
        if feature_names is not None:
            require_names(names, [str(name) for name in feature_names], "X", "feature_names")
        # The rows of a frame are counted only by computing it.
        lengths = (getattr(values, "shape", None) or (None,) for values in (y, sample_weight))
        n_rows = next((shape[0] for shape in lengths if isinstance(shape[0], int)), None)
        with DatasetWriter(path, n_rows=n_rows, feature_names=feature_names or names, **settings) as writer:
            for rows, *values in aligned(numbers, *beside):
                writer.append(rows, *values)
        return
    _require_own_names(feature_names)
    table = PartitionRows(frame, *beside)
    found = profile_rows(table, task=settings["task"])
    made = TableEncoding(found.schema, found.out_of_fold)
    with DatasetWriter(
        path, n_rows=found.n_rows, feature_names=found.schema.encoded_names, table_schema=found.schema, **settings
    ) as writer:
        for batch, *values in table.read({}):
            writer.append(made.encode(batch, writer.rows_written, what="X"), *values)


def _rows(values: Any, start: int, stop: int, what: str) -> NDArray[Any]:
    if isinstance(values, zarr.Array):
        return read_slab(values, start, stop, what)
    return np.asarray(values[start:stop])
