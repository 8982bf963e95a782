"""Raw rows in dask DataFrames: read partition by partition for a schema, and encoded lazily."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.redaction import displayed_cause, redact
from distkern.storage.arrays.lazy import compute_options
from distkern.storage.tables.arrow_columns import ANY_TEXT, Kind, kind_of
from distkern.storage.tables.encode import TableEncoding
from distkern.storage.tables.frames import encoded_table, frame_table
from distkern.storage.tables.raw_rows import cast_text

from .dask_frames import _partitions, partition_lengths


class PartitionRows:
    """Raw rows of a dask DataFrame, one partition in memory at a time.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        Rows.

    Attributes
    ----------
    lengths : list of int
        Rows of each partition.
    y : array or None
        Targets, where the caller sets them.

    Raises
    ------
    DataError
        ``unreadable``, or those of `frame_table`.
    """

    base = 0

    def __init__(self, frame: Any) -> None:
        self._parts = _partitions(frame)
        column = frame[frame.columns[0]]
        lengths = partition_lengths(X=column)["X"]
        assert lengths is not None
        self.lengths: list[int] = lengths
        self.n_rows = sum(lengths)
        self.y: NDArray[Any] | None = None
        self.kinds = self._kinds(frame)

    def _kinds(self, frame: Any) -> dict[str, Kind]:
        """Return the kinds of the first partition with rows; objects that are all missing there are text."""
        table = next((self._table(part) for part, length in self._filled()), None)
        if table is None:
            raise DataError("X has no rows: at least 2 are needed", kind="too-few-rows")
        return {
            field.name: Kind(ANY_TEXT) if pa.types.is_null(field.type) else kind_of(field.name, field.type, "X")
            for field in table.schema
        }

    def _filled(self) -> Iterator[tuple[Any, int]]:
        return ((part, length) for part, length in zip(self._parts, self.lengths, strict=True) if length)

    def _table(self, part: Any) -> Any:
        try:
            return frame_table(part.compute(**compute_options(part)))
        except (ArithmeticError, LookupError, TypeError, ValueError) as cause:
            if isinstance(cause, DataError):
                raise
            raise DataError(
                f"X cannot be computed: {type(cause).__name__}: {redact(str(cause))}", kind="unreadable"
            ) from displayed_cause(cause)

    def read(self, types: Mapping[str, Any]) -> Iterator[tuple[Any, NDArray[Any] | None]]:
        """Yield the partitions and their targets; see `RawRows.read` for `types`."""
        first = 0
        for part, length in self._filled():
            table = self._table(part).combine_chunks()
            columns = [
                column.cast(pa.string()) if pa.types.is_null(column.type) else column for column in table.columns
            ]
            batch = pa.table(columns, names=table.column_names).combine_chunks().to_batches()[0]
            y = None if self.y is None else self.y[first : first + length]
            first += length
            yield cast_text(batch, types), y


def encoded_frame(frame: Any, made: TableEncoding, lengths: Sequence[int] | None = None) -> Any:
    """Return the encoded rows of a DataFrame as a lazy matrix; its partitions become row chunks.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        Raw rows.
    made : TableEncoding
        Encoding.
    lengths : sequence of int, optional
        Rows of each partition, which training rows need; without them the chunks have unknown sizes.
    """
    import dask
    import dask.array as da

    parts = _partitions(frame)
    width = made.schema.n_encoded
    starts = [0] * len(parts) if lengths is None else np.concatenate([[0], np.cumsum(lengths)])[:-1].tolist()
    shared = dask.delayed(made)
    pieces = [
        da.from_delayed(dask.delayed(_encoded)(shared, part, start), shape=(length, width), dtype=np.float64)
        for part, start, length in zip(
            parts, starts, [float("nan")] * len(parts) if lengths is None else lengths, strict=True
        )
        if length != 0
    ]
    return da.concatenate(pieces) if pieces else da.empty((0, width), dtype=np.float64)


def _encoded(made: TableEncoding, part: Any, first: int) -> NDArray[np.float64]:
    return encoded_table(made, frame_table(part), first=first)
