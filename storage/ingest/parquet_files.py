"""Parquet files, read by pyarrow in batches of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distkern.errors import DataError

from .table import BATCH_BYTES, Batch, choose_columns, unreadable

__all__ = ["ParquetTable"]


class ParquetTable:
    """Rows of Parquet files; columns are matched by name, and the index column of pandas is left out.

    Features keep float32 or an integer type where all columns of all files share one, else become float64.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        Files.
    target : str or None
        Name of the target column.
    drop : sequence of str
        Columns to leave out.

    Raises
    ------
    DataError
        ``unreadable``, ``text-column``, ``bad-target``, ``empty-file``, and those of `choose_columns`.
    """

    def __init__(self, paths: Sequence[Path], target: str | None, drop: Sequence[str]) -> None:
        self._paths = paths
        headers, schemas = [], []
        self.n_rows = 0
        for path in paths:
            try:
                with pq.ParquetFile(path) as file:
                    schema, rows = file.schema_arrow, file.metadata.num_rows
            except (pa.ArrowException, OSError, ValueError) as cause:
                raise unreadable(path, cause) from cause
            if rows == 0:
                raise DataError(f"{path} has columns but no rows", kind="empty-file")
            self.n_rows += rows
            schemas.append(schema)
            headers.append((path, [name for name in schema.names if not name.startswith("__index_level_")]))
        columns = choose_columns(headers, target, drop)
        self._features, self._target = columns.features, columns.target
        self.names: tuple[str, ...] | None = columns.features
        self.n_features = len(columns.features)
        types = [
            _number_type(path, name, schema.field(name).type)
            for path, schema in zip(paths, schemas, strict=True)
            for name in columns.features
        ]
        for path, schema in zip(paths, schemas, strict=True):
            _require_labels(path, columns.target, schema.field(columns.target).type)
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
                    wanted = [*self._features, self._target]
                    for block in file.iter_batches(batch_size=rows, columns=wanted):
                        yield self._batch(block)
            except (pa.ArrowException, OSError) as cause:
                raise unreadable(path, cause) from cause

    def _batch(self, block: Any) -> Batch:
        columns = [block.column(name) for name in self._features]
        has_holes = any(column.null_count for column in columns)
        dtype = np.dtype(np.float64) if has_holes and self.dtype.kind != "f" else self.dtype
        features = np.empty((block.num_rows, self.n_features), dtype=dtype)
        for index, column in enumerate(columns):
            features[:, index] = _numbers(column)
        target = block.column(self._target)
        if pa.types.is_dictionary(target.type):
            target = target.dictionary_decode()
        missing = pc.is_null(target).to_numpy(zero_copy_only=False)
        return Batch(features, _labels(target), missing if missing.any() else None)


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


def _require_labels(path: Path, name: str, kind: Any) -> None:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
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
