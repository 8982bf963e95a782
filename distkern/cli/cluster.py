"""The dask client a command works with: that of a running cluster, of workers started for it, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from distkern.cli.interrupts import interrupts_held

if TYPE_CHECKING:
    from distkern.cli.job import ClusterSection
    from distkern.scheduler import TlsFiles

Command = TypeVar("Command", bound=Callable[..., Any])


def cluster_options(verb: str) -> Callable[[Command], Command]:
    """Give a command ``--scheduler``, ``--workers`` and ``--memory``.

    Parameters
    ----------
    verb : str
        What the cluster does, for the help.
    """
    options = (
        click.option("--scheduler", metavar="ADDR", help=f"{verb} on the dask cluster at this address."),
        click.option("--workers", type=int, metavar="N", help=f"{verb} on N worker processes started for this run."),
        click.option("--memory", metavar="SIZE", help='Memory of each process that holds rows: "2GiB".'),
    )

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def tls_files(section: ClusterSection) -> TlsFiles | None:
    """Return the certificates that a job names.

    Parameters
    ----------
    section : ClusterSection
        ``[cluster]`` of a job.
    """
    from distkern.scheduler import TlsFiles

    return None if section.security is None else TlsFiles(**section.security.model_dump())


@contextmanager
def open_client(section: ClusterSection) -> Iterator[Any]:
    """Yield the dask client that is asked for, or None for work in this process; close what was started.

    Parameters
    ----------
    section : ClusterSection
        ``[cluster]`` of a job, or the flags of a command.
    """
    if section.scheduler is None and section.workers is None:
        yield None
        return
    from distkern.scheduler import connect, local_client, worker_wait

    tls = tls_files(section)
    with worker_wait(section.wait), ExitStack() as stack:
        if section.scheduler is not None:
            client = stack.enter_context(connect(section.scheduler, tls=tls))
        else:
            assert section.workers is not None
            host = {} if section.host is None else {"host": section.host}
            with interrupts_held():
                client = stack.enter_context(local_client(section.workers, section.memory, tls=tls, **host))
        yield client
