"""Statistics of predictions on test rows, block by block, in memory that does not grow with the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..estimators.scoring import (
    SCORED_COVERAGE,
    BlockCollector,
    ClassificationScore,
    LabelledRows,
    ModelScore,
    is_classifier,
    score_model,
    scored_coverage,
)
from ..probability.intervals import ResidualQuantiles

BINS = 10
"""Bins of a reliability diagram."""

POINTS = 2000
"""Most rows that are kept as points; more rows are counted on a grid."""

LIKELIEST = -1
"""Index of the statistics for the likeliest class of each row."""

GRID = (64, 40)
"""Cells of the grid along the predictions, and along the residuals."""

LARGEST_TARGETS = 6
"""Most targets with residuals."""

COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Coverages at which intervals are compared with targets."""

_OUTSIDE = 0.01
_ABSURD = 1e100


class Reliability:
    """Fractions of right predictions in bins of the predicted probability.

    Parameters
    ----------
    classes : array, shape (n_classes,)
        Labels of the model.
    n_bins : int, default 10
        Bins of equal width.

    Attributes
    ----------
    counts, sums, hits : array, shape (n_classes + 1, n_bins)
        Rows of each bin, sum of their probabilities, and rows of the class, for each class and then for the likeliest
        class of each row.
    """

    def __init__(self, classes: NDArray[Any], n_bins: int = BINS) -> None:
        self.classes = np.asarray(classes)
        self.edges = np.linspace(0.0, 1.0, n_bins + 1)
        self.counts, self.sums, self.hits = np.zeros((3, len(self.classes) + 1, n_bins))

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return int(self.counts[LIKELIEST].sum())

    def update(self, truth: NDArray[Any], predicted: NDArray[Any], probabilities: Array | None) -> None:
        """Add a block; without probabilities this does nothing."""
        if probabilities is None or not len(probabilities):
            return
        is_class = np.asarray(truth).ravel()[:, None] == self.classes[None, :]
        top, rows = probabilities.argmax(axis=1), np.arange(len(probabilities))
        columns = zip([*probabilities.T, probabilities[rows, top]], [*is_class.T, is_class[rows, top]], strict=True)
        for index, (probability, hit) in enumerate(columns):
            numbers = np.searchsorted(self.edges[1:-1], probability)
            for total, weights in ((self.counts, None), (self.sums, probability), (self.hits, hit)):
                total[index] += np.bincount(numbers, weights, len(self.edges) - 1)

    def curve(self, index: int = LIKELIEST) -> tuple[Array, Array, Array]:
        """Return probability, fraction right and number of rows of each bin with rows; default LIKELIEST."""
        counts, some = self.counts[index], self.counts[index] > 0
        return (self.sums[index] / counts.clip(1))[some], (self.hits[index] / counts.clip(1))[some], counts[some]

    def calibration_error(self, index: int = LIKELIEST) -> float:
        """Return the expected calibration error, the mean distance of the curve from the diagonal."""
        predicted, right, counts = self.curve(index)
        return float(np.sum(counts * np.abs(predicted - right)) / counts.sum()) if len(counts) else float("nan")


class ResidualGrid:
    """Residuals of one target against its predictions: points for few rows, counts on a grid for more.

    Attributes
    ----------
    points : array, shape (n, 2) or None
        Prediction and residual of each row; None for counts.
    counts : array, shape `GRID` or None
        Rows of each cell.
    x_edges, y_edges : array
        Edges of the cells.
    outside : int
        Rows beyond the grid.
    """

    def __init__(self) -> None:
        self.points: Array | None = np.empty((0, 2))
        self.counts: NDArray[np.int64] | None = None
        self.x_edges: Array = np.empty(0)
        self.y_edges: Array = np.empty(0)
        self.outside = 0

    def update(self, predicted: Array, residual: Array) -> None:
        """Add a block."""
        rows = np.column_stack([predicted, residual])
        kept = rows[(np.abs(rows) < _ABSURD).all(axis=1)]
        self.outside += len(rows) - len(kept)
        rows = kept
        if self.points is not None:
            self.points = np.concatenate([self.points, rows])
            if len(self.points) <= POINTS:
                return
            rows, self.points = self.points, None
            self.counts = np.zeros(GRID, dtype=np.int64)
            self.x_edges, self.y_edges = (_edges(values, cells) for values, cells in zip(rows.T, GRID, strict=True))
        self._count(rows)

    def _count(self, rows: Array) -> None:
        assert self.counts is not None
        while True:
            counted = np.histogram2d(rows[:, 0], rows[:, 1], bins=[self.x_edges, self.y_edges])[0].astype(np.int64)
            beyond = len(rows) - int(counted.sum())
            if beyond <= _OUTSIDE * len(rows):
                break
            self._widen(rows)
        self.counts += counted
        self.outside += beyond

    def _widen(self, rows: Array) -> None:
        """Double the width of the cells along each axis with too many rows outside."""
        assert self.counts is not None
        for axis in (0, 1):
            edges = self.y_edges if axis else self.x_edges
            values = rows[:, axis]
            low, high = np.count_nonzero(values < edges[0]), np.count_nonzero(values > edges[-1])
            if low + high <= _OUTSIDE * len(rows) / 2:
                continue
            width = edges[-1] - edges[0]
            counts = np.moveaxis(self.counts, axis, 0)
            halved = counts.reshape(len(counts) // 2, 2, -1).sum(axis=1)
            empty = np.zeros_like(halved)
            start = edges[0] - width if low > high else edges[0]
            merged = np.concatenate([empty, halved] if low > high else [halved, empty])
            self.counts = np.ascontiguousarray(np.moveaxis(merged, 0, axis))
            widened = start + 2 * width * np.linspace(0.0, 1.0, len(edges))
            self.x_edges, self.y_edges = (self.x_edges, widened) if axis else (widened, self.y_edges)


def _edges(values: Array, cells: int) -> Array:
    low, high = np.quantile(values, [0.002, 0.998])
    room = 0.05 * (high - low) or max(abs(high), 1.0) * 0.05
    return np.asarray(np.linspace(low - room, high + room, cells + 1))


class Residuals:
    """Residual grids of the first few targets."""

    def __init__(self) -> None:
        self.grids: list[ResidualGrid] = []
        self.n_targets = 0

    def update(self, truth: NDArray[Any], predicted: NDArray[Any], probabilities: object) -> None:
        """Add a block."""
        truth = np.asarray(truth, dtype=np.float64).reshape(len(truth), -1)
        predicted = np.asarray(predicted, dtype=np.float64).reshape(truth.shape)
        self.n_targets = truth.shape[1]
        while len(self.grids) < min(self.n_targets, LARGEST_TARGETS):
            self.grids.append(ResidualGrid())
        for index, grid in enumerate(self.grids):
            grid.update(predicted[:, index], truth[:, index] - predicted[:, index])


class Coverage:
    """Share of targets within intervals of several coverages, from those of `SCORED_COVERAGE`.

    Parameters
    ----------
    quantiles : ResidualQuantiles
        Those of the model: intervals of other coverages have the same middle, and widths in their ratio.

    Attributes
    ----------
    levels : list of float
        Coverages that were asked for.
    """

    def __init__(self, quantiles: ResidualQuantiles) -> None:
        self.levels = [level for level in COVERAGES if quantiles.can_promise(level)]
        self._halves = np.array([quantiles.at(level) for level in self.levels])
        self._scored = quantiles.at(SCORED_COVERAGE)
        self._inside = np.zeros(len(self.levels))
        self._count = 0

    def update(self, truth: NDArray[Any], predicted: NDArray[Any], intervals: Array | None) -> None:
        """Add a block; without intervals this does nothing."""
        if intervals is None:
            return
        ends = intervals.reshape(len(intervals), -1, 2)
        middle = ends.mean(axis=2)
        misses = np.abs(np.asarray(truth, dtype=np.float64).reshape(middle.shape) - middle) * self._scored
        reach = (ends[..., 1] - ends[..., 0]) / 2
        self._inside += [np.count_nonzero(misses <= reach * half) for half in self._halves]
        self._count += misses.size

    def shares(self) -> Array:
        """Return the share of targets within the intervals of each level."""
        return self._inside / max(1, self._count)


@dataclass(frozen=True)
class Evaluation:
    """Score and statistics of a model on test rows."""

    score: ModelScore
    reliability: Reliability | None
    """Of a classifier with probabilities."""
    residuals: Residuals | None
    """Of a regression."""
    coverage: Coverage | None = None
    """Of a regression with intervals; default None."""

    @property
    def is_classification(self) -> bool:
        """Whether classes were predicted."""
        return isinstance(self.score, ClassificationScore)


def evaluate_model(model: Any, rows: LabelledRows) -> Evaluation:
    """Predict all test rows and return the score with its statistics."""
    if not is_classifier(model):
        residuals = Residuals()
        coverage = None if scored_coverage(model) is None else Coverage(model._calibrated().local)
        collectors: list[BlockCollector] = [residuals] if coverage is None else [residuals, coverage]
        return Evaluation(score_model(model, rows, collectors), None, residuals, coverage)
    reliability = Reliability(model.classes_)
    score = score_model(model, rows, [reliability])
    return Evaluation(score, reliability if reliability.n_rows else None, None)
