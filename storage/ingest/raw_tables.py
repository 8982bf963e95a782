"""Raw rows of files: the treatment of gaps, the two passes that make a store of them, and rows for predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from distkern.errors import DataError

from ..datasets.writer import DatasetWriter
from ..tables.arrow_columns import ANY_TEXT, Kind, is_text, text_kind, text_types
from ..tables.encode import TableEncoding
from ..tables.kept_rows import KeptRows
from ..tables.profile import ProfiledTable
from ..tables.raw_rows import GUESS_ROWS, RawPiece, profile_rows
from ..tables.schema import TableSchema

__all__ = [
    "RawBatch",
    "RawFiles",
    "RawTable",
    "encoded_pieces",
    "profiled",
    "shows_raw_columns",
    "write_kept",
    "write_raw",
]


ENCODED_ROWS = 8192
"""Kept rows that are encoded at a time: they stay in the cache of a core until they are in a chunk."""


@dataclass(frozen=True, eq=False)
class RawBatch:
    """Some consecutive rows of raw files."""

    features: Any
    """pyarrow.RecordBatch."""
    target: NDArray[Any] | None
    """Targets, shape (n,) or (n, n_targets), None for rows without."""
    target_missing: NDArray[np.bool_] | None
    """True where the target is missing, shape (n,); None where none is."""
    weights: NDArray[np.float64] | None
    """Row weights, shape (n,), NaN where one is missing; None for weights of one."""


class RawFiles(Protocol):
    """Files of one format with raw columns.

    Attributes
    ----------
    kinds : dict of str to Kind
        Kinds of the features.
    """

    kinds: dict[str, Kind]

    def count_rows(self) -> int:
        """Return the number of rows; later targets have one type."""
        ...

    def pieces(self, types: Mapping[str, Any]) -> Iterator[RawBatch]:
        """Yield all rows in order; `types` are those that text is read as, see `RawRows.read`."""
        ...


class RawTable:
    """Raw rows of files, with one treatment of gaps; rows are counted from 1 over all files.

    Parameters
    ----------
    files : RawFiles
        The rows.
    policy : {"indicator", "error", "drop", "mean"}
        Keep gaps, refuse them, leave their rows out, or keep them without an indicator.

    Attributes
    ----------
    rows_dropped, gaps : int
        Counts of the last pass.
    """

    base = 1

    def __init__(self, files: RawFiles, policy: str) -> None:
        self._files, self.policy = files, policy
        self.kinds = files.kinds
        self.rows_dropped = self.gaps = 0

    def text_types(self, schema: TableSchema) -> dict[str, Any]:
        """Return the types that text of the columns of a schema is read as."""
        kinds = {column.name: Kind(column.kind, column.zone) for column in schema.columns}
        return text_types({name: kind for name, kind in kinds.items() if self.kinds[name].name == ANY_TEXT})

    def batches(self, types: Mapping[str, Any]) -> Iterator[RawBatch]:
        """Yield the rows that are kept.

        Raises
        ------
        DataError
            ``missing-value``.
        """
        self.rows_dropped = self.gaps = 0
        first = 1
        for batch in self._files.pieces(types):
            kept = self._kept(batch, first)
            first += batch.features.num_rows
            if kept.features.num_rows:
                yield kept

    def read(self, types: Mapping[str, Any]) -> Iterator[RawPiece]:
        """Yield the rows that are kept; see `RawRows.read`."""
        for batch in self.batches(types):
            yield RawPiece(batch.features, batch.target, batch.weights)

    def _kept(self, batch: RawBatch, first: int) -> RawBatch:
        n = batch.features.num_rows
        beside = np.zeros(n, dtype=bool)
        if batch.target_missing is not None:
            beside |= batch.target_missing
        if batch.target is not None and batch.target.dtype.kind == "f":
            beside |= np.isnan(batch.target).reshape(n, -1).any(axis=1)
        no_target = beside.copy()
        if batch.weights is not None:
            beside |= np.isnan(batch.weights)
        found = {name: _gaps(column) for name, column in zip(self.kinds, batch.features.columns, strict=True)}
        holes = {name: gaps for name, gaps in found.items() if gaps is not None}
        self.gaps += sum(int(np.count_nonzero(gaps)) for gaps in holes.values())
        if self.policy == "drop":
            out = beside if not holes else beside | np.any(list(holes.values()), axis=0)
            if not out.any():
                return batch
            self.rows_dropped += int(np.count_nonzero(out))
            return _filtered(batch, ~out)
        if beside.any():
            row = int(np.argmax(beside))
            raise _missing(
                "the target" if no_target[row] else "the weight", first + row, "leave such rows out with --missing drop"
            )
        if self.policy == "error" and holes:
            row, name = min((int(np.argmax(gaps)), name) for name, gaps in holes.items())
            raise _missing(f"column {name!r}", first + row, "choose --missing indicator, drop or mean")
        return batch


def _gaps(column: Any) -> NDArray[np.bool_] | None:
    """Return where a column has no value; None where it has one in every row."""
    missing = np.asarray(pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False))
    if pa.types.is_dictionary(column.type) and column.dictionary.null_count:
        missing = missing | np.asarray(pc.is_null(column.dictionary_decode()).to_numpy(zero_copy_only=False))
    return missing if missing.any() else None


def _filtered(batch: RawBatch, keep: NDArray[np.bool_]) -> RawBatch:
    return RawBatch(
        batch.features.filter(pa.array(keep)),
        None if batch.target is None else batch.target[keep],
        None,
        None if batch.weights is None else batch.weights[keep],
    )


def _missing(name: str, row: int, knob: str) -> DataError:
    return DataError(
        f"{name} has no value in row {row} (counted from 1 over all files): fill it in, or {knob}", kind="missing-value"
    )


def shows_raw_columns(files: RawFiles, *, with_gaps: bool) -> bool:
    """Return whether the first rows show a column that is neither numbers nor truth values, or, `with_gaps`, a gap."""
    if any(kind.name in ("category", "date") for kind in files.kinds.values()):
        return True
    # As text: a value that is no number would otherwise be looked for in the whole file.
    batches = files.pieces(dict.fromkeys(files.kinds, pa.string()))
    first = next((batch.features for batch in batches if batch.features.num_rows), None)
    if first is None:
        return False
    columns = zip(files.kinds.items(), first.slice(0, GUESS_ROWS).columns, strict=True)
    return any(
        (with_gaps and _gaps(column) is not None)
        or (kind.name == ANY_TEXT and is_text(column.type) and text_kind(column).name in ("category", "date"))
        for (_, kind), column in columns
    )


def profiled(
    table: RawTable, task: str | None, categorical: tuple[str, ...], kept: KeptRows | None = None
) -> ProfiledTable:
    """Make the schema of a table in one pass over its rows; see `profile_rows` for the parameters."""
    found = profile_rows(table, task=task, categorical=categorical, kept=kept)
    if table.policy != "mean":
        return found
    columns = tuple(replace(column, gaps=False) for column in found.schema.columns)
    return replace(found, schema=TableSchema(columns, found.schema.targets))


def encoded_pieces(table: RawTable, made: TableEncoding) -> Iterator[tuple[NDArray[np.float64], RawBatch]]:
    """Yield encoded rows with their batches; the text of new rows is parsed column by column."""
    first = 0
    for batch in table.batches(dict.fromkeys(table.kinds, pa.string())):
        yield made.encode(batch.features, first, table.base, "the table"), batch
        first += batch.features.num_rows


def write_raw(table: RawTable, made: TableEncoding, types: Mapping[str, Any], writer: DatasetWriter) -> None:
    """Append the encoded rows of a table to a store.

    Parameters
    ----------
    table : RawTable
        Rows.
    made : TableEncoding
        Encoding.
    types : mapping of str to pyarrow.DataType
        Types that text is read as.
    writer : DatasetWriter
        The store.
    """
    for batch in table.batches(types):
        rows = made.encode(batch.features, writer.rows_written, table.base)
        writer.append(rows, batch.target, batch.weights)


def write_kept(kept: KeptRows, made: TableEncoding, found: ProfiledTable, writer: DatasetWriter) -> None:
    """Append the encoded form of kept training rows to a store; parameters as for `write_raw`."""
    for whole in kept.pieces():
        for piece in whole.split(ENCODED_ROWS):
            rows = made.encode_kept(piece.columns, found.places, writer.rows_written)
            writer.append(rows, piece.y, piece.weights)
