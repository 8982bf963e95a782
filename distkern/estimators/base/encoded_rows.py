"""Encoded rows of a table, which keep the scales of their columns; frames whose columns are not all numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler import partition_lengths
from distkern.storage import (
    Dataset,
    as_targets,
    check_rows_agree,
    check_weights,
    frame_columns,
    in_memory,
    is_dask_frame,
    names_of,
    plain_labels,
    to_numeric,
)

from ...arrays import Array
from ...errors import DataError
from .containers import OpenedRows, open_column, open_rows


class EncodedRows(np.ndarray[Any, Any]):
    """Array of encoded rows; `feature_scales` is kept where rows are taken, and lost in any other operation.

    Attributes
    ----------
    feature_scales : array, shape (n_features,), or None
        Scale of each column where the estimator standardises; NaN for the column's own standard deviation.
    """

    feature_scales: Array | None = None

    @classmethod
    def of(cls, rows: NDArray[Any], scales: Array) -> EncodedRows:
        """Return rows, shape (n, d), with the scales of their columns."""
        made = rows.view(cls)
        made.feature_scales = scales
        return made

    def __array_finalize__(self, source: Any) -> None:
        self.feature_scales = None

    def __getitem__(self, key: Any) -> Any:
        taken = super().__getitem__(key)
        rest = key[1:] if isinstance(key, tuple) else ()
        whole = all(part is Ellipsis or (isinstance(part, slice) and part == slice(None)) for part in rest)
        if isinstance(taken, EncodedRows) and whole and taken.ndim == 2 and taken.shape[1] == self.shape[1]:
            taken.feature_scales = self.feature_scales
        return taken

    def __reduce__(self) -> Any:
        return _rebuilt, (np.asarray(self), self.feature_scales)


def _rebuilt(rows: NDArray[Any], scales: Array | None) -> EncodedRows:
    made = rows.view(EncodedRows)
    made.feature_scales = scales
    return made


def is_raw(X: Any) -> bool:
    """Return whether rows are a frame, in memory or of dask, with a column that is not numbers."""
    if is_dask_frame(X):
        return any(getattr(dtype, "kind", "O") not in "biufcm" for dtype in X.dtypes)
    if frame_columns(X) is None:
        return False
    from distkern.storage.tables.frames import needs_encoding

    return needs_encoding(X)


def is_frame(X: Any) -> bool:
    """Return whether rows are a frame, in memory or of dask."""
    return is_dask_frame(X) or frame_columns(X) is not None


def statistic_targets(y: Any, n_rows: int, task: str | None) -> NDArray[Any] | None:
    """Return targets for the statistics of levels, None without targets.

    Raises
    ------
    DataError
        The targets are no numbers, no labels, or not one for each row.
    """
    if y is None:
        return None
    values = as_targets(y)
    check_rows_agree(n_rows, len(values) if values.ndim else 0)
    if task == "regression":
        return to_numeric(values, "y")
    labels = plain_labels(values)
    return labels.reshape(n_rows) if task == "classification" else labels


def memory_columns(**values: Any) -> list[Any]:
    """Return columns of any container in memory, and None as it is."""
    lengths = partition_lengths(**values)
    return [
        None if column is None else in_memory(open_column(column, name, lengths[name]), name)
        for name, column in values.items()
    ]


def statistic_weights(sample_weight: Any, n_rows: int) -> NDArray[np.float64] | None:
    """Return row weights for the statistics of columns, None without weights; errors as of `check_weights`."""
    if sample_weight is None:
        return None
    weights = to_numeric(sample_weight, "sample_weight")
    return check_weights(np.full(n_rows, weights) if weights.ndim == 0 else weights, n_rows)


def encode_training(X: Any, y: Any, sample_weight: Any, *, task: str | None, **options: Any) -> tuple[Any, Any]:
    """Return the encoded rows of a table to train on, and the schema.

    Parameters
    ----------
    X : frame of pandas, polars, pyarrow or dask
        Raw rows.
    y : array-like or None
        Targets in memory.
    sample_weight : array-like or None
        Row weights in memory, or one for all rows.
    task : {"classification", "regression"} or None
        Whether the targets are labels or numbers; by default the rule of datasets decides.
    **options
        As for `profile_rows`.

    Raises
    ------
    DataError
        A column cannot be used.
    """
    from distkern.storage.tables.encode import TableEncoding
    from distkern.storage.tables.frames import encoded_table, frame_table
    from distkern.storage.tables.raw_rows import ArrowRows, profile_rows

    names_of(X)
    if is_dask_frame(X):
        from distkern.scheduler.prediction.dask_tables import encoded_frame
        from distkern.storage.tables.partitions import PartitionRows, RowColumn

        lengths = partition_lengths(X=X[X.columns[0]])["X"]
        assert lengths is not None
        n_rows = sum(lengths)
        beside = (statistic_targets(y, n_rows, task), statistic_weights(sample_weight, n_rows))
        rows = PartitionRows(X, *(None if values is None else RowColumn(values, "y") for values in beside))
        found = profile_rows(rows, task=task, **options)
        return encoded_frame(X, TableEncoding(found.schema, found.out_of_fold), lengths), found.schema
    table = frame_table(X)
    targets = statistic_targets(y, table.num_rows, task)
    weights = statistic_weights(sample_weight, table.num_rows)
    found = profile_rows(ArrowRows(table, targets, weights), task=task, **options)
    return encoded_table(TableEncoding(found.schema, found.out_of_fold), table), found.schema


def require_schema(rows: Any, schema: Any, what: str, place: str | None = None) -> None:
    """Refuse a dataset that was encoded by another schema than that of a training.

    Two stores with a schema each may have columns of the same names and other fills and target statistics. Rows and
    schemas of numbers alone need no comparison.

    Parameters
    ----------
    rows : object
        New rows; only a dataset has a schema.
    schema : TableSchema or None
        Schema of the training.
    what : str
        The rows, for the message.
    place : str, optional
        Place of the training data or the model, for the message.

    Raises
    ------
    DataError
        ``schema``.
    """
    own = getattr(rows, "table_schema", None)
    if own is not None and schema is not None and own is not schema and own.as_record() != schema.as_record():
        raise DataError(
            f"{what} was encoded by its own levels, fills and target statistics, not by those of "
            f"{place or 'the training'}: name its files instead (in Python, give a frame), or make the store again "
            f"with distkern ingest --like {place or 'MODEL'}",
            kind="schema",
        )


def encode_new(X: Any, schema: Any) -> Any:
    """Return the encoded rows of a frame of new rows: an array, or a dask array for a dask frame.

    Rows that are encoded already, and other containers, are returned as they are.

    Raises
    ------
    DataError
        ``unknown-column``, ``type-changed``, ``mixed-types`` and the like; those of `require_schema`.
    """
    require_schema(X, schema, "X")
    if not is_frame(X) or names_of(X) == schema.encoded_names:
        return X
    from distkern.storage.tables.encode import TableEncoding
    from distkern.storage.tables.frames import encoded_table, frame_table

    made = TableEncoding(schema)
    if is_dask_frame(X):
        from distkern.scheduler.prediction.dask_tables import encoded_frame

        return encoded_frame(X, made)
    return encoded_table(made, frame_table(X))


class TableInputs:
    """Part of the estimators that encodes frames whose columns are not all numbers.

    Attributes
    ----------
    table_schema_ : TableSchema
        Schema of the raw columns; only after a fit on such a frame, or on a dataset that was made of one.
    """

    _classification: ClassVar[bool]
    _require_names: Callable[[OpenedRows], None]
    table_schema_: Any

    def _encoded(self, X: Any, y: Any, sample_weight: Any, *, more: bool) -> tuple[Any, Any, Any, Any]:
        """Encode a frame whose columns are not all numbers; return rows, targets, weights, and a schema or None."""
        schema = getattr(self, "table_schema_", None)
        if more:
            return (X if schema is None else encode_new(X, schema)), y, sample_weight, schema
        if isinstance(X, Dataset):
            return X, y, sample_weight, X.table_schema
        if not is_raw(X):
            return X, y, sample_weight, None
        y, weights = memory_columns(y=y, sample_weight=sample_weight)
        task = "classification" if self._classification else "regression"
        rows, schema = encode_training(X, y, weights, task=task)
        return rows, y, weights, schema

    def _set_schema(self, schema: Any) -> None:
        """Set the schema of the raw columns, or forget that of the last fit."""
        if schema is not None:
            self.table_schema_ = schema
        elif hasattr(self, "table_schema_"):
            del self.table_schema_

    def _opened(self, X: Any) -> OpenedRows:
        """Open new rows; raw ones are encoded as those of the training were."""
        schema = getattr(self, "table_schema_", None)
        encoded = X if schema is None else encode_new(X, schema)
        rows = open_rows(encoded)
        if schema is not None and encoded is not X:
            return replace(rows, names=schema.encoded_names)
        self._require_names(rows)
        return rows
