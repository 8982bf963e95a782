"""Workers as jobs of a batch queue: submitted through dask-jobqueue, and replaced when their time is up.

The scheduler runs in this process, so the jobs end with the driver: it cancels them, or after a kill they end by dask's
death timeout. Covers queues only; a job that runs the driver itself is described in ``docs/clusters.md``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, NamedTuple

from distkern.errors import ClusterError

from .clients import TlsFiles, new_client, require_address, required
from .worker_settings import WorkerSize, hold_memory, inherited_settings, provide_user_folder, worker_settings

logger = logging.getLogger(__name__)

QUEUE_WAIT_SECONDS = 3600.0
"""Default time to wait for workers that a queue starts."""

REPLACE_SECONDS = 20.0
"""Default time that a job may be without a worker before it is replaced; a nanny restarts a worker sooner."""


class Queue(NamedTuple):
    """Names of dask-jobqueue for one kind of queue."""

    cluster: str
    """Class of the cluster."""
    account: str
    """Parameter of the account of a job."""
    program: str
    """Program that submits a job."""


QUEUE_SYSTEMS = {
    "slurm": Queue("SLURMCluster", "account", "sbatch"),
    "pbs": Queue("PBSCluster", "account", "qsub"),
    "sge": Queue("SGECluster", "project", "qsub"),
    "lsf": Queue("LSFCluster", "project", "bsub"),
    "oar": Queue("OARCluster", "project", "oarsub"),
    "moab": Queue("MoabCluster", "account", "msub"),
}


@contextmanager
def queue_client(
    kind: str,
    size: WorkerSize,
    *,
    workers_per_job: int = 1,
    walltime: str | None = None,
    queue: str | None = None,
    account: str | None = None,
    directives: list[str] | None = None,
    setup: list[str] | None = None,
    python: str | None = None,
    interface: str | None = None,
    local_directory: str | None = None,
    log_directory: str | None = None,
    host: str | None = None,
    tls: TlsFiles | None = None,
    replace_after: float = REPLACE_SECONDS,
) -> Iterator[Any]:
    """Submit jobs that run workers, and cancel them when the context ends; it begins before the jobs run.

    Parameters
    ----------
    kind : str
        One of `QUEUE_SYSTEMS`.
    size : WorkerSize
        Number of worker processes, and the threads and memory of each.
    workers_per_job : int
        Workers of one job; 1 by default.
    walltime, queue, account : str, optional
        Time limit, queue or partition, and account or project of each job. The default of these, and of those below, is
        dask's configuration of the queue, which sites often provide.
    directives : list of str, optional
        Further lines for the queue, without the queue's prefix.
    setup : list of str, optional
        Lines of shell that run before the workers.
    python : str, optional
        Python of the workers; by default the Python of this process.
    interface : str, optional
        Network interface of scheduler and workers.
    local_directory, log_directory : str, optional
        Folders of the workers' scratch files, and of their output.
    host : str, optional
        Address on which the scheduler listens; all addresses of this machine by default.
    tls : TlsFiles, optional
        Certificates, which must be at the same paths for workers; none by default.
    replace_after : float
        Seconds that a job may be without a worker, after it had one, before it is replaced; 20 by default.

    Yields
    ------
    distributed.Client

    Raises
    ------
    ClusterError
        dask-jobqueue is missing, the scheduler does not start, the queue refuses a job, or there is no queue here.
    """
    import dask

    require_address(host)
    provide_user_folder()
    system = QUEUE_SYSTEMS[kind]
    jobqueue = required("dask_jobqueue", kind=kind, extra="jobqueue")
    named = {
        "walltime": walltime,
        "queue": queue,
        system.account: account,
        "job_extra_directives": directives,
        "python": python,
        "interface": interface,
        "local_directory": local_directory,
        "log_directory": log_directory,
        "security": None if tls is None else tls.security(),
    }
    listen = {} if host is None else {"host": host}
    exports = [f"export {name}={value}" for name, value in inherited_settings().items()]
    with dask.config.set(worker_settings()):
        try:
            cluster = getattr(jobqueue, system.cluster)(
                cores=size.threads * workers_per_job,
                processes=workers_per_job,
                memory=f"{size.together(workers_per_job)}B",
                job_script_prologue=[*exports, *(setup or [])],
                scheduler_options={**listen, "dashboard_address": f"{host or ''}:0"},
                **{name: value for name, value in named.items() if value is not None},
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise ClusterError(
                f"the scheduler did not start: {error}; look at host under [cluster] and interface under [cluster.job]",
                kind="no-scheduler",
            ) from error
        logger.info("jobs of the %s queue:\n%s", kind, cluster.job_script())
        jobs = size.workers // workers_per_job
        with cluster, new_client(cluster, set_as_default=False) as client:
            hold_memory(client, size.memory)
            _submit(cluster, jobs, system)
            with _replaced(cluster, jobs, replace_after):
                yield client


def _submit(cluster: Any, jobs: int, system: Queue) -> None:
    async def submit() -> None:
        for _ in range(jobs):
            cluster.worker_spec.update(cluster.new_worker_spec())
        await cluster

    try:
        cluster.sync(submit)
    except FileNotFoundError:
        _give_up(cluster)
        raise ClusterError(
            f"there is no {system.program} on this machine: run this where jobs can be submitted, or name a kind of "
            "cluster that is here ([cluster] kind)",
            kind="no-queue",
        ) from None
    except (OSError, RuntimeError, ValueError) as error:
        _give_up(cluster)
        raise ClusterError(
            f"the queue did not take a job for the workers: {' '.join(str(error).split())}; look at queue, account, "
            "walltime and directives under [cluster.job]",
            kind="queue-refused",
        ) from error


def _give_up(cluster: Any) -> None:
    """Mark jobs that were never submitted as failed: otherwise the cluster would wait for them when it closes."""
    from distributed.core import Status

    for job in cluster.workers.values():
        if job.status == Status.created:
            job.status = Status.failed


@contextmanager
def _replaced(cluster: Any, jobs: int, after: float) -> Iterator[None]:
    """Replace jobs that end within the context; dask itself would only remove them."""
    keeper = asyncio.run_coroutine_threadsafe(_keep(cluster, jobs, after), cluster.loop.asyncio_loop)
    try:
        yield
    finally:
        keeper.cancel()


async def _keep(cluster: Any, jobs: int, after: float) -> None:
    last: dict[Any, float] = {}
    while True:
        await asyncio.sleep(after / 10)
        now = monotonic()
        here = {worker.name for worker in cluster.scheduler.workers.values()}
        for name, spec in cluster.worker_spec.items():
            if here & {f"{name}{suffix}" for suffix in spec.get("group", [""])}:
                last[name] = now
        ended = [name for name in cluster.worker_spec if name in last and now - last[name] > after]
        if ended:
            logger.warning("%d of %d worker jobs ended: submitting others in their place", len(ended), jobs)
            for name in ended:
                del last[name]  # the next job may have the same name
            with suppress(OSError, RuntimeError, ValueError):  # the queue may accept them later
                await cluster.scale_down(ended)
            cluster.scale(jobs=jobs)
