"""Parquet files, read by pyarrow in batches of rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distkern.errors import DataError

from .table import BATCH_BYTES, Batch, Reading, choose_columns, some_rows, unreadable

__all__ = ["ParquetTable"]


class ParquetTable:
    """Rows of Parquet files; columns are matched by name.

    Index columns, which pandas and dask note in the files, are no features unless they are asked for by name.

    Features keep float32 or an integer type where all columns of all files share one, else become float64.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        Files.
    reading : Reading
        Targets, weight, and the columns to leave out or to take.

    Raises
    ------
    DataError
        ``unreadable``, ``text-column``, ``bad-target``, ``empty-file``, and those of `choose_columns`.
    """

    def __init__(self, paths: Sequence[Path], reading: Reading) -> None:
        schemas, counts = {}, []
        for path in paths:
            try:
                with pq.ParquetFile(path) as file:
                    schemas[path] = file.schema_arrow
                    counts.append(file.metadata.num_rows)
            except (pa.ArrowException, OSError, ValueError) as cause:
                raise unreadable(path, cause) from cause
        self._paths = paths = some_rows(paths, counts, "has columns but no rows")
        self.n_rows = sum(counts)
        headers = [(path, schemas[path].names) for path in paths]
        indexes = {name for path in paths for name in _index_columns(schemas[path])}
        self._columns = columns = choose_columns(headers, reading, indexes)
        self.names: tuple[str, ...] | None = columns.features
        self.n_features = len(columns.features)
        types = [
            _number_type(path, name, schemas[path].field(name).type) for path in paths for name in columns.features
        ]
        for path in paths:
            for name in columns.targets:
                _require_labels(path, name, schemas[path].field(name).type, len(columns.targets) > 1)
            if columns.weight is not None:
                _number_type(path, columns.weight, schemas[path].field(columns.weight).type)
        self.dtype: np.dtype[Any] = np.result_type(*types)
        if self.dtype.kind == "b":
            self.dtype = np.dtype(np.uint8)
        if self.dtype == np.float16:
            self.dtype = np.dtype(np.float64)

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        rows = max(1, BATCH_BYTES // (8 * self.n_features))
        for path in self._paths:
            try:
                with pq.ParquetFile(path, page_checksum_verification=True) as file:
                    for block in file.iter_batches(batch_size=rows, columns=list(self._columns.all())):
                        yield self._batch(block)
            except (pa.ArrowException, OSError) as cause:
                raise unreadable(path, cause) from cause

    def _batch(self, block: Any) -> Batch:
        columns = [block.column(name) for name in self._columns.features]
        has_holes = any(column.null_count for column in columns)
        dtype = np.dtype(np.float64) if has_holes and self.dtype.kind != "f" else self.dtype
        features = np.empty((block.num_rows, self.n_features), dtype=dtype)
        for index, column in enumerate(columns):
            features[:, index] = _numbers(column)
        weight = self._columns.weight
        weights = None if weight is None else _numbers(block.column(weight)).astype(np.float64)
        if not self._columns.targets:
            return Batch(features, None, weights=weights)
        targets = [block.column(name) for name in self._columns.targets]
        targets = [target.dictionary_decode() if pa.types.is_dictionary(target.type) else target for target in targets]
        missing = np.any([pc.is_null(target).to_numpy(zero_copy_only=False) for target in targets], axis=0)
        labels = [_labels(target) for target in targets]
        return Batch(
            features,
            labels[0] if len(labels) == 1 else np.column_stack(labels),
            missing if missing.any() else None,
            weights,
        )


def _index_columns(schema: Any) -> set[str]:
    """Return the columns that pandas or dask wrote as an index."""
    found = {name for name in schema.names if name.startswith("__index_level_") or name == "__null_dask_index__"}
    try:
        noted = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))["index_columns"]
        return found | {name for name in noted if isinstance(name, str)}
    except (ValueError, KeyError, TypeError, RecursionError):
        return found


def _number_type(path: Path, name: str, kind: Any) -> np.dtype[Any]:
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return np.dtype(np.float64)
    raise DataError(
        f"column {name!r} of {path} holds {kind} values, but features must be numbers: leave the column out "
        f"with --drop {name}, or encode it as numbers",
        kind="text-column",
    )


def _require_labels(path: Path, name: str, kind: Any, several: bool) -> None:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if several and not (pa.types.is_floating(value) or pa.types.is_integer(value) or pa.types.is_decimal(value)):
        raise DataError(
            f"the target {name!r} of {path} holds {kind} values: several targets must be numbers",
            kind="bad-target",
        )
    if pa.types.is_nested(value) or pa.types.is_binary(value) or pa.types.is_large_binary(value):
        raise DataError(
            f"the target {name!r} of {path} holds {kind} values, which are neither numbers nor labels: choose "
            "another --target, or write it as text or numbers",
            kind="bad-target",
        )


def _numbers(column: Any) -> NDArray[Any]:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(column.type) or pa.types.is_null(column.type):
        column = column.cast(pa.float64())
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _labels(target: Any) -> NDArray[Any]:
    kind = target.type
    if pa.types.is_decimal(kind):
        target = target.cast(pa.float64())
    elif pa.types.is_null(kind):
        return np.zeros(len(target))
    elif not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return np.asarray(pc.fill_null(target.cast(pa.string()), "").to_numpy(zero_copy_only=False)).astype(str)
    filler = False if pa.types.is_boolean(kind) else 0
    return np.asarray(pc.fill_null(target, filler).to_numpy(zero_copy_only=False))
