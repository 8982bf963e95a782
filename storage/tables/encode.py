"""Raw rows as numbers, by a schema.

Training rows get the target statistics of the other folds, new rows those of all.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from distkern.errors import DataError, TableWarning
from distkern.text import counted, did_you_mean

from .arrow_columns import DAY, RowCount, as_instants, as_levels, as_numbers
from .kept_rows import ColumnValues
from .level_counts import row_folds
from .level_numbers import LevelNumbers
from .schema import Column, TableSchema

__all__ = ["TableEncoding"]

MOST_NAMED = 5
"""Most unknown levels of a column that a warning names."""

YEAR_DAYS = 365.25


class TableEncoding:
    """Encodes batches of raw rows.

    Parameters
    ----------
    schema : TableSchema
        Schema of the training rows.
    out_of_fold : dict of str to array, optional
        Target statistics for the training rows, see `ProfiledTable`; without, rows are new ones.
    unknown : {"warn", "ignore", "error"}, default "warn"
        Treatment of levels and gaps that the training did not have, in `warn`.

    Attributes
    ----------
    unknown : dict of str to list of str
        Levels of new rows that the training did not have, by column, in order of appearance.
    new_gaps : dict of str to int
        Number of missing values of columns that had none in the training.
    """

    def __init__(
        self,
        schema: TableSchema,
        out_of_fold: dict[str, NDArray[np.float64]] | None = None,
        unknown: str = "warn",
    ) -> None:
        self.schema = schema
        self._treatment = unknown
        self._out_of_fold = out_of_fold
        self._codes = {
            column.name: LevelNumbers(column.levels) for column in schema.columns if column.kind == "category"
        }
        self._widths = [len(column.encoded_names(schema.targets)) for column in schema.columns]
        self.unknown: dict[str, list[str]] = {}
        self.new_gaps: dict[str, int] = {}

    def encode(
        self, batch: Any, first: int = 0, base: int = 0, what: str = "the table", within: str = ""
    ) -> NDArray[np.float64]:
        """Return the encoded rows of a batch, shape (n, n_encoded).

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Rows with the columns of the schema in any order; others are passed over.
        first : int, default 0
            Row of the table, from 0, that the batch begins with.
        base : int, default 0
            Number of the first row of the table in messages.
        what : str, default "the table"
            Name of the rows for messages.
        within : str, default ""
            Words for a part of the table that rows are counted in, see `RowCount`.

        Raises
        ------
        DataError
            ``unknown-column``, ``type-changed``, ``column-type`` or ``not-finite``.
        """
        rows = RowCount(first, base, within)
        found = batch.schema.names
        out = np.zeros((batch.num_rows, self.schema.n_encoded))
        for column, part in self._parts(out):
            if column.name not in found:
                raise DataError(
                    f"{what} has no column {column.name!r}, which the model was trained on"
                    f"{did_you_mean(column.name, found)}",
                    kind="unknown-column",
                )
            values = batch.column(column.name)
            if column.kind == "category":
                self._category(column, values, rows, part)
            elif column.kind == "date":
                self._date(column, *as_instants(values, column.zone, column.name, rows), part)
            else:
                self._number(column, as_numbers(values, column.name, rows, column.kind), part)
        return out

    def encode_kept(
        self, columns: Sequence[ColumnValues], places: Mapping[str, NDArray[np.int64]], first: int
    ) -> NDArray[np.float64]:
        """Return the encoded form of kept training rows, shape (n, n_encoded).

        Parameters
        ----------
        columns : sequence of ColumnValues
            Values of the columns of the schema.
        places : mapping of str to array
            `ProfiledTable.places`.
        first : int
            Row of the table, from 0, that they begin with.
        """
        rows = RowCount(first)
        out = np.zeros((len(columns[0][0]), self.schema.n_encoded))
        for (column, part), values in zip(self._parts(out), columns, strict=True):
            if column.kind == "category":
                self._levels(column, places[column.name][values[0]], rows, part)
            elif column.kind == "date":
                self._date(column, values[0], values[1], part)
            else:
                self._number(column, values[0], part)
        return out

    def _parts(self, out: NDArray[np.float64]) -> Iterator[tuple[Column, NDArray[np.float64]]]:
        """Yield the columns of the schema with the encoded columns of each."""
        place = 0
        for column, width in zip(self.schema.columns, self._widths, strict=True):
            yield column, out[:, place : place + width]
            place += width

    def _number(self, column: Column, values: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        missing = np.isnan(values)
        if missing.any():
            values = np.where(missing, column.fill, values)
            self._flag(column, missing, out)
        out[:, 0] = values

    def _flag(self, column: Column, missing: NDArray[np.bool_], out: NDArray[np.float64]) -> None:
        if column.gaps:
            out[:, -1] = missing
        elif self._out_of_fold is None:
            self.new_gaps[column.name] = self.new_gaps.get(column.name, 0) + int(np.count_nonzero(missing))

    def _date(
        self, column: Column, days: NDArray[np.float64], times: NDArray[np.int64], out: NDArray[np.float64]
    ) -> None:
        assert column.extent is not None
        # Later dates than those of the training are the rule; far from all of its rows a kernel predicts the intercept.
        self._number(column, np.clip(days, *column.extent), out)
        present = ~np.isnan(days)
        for place, cycle in enumerate(column.cycles):
            angle = 2 * np.pi * _phase(times, cycle)
            out[:, 1 + 2 * place] = np.where(present, np.sin(angle), 0.0)
            out[:, 2 + 2 * place] = np.where(present, np.cos(angle), 0.0)

    def _category(self, column: Column, values: Any, rows: RowCount, out: NDArray[np.float64]) -> None:
        levels, found = as_levels(values, column.name)
        known = self._codes[column.name]
        n_levels = len(known)
        missing, other = n_levels, n_levels + 1
        mapping = np.append(known.known(levels), missing)
        mapping[mapping < 0] = other
        if column.encoding != "frequent" and self._out_of_fold is None and (mapping == other).any():
            named = self.unknown.setdefault(column.name, [])
            if len(named) <= MOST_NAMED:
                fresh = levels.filter(pa.array(mapping[:-1] == other)).to_pylist()
                named += [level for level in fresh if level not in named][: MOST_NAMED + 1 - len(named)]
        codes = mapping[found]
        if not column.gaps and self._out_of_fold is None and (count := int(np.count_nonzero(codes == missing))):
            self.new_gaps[column.name] = self.new_gaps.get(column.name, 0) + count
        self._levels(column, codes, rows, out)

    def _levels(self, column: Column, codes: NDArray[np.int64], rows: RowCount, out: NDArray[np.float64]) -> None:
        """Encode the numbers of levels, one more than the last for gaps, and two for other levels."""
        if column.encoding == "target":
            self._target(column, codes, rows, out)
            return
        n_levels = len(column.levels)
        missing, other = n_levels, n_levels + 1
        # Columns are the levels, one for others where they have one, and one for gaps where there were any.
        places = np.full(n_levels + 2, -1)
        places[:n_levels] = np.arange(n_levels)
        if column.encoding == "frequent":
            places[other] = n_levels
        if column.gaps:
            places[missing] = out.shape[1] - 1
        chosen = places[codes]
        at = np.flatnonzero(chosen >= 0)
        out[at, chosen[at]] = 1.0

    def _target(self, column: Column, codes: NDArray[np.int64], rows: RowCount, out: NDArray[np.float64]) -> None:
        if self._out_of_fold is None:
            assert column.statistics is not None
            out[...] = column.statistics[codes]
        else:
            out[...] = self._out_of_fold[column.name][codes, row_folds(rows.first, len(codes))]

    def warn(self, what: str = "X") -> None:
        """Warn of levels and gaps that the training did not have, or refuse them, and forget them.

        Parameters
        ----------
        what : str, default "X"
            Name of the rows.

        Warns
        -----
        TableWarning
            New rows hold what the training did not.

        Raises
        ------
        DataError
            ``unknown-level``, where they are refused.
        """
        parts = [
            f"column {name!r} has levels that the training did not have: {', '.join(map(repr, levels[:MOST_NAMED]))}"
            + (" and more" if len(levels) > MOST_NAMED else "")
            for name, levels in self.unknown.items()
        ]
        parts += [f"column {name!r} has {counted(count, 'gap')} and had none" for name, count in self.new_gaps.items()]
        self.unknown, self.new_gaps = {}, {}
        if parts and self._treatment == "error":
            raise DataError(f"{what}: {'; '.join(parts)}", kind="unknown-level")
        if parts and self._treatment == "warn":
            warnings.warn(
                f"{what}: {'; '.join(parts)}. An unknown level is none of the known ones, with the mean target; a gap "
                "is filled with the mean",
                TableWarning,
                stacklevel=2,
            )


def _phase(times: NDArray[np.int64], cycle: str) -> NDArray[np.float64]:
    """Return the part of a period that has passed at local times in microseconds, from 0 to 1."""
    if cycle == "day":
        return np.asarray((times % DAY) / DAY)
    if cycle == "week":
        return np.asarray(((times + 3 * DAY) % (7 * DAY)) / (7 * DAY))  # 1970-01-01 was a Thursday
    day = np.asarray(pc.day_of_year(pa.array(times.view("datetime64[us]")))) - 1
    return np.asarray((day + (times % DAY) / DAY) / YEAR_DAYS)
