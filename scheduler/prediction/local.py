"""Predictions in bounded memory: tiles on the pool of this process, while the next block is read.

A source cuts its rows into blocks; a block is cut into tiles whose size depends on the model only. So a prediction has
the same bits for any number of threads and workers, and for all containers with the same blocks.

Covers neither the arithmetic of a tile, see `distkern.models.kernel_model`, nor blocks on a cluster, see `on_workers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.models.kernel_model import KernelModel
from distkern.storage.arrays.source import FeatureSource

from ..runtime.read_ahead import ReadAhead, ahead_of
from ..runtime.threads import map_tiles, single_threaded_blas, workspace

T = TypeVar("T")

TILE_BYTES = 2 << 20
"""Bytes of kernel values and scaled rows of a tile; 1 to 4 MB were equally fast, larger and smaller tiles slower."""

FITTED_BYTES = 64 << 20
"""Bytes of fitted targets that are computed at a time: with pairs of many classes a row has thousands of them."""

MIN_TILE_ROWS = 32
"""With fewer rows the product reads the centres from memory too often."""

MAX_TILE_ROWS = 4096
"""With more rows the prediction of a small model is not faster."""

OutputFunction = Callable[[Array], T]
"""Function from fitted targets, shape (n, T), to predictions; it is pickled and sent to workers."""


def tile_rows(n_centers: int, n_features: int, itemsize: int) -> int:
    """Return the number of rows of a tile: a power of two, so that usual chunks are whole tiles.

    Parameters
    ----------
    n_centers, n_features : int
        Centres of the model, and features.
    itemsize : int
        Bytes of a kernel value.
    """
    fitting = TILE_BYTES // (itemsize * max(1, n_centers + n_features))
    return max(MIN_TILE_ROWS, min(MAX_TILE_ROWS, 1 << max(0, fitting.bit_length() - 1)))


def evaluate(model: KernelModel, X: NDArray[Any]) -> Array:
    """Evaluate a model on rows in memory, tile by tile on all threads of the pool.

    Parameters
    ----------
    model : KernelModel
        The model.
    X : array, shape (n, d)
        Raw features, of any number type and memory order.

    Returns
    -------
    array, shape (n, n_outputs)
        Fitted targets, and further outputs of the model after them.
    """
    prepared = model.prepare()
    m, d = prepared.centers.shape
    rows = tile_rows(m, d, prepared.centers.itemsize)
    values = np.empty((len(X), prepared.n_outputs))

    def evaluate_tile(start: int) -> None:
        part = slice(start, start + rows)
        prepared.evaluate(X[part], out=values[part], scratch=workspace.array)

    with single_threaded_blas():
        if len(X) <= rows:
            evaluate_tile(0)
        else:
            for _ in map_tiles(evaluate_tile, range(0, len(X), rows)):
                pass
    return values


def evaluate_batches(model: KernelModel, X: NDArray[Any]) -> Iterator[tuple[int, Array]]:
    """Evaluate a model on rows in memory, in batches whose fitted targets have at most `FITTED_BYTES`.

    Parameters
    ----------
    model : KernelModel
        The model.
    X : array, shape (n, d)
        Raw features.

    Yields
    ------
    first_row : int
    values : array, shape (n_batch, T)
        Fitted targets; without rows one empty array.
    """
    fitting = FITTED_BYTES // (8 * max(1, model.n_outputs))
    m, d = model.centers.shape
    # Whole tiles, so that the bits are those of one batch of all rows.
    rows = max(tile_rows(m, d, model.centers.itemsize), 1 << max(0, fitting.bit_length() - 1))
    for start in range(0, max(1, len(X)), rows):
        yield start, evaluate(model, X[start : start + rows])


def predict_blocks(model: KernelModel, source: FeatureSource, finish: OutputFunction[T]) -> Iterator[tuple[int, T]]:
    """Predict block by block, in order, in this process.

    Parameters
    ----------
    model : KernelModel
        The model.
    source : FeatureSource
        Rows.
    finish : callable
        Applied to the fitted targets of each block.

    Yields
    ------
    first_row : int
    result : object
        Return value of `finish`.
    """
    numbers = range(len(source.boundaries) - 1)
    with ReadAhead(source.read_features, numbers, max(1, ahead_of(source))) as reader:
        for block in numbers:
            rows = reader.take(block)
            values = evaluate(model, rows)
            del rows
            yield source.boundaries[block], finish(values)
