"""Scheduler and workers of another version of distkern, where tasks run on any worker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distkern
from distkern.errors import ClusterError
from distkern.estimators.base.output_functions import all_targets
from distkern.kernels import Gaussian
from distkern.scheduler import connect_by_file
from distkern.scheduler.clusters import versions
from distkern.scheduler.clusters.clients import await_workers
from distkern.scheduler.clusters.futures import fetch, submit
from distkern.scheduler.passes.block_tasks import block_tasks
from distkern.scheduler.prediction.on_workers import predict_on_workers
from tests.references import random_model
from tests.scheduler.trainings import make_data, make_source

OLDER = """
import sys
import distkern
distkern.__version__ = "0.0.9"
if "without" in sys.argv:
    from distkern.scheduler.clusters import versions
    from distkern.scheduler.passes import block_tasks
    del versions.checked_call, block_tasks._call_on_worker
    sys.argv.remove("without")
from distributed.cli import {module}
{module}.main()
"""
"""A process of dask whose distkern has another version, or lacks functions of this one."""


@contextmanager
def process(module: str, older: bool, *arguments: str) -> Iterator[None]:
    command = [sys.executable, "-c", OLDER.format(module=module)] if older else [sys.executable, "-m"]
    command += [] if older else [f"distributed.cli.{module}"]
    running = subprocess.Popen([*command, *arguments], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        running.kill()
        running.wait()


@contextmanager
def cluster_of(folder: Path, *, scheduler: bool = False, worker: bool = False, lacking: bool = False) -> Iterator[Any]:
    """A scheduler and a worker, each of an older version or not."""
    file = str(folder / "scheduler.json")
    lacks = ["without"] if lacking else []
    listening = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file]
    working = ["--scheduler-file", file, "--no-nanny", "--no-dashboard", "--nthreads", "1"]
    with (
        process("dask_scheduler", scheduler, *(lacks if scheduler else []), *listening),
        process("dask_worker", worker, *(lacks if worker else []), *working),
        connect_by_file(file, timeout=20.0) as client,
    ):
        await_workers(client, 1)
        yield client


def square(value: int) -> int:
    return value**2


def run_passes(client: Any) -> None:
    with block_tasks(make_source(*make_data(100)), classification=False, client=client) as tasks:
        assert tasks.result(tasks.submit("square", np.square, 3)) == 9


def predict(client: Any) -> None:
    X, y = make_data(100, d=4)
    list(predict_on_workers(client, random_model(Gaussian(1.5), m=30), make_source(X, y), all_targets))


@pytest.mark.cluster
@pytest.mark.parametrize("lacking", [False, True])
@pytest.mark.parametrize("use", [run_passes, predict])
def test_a_worker_of_another_version(tmp_path: Path, use: Callable[[Any], None], lacking: bool) -> None:
    with cluster_of(tmp_path, worker=True, lacking=lacking) as client:
        with pytest.raises(ClusterError, match=f"0.0.9 there and {distkern.__version__} in the driver") as caught:
            use(client)
        assert caught.value.kind == "version-mismatch"
        assert next(iter(client.scheduler_info()["workers"])) in str(caught.value)


@pytest.mark.cluster
def test_a_worker_of_another_version_that_joins_later(tmp_path: Path) -> None:
    """It compares its version in its first task."""
    with cluster_of(tmp_path, worker=True) as client:
        with pytest.raises(ClusterError, match=f"0.0.9 there and {distkern.__version__} in the driver") as caught:
            fetch(client, submit(client, "square", np.square, 3), 20.0, "square")
        assert caught.value.kind == "version-mismatch"


@pytest.mark.cluster
def test_a_scheduler_of_another_version(tmp_path: Path) -> None:
    with cluster_of(tmp_path, scheduler=True, lacking=True) as client:
        with pytest.raises(ClusterError, match=f"the scheduler .* 0.0.9 there and {distkern.__version__}") as caught:
            run_passes(client)
        assert caught.value.kind == "version-mismatch"


def test_an_error_of_a_task_itself_is_raised_as_it_is(threads: Any) -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        fetch(threads, submit(threads, "square", square, "three"), 20.0, "square")
    versions.compare_versions(threads)
