"""The dask client of a command: of a running cluster, of workers that it starts, or None."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import reduce, wraps
from typing import TYPE_CHECKING, Any, cast

import click

from ..console.interrupts import interrupts_held
from ..console.terminal import Command

if TYPE_CHECKING:
    from distkern.scheduler import TlsFiles

    from ..job.cluster_section import ClusterSection


def cluster_options(verb: str) -> Callable[[Command], Command]:
    """Add ``--scheduler``, ``--scheduler-file``, ``--workers`` and ``--memory`` as the argument `cluster` of a command.

    Parameters
    ----------
    verb : str
        Verb of the help texts, such as "Train".
    """
    options = (
        click.option("--scheduler", metavar="ADDR", help=f"{verb} on the dask cluster at this address."),
        click.option(
            "--scheduler-file", metavar="FILE", help=f"{verb} on the dask cluster whose address is in this file."
        ),
        click.option("--workers", type=int, metavar="N", help=f"{verb} on N worker processes started for this run."),
        click.option("--memory", metavar="SIZE", help='Memory of each process that holds rows: "2GiB".'),
    )

    def decorate(command: Command) -> Command:
        @wraps(command)
        def gathered(*arguments: Any, **named: Any) -> Any:
            flags = {name: named.pop(name) for name in ("scheduler", "scheduler_file", "workers", "memory")}
            given = {name: value for name, value in flags.items() if value is not None}
            return command(*arguments, cluster=given, **named)

        return cast(Command, reduce(lambda inner, option: option(inner), reversed(options), gathered))

    return decorate


def tls_files(section: ClusterSection) -> TlsFiles | None:
    """Return the certificates of a job; None without."""
    from distkern.scheduler import TlsFiles

    return None if section.security is None else TlsFiles(**section.security.model_dump())


@contextmanager
def open_client(section: ClusterSection) -> Iterator[Any]:
    """Yield the dask client of a section, None for work in this process; at the end close the started workers."""
    if section.where is None:
        yield None
        return
    from distkern.scheduler import await_workers, worker_wait

    with worker_wait(seconds_to_wait(section)), ExitStack() as stack:
        if section.starts_workers:
            with interrupts_held():
                client = stack.enter_context(started_client(section))
        else:
            client = stack.enter_context(running_client(section))
        if section.least_workers is not None:
            await_workers(client, section.least_workers)
        yield client


def running_client(section: ClusterSection) -> AbstractContextManager[Any]:
    """Return the client of a running cluster."""
    from distkern.scheduler import connect, connect_by_file

    client: AbstractContextManager[Any]
    if section.scheduler_file is not None:
        client = connect_by_file(section.scheduler_file, tls=tls_files(section))
    else:
        client = connect(section.scheduler, tls=tls_files(section))
    return client


def started_client(section: ClusterSection) -> AbstractContextManager[Any]:
    """Return a client whose context starts the cluster, and closes it."""
    from distkern.scheduler import WorkerSize, kubernetes_client, local_client, queue_client, ssh_client

    size = WorkerSize(section.n_workers, section.memory, section.cores or 1)
    listen: dict[str, Any] = {} if section.host is None else {"host": section.host}
    listen["tls"] = tls_files(section)
    client: AbstractContextManager[Any]
    if section.ssh is not None:
        client = ssh_client(size, **section.ssh.model_dump(exclude_none=True), **listen)
    elif section.kubernetes is not None:
        client = kubernetes_client(size, **section.kubernetes.model_dump(exclude_none=True))
    elif section.where == "local":
        client = local_client(size.workers, size.memory, threads=size.threads, **listen)
    else:
        jobs = {} if section.job is None else section.job.model_dump(exclude_none=True)
        client = queue_client(section.where, size, **jobs, **listen)
    return client


def seconds_to_wait(section: ClusterSection) -> float | None:
    """Return the seconds to wait for workers, longer for those of a queue or of pods; None for the default."""
    from distkern.scheduler import QUEUE_WAIT_SECONDS

    from ..job.cluster_section import QUEUES

    slow = section.where in (*QUEUES, "kubernetes")
    return float(QUEUE_WAIT_SECONDS) if section.wait is None and slow else section.wait
