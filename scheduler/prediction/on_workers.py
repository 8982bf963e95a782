"""Predictions on dask workers: one task a block, results in order.

The tasks are pure, so dask itself runs those of a lost worker again. Workers read their own blocks where they can;
rows that live in the driver's process travel with the task. The driver keeps a bounded number of blocks in flight,
so neither it nor the workers pile up results that nobody has taken.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import dask
import numpy as np
from numpy.typing import NDArray

from distkern.models.kernel_model import KernelModel

from ..clusters.clients import default_worker_wait
from ..clusters.futures import fetch
from ..runtime.read_ahead import is_far, step_aside
from ..runtime.threads import follow_worker
from .local import FeatureSource, Finish, evaluate

T = TypeVar("T")

IN_FLIGHT_PER_THREAD = 2
"""Blocks under way for each thread of the workers: one computed, one waiting."""


@dataclass(frozen=True)
class BlockTask(Generic[T]):
    """What all tasks of a prediction share; a worker holds it once."""

    model: KernelModel
    """The model, not prepared: arrays that dask has moved may be unaligned."""
    finish: Finish[T]
    """Applied to the fitted targets."""
    source: FeatureSource | None
    """Where the worker reads its blocks; None where rows come with the task."""


def hold_model(task: BlockTask[T]) -> BlockTask[T]:
    """Put what all tasks share on a worker, as a result that dask can make again."""
    return task


def read_rows(task: BlockTask[T], block: int) -> NDArray[Any]:
    """Read one block in a task that leaves its thread to others while it waits for a network."""
    step_aside()
    assert task.source is not None
    return task.source.read_features(block)


def predict_block(task: BlockTask[T], block: int, rows: NDArray[Any] | None) -> T:
    """Read one block, unless its rows are given, and predict it."""
    follow_worker()
    if rows is None:
        assert task.source is not None
        rows = task.source.read_features(block)
    # What dask delivers need not be aligned, and that would change products.
    rows = np.require(rows, requirements=["C", "A"])
    return task.finish(evaluate(task.model, rows))


def predict_on_workers(
    client: Any,
    model: KernelModel,
    source: FeatureSource,
    finish: Finish[T],
    *,
    worker_wait: float | None = None,
) -> Iterator[tuple[int, T]]:
    """Predict block by block on the workers of a dask client.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    model : KernelModel
        Sent to the workers once.
    source : FeatureSource
        Rows.
    finish : callable
        Applied on the workers to the fitted targets of each block.
    worker_wait : float, optional
        Seconds to wait for a worker when there is none; ``distkern.worker-wait`` of dask's configuration, or a minute,
        if not given.

    Yields
    ------
    first_row : int
    result : object
        What `finish` returned.

    Raises
    ------
    ClusterError
        No worker comes in time, workers keep dying, or the cluster goes away.
    """
    worker_wait = default_worker_wait() if worker_wait is None else worker_wait
    run = uuid.uuid4().hex
    shared = _submit(
        client, hold_model, BlockTask(model, finish, None if source.inline else source), key=f"kernel-model-{run}"
    )
    flying: deque[tuple[int, Any]] = deque()
    try:
        for block, first_row in enumerate(source.boundaries[:-1]):
            while len(flying) >= _most_in_flight(client):
                yield _land(client, flying, worker_wait)
            rows: Any = source.read_features(block) if source.inline else None
            if is_far(source):
                rows = _submit(client, read_rows, shared, block, key=f"read-block-{run}-{block}")
            future = _submit(client, predict_block, shared, block, rows, key=f"predict-block-{run}-{block}")
            flying.append((first_row, future))
        while flying:
            yield _land(client, flying, worker_wait)
    finally:
        for _, future in flying:
            future.cancel()
        shared.release()


def _submit(client: Any, function: Any, *arguments: Any, key: str) -> Any:
    # A block of rows is some MB; dask's advice about large graphs is for data in graphs.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
        return client.submit(function, *arguments, key=key, pure=False)


def _most_in_flight(client: Any) -> int:
    threads: int = sum(client.nthreads().values())
    return IN_FLIGHT_PER_THREAD * max(1, threads)


def _land(client: Any, flying: deque[tuple[int, Any]], worker_wait: float) -> tuple[int, Any]:
    """Take the block that is next in order; one that fails stays to be cancelled with the others."""
    first_row, future = flying[0]
    landed = first_row, fetch(client, future, worker_wait, f"predict the rows from {first_row} on")
    flying.popleft()
    return landed
