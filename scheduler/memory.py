"""Bytes of a training, from shapes alone."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from distkern.scheduler.block import TILE_ROWS
from distkern.scheduler.settings import SelectionSettings
from distkern.scheduler.tiles import SLAB

BASELINE = 250 << 20
"""Bytes of an interpreter with numpy, scipy, zarr and dask loaded."""


@dataclass(frozen=True)
class MemoryPlan:
    """Peak bytes of one process that holds blocks, a term a buffer."""

    baseline: int
    """The interpreter and its libraries."""
    features: int
    """Raw features of the blocks."""
    loading: int
    """Copies while blocks are read and their moments taken."""
    factors: int
    """Q, in whole slabs."""
    pool: int
    """Orthogonalised candidates."""
    work: int
    """The formed panel and the batch of kernel columns."""
    residual: int
    """E, row numbers, weights and marks."""
    workspaces: int
    """Tile buffers of all threads, and partial sums."""
    driver: int
    """Coefficients, Gram matrices and the run log, where the driver is this process."""

    @property
    def total(self) -> int:
        """Sum of the terms."""
        return sum(int(getattr(self, field.name)) for field in fields(self))


def plan_memory(
    n_rows: int,
    n_features: int,
    feature_itemsize: int,
    block_rows: int,
    n_targets: int,
    n_problems: int,
    settings: SelectionSettings,
    *,
    threads: int,
    is_driver: bool,
) -> MemoryPlan:
    """Compute the peak of a process that holds `n_rows` rows.

    Parameters
    ----------
    n_rows, n_features, feature_itemsize : int
        Shape and item size of the raw features held here.
    block_rows : int
        Rows of the largest block.
    n_targets, n_problems : int
        Encoded target columns, and factor sets.
    settings : SelectionSettings
        Widths of pool, panel and batch.
    threads : int
        Width of the tile pool.
    is_driver : bool
        Whether the driver loop runs in the same process.
    """
    item = 4 if settings.single_precision else 8
    width = settings.panel + settings.batch
    columns = settings.max_centers + 1
    slabs = -(-columns // SLAB) * SLAB
    tile = min(TILE_ROWS, n_rows)
    row_bytes = n_features * feature_itemsize
    partial = 8 * (columns * width + settings.pool * (settings.batch + 1))
    levels = 2 + int(np.ceil(np.log2(max(2, n_rows // max(tile, 1)))))
    tile_width = n_features + settings.pool + 4 * width
    log = 8 * columns * columns * (settings.batch + settings.panel) // (2 * max(1, settings.panel))
    gram = 8 * (columns * columns + columns * settings.pool + 2 * settings.pool**2)
    return MemoryPlan(
        baseline=BASELINE,
        features=n_rows * row_bytes,
        loading=threads * block_rows * (row_bytes + 2 * 8 * n_features),
        factors=n_problems * n_rows * slabs * item,
        pool=n_problems * n_rows * settings.pool * item,
        work=n_problems * n_rows * width * item,
        residual=n_rows * (n_problems * 2 * item + n_targets * (item + 8) + n_problems + 24),
        workspaces=threads * tile * tile_width * item + n_problems * partial * (levels + 2 * threads),
        driver=n_problems * (log + gram) if is_driver else 0,
    )
