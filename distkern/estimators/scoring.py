"""Scores of predictions that arrive block by block, in memory that does not grow with the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler import ReadAhead, ahead_of
from distkern.storage import Dataset, ZarrRows, is_zarr_array

from ..errors import DataError

SCORED_COVERAGE = 0.9
"""Coverage of the intervals that are compared with targets."""

LIKELIHOOD_FLOOR = 1e-15
"""Lowest probability of a true class in the log loss, so that one row does not make it infinite."""


class ClassificationScore:
    """Confusion counts over blocks, and losses of probabilities.

    Parameters
    ----------
    classes : array, shape (n_classes,)
        Labels of the model.
    """

    def __init__(self, classes: NDArray[Any]) -> None:
        self.labels: list[Any] = list(np.asarray(classes).tolist())
        self.confusion = np.zeros((len(self.labels), len(self.labels)), dtype=np.int64)
        self.n_rows = 0
        self._n_classes = len(self.labels)
        self._log_losses = self._squares = float("nan")

    def update(
        self, truth: NDArray[Any], predicted: NDArray[Any], probabilities: NDArray[np.float64] | None = None
    ) -> None:
        """Add a block, probabilities optional; labels unknown to the model get a row, and have no probability."""
        true_codes, predicted_codes = self._codes(truth), self._codes(predicted)
        grown = len(self.labels) - len(self.confusion)
        self.confusion = np.pad(self.confusion, (0, grown))
        np.add.at(self.confusion, (true_codes, predicted_codes), 1)
        if probabilities is not None:
            self._add_losses(true_codes, probabilities)
        self.n_rows += len(true_codes)

    def _add_losses(self, codes: NDArray[np.intp], probabilities: NDArray[np.float64]) -> None:
        seen = codes < self._n_classes
        own = np.zeros(len(codes))
        own[seen] = probabilities[seen, codes[seen]]
        before = (self._log_losses, self._squares) if self.n_rows else (0.0, 0.0)
        self._log_losses = before[0] - float(np.log(np.maximum(own, LIKELIHOOD_FLOOR)).sum())
        # sum_c (p_c - t_c)^2, with t_c one for the true class.
        self._squares = before[1] + float((np.square(probabilities).sum(axis=1) - 2 * own + 1).sum())

    def _codes(self, values: NDArray[Any]) -> NDArray[np.intp]:
        labels, inverse = np.unique(np.asarray(values).ravel(), return_inverse=True)
        known = {label: code for code, label in enumerate(self.labels)}
        codes = [known.setdefault(label, len(known)) for label in labels.tolist()]
        self.labels = list(known)
        return np.asarray(codes, dtype=np.intp)[inverse]

    @property
    def error(self) -> float:
        """Fraction of rows predicted wrongly."""
        return 1.0 - float(np.trace(self.confusion)) / self.n_rows if self.n_rows else float("nan")

    @property
    def log_loss(self) -> float:
        """Mean of -log P(true class | x); NaN without probabilities."""
        return self._log_losses / self.n_rows if self.n_rows else float("nan")

    @property
    def brier(self) -> float:
        """Mean of the squared distance between probabilities and truth, from 0 to 2; NaN without probabilities."""
        return self._squares / self.n_rows if self.n_rows else float("nan")

    def headline(self) -> dict[str, float]:
        """Return the score that ``train --json`` reports."""
        return {"error": self.error}

    def per_class(self) -> Iterator[dict[str, Any]]:
        """Yield label, rows, precision, recall and F1 of each class."""
        hits = np.diag(self.confusion).astype(float)
        rows, claimed = self.confusion.sum(axis=1), self.confusion.sum(axis=0)
        for label, hit, row, claim in zip(self.labels, hits, rows, claimed, strict=True):
            yield {
                "label": label,
                "rows": int(row),
                "precision": _ratio(hit, claim),
                "recall": _ratio(hit, row),
                "f1": _ratio(2 * hit, row + claim),
            }

    def as_record(self) -> dict[str, Any]:
        """Return all scores as JSON values."""
        return {
            "n_rows": self.n_rows,
            "error": self.error,
            "log_loss": self.log_loss,
            "brier": self.brier,
            "classes": list(self.per_class()),
            "labels": self.labels,
            "confusion": self.confusion.tolist(),
        }


class RegressionScore:
    """Root mean square error, mean absolute error and R² over blocks, in the units of y.

    Several targets are averaged as in scikit-learn: each target's score counts the same. With intervals of
    `SCORED_COVERAGE` it also has the share of targets within them.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self._squares: NDArray[np.float64] = np.zeros(1)
        self._absolutes: NDArray[np.float64] = np.zeros(1)
        self._mean: NDArray[np.float64] = np.zeros(1)
        self._spread: NDArray[np.float64] = np.zeros(1)
        self._inside: int | None = None

    def update(
        self, truth: NDArray[Any], predicted: NDArray[Any], intervals: NDArray[np.float64] | None = None
    ) -> None:
        """Add a block, intervals optional."""
        truth = np.asarray(truth, dtype=np.float64).reshape(len(truth), -1)
        wrong = truth - np.asarray(predicted, dtype=np.float64).reshape(truth.shape)
        if not len(truth):
            return
        self._squares = self._squares + np.sum(wrong**2, axis=0)
        self._absolutes = self._absolutes + np.sum(np.abs(wrong), axis=0)
        # Means and spreads merge block by block (Chan et al.): sums of squares of y itself would cancel.
        mean = truth.mean(axis=0)
        shift, total = mean - self._mean, self.n_rows + len(truth)
        self._spread = (
            self._spread + np.sum((truth - mean) ** 2, axis=0) + shift**2 * (self.n_rows * len(truth) / total)
        )
        self._mean = self._mean + shift * (len(truth) / total)
        if intervals is not None:
            ends = intervals.reshape(*truth.shape, 2)
            inside = np.count_nonzero((ends[..., 0] <= truth) & (truth <= ends[..., 1]))
            self._inside = (self._inside or 0) + int(inside)
        self.n_rows = total

    @property
    def rmse(self) -> float:
        """Root of the mean squared error."""
        return float(np.mean(np.sqrt(self._squares / self.n_rows))) if self.n_rows else float("nan")

    @property
    def mae(self) -> float:
        """Mean absolute error."""
        return float(np.mean(self._absolutes / self.n_rows)) if self.n_rows else float("nan")

    @property
    def r2(self) -> float:
        """Fraction of y's variance that is explained; NaN where a target is constant."""
        if not self.n_rows or np.any(self._spread == 0):
            return float("nan")
        return float(np.mean(1.0 - self._squares / self._spread))

    @property
    def covered(self) -> float | None:
        """Share of targets within their intervals; None without intervals."""
        return None if self._inside is None else self._inside / (self.n_rows * len(self._squares))

    def per_target(self) -> Iterator[dict[str, float]]:
        """Yield the root mean square error, the mean absolute error and R² of each target."""
        if not self.n_rows:
            return
        for squares, absolutes, spread in zip(self._squares, self._absolutes, self._spread, strict=True):
            yield {
                "rmse": float(np.sqrt(squares / self.n_rows)),
                "mae": float(absolutes / self.n_rows),
                "r2": float(1.0 - squares / spread) if spread else float("nan"),
            }

    def headline(self) -> dict[str, float]:
        """Return the score that ``train --json`` reports."""
        return {"rmse": self.rmse}

    def as_record(self) -> dict[str, Any]:
        """Return all scores as JSON values."""
        record = {"n_rows": self.n_rows, "rmse": self.rmse, "mae": self.mae, "r2": self.r2}
        return record if self.covered is None else record | {"interval": SCORED_COVERAGE, "covered": self.covered}


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")


ModelScore: TypeAlias = ClassificationScore | RegressionScore
"""Score of a classifier or of a regressor."""


class LabelledRows(Protocol):
    """Rows with targets: a `Dataset`, or separate arrays of a user."""

    X: Any

    def targets(self, start: int, stop: int) -> NDArray[Any]:
        """Return the targets of some rows as the user gave them."""
        ...


class BlockCollector(Protocol):
    """Collector of predictions beside the score."""

    def update(self, truth: NDArray[Any], predicted: NDArray[Any], beside: NDArray[np.float64] | None, /) -> None:
        """Add a block; beside predictions there are probabilities or intervals."""
        ...


def score_model(model: Any, data: LabelledRows, collectors: Sequence[BlockCollector] = ()) -> ModelScore:
    """Predict all rows of a data set and compare them with its targets, block by block.

    Parameters
    ----------
    model : fitted estimator
        Model with ``iter_predictions``.
    data : LabelledRows
        Rows and targets.
    collectors : sequence of BlockCollector, default ()
        Objects that get every block too.
    """
    rows = data.require_targets() if isinstance(data, Dataset) else data.X
    with (
        closing(_predictions(model, rows)) as blocks,
        _targets_ahead(data) as truths,
    ):
        return score_blocks(
            model, ((truths(start, start + len(made[0])), *made) for start, *made in blocks), collectors
        )


def score_blocks(
    model: Any,
    blocks: Iterable[tuple[NDArray[Any], NDArray[Any], NDArray[np.float64] | None]],
    collectors: Sequence[BlockCollector] = (),
) -> ModelScore:
    """Compare predictions with targets, block by block.

    Parameters
    ----------
    model : fitted estimator
        The model.
    blocks : iterable of (targets, predictions, probabilities or intervals)
        Blocks of rows; the last is None for a regressor without intervals.
    collectors : sequence of BlockCollector, default ()
        Objects that get every block too.

    Raises
    ------
    DataError
        ``shape-mismatch``, ``not-numeric``: the targets are not such as the model predicts.
    """
    score: ModelScore = ClassificationScore(model.classes_) if is_classifier(model) else RegressionScore()
    takers: list[BlockCollector] = [score, *collectors]
    for truth, predicted, beside in blocks:
        _require_comparable(truth, predicted, score)
        for taker in takers:
            taker.update(truth, predicted, beside)
    return score


def _require_comparable(truth: NDArray[Any], predicted: NDArray[Any], score: ModelScore) -> None:
    if truth.size != predicted.size:
        given, made = (values.size // max(1, len(predicted)) for values in (truth, predicted))
        raise DataError(
            f"the rows have {given} targets, and the model predicts {made}: give those that it was trained on",
            kind="shape-mismatch",
        )
    if isinstance(score, RegressionScore) and truth.dtype.kind not in "biuf":
        raise DataError(
            f"the targets are labels ({truth.ravel()[:1].tolist()[0]!r}), and the model predicts numbers: give the "
            "numbers that it was trained on",
            kind="not-numeric",
        )


@contextmanager
def _targets_ahead(data: LabelledRows) -> Iterator[Callable[[int, int], NDArray[Any]]]:
    """Yield the function that reads the targets of a block; those behind a URL are read ahead."""
    source = data.source() if isinstance(data, Dataset) else ZarrRows(data.X) if is_zarr_array(data.X) else None
    ahead = 0 if source is None else ahead_of(source)
    if source is None or ahead == 0:
        yield data.targets
        return
    spans = list(pairwise(source.boundaries))
    numbers = {span: number for number, span in enumerate(spans)}
    with ReadAhead(lambda number: data.targets(*spans[number]), range(len(spans)), ahead) as reader:

        def read(start: int, stop: int) -> NDArray[Any]:
            number = numbers.pop((start, stop), None)
            return data.targets(start, stop) if number is None else reader.take(number)

        yield read


def _predictions(model: Any, rows: Any) -> Any:
    """Predict with probabilities or intervals, where the model has them."""
    if is_classifier(model):
        return model.iter_predictions(rows, proba=True)
    coverage = scored_coverage(model)
    # A model of the user's own may know no intervals.
    return model.iter_predictions(rows) if coverage is None else model.iter_predictions(rows, interval=coverage)


def scored_coverage(model: Any) -> float | None:
    """Return `SCORED_COVERAGE` for a regressor whose residuals can promise it, else None."""
    made = None if is_classifier(model) or not hasattr(model, "_calibrated") else model._calibrated()
    return SCORED_COVERAGE if made is not None and made.local.can_promise(SCORED_COVERAGE) else None


def is_classifier(model: Any) -> bool:
    """Return whether a fitted model predicts classes."""
    return getattr(model, "classes_", None) is not None
