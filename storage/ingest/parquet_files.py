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

__all__ = ["ParquetFiles", "ParquetTable"]


class ParquetFiles:
    """Parquet files whose columns are matched by name.

    Index columns, which pandas and dask note in the files, are no features unless they are asked for by name.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        Files.
    reading : Reading
        Targets, weight, and the columns to leave out or to take.

    Attributes
    ----------
    chosen : ChosenColumns
        Features, targets and weight.
    n_rows : int
        Rows of all files.

    Raises
    ------
    DataError
        ``unreadable``, ``bad-target``, ``text-column`` for weights, ``empty-file``, and those of `choose_columns`.
    """

    def __init__(self, paths: Sequence[Path], reading: Reading) -> None:
        self._schemas, counts = {}, []
        for path in paths:
            try:
                with pq.ParquetFile(path) as file:
                    self._schemas[path] = file.schema_arrow
                    counts.append(file.metadata.num_rows)
            except (pa.ArrowException, OSError, ValueError) as cause:
                raise unreadable(path, cause) from cause
        self._paths = paths = some_rows(paths, counts, "has columns but no rows")
        self.n_rows: int = sum(counts)
        headers = [(path, self._schemas[path].names) for path in paths]
        indexes = {name for path in paths for name in _index_columns(self._schemas[path])}
        self.chosen = choose_columns(headers, reading, indexes)
        for path in paths:
            for name in self.chosen.targets:
                _require_labels(path, name, self._schemas[path].field(name).type, len(self.chosen.targets) > 1)
            if self.chosen.weight is not None:
                _number_type(path, self.chosen.weight, self._schemas[path].field(self.chosen.weight).type)

    def _blocks(self, rows: int) -> Iterator[Any]:
        """Yield record batches of the chosen columns, of `rows` rows or less."""
        for path in self._paths:
            try:
                with pq.ParquetFile(path, page_checksum_verification=True) as file:
                    yield from file.iter_batches(batch_size=rows, columns=list(self.chosen.all()))
            except (pa.ArrowException, OSError) as cause:
                raise unreadable(path, cause) from cause

    def _beside(self, block: Any) -> tuple[Any, Any, Any]:
        """Return targets, where one is missing, and weights of a block; None for what the files do not have."""
        weight = self.chosen.weight
        weights = None if weight is None else _numbers(block.column(weight)).astype(np.float64)
        if not self.chosen.targets:
            return None, None, weights
        targets = [block.column(name) for name in self.chosen.targets]
        targets = [target.dictionary_decode() if pa.types.is_dictionary(target.type) else target for target in targets]
        missing = np.any([pc.is_null(target).to_numpy(zero_copy_only=False) for target in targets], axis=0)
        labels = [_labels(target) for target in targets]
        target = labels[0] if len(labels) == 1 else np.column_stack(labels)
        return target, missing if missing.any() else None, weights


class ParquetTable(ParquetFiles):
    """Rows of Parquet files whose features are numbers or truth values.

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
        ``text-column``, and those of `ParquetFiles`.
    """

    def __init__(self, paths: Sequence[Path], reading: Reading) -> None:
        super().__init__(paths, reading)
        self.names: tuple[str, ...] | None = self.chosen.features
        self.n_features = len(self.chosen.features)
        types = [
            _number_type(path, name, self._schemas[path].field(name).type)
            for path in self._paths
            for name in self.chosen.features
        ]
        self.dtype: np.dtype[Any] = np.result_type(*types)
        if self.dtype.kind == "b":
            self.dtype = np.dtype(np.uint8)
        if self.dtype == np.float16:
            self.dtype = np.dtype(np.float64)

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        for block in self._blocks(max(1, BATCH_BYTES // (8 * self.n_features))):
            yield self._batch(block)

    def _batch(self, block: Any) -> Batch:
        columns = [block.column(name) for name in self.chosen.features]
        has_holes = any(column.null_count for column in columns)
        dtype = np.dtype(np.float64) if has_holes and self.dtype.kind != "f" else self.dtype
        features = np.empty((block.num_rows, self.n_features), dtype=dtype)
        for index, column in enumerate(columns):
            features[:, index] = _numbers(column)
        return Batch(features, *self._beside(block))


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
