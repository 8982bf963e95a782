"""Raw rows in dask DataFrames, one partition in memory at a time, and the values beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distkern.errors import DataError

from ..arrays.lazy import computed_partition, is_dask_series, partitions
from .arrow_columns import ANY_TEXT, Kind, kind_of
from .frames import frame_table
from .raw_rows import RawPiece, cast_text

__all__ = ["PartitionRows", "RowColumn", "aligned"]


class RowColumn:
    """Values beside the rows of a frame, in memory of about one block.

    Parameters
    ----------
    values : array, Series or array of dask, zarr.Array, or array in memory
        Values, shape (n_rows,) or (n_rows, n_targets).
    what : str
        Name for messages.
    convert : callable, optional
        Returns the plain array of values, given these and the number of their first row; arrays in memory need none.
    """

    def __init__(self, values: Any, what: str, convert: Callable[[Any, int], NDArray[Any]] | None = None) -> None:
        self._values, self.what, self._convert = values, what, convert

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield all values in order."""
        first = 0
        for values in self._lazy_blocks():
            block = values if self._convert is None else self._convert(values, first)
            first += len(block)
            yield block

    def _lazy_blocks(self) -> Iterator[Any]:
        values = self._values
        if is_dask_series(values):
            return (computed_partition(part, self.what) for part in partitions(values))
        if hasattr(values, "__dask_graph__"):
            rows = values if values.ndim < 2 else values.rechunk({1: -1})
            return (computed_partition(part, self.what) for part in rows.to_delayed().reshape(-1))
        if hasattr(values, "chunks") and hasattr(values, "shape"):
            step = values.chunks[0]
            return (values[start : start + step] for start in range(0, values.shape[0], step))
        return iter([values])


class _Taken:
    """Values of a column, taken in the order of the rows."""

    def __init__(self, column: RowColumn) -> None:
        self._what, self._blocks = column.what, column.blocks()
        self._rest: list[NDArray[Any]] = []
        self._found = 0

    def next(self, start: int, count: int) -> NDArray[Any]:
        """Return the values of `count` rows from row `start` on."""
        while self._found < start + count:
            block = next(self._blocks, None)
            if block is None:
                raise _other_count(self._what, self._found, f"at least {start + count}")
            self._found += len(block)
            if len(block):
                self._rest.append(block)
        values = np.concatenate(self._rest) if len(self._rest) > 1 else self._rest[0]
        self._rest = [values[count:]]
        return values[:count]

    def require_end(self, n_rows: int) -> None:
        """Refuse values after the last row."""
        found = self._found + sum(map(len, self._blocks))
        if found != n_rows:
            raise _other_count(self._what, found, str(n_rows))


def _other_count(what: str, found: int, rows: str) -> DataError:
    return DataError(
        f"X has {rows} rows but {what} has {found}: give one entry of {what} for each row of X", kind="shape-mismatch"
    )


def aligned(pieces: Iterator[Any], *columns: RowColumn | None) -> Iterator[tuple[Any, ...]]:
    """Yield pieces of rows with the values of columns beside them, None where there is no column.

    Raises
    ------
    DataError
        ``shape-mismatch``: a column has more or fewer values than there are rows.
    """
    beside = [None if column is None else _Taken(column) for column in columns]
    first = 0
    for piece in pieces:
        count = piece.num_rows if isinstance(piece, pa.RecordBatch) else len(piece)
        yield piece, *(None if column is None else column.next(first, count) for column in beside)
        first += count
    for column in beside:
        if column is not None:
            column.require_end(first)


class PartitionRows:
    """Raw rows of a dask DataFrame, one partition in memory at a time.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        Rows.
    y : RowColumn, optional
        Targets.
    weights : RowColumn, optional
        Row weights.

    Raises
    ------
    DataError
        ``unreadable``, ``too-few-rows``, or those of `frame_table`.
    """

    base = 0

    def __init__(self, frame: Any, y: RowColumn | None = None, weights: RowColumn | None = None) -> None:
        self._parts = partitions(frame)
        self._beside = (y, weights)
        self.kinds = self._kinds()

    def _kinds(self) -> dict[str, Kind]:
        """Return the kinds of the first partition with rows; objects that are all missing there are text."""
        table = next(self._tables(), None)
        if table is None:
            raise DataError("X has no rows: at least 2 are needed", kind="too-few-rows")
        return {
            field.name: Kind(ANY_TEXT) if pa.types.is_null(field.type) else kind_of(field.name, field.type, "X")
            for field in table.schema
        }

    def _tables(self) -> Iterator[Any]:
        """Yield the partitions that have rows."""
        for part in self._parts:
            table = frame_table(computed_partition(part, "X"))
            if table.num_rows:
                yield table

    def read(self, types: Mapping[str, Any]) -> Iterator[RawPiece]:
        """Yield the partitions; see `RawRows.read` for `types`."""
        batches = (self._batch(table, types) for table in self._tables())
        for batch, *values in aligned(batches, *self._beside):
            yield RawPiece(batch, *values)

    def _batch(self, table: Any, types: Mapping[str, Any]) -> Any:
        """Return a partition as one record batch."""
        columns = [column.cast(pa.string()) if pa.types.is_null(column.type) else column for column in table.columns]
        batch = pa.table(columns, names=table.column_names).combine_chunks().to_batches()[0]
        return cast_text(batch, types)
