"""Tasks of rows that come later: sums for fixed centres, and errors on the new rows; pure functions of a block.

Row numbers continue after those of the rows before, so no new row is taken for a centre. The driver's part is in
`..training.appended_rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from distkern.arrays import Array
from distkern.models.kernel_model import KernelModel
from distkern.probability.decisions import decide

from ..blocks.all_rows_pass import sums_over_rows
from ..prediction.local import evaluate
from ..protocol.answers import ProblemAnswer
from ..protocol.messages import Begin, Centers, Load
from ..rows.block_reading import BlockRows
from ..rows.label_encoding import KnownLabels
from .first_pass import Reads, Statistics


class NewRows(NamedTuple):
    """Numbers and labels of the rows, the same for all blocks."""

    first: int
    """Number of the first row, after those of all rows before."""
    n_rows: int
    """Number of all rows, old and new."""
    labels: KnownLabels
    """Encoding of the targets by the labels of the model."""

    def numbered(self, block: BlockRows) -> BlockRows:
        """Return the rows of a block that have a weight above zero, with numbers after those of all rows before."""
        present = block.present()
        return present._replace(rows=present.rows + self.first)


@dataclass(frozen=True)
class NewSums:
    """Sums over new rows."""

    statistics: Statistics
    """Moments, labels and reads."""
    problems: tuple[dict[str, Array], ...]
    """Sums of each problem by name, see `ProblemAnswer`."""

    def merge(self, other: NewSums) -> NewSums:
        """Return the sums over both sets of rows."""
        added = tuple(
            {name: own[name] + more[name] for name in own}
            for own, more in zip(self.problems, other.problems, strict=True)
        )
        return NewSums(self.statistics.merge(other.statistics), added)


@dataclass(frozen=True)
class Errors:
    """Errors of the model before and after on new rows."""

    reads: Reads
    weight: float
    """Sum of the row weights."""
    before: Array
    """(T,): weighted sum of squared errors of each target; (1,) for classes, the weight of the wrong rows."""
    after: Array
    """The same of the new model."""

    def merge(self, other: Errors) -> Errors:
        """Return the errors on both sets of rows."""
        return Errors(
            self.reads.merge(other.reads),
            self.weight + other.weight,
            self.before + other.before,
            self.after + other.after,
        )


def sums_of_block(block: BlockRows, centers: Sequence[Centers], begin: Begin, load: Load, new: NewRows) -> NewSums:
    """Compute statistics and sums of one block.

    Parameters
    ----------
    block : BlockRows
        The block, with features.
    centers : sequence of Centers
        Centres of every problem.
    begin : Begin
        The problems, and the space of the kernel.
    load : Load
        Whether targets are labels.
    new : NewRows
        Numbers and labels.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        answers: list[ProblemAnswer] = sums_over_rows(new.numbered(block), begin, new.labels, new.n_rows, centers)
    return NewSums(Statistics.of(block, load), tuple(answer.sums for answer in answers))


def errors_of_block(block: BlockRows, models: tuple[KernelModel, KernelModel], multiclass: str, new: NewRows) -> Errors:
    """Compute the errors of two models on one block.

    Parameters
    ----------
    block : BlockRows
        The block, with features.
    models : tuple of KernelModel
        The model before, and after.
    multiclass : str
        How classes follow from outputs, see `decide`.
    new : NewRows
        Numbers and labels.
    """
    rows = new.numbered(block)
    weights = np.ones(len(rows.rows)) if rows.weights is None else rows.weights
    before, after = (weighted_errors(model, rows.features, rows.targets, weights, multiclass, new) for model in models)
    return Errors(Reads.of(block), float(weights.sum()), before, after)


def weighted_errors(
    model: KernelModel, features: Any, targets: Any, weights: Array, multiclass: str, new: NewRows
) -> Array:
    """Return the weighted sum of the squared errors of each target, or of the wrong classes, shape (T,) or (1,)."""
    with np.errstate(over="ignore", invalid="ignore"):
        outputs = evaluate(model, features)
        classes = new.labels.classes
        if classes is None:
            return np.asarray(weights @ np.square(new.labels.columns(targets) - outputs))
        wrong = decide(outputs, len(classes), multiclass) != new.labels.codes(targets)
        return np.array([weights @ wrong])
