"""Clusters for the tests; a module of its own name, since workers import the tests that use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import dask
from distributed import Client, LocalCluster  # before its configuration is changed, so that its defaults stay

QUIET = {
    # Tests kill workers and restart them: no waiting, no advice.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.comm.timeouts.connect": "10s",
    "distributed.scheduler.worker-ttl": None,
    # Sampling the frames of other threads can deadlock in Python 3.11 (a collection runs under the interpreter's lock).
    "distributed.worker.profile.enabled": False,
}


def start(stack: ExitStack, n_workers: int, *, processes: bool, threads: int = 1, **options: Any) -> Any:
    """A client of a fresh cluster, both closed by the stack."""
    local = stack.enter_context(
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=threads,
            processes=processes,
            host="127.0.0.1" if processes else None,
            dashboard_address="127.0.0.1:0",
            **{"silence_logs": 50, **options},
        )
    )
    return stack.enter_context(Client(local, set_as_default=False))


@contextmanager
def cluster(n_workers: int, *, processes: bool, threads: int = 1, **options: Any) -> Iterator[Any]:
    """A client of a fresh cluster; everything is closed at the end, in order."""
    with dask.config.set(QUIET), ExitStack() as stack:
        yield start(stack, n_workers, processes=processes, threads=threads, **options)


@contextmanager
def lasting_cluster(n_workers: int, *, processes: bool) -> Iterator[Any]:
    """A cluster that outlives a test, and leaves dask's configuration and all loggers to the tests in between."""
    with ExitStack() as stack:
        with dask.config.set(QUIET):
            client = start(stack, n_workers, processes=processes, silence_logs=False)
        yield client
