"""dask clients: one that is there, one to connect to, one on a cluster that distkern starts and closes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distkern.errors import ClusterError
from distkern.scheduler.memory import BASELINE


def current_client() -> Any | None:
    """Return the dask client that is current in this process, None if there is none; never imports dask."""
    module = sys.modules.get("distributed")
    if module is None:
        return None
    try:
        return module.default_client()
    except ValueError:
        return None


@contextmanager
def connect(address: str, timeout: float = 5.0) -> Iterator[Any]:
    """Connect to a scheduler that is already running; it stays when the context ends.

    Parameters
    ----------
    address : str
        For example ``tcp://host:8786``.
    timeout : float
        Seconds to wait.

    Yields
    ------
    distributed.Client

    Raises
    ------
    ClusterError
        Nothing answers there.
    """
    from distributed import Client

    try:
        client = Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise ClusterError(
            f"no dask scheduler answers at {address} within {timeout:g} s: {error}; "
            "check the address and that the scheduler is running",
            kind="no-scheduler",
        ) from None
    with client:
        yield client


@contextmanager
def local_client(workers: int, memory: int | None = None) -> Iterator[Any]:
    """Start worker processes on this machine, one thread each, and close them when the context ends.

    distkern holds its own memory budget, so dask's spilling, pausing and killing are switched off on a
    cluster it starts: state above dask's thresholds would otherwise pause a worker for ever.

    Parameters
    ----------
    workers : int
        Worker processes.
    memory : int, optional
        Bytes that trainings may take of each worker's memory beside the interpreter's own, held by the operating
        system where it can; dask's share of this machine if not given.

    Yields
    ------
    distributed.Client

    Raises
    ------
    ClusterError
        The workers do not start.
    """
    import dask
    from distributed import Client, LocalCluster

    from distkern.scheduler.limits import HoldMemory

    settings: dict[str, Any] = {
        f"distributed.worker.memory.{name}": False for name in ("target", "spill", "pause", "terminate")
    }
    settings["distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_"] = None
    with dask.config.set(settings):
        try:
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                memory_limit="auto" if memory is None else BASELINE + memory,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
            )
        except (OSError, ValueError, TimeoutError, RuntimeError) as error:
            raise ClusterError(f"{workers} local workers did not start: {error}", kind="no-workers") from error
        with cluster, Client(cluster, set_as_default=False) as client:
            if memory is not None:
                client.register_plugin(HoldMemory(memory))
            yield client
