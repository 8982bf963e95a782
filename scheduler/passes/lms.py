"""LMS over blocks: the task of each block continues from the state of the one before, in the order of the rows.

The arithmetic is in `distkern.methods.lms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.errors import DataError
from distkern.methods.lms import LMSRule, LMSState
from distkern.numerics.scaling import FeatureScaling

from .block_tasks import BlockRows, BlockTasks, Handle
from .class_statistics import BlockReader
from .first_pass import Reads, require_same_rows


@dataclass(frozen=True)
class LMSSetup:
    """Settings of the procedure, the same for every block."""

    labels: NDArray[Any]
    """(K,): sorted labels, or codes, of the rows."""
    targets: Array
    """(K, T): targets of each class."""
    scaling: FeatureScaling
    """Scaling of the features."""
    rule: LMSRule
    """Length of the steps."""
    weight_scale: float = 1.0
    """Factor on the row weights."""


@dataclass(frozen=True)
class LMSProgress:
    """Result of a block's task, which the next one continues."""

    state: LMSState
    """State after the rows of the block."""
    reads: Reads
    """Reads so far in this pass."""


def take_steps(block: BlockRows, progress: LMSProgress, setup: LMSSetup, number: int) -> LMSProgress:
    """Compute the steps of the rows of one block.

    Raises
    ------
    DataError
        A row has a label that is not among the classes.
    """
    assert block.features is not None
    weights = np.ones(len(block.rows)) if block.weights is None else block.weights * setup.weight_scale
    X = setup.scaling.apply(block.features, np.dtype(np.float64))
    # Rows of weight 0 keep their place, and may have a label that is not among the classes.
    where = np.minimum(np.searchsorted(setup.labels, block.targets), len(setup.labels) - 1)
    unknown = (setup.labels[where] != block.targets) & (weights > 0)
    if unknown.any():
        row = int(np.argmax(unknown))
        raise DataError(
            f"row {block.rows[row]} has the label {block.targets[row].item()!r}, which is not among classes: name all "
            "labels in the first call of partial_fit",
            kind="unknown-label",
        )
    state = progress.state.advance(X, setup.targets[where], weights, setup.rule, number)
    return LMSProgress(state, progress.reads.merge(Reads.of(block)))


def run_lms(
    tasks: BlockTasks,
    setup: LMSSetup,
    state: LMSState,
    passes: range,
    first: Reads,
    keep: bool,
) -> tuple[LMSState, int, int]:
    """Run several passes over all rows.

    Parameters
    ----------
    tasks : BlockTasks
        Runner of the tasks.
    setup : LMSSetup
        Targets, scaling and rule.
    state : LMSState
        State at the start.
    passes : range
        Numbers of the passes, for the rule.
    first : Reads
        Reads of an earlier pass, with which every pass is compared.
    keep : bool
        Whether blocks stay in memory between passes.

    Returns
    -------
    state : LMSState
    reads : int
        Number of reads of X.
    bytes_read : int

    Raises
    ------
    DataError
        ``changed``.
    """
    held, reader = tasks.hold(setup), BlockReader(tasks, keep)
    bytes_read = 0
    for number in passes:
        reader.begin_pass()
        handle = tasks.hold(LMSProgress(state, Reads()))
        progress = _go_over(tasks, reader, handle, held, number)
        require_same_rows(tasks, first, progress.reads)
        if not keep or number == passes[0]:
            bytes_read += progress.reads.bytes_read
        state = progress.state.finish(setup.rule, number)
    return state, reader.passes, bytes_read


def _go_over(tasks: BlockTasks, reader: BlockReader, handle: Handle, setup: Handle, number: int) -> LMSProgress:
    """Compute the steps of one pass, block after block."""

    def step(block: int) -> Handle:
        nonlocal handle
        handle = tasks.submit("lms-steps", take_steps, reader.read(block), handle, setup, number)
        return handle

    for _ in tasks.in_order(range(tasks.n_blocks), step, tasks.wait):
        pass
    found: LMSProgress = tasks.result(handle)
    return found
