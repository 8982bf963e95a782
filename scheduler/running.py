"""One training from start to end: executor, backend, loop, figures."""

from __future__ import annotations

import itertools
import resource
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from distkern.errors import JobError
from distkern.events import EventBus, Subscriber
from distkern.scheduler.backends import Backend, DriverFactors, WorkerFactors
from distkern.scheduler.executors import Executor, SerialExecutor
from distkern.scheduler.memory import plan_memory
from distkern.scheduler.threads import available_cores
from distkern.scheduler.training import TrainingJob, TrainingResult, train
from distkern.storage.source import BlockSource

DRIVER_FACTOR_BYTES = 256 << 20
"""Largest Q that `factors="auto"` keeps in the driver."""


def run_training(
    job: TrainingJob,
    source: BlockSource,
    *,
    client: Any = None,
    factors: str = "auto",
    subscribers: Iterable[Subscriber] = (),
) -> TrainingResult:
    """Train on this process, or on the workers of a dask client.

    Parameters
    ----------
    job : TrainingJob
        What to train.
    source : BlockSource
        Training rows.
    client : distributed.Client, optional
        Workers to use; this process alone if not given.
    factors : {"auto", "driver", "workers"}
        Where Q and E live; without a client there is one process and no difference.
    subscribers : iterable of callable
        Take the events.

    Returns
    -------
    TrainingResult
        Its summary also holds the planned and the measured peaks, in bytes.
    """
    if factors not in ("auto", "driver", "workers"):
        raise JobError(f"factors={factors!r}: it must be 'auto', 'driver' or 'workers'", kind="invalid-parameter")
    events = EventBus(subscribers)
    executor: Executor
    backend: Backend
    if client is None:
        executor = SerialExecutor(source)
        backend = WorkerFactors(executor)
        in_driver = True
    else:
        from distkern.scheduler.cluster import DaskExecutor

        in_driver = factors == "driver" or (factors == "auto" and _fits_driver(job, source, client))
        executor = DaskExecutor(client, source, events, with_factors=not in_driver)
        backend = DriverFactors(executor, source) if in_driver else WorkerFactors(executor)
    try:
        n_workers = executor.n_workers
        result = train(job, source, backend, events, n_workers)
        peak_worker = executor.peak_rss()
    finally:
        executor.close()
    return replace(
        result,
        summary={
            **result.summary,
            **_planned(job, source, result, n_workers, in_driver=in_driver, serial=client is None),
            "peak_rss_driver": peak_rss(),
            "peak_rss_worker": peak_worker,
        },
    )


def peak_rss() -> int:
    """Largest resident set of this process so far, in bytes."""
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def _fits_driver(job: TrainingJob, source: BlockSource, client: Any) -> bool:
    from distkern.scheduler.cluster import in_process

    item = 4 if job.dtype == "float32" else 8
    settings = job.selection(source.n_rows)
    width = settings.max_centers + settings.pool
    return in_process(client) and source.n_rows * width * item <= DRIVER_FACTOR_BYTES


def _planned(
    job: TrainingJob,
    source: BlockSource,
    result: TrainingResult,
    n_workers: int,
    *,
    in_driver: bool,
    serial: bool,
) -> dict[str, Any]:
    bounds = source.boundaries
    block_rows = max(b - a for a, b in itertools.pairwise(bounds))
    n_blocks = len(bounds) - 1
    rows = source.n_rows if in_driver else min(source.n_rows, -(-n_blocks // n_workers) * block_rows)
    plan = plan_memory(
        rows,
        source.n_features,
        source.feature_dtype.itemsize,
        block_rows,
        result.summary["n_targets"],
        len(result.paths),
        job.selection(source.n_rows),
        threads=available_cores(),
        is_driver=in_driver or serial,
    )
    return {"planned_peak_bytes": plan.total, "plan": asdict(plan)}
