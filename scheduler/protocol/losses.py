"""Messages of losses other than the square: a sample of rows, and the loss of a model over all rows with its slope.

Both read all rows again and change no state. Covers no arithmetic, see `..blocks.loss_sums`, and no iterations, see
`..training.loss_fits`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from distkern.arrays import Array, Rows
from distkern.selection.losses import Loss


@dataclass(frozen=True)
class RowSample:
    """A draw of rows by their number alone."""

    chance: float
    """Probability that a row is drawn; 1 or more for all."""
    seed: int
    """Key of the draw."""


@dataclass(frozen=True)
class SampleRows:
    """Answer with rows of the sample of each problem: weight, encoded targets and raw features."""

    problems: tuple[RowSample | None, ...]


@dataclass(frozen=True)
class LossModel:
    """A model whose loss over all rows is summed."""

    rows: Rows
    """(m,): numbers of the centres."""
    features: NDArray[Any]
    """(m, d): raw features of those rows."""
    preconditioner: Array | None
    """(m + 1, m + 1): P, for columns [1 K] inv(P); None for columns [1 K]."""
    weights: Array
    """(m + 1, T): of these columns, in units of the scales of the loss."""
    target_means: Array
    """(T,): subtracted from the encoded targets."""
    loss: Loss


@dataclass(frozen=True)
class SumLoss:
    """Answer with the loss of each problem's model over all rows, and its slope by the weights."""

    problems: tuple[LossModel | None, ...]
    evaluation: int
    """Number of the evaluation, from 0."""
