"""All rows in this process, for methods that compute with the whole Gram matrix.

One pass over the blocks gathers the rows of positive weight, and the same statistics as in the engine, so that scaling,
width and encoding are equal. The methods are in `distkern.methods`; products with a Gram matrix that is not stored are
in `kernel_product`.
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
"""Most numbers of a Gram matrix that one thread computes at a time."""


@dataclass(frozen=True)
class DenseRows:
    """The training rows, in the order of the source."""

    rows: NDArray[np.int64]
    """(n,): row numbers in the source."""
    raw: NDArray[Any]
    """(n, d): features as stored."""
    features: Array
    """(n, d): scaled features."""
    targets: Array
    """(n, T): encoded targets, not centred."""
    weights: Array
    """(n,): row weights, above zero."""
    classes: NDArray[Any] | None
    """Sorted labels, None for regression."""
    kernel: Kernel
    """Kernel with its width."""
    scaling: FeatureScaling
    """From raw features to kernel space."""
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
        """Return the kernel between all rows and the rows at some positions, all by default; shape (n, m).

        Tiles of fixed size run in parallel, each on one BLAS thread, so bits do not depend on the number of threads.
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
        """Return the positions of `count` rows drawn by weight without replacement, ascending."""
        keys = draw_keys(uniforms_for_rows(seed, SAMPLED_STREAM, self.rows), self.weights)
        return np.sort(np.argsort(keys, kind="stable")[:count]).astype(np.int64)


def gather_rows(tasks: BlockTasks, job: SpaceJob) -> DenseRows:
    """Read all rows into this process.

    Parameters
    ----------
    tasks : BlockTasks
        Reads the blocks.
    job : SpaceJob
        Settings of the kernel's space.

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
        weights=np.concatenate(weights) * data.weight_scale,
        classes=data.encoding.classes,
        kernel=data.kernel,
        scaling=data.scaling,
        bytes_read=found.reads.bytes_read,
    )


def _present(block: BlockRows, load: Load) -> tuple[Statistics, BlockRows]:
    """Return the rows of positive weight of a block, and their statistics."""
    present = block.present()
    return Statistics(block_statistics(present, load), Reads.of(block)), present


def gathered_bytes(work: Workload) -> int:
    """Return the bytes of `DenseRows`, and of the blocks from which they are joined."""
    row = 2 * work.row_bytes + 8 * work.n_features + 8 * (2 * work.n_targets + work.target_columns) + 48
    return work.n_rows * row


def reading_bytes(work: Workload, in_flight: int) -> int:
    """Return the bytes of blocks during reads: as read, rows of positive weight, and copies for moments."""
    row = 2 * (work.row_bytes + 8 * work.target_columns + 16) + 16 * work.n_features
    return in_flight * work.block_rows * row + sample_bytes(work)


def sample_bytes(work: Workload) -> int:
    """Return the bytes of the median rule: its sample during a merge, and the distances of all pairs."""
    count = min(MEDIAN_SAMPLE, work.n_rows)
    return 4 * count * work.row_bytes + 40 * count * count // 2
