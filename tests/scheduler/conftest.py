"""Clusters for the tests of the engine, one a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from distkern.scheduler.blocks import block_registry as memo
from tests.scheduler.worker_clusters import cluster


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


@pytest.fixture
def threads() -> Iterator[Any]:
    with cluster(2, processes=False) as client:
        yield client
    assert memo.held_runs() == []


@pytest.fixture
def processes(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Two worker processes; nannies restart them if the test asks for it."""
    with cluster(2, processes=True) as client:
        if not getattr(request, "param", False):
            for nanny in client.cluster.workers.values():
                nanny.close_gracefully()  # dask's word for: do not restart the worker
        yield client
