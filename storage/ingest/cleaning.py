"""Missing values of ingested tables: refused, dropped with their row, or replaced by the mean of their column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError

from ..arrays.checks import column_name
from .table import Batch, InputTable

__all__ = ["POLICIES", "Cleaner"]

POLICIES = ("error", "drop", "mean")


class Cleaner:
    """Applies one policy for missing values to a table; rows are counted from 1 over all files.

    Parameters
    ----------
    table : InputTable
        The rows.
    policy : {"error", "drop", "mean"}
        Refuse a missing value, leave its row out, or replace it by the mean of its column. A missing target or weight
        is never filled in.

    Attributes
    ----------
    dtype : numpy.dtype
        dtype of the clean features: that of the table, or float64 where means may replace integers.
    rows_dropped, values_filled : int
        Counts of `rows` so far.
    """

    def __init__(self, table: InputTable, policy: str) -> None:
        self.table = table
        self.policy = policy
        fills_integers = policy == "mean" and table.dtype.kind != "f"
        self.dtype: np.dtype[Any] = np.dtype(np.float64) if fills_integers else table.dtype
        self.rows_dropped = 0
        self.values_filled = 0

    def rows(self) -> Iterator[Batch]:
        """Yield batches of rows without missing values, their features in `dtype`.

        Raises
        ------
        DataError
            ``missing-value``, ``not-finite`` or ``empty-column``.
        """
        means = self._column_means() if self.policy == "mean" else None
        first_row = 1
        for batch in self.table.batches():
            self._refuse_infinite(batch, first_row)
            clean = self._clean(batch, first_row, means)
            first_row += len(batch.features)
            if len(clean.features):
                yield replace(clean, features=clean.features.astype(self.dtype, copy=False))

    def _clean(self, batch: Batch, first_row: int, means: NDArray[np.float64] | None) -> Batch:
        features, target, weights = batch.features, batch.target, batch.weights
        holes = np.isnan(features) if features.dtype.kind == "f" else np.zeros((len(features), 1), bool)
        no_target, no_weight = _target_holes(batch), _holes(weights, len(features))
        if self.policy == "drop":
            keep = ~(holes.any(axis=1) | no_target | no_weight)
            self.rows_dropped += int(np.count_nonzero(~keep))
            if keep.all():
                return batch
            kept = (None if values is None else values[keep] for values in (target, weights))
            return Batch(features[keep], next(kept), weights=next(kept))
        refused = no_target | no_weight if means is not None else no_target | no_weight | holes.any(axis=1)
        if refused.any():
            row = int(np.argmax(refused))
            aside = "the target" if no_target[row] else "the weight" if no_weight[row] else None
            raise self._missing(first_row + row, aside, int(np.argmax(holes[row])))
        if means is None or not holes.any():
            return batch
        self.values_filled += int(np.count_nonzero(holes))
        return replace(batch, features=np.where(holes, means.astype(features.dtype), features))

    def _missing(self, row: int, aside: str | None, column: int) -> DataError:
        if aside is not None:
            name, knob = aside, "leave such rows out with --missing drop"
        else:
            name, knob = self._column(column), "choose --missing indicator (CSV and Parquet), drop or mean"
        return DataError(
            f"{name} has no value in row {row} (counted from 1 over all files): fill it in, or {knob}",
            kind="missing-value",
        )

    def _refuse_infinite(self, batch: Batch, first_row: int) -> None:
        for values, is_target in ((batch.features, False), (batch.target, True)):
            if values is None or values.dtype.kind != "f":
                continue
            infinite = np.isinf(values)
            if infinite.any():
                row, *column = (int(index) for index in np.argwhere(infinite)[0])
                name = "the target" if is_target else self._column(column[0])
                raise DataError(
                    f"{name} is infinite in row {first_row + row} (counted from 1 over all files): every "
                    f"value must be finite, correct it or empty the cell and choose --missing drop or mean",
                    kind="not-finite",
                )

    def _column_means(self) -> NDArray[np.float64]:
        totals = np.zeros(self.table.n_features)
        counts = np.zeros(self.table.n_features, dtype=np.int64)
        for batch in self.table.batches():
            present = np.isfinite(batch.features)
            totals += np.where(present, batch.features, 0).sum(axis=0, dtype=np.float64)
            counts += present.sum(axis=0)
        if not counts.all() and self.table.n_rows:
            column = int(np.argmin(counts))
            raise DataError(
                f"{self._column(column)} has no value in any row, so it has no mean: leave it out with --drop",
                kind="empty-column",
            )
        return np.asarray(totals / np.maximum(counts, 1))

    def _column(self, column: int) -> str:
        return column_name(column, self.table.names)


def _target_holes(batch: Batch) -> NDArray[np.bool_]:
    holes = _holes(batch.target, len(batch.features))
    return holes if batch.target_missing is None else holes | batch.target_missing


def _holes(values: NDArray[Any] | None, rows: int) -> NDArray[np.bool_]:
    """Return True for each row of targets or weights with NaN in it."""
    if values is None or values.dtype.kind != "f":
        return np.zeros(rows, dtype=bool)
    nan = np.isnan(values)
    return nan if nan.ndim == 1 else np.asarray(nan.any(axis=1))
