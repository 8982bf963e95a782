"""Counts of the levels of categories, and sums of the target over their rows, fold by fold.

Folds are drawn by the global number of a row, and sums are taken row by row in the order of the table, so neither
depends on how the rows are cut into batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.numerics.row_draws import row_uniforms

from ..arrays.labels import MAX_INTEGER_CLASSES
from .arrow_columns import as_levels
from .level_numbers import LevelNumbers

__all__ = ["FOLDS", "LevelCounts", "TargetCounts", "TargetPiece", "row_folds", "running_sum"]

FOLDS = 5
"""Folds of the target statistics; a training row gets those of the other folds, as in scikit-learn's TargetEncoder."""

TABLE_STREAM = (1 << 40) + 7
"""Stream of the draw of the folds, of its own among those of row draws."""

MOST_LEVELS = 1_000_000
"""Most levels of a category; the levels are kept in memory and in the model."""

MOST_TARGET_CLASSES = 30
"""Most classes with target statistics: each has a column for each category."""


def running_sum(start: float, values: NDArray[np.float64]) -> float:
    """Return a sum and the values after it, in their order: the bits do not depend on how they are cut."""
    return float(np.cumsum(np.concatenate([[start], values]))[-1])


def row_folds(first: int, count: int) -> NDArray[np.int64]:
    """Return the fold of each of `count` rows from row `first` on, shape (count,)."""
    return (row_uniforms(0, TABLE_STREAM, first, count) * FOLDS).astype(np.int64)


@dataclass(frozen=True)
class TargetPiece:
    """Targets of a batch for the sums of `LevelCounts`."""

    numbers: NDArray[np.float64] | None
    """(n, T): numbers, None for labels."""
    codes: NDArray[np.int64] | None
    """(n,): codes of labels in order of appearance, None for numbers or too many classes."""
    n_classes: int = 0
    """Number of labels so far, default 0."""


class TargetCounts:
    """The target of the rows seen so far: numbers, labels, or integers that may be either.

    Parameters
    ----------
    task : {"classification", "regression"} or None
        Task; by default that of `TargetRecorder`, which stores the target.
    """

    def __init__(self, task: str | None) -> None:
        self._task = task
        self._codes: dict[Any, int] = {}
        self._labelled: bool | None = {"classification": True, "regression": False}.get(task or "")
        self._width = 1

    def add(self, y: NDArray[Any]) -> TargetPiece:
        """Return the targets of a batch, shape (n,) or (n, T), for the sums."""
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim == 2:
            self._labelled, self._width = False, y.shape[1]
        elif self._labelled is None and y.dtype.kind not in "iu":
            self._labelled = y.dtype.kind != "f"
        numbers = None
        if not self._labelled:
            numbers = np.asarray(y, dtype=np.float64).reshape(len(y), self._width)
        most = MAX_INTEGER_CLASSES if self._labelled is None else MOST_TARGET_CLASSES
        if self._labelled is False or len(self._codes) > most:
            return TargetPiece(numbers, None)
        values, inverse = np.unique(y, return_inverse=True)
        mapping = [self._codes.setdefault(value, len(self._codes)) for value in values.tolist()]
        if len(self._codes) > MOST_TARGET_CLASSES:
            return TargetPiece(numbers, None)
        return TargetPiece(numbers, np.array(mapping, dtype=np.int64)[inverse.ravel()], len(self._codes))

    def labels(self) -> list[Any] | None:
        """Return the labels in order of appearance; None for numbers."""
        if self._labelled is False or (self._labelled is None and len(self._codes) > MAX_INTEGER_CLASSES):
            return None
        return list(self._codes)

    def names(self) -> tuple[str, ...]:
        """Return the names of the statistics of a level; () where there are none."""
        labels = self.labels()
        if labels is None:
            return ("target",) if self._width == 1 else tuple(f"target {number}" for number in range(self._width))
        if not 2 <= len(labels) <= MOST_TARGET_CLASSES:
            return ()
        ordered = [str(label) for label in sorted(labels)]
        return tuple(f"target={label}" for label in (ordered[1:] if len(ordered) == 2 else ordered))


class LevelCounts:
    """Rows of each level of a category in each fold, and sums of the target over them.

    Row 0 of the arrays is for rows without a level.

    Parameters
    ----------
    name : str
        Name of the column, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._known = LevelNumbers()
        self._counts: NDArray[Any] = np.zeros((1, FOLDS), dtype=np.int64)
        self._sums: NDArray[np.float64] | None = None
        self._labels: NDArray[Any] | None = None

    def add(
        self,
        column: Any,
        folds: NDArray[np.int64],
        target: TargetPiece | None,
        weights: NDArray[np.float64] | None = None,
    ) -> NDArray[Any]:
        """Count the rows of a batch, and return their levels: from 1 in order of appearance, 0 where missing.

        Parameters
        ----------
        column : pyarrow.Array
            Levels.
        folds : array, shape (n,)
            Folds of the rows.
        target : TargetPiece or None
            Targets of the rows.
        weights : array, shape (n,), optional
            Weights of the rows, in every call or in none.

        Raises
        ------
        DataError
            ``too-many-levels`` or ``column-type``.
        """
        levels, found = as_levels(column, self._name)
        known = self._known
        numbers = known.added(levels) + 1
        if len(known) > MOST_LEVELS:
            raise DataError(
                f"column {self._name!r} has more than {MOST_LEVELS} levels: a column whose levels belong to single "
                "rows predicts nothing, leave it out",
                kind="too-many-levels",
            )
        mapping = np.append(numbers, 0).astype(np.min_scalar_type(len(known)))
        rows = mapping[found]
        cells = rows.astype(np.int64) * FOLDS + folds
        self._counts = _grown(self._counts, len(known) + 1)
        if weights is None:
            self._counts.reshape(-1)[...] += np.bincount(cells, minlength=self._counts.size)
        else:
            self._counts = self._counts.astype(np.float64, copy=False)
            np.add.at(self._counts.reshape(-1), cells, weights)
        if target is not None:
            if target.numbers is not None:
                self._add_numbers(cells, target.numbers if weights is None else weights[:, None] * target.numbers)
            self._add_labels(cells, target, weights)
        return rows

    def _add_numbers(self, cells: NDArray[np.int64], numbers: NDArray[np.float64]) -> None:
        if self._sums is None:
            self._sums = np.zeros((1, FOLDS, numbers.shape[1]))
        self._sums = _grown(self._sums, len(self._known) + 1)
        flat = self._sums.reshape(-1, numbers.shape[1])
        for output in range(numbers.shape[1]):
            # One addition a row in the order of the rows: the bits do not depend on the batches.
            np.add.at(flat[:, output], cells, numbers[:, output])

    def _add_labels(self, cells: NDArray[np.int64], target: TargetPiece, weights: NDArray[np.float64] | None) -> None:
        if target.codes is None:
            self._labels = None
            return
        if self._labels is None:
            dtype = np.int64 if weights is None else np.float64
            self._labels = np.zeros((1, FOLDS, target.n_classes), dtype=dtype)
        wider = target.n_classes - self._labels.shape[2]
        if wider:
            self._labels = np.pad(self._labels, ((0, 0), (0, 0), (0, wider)))
        self._labels = _grown(self._labels, len(self._known) + 1)
        np.add.at(
            self._labels.reshape(-1), cells * self._labels.shape[2] + target.codes, 1 if weights is None else weights
        )

    @property
    def levels(self) -> list[str]:
        """Levels in order of appearance."""
        return self._known.levels

    @property
    def rows(self) -> NDArray[Any]:
        """Rows, or sums of weights, of each level in each fold, shape (1 + n_levels, FOLDS); first without a level."""
        return self._counts[: len(self._known) + 1]

    def sums(self, labels: list[Any] | None, names: tuple[str, ...]) -> NDArray[np.float64]:
        """Return the sums of the target, shape (1 + n_levels, FOLDS, K), in the order of `TargetCounts.names`."""
        count = len(self._known) + 1
        if labels is None:
            assert self._sums is not None
            return self._sums[:count]
        assert self._labels is not None
        order = sorted(range(len(labels)), key=labels.__getitem__)
        counts = self._labels[:count]
        counts = np.pad(counts, ((0, 0), (0, 0), (0, len(labels) - counts.shape[2])))
        return counts[:, :, order[-len(names) :]].astype(np.float64)


def _grown(values: NDArray[Any], least: int) -> NDArray[Any]:
    """Return an array with `least` rows or more."""
    if len(values) >= least:
        return values
    larger = np.zeros((max(least, 2 * len(values)), *values.shape[1:]), dtype=values.dtype)
    larger[: len(values)] = values
    return larger
