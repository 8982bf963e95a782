"""Passes over labelled rows for the linear methods: statistics of the classes, and repeated reads.

A first pass finds the classes, checks the rows, and computes means and scatter where a method needs them. Later passes
compare the checksum of every block with that of the first one. The solutions are in
`distkern.methods.linear_discriminants`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.monitoring.events import EventBus
from distkern.numerics.class_scatter import ClassScatter
from distkern.numerics.scaling import FeatureScaling

from ..protocol.messages import Load
from ..rows.data_checks import check_rows, distinct_labels, report_reads
from .block_tasks import BlockRows, BlockTasks, Handle
from .first_pass import Statistics

FACTORED_ROWS = 4096
"""Rows that are factored at a time, or eight times as many as there are features."""

_LOAD = Load(classification=True, sample_rows=0, seed=0, holdout=0.0)


def present_rows(block: BlockRows) -> tuple[NDArray[Any], NDArray[Any], Array | None]:
    """Return features, targets and weights of the rows with a weight above 0."""
    _, features, targets, weights, *_ = block.present()
    assert features is not None
    return features, targets, None if weights is None else weights.astype(np.float64)


def find_statistics(block: BlockRows, with_scatter: bool) -> Statistics:
    """Compute the statistics of one block."""
    return replace(Statistics.of(block, _LOAD), scatter=block_scatter(block) if with_scatter else None)


def block_scatter(block: BlockRows) -> ClassScatter:
    """Compute means and scatter of the classes in one block, tile by tile."""
    features, labels, weights = present_rows(block)
    n, d = features.shape
    scatter = ClassScatter.empty(labels, d)
    step = tile_rows(d)
    for start in range(0, n, step):
        part = slice(start, start + step)
        tile = ClassScatter.of_rows(features[part], labels[part], None if weights is None else weights[part])
        scatter = scatter.merge(tile)
    return scatter


def tile_rows(n_features: int) -> int:
    """Return the rows of a tile: so many that the merge of its factor costs little in comparison."""
    return max(FACTORED_ROWS, 8 * n_features)


def class_statistics(tasks: BlockTasks, *, with_scatter: bool, any_classes: bool = False) -> Statistics:
    """Run the first pass, and refuse rows on which no classifier can be trained.

    Parameters
    ----------
    tasks : BlockTasks
        Runner of the tasks.
    with_scatter : bool
        Whether to compute means and scatter of the classes.
    any_classes : bool
        Whether rows of one class are accepted; False by default.

    Raises
    ------
    DataError
        Too few rows or classes, constant features, a continuous target, or numbers too large or small to be squared.
    """
    # Overflow is found in the moments.
    found = tasks.reduce("class-statistics", find_statistics, with_scatter, merge=Statistics.merge)
    report_reads(found.reads.report, tasks.source, EventBus(()))
    loaded = replace(found.loaded, labels=None) if any_classes else found.loaded
    check_rows(loaded, tasks.source, dtype="float64", standardize=True)
    if tasks.source.classes is None:
        distinct_labels(found.labels)
    return found


class BlockReader:
    """Reads blocks in every pass, or keeps them in memory.

    Parameters
    ----------
    tasks : BlockTasks
        Runner of the tasks.
    keep : bool
        Whether to keep blocks in memory, where the plan allows.
    """

    def __init__(self, tasks: BlockTasks, keep: bool) -> None:
        self._tasks = tasks
        self._kept: dict[int, Handle] | None = {} if keep else None
        self.passes = 0
        """Number of reads of all blocks."""

    def begin_pass(self) -> None:
        """Count a pass, if its blocks are read."""
        self.passes += self._kept is None or not self._kept

    def read(self, block: int) -> Handle:
        """Return the rows of one block."""
        if self._kept is None:
            return self._tasks.read(block)
        if block not in self._kept:
            self._kept[block] = self._tasks.read(block)
        return self._kept[block]


def encoded(
    block: BlockRows, labels: NDArray[Any], targets: Array, scaling: FeatureScaling
) -> tuple[Array, Array, Array | None]:
    """Return scaled features, targets and weights of the rows of weight above 0.

    Parameters
    ----------
    block : BlockRows
        Rows.
    labels : array, shape (K,)
        Sorted labels, or codes.
    targets : array, shape (K, T)
        Targets of each class.
    scaling : FeatureScaling
        Scaling of the features.
    """
    features, own, weights = present_rows(block)
    X = scaling.apply(features, np.dtype(np.float64))
    return X, targets[np.searchsorted(labels, own)], weights
