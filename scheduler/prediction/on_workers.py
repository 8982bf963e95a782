"""Predictions on dask workers: one task for each block, results in order.

The tasks are pure, so dask itself repeats those of a failed worker. Workers read their blocks where they can; rows in
the memory of the driver are sent with the task. A bounded number of tasks is in flight, so results do not pile up.
The tiles of a block are computed in `local`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from distkern.models.kernel_model import KernelModel
from distkern.storage.arrays.source import FeatureSource

from ..clusters.clients import default_worker_wait
from ..clusters.futures import fetch, most_in_flight, submit
from ..clusters.versions import compare_versions
from ..runtime.read_ahead import is_remote, step_aside
from ..runtime.submission_window import in_order
from ..runtime.threads import follow_worker
from .local import OutputFunction, evaluate

T = TypeVar("T")


@dataclass(frozen=True)
class BlockTask(Generic[T]):
    """The part that all tasks of a prediction share; a worker holds it once."""

    model: KernelModel
    """The model, prepared only on the worker: dask may deliver unaligned arrays."""
    finish: OutputFunction[T]
    """Applied to the fitted targets."""
    source: FeatureSource | None
    """Source of blocks for workers; None where the rows are sent with the task."""


def hold_model(held: T) -> T:
    """Return a model, or the shared part of tasks, as a result on a worker, which dask can compute again."""
    return held


def read_rows(task: BlockTask[T], block: int) -> NDArray[Any]:
    """Read one block in a task that releases its thread to other tasks while it waits for a network."""
    step_aside()
    assert task.source is not None
    return task.source.read_features(block)


def predict_block(task: BlockTask[T], block: int, rows: NDArray[Any] | None) -> T:
    """Predict one block; read it first, unless its rows are given."""
    follow_worker()
    if rows is None:
        assert task.source is not None
        rows = task.source.read_features(block)
    # dask may deliver unaligned arrays, whose products are rounded differently.
    rows = np.require(rows, requirements=["C", "A"])
    return task.finish(evaluate(task.model, rows))


def predict_on_workers(
    client: Any,
    model: KernelModel,
    source: FeatureSource,
    finish: OutputFunction[T],
    *,
    worker_wait: float | None = None,
) -> Iterator[tuple[int, T]]:
    """Predict block by block on the workers of a dask client.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    model : KernelModel
        The model, which is sent to each worker once.
    source : FeatureSource
        Rows.
    finish : callable
        Applied on the workers to the fitted targets of each block.
    worker_wait : float, optional
        Seconds to wait for a worker when there is none; by default ``distkern.worker-wait`` of dask's configuration, or
        60 s.

    Yields
    ------
    first_row : int
    result : object
        Return value of `finish`.

    Raises
    ------
    ClusterError
        No worker joins in time, workers fail repeatedly or have another version of distkern, or the cluster is lost.
    """
    wait = default_worker_wait() if worker_wait is None else worker_wait
    compare_versions(client)
    shared = submit(client, "kernel-model", hold_model, BlockTask(model, finish, None if source.inline else source))

    def start(block: int) -> tuple[int, Any]:
        rows: Any = source.read_features(block) if source.inline else None
        if is_remote(source):
            rows = submit(client, "read-block", read_rows, shared, block)
        return source.boundaries[block], submit(client, "predict-block", predict_block, shared, block, rows)

    def take(flying: tuple[int, Any]) -> tuple[int, T]:
        first_row, future = flying
        return first_row, fetch(client, future, wait, f"predict the rows from {first_row} on")

    def cancel(flying: Iterable[tuple[int, Any]]) -> None:
        for _, future in flying:
            future.cancel()

    blocks = range(len(source.boundaries) - 1)
    try:
        yield from in_order(blocks, start, take, lambda: most_in_flight(client), cancel)
    finally:
        shared.release()
