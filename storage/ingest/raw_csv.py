"""CSV files with raw columns, read by pyarrow in the types that the column rule found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from distkern.errors import DataError

from ..tables.arrow_columns import ANY_TEXT, Kind, casts, first_failure
from ..tables.raw_rows import TextChanged
from .csv_files import CsvFiles, holes_as_null
from .raw_tables import RawBatch
from .read_ahead import read_ahead
from .table import Reading

__all__ = ["RawCsv"]


class RawCsv(CsvFiles):
    """Text files with raw columns; the words for missing values are gaps in every column.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        Files, plain or compressed.
    reading : Reading
        Targets, weight, columns to leave out or to take, delimiter, and whether there is a header.

    Raises
    ------
    DataError
        Those of `CsvFiles`.
    """

    # Levels are looked up once a block.
    _block_bytes = 8 * 1024 * 1024

    def __init__(self, paths: Sequence[Path], reading: Reading) -> None:
        super().__init__(paths, reading)
        self._complete = False
        self._guessed = self._misled = False
        self.kinds = {name: Kind(ANY_TEXT) for name in self.chosen.features}

    def count_rows(self) -> int:
        """Return the number of rows, and find the types of the targets."""
        count = self._count_rows()
        self._complete = True
        return count

    def pieces(self, types: Mapping[str, Any]) -> Iterator[RawBatch]:
        """Yield all rows in order; see `RawFiles.pieces`."""
        self._starts = [1]
        for file in range(len(self._paths)):
            index, last, first_row = self._index_of(file), None, self._starts[-1]
            beside = [name for name in (self.chosen.weight, index) if name is not None]
            columns = {name: types.get(name, pa.string()) for name in self.chosen.features}
            # The types of the targets in the first rows hold for all, or another pass finds them.
            typed = self._complete or (self._guessed and not self._misled)
            if typed:
                columns |= self._types
            blocks = self._blocks(file, columns | dict.fromkeys(beside, pa.string()))
            for block in read_ahead(blocks):
                if not typed:
                    self._widen(block, first_row)
                    self._guessed = True
                if index is not None:
                    last = self._require_numbering(file, block.column(index), last, first_row)
                yield self._raw(block, first_row)
                first_row += block.num_rows
            self._starts.append(first_row)
        self._complete = True

    def _widen(self, block: Any, first_row: int) -> None:
        """Widen the types of the targets; statistics of numbers do not hold for text."""
        before = dict(self._types)
        self._widen_targets(block, first_row)
        self._require_numeric_targets()
        for name, kind in self._types.items():
            text_before = pa.types.is_string(before[name])
            if first_row > 1 and pa.types.is_string(kind) and not (text_before or self._misled):
                raise TextChanged(name)

    def _raw(self, block: Any, first_row: int) -> RawBatch:
        names = self.chosen.features
        features = pa.record_batch([_with_gaps(block.column(name)) for name in names], names=list(names))
        weights = None
        if self.chosen.weight is not None:
            weights = _weights(self.chosen.weight, block.column(self.chosen.weight), first_row)
        return RawBatch(features, *self._targets_of(block), weights)

    def _explain_types(self, file: int, types: dict[str, Any]) -> None:
        if any(not pa.types.is_string(kind) for kind in types.values()):
            self._misled = not self._complete
            raise TextChanged(str(self._paths[file]))


def _with_gaps(column: Any) -> Any:
    """Return a column of text with null for the words for missing values; others as they are."""
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, holes_as_null(column.dictionary))
    return holes_as_null(column) if pa.types.is_string(column.type) else column


def _weights(name: str, text: Any, first_row: int) -> NDArray[np.float64]:
    values = holes_as_null(text)
    if not casts(values, pa.float64()):
        row = first_failure(values, pa.float64())
        raise DataError(
            f"the weight {name!r} is the text {values[row].as_py()!r} in row {first_row + row} (counted from 1 over "
            "all files): weights must be numbers",
            kind="text-column",
        )
    return np.asarray(pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False))
