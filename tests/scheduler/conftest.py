"""Clusters for tests that kill workers or shut them down, one a test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from distkern.scheduler.blocks import block_registry
from tests.scheduler.worker_clusters import cluster


@pytest.fixture
def threads() -> Iterator[Any]:
    with cluster(2, processes=False) as client:
        yield client
    assert block_registry.held_runs() == []


@pytest.fixture
def processes(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Two worker processes; nannies restart them if the test asks for it."""
    with cluster(2, processes=True) as client:
        if not getattr(request, "param", False):
            for nanny in client.cluster.workers.values():
                nanny.close_gracefully()  # dask's word for: do not restart the worker
        yield client
