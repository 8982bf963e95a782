"""The pass over the training rows that makes the schema of a table: kinds, levels, gaps, and sums of the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.numerics.row_weights import factor_of_weights

from ..arrays.checks import check_weights
from .arrow_columns import DAY, Kind, RowCount, as_instants, as_numbers
from .kept_rows import ColumnValues
from .level_counts import LevelCounts, TargetCounts, row_folds, running_sum
from .level_numbers import LevelNumbers
from .schema import CYCLES, Column, TableSchema

__all__ = ["MAX_ONE_HOT", "SMOOTHING", "ProfiledTable", "TableProfile"]

MAX_ONE_HOT = 32
"""Most levels of a category with a column each; more levels get target statistics."""

SMOOTHING = 10.0
"""Rows of the mean target that are added to those of a level."""

LEAST_DAYS = dict(zip(CYCLES, (0.0, 14.0, 730.0), strict=True))
"""Least days between the first and the last date for the cycle of a period: two weeks or years, for of less than two
periods nothing shows what repeats."""


@dataclass(frozen=True, eq=False)
class ProfiledTable:
    """A schema, and what only the training rows need."""

    schema: TableSchema
    """Schema."""
    out_of_fold: dict[str, NDArray[np.float64]]
    """Target statistics of the other folds for each fold, shape (len(levels) + 2, FOLDS, K), by column."""
    n_rows: int
    """Number of training rows."""
    places: dict[str, NDArray[np.int64]]
    """Number in `TableEncoding` of each level in order of appearance, after that of rows without one, by column."""


@dataclass(frozen=True)
class RowShare:
    """Rows of a batch that have a weight."""

    present: NDArray[np.bool_] | None
    """(n,): whether the weight of a row is above zero; None for all rows."""
    weights: NDArray[np.float64] | None
    """Weights of these rows; None for weights of one."""

    @classmethod
    def of(cls, weights: NDArray[np.float64] | None, n_rows: int, first_row: int) -> RowShare:
        """Return the share of `n_rows` rows from row `first_row` on; errors as of `check_weights`."""
        if weights is None:
            return cls(None, None)
        weights = check_weights(weights, n_rows, first_row)
        if weights.all():
            return cls(None, weights)
        return cls(weights > 0, weights[weights > 0])

    def taken(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values, shape (n, ...), of the rows that are present."""
        return values if self.present is None else values[self.present]


class TableProfile:
    """Statistics of the training rows, batch by batch; the result does not depend on the batches.

    A row weight counts as repeated rows, as in trainings, but all in one fold; rows of weight zero are absent.

    Parameters
    ----------
    kinds : mapping of str to Kind
        Kinds of the raw columns, none of them `ANY_TEXT`.
    task : {"classification", "regression"}, optional
        Task of the target; by default that of `TargetRecorder`.
    max_one_hot : int, default 32
        Most levels of a category with a column each.
    smoothing : float, default 10.0
        Rows of the mean target that are added to those of a level.
    """

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        *,
        task: str | None = None,
        max_one_hot: int = MAX_ONE_HOT,
        smoothing: float = SMOOTHING,
    ) -> None:
        self._max_one_hot, self._smoothing = max_one_hot, smoothing
        self._target = TargetCounts(task)
        self._with_target = False
        self._n_rows = 0
        self._weight, self._roots, self._weighted = 0.0, 0.0, False
        self._parts: dict[str, NumberPart | DatePart | CategoryPart] = {}
        for name, kind in kinds.items():
            if kind.name == "category":
                self._parts[name] = CategoryPart(LevelCounts(name))
            elif kind.name == "date":
                self._parts[name] = DatePart(kind)
            else:
                self._parts[name] = NumberPart(kind)

    def add(
        self, batch: Any, y: NDArray[Any] | None = None, weights: NDArray[np.float64] | None = None, base: int = 0
    ) -> list[ColumnValues] | None:
        """Take the next rows.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Rows with the columns of the kinds.
        y : array, shape (n,) or (n, T), optional
            Their targets: numbers or labels.
        weights : array, shape (n,), optional
            Their weights, in every call or in none.
        base : int, default 0
            Number of the first row of the table in messages.

        Returns
        -------
        list of ColumnValues or None
            The columns for `KeptRows`; None where rows have no weight.

        Raises
        ------
        DataError
            ``type-changed``, ``not-finite``, ``column-type``, ``too-many-levels`` or ``invalid-weights``.
        """
        rows = RowCount(self._n_rows, base)
        folds = row_folds(self._n_rows, batch.num_rows)
        share = RowShare.of(weights, batch.num_rows, self._n_rows)
        if share.weights is not None:
            self._weighted = True
            self._weight = running_sum(self._weight, share.weights)
            self._roots = running_sum(self._roots, np.sqrt(share.weights))
        piece = None if y is None else self._target.add(share.taken(y))
        self._with_target |= piece is not None
        folds = share.taken(folds)
        values: list[ColumnValues] = []
        for name, part in self._parts.items():
            column = batch.column(name)
            if isinstance(part, CategoryPart):
                kept = column if share.present is None else column.filter(pa.array(share.present))
                values.append((part.levels.add(kept, folds, piece, share.weights),))
            else:
                values.append(part.add(column, name, rows, share))
        self._n_rows += batch.num_rows
        return values if share.present is None else None

    def finish(self) -> ProfiledTable:
        """Return the schema and the statistics for the training rows.

        Raises
        ------
        DataError
            ``empty-column``: a column has no value in any row; ``too-few-rows``: no row has a weight.
        """
        if self._weighted and not self._weight:
            raise DataError(
                f"sample_weight is zero for all {self._n_rows} rows; at least 2 rows need a positive weight",
                kind="too-few-rows",
            )
        names = self._target.names() if self._with_target else ()
        out_of_fold: dict[str, NDArray[np.float64]] = {}
        places: dict[str, NDArray[np.int64]] = {}
        columns = []
        for name, part in self._parts.items():
            if isinstance(part, CategoryPart):
                columns.append(self._category(name, part.levels, names, out_of_fold))
                places[name] = _places(columns[-1], part.levels.levels)
            else:
                _require_values(name, part.weight)
                columns.append(part.column(name))
        return ProfiledTable(TableSchema(tuple(columns), names), out_of_fold, self._n_rows, places)

    def _category(
        self, name: str, found: LevelCounts, names: tuple[str, ...], out_of_fold: dict[str, NDArray[np.float64]]
    ) -> Column:
        rows = found.rows
        _require_values(name, float(rows[1:].sum()))
        order = [0, *(1 + place for place in sorted(range(len(found.levels)), key=found.levels.__getitem__))]
        levels = sorted(found.levels)
        rows = rows[order]
        gaps = bool(rows[0].any())
        if len(levels) <= self._max_one_hot:
            return _one_hot(name, levels, rows, gaps=gaps)
        if not names:
            return self._frequent(name, levels, rows, gaps=gaps)
        sums = found.sums(self._target.labels(), names)[order]
        factor = factor_of_weights(self._weight, self._roots)
        final, others = _statistics(rows * factor, sums * factor, self._smoothing)
        out_of_fold[name] = others
        return Column(name=name, kind="category", gaps=gaps, encoding="target", levels=tuple(levels), statistics=final)

    def _frequent(self, name: str, levels: list[str], rows: NDArray[Any], *, gaps: bool) -> Column:
        totals = rows[1:].sum(axis=1)
        kept = np.sort(np.argsort(-totals, kind="stable")[: self._max_one_hot])
        shares = np.concatenate([rows[:1].sum(axis=1), totals[kept], [totals.sum() - totals[kept].sum()]])
        return Column(
            name=name,
            kind="category",
            gaps=gaps,
            encoding="frequent",
            levels=tuple(levels[index] for index in kept),
            level_variance=_variance(shares / shares.sum()),
        )


@dataclass
class CategoryPart:
    """Levels of a category."""

    levels: LevelCounts
    """Counts."""


@dataclass
class NumberPart:
    """Sum and gaps of a column of numbers or truth values."""

    kind: Kind
    """Kind."""
    total: float = 0.0
    """Weighted sum of the values so far, default 0.0."""
    weight: float = 0.0
    """Sum of the weights of the rows with a value so far, default 0.0."""
    gaps: bool = False
    """Whether a row has had no value, default False."""

    def add(self, column: Any, name: str, rows: RowCount, share: RowShare) -> ColumnValues:
        """Take the next rows, and return their values."""
        values = as_numbers(column, name, rows, self.kind.name)
        self._sum(values, share)
        return (values,)

    def _sum(self, values: NDArray[np.float64], share: RowShare) -> None:
        values, weights = share.taken(values), share.weights
        missing = np.isnan(values)
        if missing.any():
            self.gaps = True
            values = values[~missing]
            weights = None if weights is None else weights[~missing]
        self.weight = self.weight + len(values) if weights is None else running_sum(self.weight, weights)
        self.total = running_sum(self.total, values if weights is None else weights * values)

    def column(self, name: str) -> Column:
        """Return the column of the schema."""
        return Column(name=name, kind=self.kind.name, gaps=self.gaps, fill=self.total / self.weight)


@dataclass
class DatePart(NumberPart):
    """Sum, gaps and range of a column of dates."""

    total: float = 0.0
    """Weighted sum of the days so far, default 0.0."""
    weight: float = 0.0
    """Sum of the weights of the rows with a date so far, default 0.0."""
    gaps: bool = False
    """Whether a row has had no date, default False."""
    first: float = np.inf
    """Earliest date, default inf."""
    last: float = -np.inf
    """Latest date, default -inf."""
    with_time: bool = False
    """Whether a date has a time of the day, default False."""

    def add(self, column: Any, name: str, rows: RowCount, share: RowShare) -> ColumnValues:
        """Take the next rows, and return their values."""
        values = days, times = as_instants(column, self.kind.zone, name, rows)
        self._sum(days, share)
        days = share.taken(days)
        self.first = float(np.fmin(self.first, np.fmin.reduce(days, initial=np.inf)))
        self.last = float(np.fmax(self.last, np.fmax.reduce(days, initial=-np.inf)))
        if not self.with_time:
            self.with_time = bool((share.taken(times) % DAY != 0).any())
        return values

    def column(self, name: str) -> Column:
        """Return the column of the schema."""
        span = self.last - self.first
        cycles = [cycle for cycle in CYCLES if span >= LEAST_DAYS[cycle] and (cycle != "day" or self.with_time)]
        return Column(
            name=name,
            kind="date",
            gaps=self.gaps,
            fill=self.total / self.weight,
            zone=self.kind.zone,
            extent=(self.first, self.last),
            cycles=tuple(cycles),
        )


def _places(column: Column, levels: list[str]) -> NDArray[np.int64]:
    """Return `ProfiledTable.places` of a category; those of levels without a column are one after that of gaps."""
    known = LevelNumbers(column.levels)
    numbers = known.known(pa.array(levels, pa.string()))
    return np.concatenate([[len(known)], np.where(numbers < 0, len(known) + 1, numbers)])


def _require_values(name: str, count: float) -> None:
    if not count:
        raise DataError(
            f"column {name!r} has no value in any row: leave it out with --drop, or drop it from the frame",
            kind="empty-column",
        )


def _one_hot(name: str, levels: list[str], rows: NDArray[Any], *, gaps: bool) -> Column:
    shares = rows.sum(axis=1) / rows.sum()
    return Column(
        name=name,
        kind="category",
        gaps=gaps,
        encoding="one-hot",
        levels=tuple(levels),
        level_variance=_variance(shares),
    )


def _variance(shares: NDArray[np.float64]) -> float:
    """Return the sum of the variances of columns that are 1 for exclusive shares of the rows."""
    return float(min(max(1.0 - np.square(shares).sum(), 0.0), 1.0))


def _statistics(
    rows: NDArray[Any], sums: NDArray[np.float64], smoothing: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smoothed mean targets of each level, of all folds and of all but each fold.

    Both have rows for the levels, for rows without a level, and for unknown levels.
    """
    n = np.concatenate([rows[1:], rows[:1], np.zeros_like(rows[:1])]).astype(np.float64)
    s = np.concatenate([sums[1:], sums[:1], np.zeros_like(sums[:1])])

    def means(counts: NDArray[np.float64], totals: NDArray[np.float64]) -> NDArray[np.float64]:
        rows = counts.sum(axis=0)
        prior = totals.sum(axis=0) / np.where(rows > 0, rows, 1.0)[..., None]
        weights = counts[..., None] + smoothing
        mixed = (totals + smoothing * prior) / np.where(weights > 0, weights, 1.0)
        return np.asarray(np.where(weights > 0, mixed, prior))

    all_rows, all_sums = n.sum(axis=1), s.sum(axis=1)
    return means(all_rows, all_sums), means(all_rows[:, None] - n, all_sums[:, None] - s)
