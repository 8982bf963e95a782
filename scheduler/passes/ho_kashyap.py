"""The Ho-Kashyap procedure over blocks: margins stay with the blocks, the driver sees sums.

An iteration's task of a block takes the margins that the task before it left. They are results like any other, so that
dask makes those of a lost worker again from the iterations before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.methods.ho_kashyap import MarginSums, grow_margins
from distkern.methods.linear_discriminants import LinearFit, Range, least_squares
from distkern.numerics.class_scatter import ClassScatter, triangle
from distkern.numerics.scaling import FeatureScaling

from .block_tasks import BlockRows, BlockTasks, Handle
from .class_statistics import BlockReader, encoded
from .first_pass import Reads, require_same_rows


@dataclass(frozen=True)
class MarginSetup:
    """What every block of a procedure is given."""

    labels: NDArray[Any]
    """(K,): sorted labels, or codes, of the rows."""
    signs: Array
    """(K, T): 1 where a class is on the positive side of a target, else -1."""
    scaling: FeatureScaling
    """Of the features."""
    start: float
    """What b begins with."""


@dataclass(frozen=True)
class MarginQuestion:
    """What an iteration sends to the blocks."""

    weights: Array
    """(d, T): a."""
    bias: Array
    """(T,): its bias."""
    rates: Array
    """(T,): eta, 0 for a target that is decided."""


@dataclass(frozen=True)
class BlockMargins:
    """What a block's task leaves for the next iteration, and says of this one."""

    b: Array
    """(n, T): margins."""
    sums: MarginSums
    """Of the block's rows."""
    reads: Reads
    """What was read."""


@dataclass(frozen=True)
class MarginAnswer:
    """What blocks say of an iteration."""

    sums: MarginSums
    """Of their rows."""
    reads: Reads
    """What was read."""


def iterate(
    block: BlockRows, before: BlockMargins | None, setup: MarginSetup, question: MarginQuestion
) -> BlockMargins:
    """Do one iteration for one block."""
    X, signs, weights = encoded(block, setup.labels, setup.signs, setup.scaling)
    b = np.full(signs.shape, setup.start) if before is None else before.b
    b, sums = grow_margins(X, signs, weights, b, question.weights, question.bias, question.rates)
    return BlockMargins(b, sums, Reads.of(block))


def answer_of(margins: BlockMargins) -> MarginAnswer:
    """Leave the margins behind."""
    return MarginAnswer(margins.sums, margins.reads)


def merge_answers(left: MarginAnswer, right: MarginAnswer) -> MarginAnswer:
    """Merge function of the reduction tree."""
    return MarginAnswer(left.sums.merge(right.sums), left.reads.merge(right.reads))


@dataclass(frozen=True)
class HoKashyapResult:
    """Where the procedure ended."""

    fit: LinearFit
    """In the scaled coordinates."""
    verdicts: list[bool | None]
    """Of each target: whether a hyperplane separates the rows; None where that is not known."""
    iterations: int
    """Iterations."""
    passes: int
    """Times that X was read."""
    bytes_read: int
    """Bytes of those."""


def run_ho_kashyap(
    tasks: BlockTasks,
    setup: MarginSetup,
    scatter: ClassScatter,
    *,
    learning_rate: float,
    max_iter: int,
    tol: float,
    center: Array,
    first: Reads,
    keep: bool,
) -> HoKashyapResult:
    """Iterate until every target is decided.

    Parameters
    ----------
    tasks : BlockTasks
        Where blocks are.
    setup : MarginSetup
        Signs, scaling and the first margins.
    scatter : ClassScatter
        Of the scaled rows.
    learning_rate : float
        eta, above 0 and below 1.
    max_iter : int
        Most iterations.
    tol : float
        See `MarginSums.separable`.
    center : array, shape (d,)
        See `least_squares`, whose solution with equal margins is where it starts.
    first : Reads
        What the first pass read, which must still be there.
    keep : bool
        Whether blocks stay in memory between iterations.

    Raises
    ------
    DataError
        ``changed``.
    """
    fit = least_squares(scatter, setup.start * setup.signs, center)
    inside = Range.of(triangle(np.concatenate([scatter.factor, scatter.between()])))
    weights, bias, mean = fit.weights.copy(), fit.intercept.copy(), scatter.mean
    verdicts: list[bool | None] = [None] * len(bias)
    held, reader = tasks.hold(setup), BlockReader(tasks, keep)
    margins: list[Handle] = [None] * tasks.n_blocks
    iterations = bytes_read = 0
    while True:
        open_ = np.array([verdict is None for verdict in verdicts])
        question = MarginQuestion(weights.copy(), bias.copy(), np.where(open_, learning_rate, 0.0))
        answer = _ask(tasks, reader, margins, held, question)
        require_same_rows(tasks, first, answer.reads)
        if not keep or not iterations:
            bytes_read += answer.reads.bytes_read
        iterations += 1
        for target, verdict in enumerate(answer.sums.separable(tol)):
            if open_[target]:
                verdicts[target] = verdict
        open_ = np.array([verdict is None for verdict in verdicts])
        if not open_.any() or iterations >= max_iter:
            break
        sums = answer.sums
        step = inside.inverse @ (inside.inverse.T @ (sums.products - np.outer(mean, sums.bias_products)))
        weights += np.where(open_, step, 0.0)
        bias += np.where(open_, sums.bias_products / scatter.weight - mean @ step, 0.0)
    return HoKashyapResult(LinearFit(weights, bias, fit.rank), verdicts, iterations, reader.passes, bytes_read)


def _ask(
    tasks: BlockTasks, reader: BlockReader, margins: list[Handle], setup: Handle, question: MarginQuestion
) -> MarginAnswer:
    """Do one iteration on all blocks; replaces the margins of every block."""
    reader.begin_pass()
    asked = tasks.hold(question)

    def grow(block: int) -> Handle:
        margins[block] = tasks.submit("grow-margins", iterate, reader.read(block), margins[block], setup, asked)
        return tasks.submit("margin-sums", answer_of, margins[block])

    return tasks.reduce_leaves("margins", grow, merge_answers)
