"""Clusters for the tests of the engine; a module of its own name, since workers import the tests that use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask

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


@contextmanager
def cluster(n_workers: int, *, processes: bool, threads: int = 1, **options: Any) -> Iterator[Any]:
    """A client of a fresh cluster; everything is closed at the end, in order."""
    from distributed import Client, LocalCluster

    with (
        dask.config.set(QUIET),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=threads,
            processes=processes,
            host="127.0.0.1" if processes else None,
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
            **options,
        ) as local,
        Client(local, set_as_default=False) as client,
    ):
        yield client
