"""Shared fixtures, hypothesis profiles, and which tests run when nobody names them.

Tests marked ``nightly`` are variants of tests that run always; they are deselected unless ``-m`` names them.
Profiles: ``default`` on a developer's machine, ``ci`` with the same examples each time, ``nightly`` with more of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# scikit-learn skips its array API checks unless scipy has this setting before its import.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=8)
settings.register_profile("ci", deadline=None, max_examples=8, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=50)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "nightly" in config.option.markexpr or any("::" in argument for argument in config.args):
        return
    left_out = [item for item in items if item.get_closest_marker("nightly")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]


def shared_data_folder() -> Path:
    """DISTKERN_DATA, or shared/data beside the checkout."""
    given = os.environ.get("DISTKERN_DATA")
    return Path(given) if given else Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], dict[str, np.ndarray]]:
    """Load one benchmark set by name; skip where it is absent."""

    def load(name: str) -> dict[str, np.ndarray]:
        path = shared_data_folder() / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"benchmark set {name} is not in {path.parent}; set DISTKERN_DATA to its folder")
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}

    return load


@pytest.fixture(scope="session")
def worker_threads() -> Iterator[Any]:
    """Client of one cluster for all tests: two workers in this process."""
    from tests.scheduler.worker_clusters import lasting_cluster

    with lasting_cluster(2, processes=False) as client:
        yield client


@pytest.fixture(scope="session")
def worker_processes() -> Iterator[Any]:
    """Client of one cluster for all tests: two worker processes, which no test may kill."""
    from tests.scheduler.worker_clusters import lasting_cluster

    with lasting_cluster(2, processes=True) as client:
        yield client


@pytest.fixture(scope="module")
def in_process_client(worker_threads: Any) -> Iterator[Any]:
    """Two workers in this process; every module must leave them empty."""
    from distkern.scheduler.blocks import block_registry

    yield worker_threads
    assert block_registry.held_runs() == []


@pytest.fixture(scope="module")
def process_client(worker_processes: Any) -> Iterator[Any]:
    """Two worker processes; every module must leave them empty."""
    from distkern.scheduler.blocks import block_registry

    yield worker_processes
    assert not any(worker_processes.run(block_registry.held_runs).values())


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """An S3 server for a module, to which URLs lead; `S3Server`."""
    from tests.s3_server import leading_to, s3_server

    with s3_server() as running, leading_to(running):
        yield running


@pytest.fixture
def s3(server: Any) -> Iterator[Any]:
    """The server of the module, without memory of other tests."""
    server.reset()
    yield server
    server.reset()
