"""The Ho-Kashyap procedure over blocks: margins stay with the blocks, and the driver gets sums.

The task of a block in an iteration needs the margins of the iteration before. They are results of tasks, so dask
computes those of a failed worker again from the iterations before. The arithmetic is in `distkern.methods.ho_kashyap`.
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
    """Settings of the procedure, the same for every block."""

    labels: NDArray[Any]
    """(K,): sorted labels, or codes, of the rows."""
    signs: Array
    """(K, T): 1 where a class is on the positive side of a target, else -1."""
    scaling: FeatureScaling
    """Scaling of the features."""
    start: float
    """First margins b."""


@dataclass(frozen=True)
class MarginMessage:
    """The message of an iteration to all blocks."""

    weights: Array
    """(d, T): a."""
    bias: Array
    """(T,): its bias."""
    rates: Array
    """(T,): eta, 0 for a target that is decided."""


@dataclass(frozen=True)
class BlockMargins:
    """Result of a block's task: margins for the next iteration, and sums of this one."""

    b: Array
    """(n, T): margins."""
    sums: MarginSums
    """Sums over the rows of the block."""
    reads: Reads
    """Reads of the iteration."""


@dataclass(frozen=True)
class MarginAnswer:
    """Answer of blocks to an iteration."""

    sums: MarginSums
    """Sums over the rows of the blocks."""
    reads: Reads
    """Reads of the iteration."""


def iterate(block: BlockRows, before: BlockMargins | None, setup: MarginSetup, message: MarginMessage) -> BlockMargins:
    """Compute one iteration for one block."""
    X, signs, weights = encoded(block, setup.labels, setup.signs, setup.scaling)
    b = np.full(signs.shape, setup.start) if before is None else before.b
    b, sums = grow_margins(X, signs, weights, b, message.weights, message.bias, message.rates)
    return BlockMargins(b, sums, Reads.of(block))


def answer_of(margins: BlockMargins) -> MarginAnswer:
    """Return the result without the margins."""
    return MarginAnswer(margins.sums, margins.reads)


def merge_answers(left: MarginAnswer, right: MarginAnswer) -> MarginAnswer:
    """Merge function of the reduction tree."""
    return MarginAnswer(left.sums.merge(right.sums), left.reads.merge(right.reads))


@dataclass(frozen=True)
class HoKashyapResult:
    """Result of the procedure."""

    fit: LinearFit
    """Weights and intercepts in the scaled features."""
    separable: list[bool | None]
    """For each target whether a hyperplane separates the rows; None where this is not known."""
    iterations: int
    """Number of iterations."""
    passes: int
    """Number of reads of X."""
    bytes_read: int
    """Bytes read."""


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
    """Iterate until it is known of every target whether the rows are separable.

    Parameters
    ----------
    tasks : BlockTasks
        Runner of the tasks.
    setup : MarginSetup
        Signs, scaling and the first margins.
    scatter : ClassScatter
        Scatter of the scaled rows.
    learning_rate : float
        eta, above 0 and below 1.
    max_iter : int
        Most iterations.
    tol : float
        See `MarginSums.separable`.
    center : array, shape (d,)
        Argument of `least_squares`, whose solution with equal margins is the start.
    first : Reads
        Reads of the first pass, with which every pass is compared.
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
    decided: list[bool | None] = [None] * len(bias)
    held, reader = tasks.hold(setup), BlockReader(tasks, keep)
    margins: list[Handle] = [None] * tasks.n_blocks
    iterations = bytes_read = 0
    while True:
        open_ = np.array([known is None for known in decided])
        message = MarginMessage(weights.copy(), bias.copy(), np.where(open_, learning_rate, 0.0))
        answer = _iterate(tasks, reader, margins, held, message)
        require_same_rows(tasks, first, answer.reads)
        if not keep or not iterations:
            bytes_read += answer.reads.bytes_read
        iterations += 1
        for target, known in enumerate(answer.sums.separable(tol)):
            if open_[target]:
                decided[target] = known
        open_ = np.array([known is None for known in decided])
        if not open_.any() or iterations >= max_iter:
            break
        sums = answer.sums
        step = inside.inverse @ (inside.inverse.T @ (sums.products - np.outer(mean, sums.bias_products)))
        weights += np.where(open_, step, 0.0)
        bias += np.where(open_, sums.bias_products / scatter.weight - mean @ step, 0.0)
    return HoKashyapResult(LinearFit(weights, bias, fit.rank), decided, iterations, reader.passes, bytes_read)


def _iterate(
    tasks: BlockTasks, reader: BlockReader, margins: list[Handle], setup: Handle, message: MarginMessage
) -> MarginAnswer:
    """Run one iteration on all blocks; replace the margins of every block."""
    reader.begin_pass()
    sent = tasks.hold(message)

    def grow(block: int) -> Handle:
        margins[block] = tasks.submit("grow-margins", iterate, reader.read(block), margins[block], setup, sent)
        return tasks.submit("margin-sums", answer_of, margins[block])

    return tasks.reduce_leaves("margins", grow, merge_answers)
