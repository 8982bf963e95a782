"""All rows in this process, for methods whose work is with the whole Gram matrix.

One pass over the blocks gathers the rows of positive weight and the same statistics that the engine loads, so that
scaling, width and encoding are those of every other method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.kernels import Kernel
from distkern.numerics.row_draws import draw_keys, uniforms_for_rows
from distkern.numerics.scaling import FeatureScaling

from ..planning.workload import Workload
from ..protocol.messages import Load
from ..rows.block_reading import SELECTION_STREAM, block_statistics
from ..rows.data_checks import MEDIAN_SAMPLE, DataSummary, SpaceJob
from ..runtime.threads import map_tiles, single_threaded_blas
from .block_tasks import BlockRows, BlockTasks
from .first_pass import Reads, Statistics

SAMPLED_STREAM = SELECTION_STREAM + 1
"""Stream of the row draws for expansions in a sample of rows."""

GRAM_TILE = 1 << 19
"""Numbers of a Gram matrix that one thread computes at a time."""


@dataclass(frozen=True)
class DenseRows:
    """The rows that train, in the order of the source."""

    rows: NDArray[np.int64]
    """(n,): row numbers in the source."""
    raw: NDArray[Any]
    """(n, d): features as stored."""
    features: Array
    """(n, d): in the kernel's space."""
    targets: Array
    """(n, T): encoded, not centred."""
    weights: Array
    """(n,): row weights, above zero."""
    classes: NDArray[Any] | None
    """Sorted labels, None for regression."""
    kernel: Kernel
    """With its width."""
    scaling: FeatureScaling
    """To the kernel's space."""
    bytes_read: int
    """Bytes of the arrays that were read."""

    @property
    def codes(self) -> NDArray[np.intp]:
        """Class of each row, shape (n,)."""
        assert self.classes is not None
        if len(self.classes) == 2:
            return (self.targets[:, 0] > 0).astype(np.intp)
        return np.asarray(self.targets.argmax(axis=1))

    def gram(self, columns: NDArray[np.int64] | None = None) -> Array:
        """Kernel between all rows and the rows at some positions, all by default; shape (n, m).

        Tiles of rows run beside each other, so bits do not depend on the number of threads.
        """
        centers = self.features.copy() if columns is None else self.features[columns]
        out = np.empty((len(self.features), len(centers)))
        step = max(1, GRAM_TILE // max(1, len(centers)))

        def fill(start: int) -> None:
            part = slice(start, start + step)
            self.kernel.block(self.features[part], centers, out=out[part])

        with single_threaded_blas():
            for _ in map_tiles(fill, range(0, len(out), step)):
                pass
        return out

    def sample(self, count: int, seed: int) -> NDArray[np.int64]:
        """Positions of `count` rows drawn by weight without replacement, ascending."""
        keys = draw_keys(uniforms_for_rows(seed, SAMPLED_STREAM, self.rows), self.weights)
        return np.sort(np.argsort(keys, kind="stable")[:count]).astype(np.int64)


def gather_rows(tasks: BlockTasks, job: SpaceJob) -> DenseRows:
    """Read all rows into this process.

    Parameters
    ----------
    tasks : BlockTasks
        Reads the blocks.
    job : SpaceJob
        What decides the kernel's space.

    Raises
    ------
    DataError
        The rows cannot be trained on.
    """
    load = Load(job.classification, MEDIAN_SAMPLE if job.samples else 0, job.seed, 0.0)
    found, blocks = None, []
    for statistics, block in tasks.each("gather-rows", _present, load):
        found = statistics if found is None else found.merge(statistics)
        blocks.append(block)
    assert found is not None
    data = DataSummary.of(found.loaded, found.reads.report, tasks.source, job)
    data.warn_about_scales(tasks.source)
    raw = np.concatenate([block.features for block in blocks])
    weights = [np.ones(len(block.rows)) if block.weights is None else block.weights for block in blocks]
    return DenseRows(
        rows=np.concatenate([block.rows for block in blocks]),
        raw=raw,
        features=data.scaling.apply(raw, np.dtype(np.float64)),
        targets=np.concatenate([data.encoding.columns(block.targets) for block in blocks]),
        weights=np.concatenate(weights).astype(np.float64),
        classes=data.encoding.classes,
        kernel=data.kernel,
        scaling=data.scaling,
        bytes_read=found.reads.bytes_read,
    )


def _present(block: BlockRows, load: Load) -> tuple[Statistics, BlockRows]:
    """Rows of positive weight of a block, and their statistics."""
    present = block.present()
    return Statistics(block_statistics(present, load), Reads.of(block)), present


def gathered_bytes(work: Workload) -> int:
    """Bytes of `DenseRows`, and of the blocks that it is put together from."""
    row = 2 * work.row_bytes + 8 * work.n_features + 8 * (2 * work.n_targets + work.target_columns) + 48
    return work.n_rows * row


def reading_bytes(work: Workload, in_flight: int) -> int:
    """Bytes of the blocks that are being read, as read and as present rows only, with their moments' copies."""
    row = 2 * (work.row_bytes + 8 * work.target_columns + 16) + 16 * work.n_features
    return in_flight * work.block_rows * row + sample_bytes(work)


def sample_bytes(work: Workload) -> int:
    """Bytes of the median rule: its sample while it is merged, and all distances of pairs in it."""
    count = min(MEDIAN_SAMPLE, work.n_rows)
    return 4 * count * work.row_bytes + 40 * count * count // 2
