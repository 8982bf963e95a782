"""One training from start to end: plan, executor, backend, loop, figures."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from distkern.errors import JobError
from distkern.events import EventBus, Subscriber
from distkern.scheduler.backends import Backend, DriverFactors, WorkerFactors
from distkern.scheduler.executors import Executor, SerialExecutor
from distkern.scheduler.memory import BASELINE, SHARE_OF_AVAILABLE, Workload, available_memory
from distkern.scheduler.plan import TrainingPlan, plan_training
from distkern.scheduler.row_matrix import MemoryBudget
from distkern.scheduler.threads import available_cores
from distkern.scheduler.training import TrainingJob, TrainingResult, train
from distkern.scheduler.workers import WorkerFacts, worker_facts
from distkern.storage.source import BlockSource

DRIVER_FACTOR_BYTES = 256 << 20
"""Largest Q that `factors="auto"` keeps in the driver."""

UNKNOWN_CLASSES = 10
"""Classes a plan counts on where only the labels themselves would tell."""


def run_training(
    job: TrainingJob,
    source: BlockSource,
    *,
    client: Any = None,
    factors: str = "auto",
    memory_limit: int | None = None,
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
    memory_limit : int, optional
        Bytes that each process which holds rows may take beside the interpreter's own; by default most of what
        this process, or dask's limit for a worker, has left.
    subscribers : iterable of callable
        Take the events.

    Returns
    -------
    TrainingResult
        Its summary also holds the plan, and the measured peaks in bytes.

    Raises
    ------
    BudgetError
        The job does not fit the memory, whatever goes to scratch.
    """
    if factors not in ("auto", "driver", "workers"):
        raise JobError(f"factors={factors!r}: it must be 'auto', 'driver' or 'workers'", kind="invalid-parameter")
    events = EventBus(subscribers)
    work = workload(job, source)
    if client is None:
        plan = plan_job(job, work, limit=memory_limit or default_limit())
        plan.worker.require_fit("this process")
        serial = SerialExecutor(source, budget=MemoryBudget(plan.worker.room))
        return _run(job, source, serial, WorkerFactors(serial), events, plan)

    from distkern.scheduler.cluster import DaskExecutor

    facts = worker_facts(client)
    in_driver = factors == "driver" or (factors == "auto" and facts.in_process and _fits_driver(job, source))
    limit = memory_limit or default_limit(None if in_driver else facts)
    plan = plan_job(job, work, facts, in_driver=in_driver, limit=limit)
    plan.worker.require_fit("this process" if in_driver else "a worker")
    room = plan.worker.room
    executor = DaskExecutor(client, source, events, with_factors=not in_driver, room=room)
    backend = DriverFactors(executor, source, MemoryBudget(room)) if in_driver else WorkerFactors(executor)
    return _run(job, source, executor, backend, events, plan)


def _run(
    job: TrainingJob, source: BlockSource, executor: Executor, backend: Backend, events: EventBus, plan: TrainingPlan
) -> TrainingResult:
    try:
        result = train(job, source, backend, events, executor.n_workers)
        peak_worker = executor.peak_rss()
    finally:
        executor.close()
    figures = {
        "planned_peak_bytes": plan.peak,
        "planned_peak_driver": plan.driver_peak,
        "plan": plan.worker.terms(),
        "peak_rss_driver": peak_rss(),
        "peak_rss_worker": peak_worker,
    }
    return replace(result, summary={**result.summary, **figures})


def workload(job: TrainingJob, source: BlockSource) -> Workload:
    """Shapes of a training, as far as the source tells without being read."""
    n_targets = target_count(job, source)
    return Workload.of(source, n_targets, n_targets if job.one_vs_rest else 1)


def default_limit(facts: WorkerFacts | None = None) -> int | None:
    """Bytes that a process may take beside its baseline where nothing is said.

    Parameters
    ----------
    facts : WorkerFacts, optional
        Workers that hold the rows; this process if not given. Workers without a limit of dask's share what this
        machine has left, if they are yet to be started here.
    """
    if facts is None:
        return int(SHARE_OF_AVAILABLE * available_memory())
    each = facts.memory_limit or available_memory() // facts.n_workers
    return max(int(SHARE_OF_AVAILABLE * each) - BASELINE, 1)


def plan_job(
    job: TrainingJob,
    work: Workload,
    facts: WorkerFacts | None = None,
    *,
    in_driver: bool = False,
    limit: int | None = None,
) -> TrainingPlan:
    """Plan the training of a job.

    Parameters
    ----------
    job : TrainingJob
        What to train.
    work : Workload
        Shapes.
    facts : WorkerFacts, optional
        The workers; this process alone if not given.
    in_driver : bool
        Whether this process holds the factors beside the workers.
    limit : int, optional
        Bytes a process that holds rows may take beside its baseline.
    """
    alone = facts is None
    return plan_training(
        work,
        job.selection(selecting_rows(job, work.n_rows)),
        n_workers=1 if facts is None else facts.n_workers,
        threads=available_cores() if facts is None or in_driver else facts.threads,
        in_driver=alone or in_driver,
        limit=limit,
        selected_rows=selecting_rows(job, work.n_rows),
    )


def selecting_rows(job: TrainingJob, n_rows: int) -> int:
    """Rows that centres are chosen on."""
    return n_rows if job.selection_rows is None else min(job.selection_rows, n_rows)


def target_count(job: TrainingJob, source: BlockSource) -> int:
    """Encoded target columns, as far as the source tells without being read."""
    if not job.classification:
        return source.target_shape[0] if source.target_shape else 1
    classes = UNKNOWN_CLASSES if source.classes is None else len(source.classes)
    return 1 if classes <= 2 else classes


def peak_rss() -> int:
    """Largest resident set of this process so far, in bytes."""
    try:
        # getrusage also counts the process that started this one, up to the moment it was replaced.
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        scale = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def _fits_driver(job: TrainingJob, source: BlockSource) -> bool:
    item = 4 if job.dtype == "float32" else 8
    rows = selecting_rows(job, source.n_rows)
    settings = job.selection(rows)
    width = settings.max_centers + settings.pool
    return rows * width * item <= DRIVER_FACTOR_BYTES
