"""Parquet files with raw columns; a column may be of several types that mean the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from distkern.errors import DataError

from ..tables.arrow_columns import ANY_TEXT, Kind, kind_of
from ..tables.raw_rows import BATCH_ROWS, cast_text
from .parquet_files import ParquetFiles
from .raw_tables import RawBatch
from .table import Reading

__all__ = ["RawParquet"]

_TOGETHER = (
    ({"number", "boolean"}, "number"),
    ({"number", "boolean", ANY_TEXT}, ANY_TEXT),
    ({"number", "boolean", ANY_TEXT, "category"}, "category"),
)
"""Kinds that a column may have in different files, and the kind that they are together."""


class RawParquet(ParquetFiles):
    """Parquet files with raw columns.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        Files.
    reading : Reading
        Targets, weight, and the columns to leave out or to take.

    Raises
    ------
    DataError
        ``type-changed``: the types of a column in two files do not mean the same; ``column-type``, and those of
        `ParquetFiles`.
    """

    def __init__(self, paths: Sequence[Path], reading: Reading) -> None:
        super().__init__(paths, reading)
        self.kinds = {name: self._kind(name) for name in self.chosen.features}

    def count_rows(self) -> int:
        """Return the number of rows."""
        return self.n_rows

    def pieces(self, types: Mapping[str, Any]) -> Iterator[RawBatch]:
        """Yield all rows in order; see `RawFiles.pieces`."""
        names = list(self.chosen.features)
        for block in self._blocks(BATCH_ROWS):
            features = cast_text(block.select(names), types)
            yield RawBatch(features, *self._beside(block))

    def _kind(self, name: str) -> Kind:
        """Return the kind of a column in all files."""
        found: dict[Kind, Path] = {}
        for path in self._paths:
            kind = self._schemas[path].field(name).type
            if not pa.types.is_null(kind):  # no value says what it is
                found.setdefault(kind_of(name, kind, str(path)), path)
        if len(found) < 2:
            return next(iter(found), Kind("number"))
        if all(kind.zone is not None for kind in found):
            return next(iter(found))
        for together, kind in _TOGETHER:
            if {item.name for item in found} <= together:
                return Kind(kind)
        (first, path), (second, other) = list(found.items())[:2]
        raise DataError(
            f"column {name!r} holds {first.words} in {path} and {second.words} in {other}: write one type in all files",
            kind="type-changed",
        )
