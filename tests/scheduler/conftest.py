"""Clusters for the tests of the engine, one a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from clusters import cluster

from distkern.scheduler import memo


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
