"""Passes over all rows of one block for losses other than the square: a sample of rows, and the loss with its slope.

Covers one block; the iterations are in `..training.loss_fits`, the losses in `distkern.selection.losses`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.numerics.row_draws import uniforms_for_rows

from ..protocol.answers import Answer, CandidateRows, ProblemAnswer
from ..protocol.losses import LossModel, RowSample, SampleRows, SumLoss
from ..protocol.messages import Begin
from ..protocol.problems import Problem
from ..rows.block_reading import HOLDOUT_STREAM, BlockRows
from .all_rows_pass import CenterColumns, pass_over
from .block import Block

LOSS_STREAM = HOLDOUT_STREAM + 20
"""Stream of the row draws that decides which rows are in the sample; the next one decides their folds."""


def sum_loss(block: Block, message: SumLoss, take: Callable[[int], BlockRows]) -> Answer:
    """Compute ``loss`` (1,) and ``slope`` (m + 1, T) of one block, see `LossModel`."""
    return pass_over(block, message.problems, _LossSums, take)


def sample_rows(block: Block, message: SampleRows, take: Callable[[int], BlockRows]) -> Answer:
    """Draw rows of one block: ``candidates`` with weight, encoded targets and raw features, (k, 1 + T + d)."""
    return pass_over(block, message.problems, _Sample, take)


class _LossSums:
    """Loss and slope of one problem over the tiles of a block."""

    def __init__(self, model: LossModel, begin: Begin, problem: Problem, n_rows: int) -> None:
        self._model, self._targets = model, list(problem.columns)
        self._columns = CenterColumns(model.rows, model.features, model.preconditioner, begin, problem, n_rows)
        m, self._n_targets = model.weights.shape
        # numpy rounds products of one column differently
        self._weights = np.zeros((m, max(self._n_targets, 2)))
        self._weights[:, : self._n_targets] = model.weights
        self._slope = np.zeros_like(self._weights)
        self._loss = 0.0

    def add(self, raw: NDArray[Any], rows: NDArray[np.int64], roots: Array | None, encoded: Array) -> None:
        """Add one tile, see `all_rows_pass.Part`."""
        columns = self._columns.of(raw, rows, None)
        scores = (columns.T @ self._weights)[:, : self._n_targets]
        values, slopes, _ = self._model.loss.evaluate(scores, encoded[:, self._targets] - self._model.target_means)
        if roots is not None:
            values, slopes = values * np.square(roots), slopes * np.square(roots)[:, None]
        padded = np.zeros((len(rows), self._slope.shape[1]))
        padded[:, : self._n_targets] = slopes
        self._slope += columns @ padded
        self._loss += float(values.sum())

    def answer(self) -> ProblemAnswer:
        """Return the sums by name."""
        slope = np.ascontiguousarray(self._slope[:, : self._n_targets])
        return ProblemAnswer({"loss": np.array([self._loss]), "slope": slope})


class _Sample:
    """Rows of the sample of one problem in the tiles of a block."""

    def __init__(self, asked: RowSample, begin: Begin, problem: Problem, n_rows: int) -> None:
        self._asked, self._targets = asked, list(problem.columns)
        self._rows: list[NDArray[np.int64]] = []
        self._values: list[Array] = []

    def add(self, raw: NDArray[Any], rows: NDArray[np.int64], roots: Array | None, encoded: Array) -> None:
        """Add one tile, see `all_rows_pass.Part`."""
        drawn = uniforms_for_rows(self._asked.seed, LOSS_STREAM, rows) < self._asked.chance
        weights = np.ones(len(rows)) if roots is None else np.square(roots)
        values = np.column_stack([weights[drawn], encoded[drawn][:, self._targets], raw[drawn].astype(np.float64)])
        self._rows.append(rows[drawn])
        self._values.append(values)

    def answer(self) -> ProblemAnswer:
        """Return the rows."""
        if not self._rows:
            return ProblemAnswer()
        return ProblemAnswer(candidates=CandidateRows(np.concatenate(self._rows), np.concatenate(self._values)))
