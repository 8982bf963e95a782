"""One training from start to end: plan, executor, record, loop, summary.

The loop itself is in `driver_loop`, the record in `run_record`; searches are in `..search`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from typing import Any

from distkern.errors import JobError
from distkern.monitoring.events import DashboardServed, EventBus, Subscriber
from distkern.storage import RunDirectory
from distkern.storage.arrays.source import BlockSource

from ..clusters.clients import dashboard_address
from ..clusters.worker_queries import worker_facts
from ..execution.executor import Executor, SerialExecutor
from ..execution.layers import AnnouncingExecutor, DriverFactors
from ..planning.limits import WorkerFacts, default_limit
from ..planning.loss_plan import LossPlan
from ..planning.plan import Plan, within
from ..planning.training_plan import plan_training
from ..planning.workload import Workload
from ..protocol.selection_settings import SelectionSettings
from ..runtime.processes import peak_rss
from ..runtime.spillable_matrix import MemoryBudget
from ..runtime.threads import available_cores
from .driver_loop import TrainingJob, TrainingResult, train
from .run_record import RecordingExecutor, RunStore
from .solver import large_model
from .time_limit import TimeLimit

DRIVER_FACTOR_BYTES = 256 << 20
"""Largest Q that `factors="auto"` keeps in the driver."""

MEMORY_ADVICE = "lower memory_limit ([cluster] memory) so that more goes to scratch, or use more workers"
"""Settings to change where memory runs out in spite of the plan."""


def run_training(
    job: TrainingJob,
    source: BlockSource,
    *,
    client: Any = None,
    factors: str = "auto",
    memory_limit: int | None = None,
    subscribers: Iterable[Subscriber] = (),
    run: RunDirectory | None = None,
    limit: TimeLimit | None = None,
) -> TrainingResult:
    """Train on this process, or on the workers of a dask client.

    Parameters
    ----------
    job : TrainingJob
        The settings.
    source : BlockSource
        Training rows.
    client : distributed.Client, optional
        Cluster to use; this process alone by default.
    factors : {"auto", "driver", "workers"}
        Process of Q and E; without a client there is only one. "auto" by default.
    memory_limit : int, optional
        Bytes that each process with rows may take beside the interpreter; by default most of the memory available to
        this process, or of dask's limit for a worker.
    subscribers : iterable of callable
        Receive the events; none by default.
    run : RunDirectory, optional
        Directory that records every exchange; recorded answers are not computed again. None by default.
    limit : TimeLimit, optional
        Time limit, which counts from its creation; none by default.

    Returns
    -------
    TrainingResult
        Its summary also holds the plan, and the measured peaks in bytes.

    Raises
    ------
    BudgetError
        ``memory``: the job does not fit even with scratch. ``out-of-memory``: less memory was available than planned.
    RunError
        The run is of another job, other data or other software; it cannot be written; another driver took it over.
    Cancelled
        A subscriber cancelled the training.
    """
    if factors not in ("auto", "driver", "workers"):
        raise JobError(f"factors={factors!r}: it must be 'auto', 'driver' or 'workers'", kind="invalid-parameter")
    limit = limit or TimeLimit()
    job = job.resolved(source.n_rows)
    events = EventBus([limit, *subscribers])
    facts = None if client is None else worker_facts(client)
    plan = plan_job(job, workload(job, source), facts, factors=factors, memory_limit=memory_limit)
    plan.require_fit()
    store = None if run is None else RunStore(run, job, source)
    try:
        with within(plan, MEMORY_ADVICE):
            announce_dashboard(client, events)
            run_id = clock = None
            with closing(make_executor(source, client, events, plan, store)) as executor:
                if store is not None:
                    recording = RecordingExecutor(executor, store, events, limit)
                    run_id, clock, executor = store.run_id, recording.seconds, recording
                executor = AnnouncingExecutor(executor, events, plan.peak)
                result = train(job, source, executor, events, run_id, clock, limit)
                peak_worker = executor.peak_rss()
    except BaseException as error:
        events.cut_short(error)
        raise
    finally:
        if store is not None:
            store.close()
    costs = {
        "planned_peak_bytes": plan.peak,
        "planned_peak_driver": plan.driver_peak,
        "plan": plan.terms,
        "peak_rss_driver": peak_rss(),
        "peak_rss_worker": peak_worker,
    }
    return replace(result, summary={**result.summary, **costs})


def announce_dashboard(client: Any, events: EventBus) -> None:
    """Emit the address of the dashboard of a cluster that has one.

    Parameters
    ----------
    client : distributed.Client or None
        The cluster, or None.
    events : EventBus
        Receives the event.
    """
    address = None if client is None else dashboard_address(client)
    if address is not None:
        events.emit(DashboardServed(address=address))


def make_executor(
    source: BlockSource, client: Any, events: EventBus, plan: Plan, store: RunStore | None = None
) -> Executor:
    """Return the executor of a plan.

    Parameters
    ----------
    source : BlockSource
        Training rows.
    client : distributed.Client or None
        Cluster to use; None for this process.
    events : EventBus
        Receives incidents of workers.
    plan : Plan
        Place of the factors, and memory for row matrices.
    store : RunStore, optional
        Record of the run, with its name; none by default.
    """
    assert plan.course is not None
    ahead = plan.course.read_ahead
    if client is None:
        return SerialExecutor(source, budget=MemoryBudget(plan.worker_room, read_ahead=ahead))

    from ..execution.dask_executor import DaskExecutor

    executor = DaskExecutor(
        client,
        source,
        events,
        with_factors=not plan.course.in_driver,
        room=plan.worker_room,
        read_ahead=ahead,
        run_id=None if store is None else store.run_id,
        incarnation=1 if store is None else store.incarnation,
    )
    return (
        DriverFactors(executor, source, MemoryBudget(plan.driver_room, read_ahead=ahead))
        if plan.course.in_driver
        else executor
    )


def workload(job: TrainingJob, source: BlockSource) -> Workload:
    """Return the shapes of a training that are known before the rows are read."""
    return Workload.known(source, classification=job.classification, multiclass=job.multiclass)


def plan_job(
    job: TrainingJob,
    work: Workload,
    facts: WorkerFacts | None = None,
    *,
    factors: str = "auto",
    memory_limit: int | None = None,
) -> Plan:
    """Plan the training of a job.

    Parameters
    ----------
    job : TrainingJob
        The settings.
    work : Workload
        Shapes of the data.
    facts : WorkerFacts, optional
        The workers; this process alone by default.
    factors : {"auto", "driver", "workers"}
        Process of Q and E; "auto" by default.
    memory_limit : int, optional
        Bytes that a process with rows may take beside its baseline; by default most of its available memory.
    """
    job = job.resolved(work.n_rows)
    selected_rows = job.sampled_rows(work.n_rows) or work.n_rows
    settings = job.selection(selected_rows)
    in_driver = False
    if facts is None:
        facts = WorkerFacts(1, available_cores(), None, in_process=True)
    else:
        fits = facts.in_process and _fits_driver(settings, selected_rows)
        in_driver = factors == "driver" or (factors == "auto" and fits)
    here = in_driver or facts.in_process
    return plan_training(
        work,
        settings,
        facts,
        threads=max(available_cores(), facts.threads) if here else facts.threads,
        limit=memory_limit or default_limit(None if here else facts),
        in_driver=in_driver,
        feature_limit=memory_limit or default_limit(facts),
        selected_rows=selected_rows,
        norm_refit=job.refit is not None,
        large=large_model(job, work.n_rows),
        losses=None if job.loss is None else LossPlan(settings.max_centers),
    )


def _fits_driver(settings: SelectionSettings, n_rows: int) -> bool:
    item = 4 if settings.single_precision else 8
    return n_rows * (settings.max_centers + settings.pool) * item <= DRIVER_FACTOR_BYTES
