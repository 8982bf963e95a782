"""Clusters for the tests of the engine, one a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask
import pytest

from distkern.scheduler import memo

QUIET = {
    # Tests kill workers and restart them: no waiting, no advice.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.comm.timeouts.connect": "10s",
    "distributed.scheduler.worker-ttl": None,
}


@contextmanager
def cluster(n_workers: int, *, processes: bool, threads: int = 1) -> Iterator[Any]:
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
        ) as local,
        Client(local, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def in_process_client() -> Iterator[Any]:
    """Two workers in this process; every training must leave them empty."""
    with cluster(2, processes=False) as client:
        yield client
    assert memo.held_runs() == []


@pytest.fixture(scope="module")
def process_client() -> Iterator[Any]:
    """Two worker processes."""
    with cluster(2, processes=True) as client:
        yield client
