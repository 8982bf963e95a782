"""Trainings whose row matrices are in scratch, in part or all: the same bits, and nothing left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from scratch_files import scratch_files
from trainings import assert_same_bits, make_classes, make_data, make_job, make_source, tile_threads

from distkern.events import Event, EventBus, RoundDone, WorkerLost
from distkern.scheduler import memo, run_training
from distkern.scheduler.backends import DriverFactors, WorkerFactors
from distkern.scheduler.cluster import DaskExecutor
from distkern.scheduler.executors import SerialExecutor
from distkern.scheduler.row_matrix import MemoryBudget
from distkern.scheduler.running import plan_job, workload
from distkern.scheduler.training import TrainingJob, TrainingResult, train
from distkern.storage import ArraySource


def in_memory(job: TrainingJob, source: ArraySource) -> TrainingResult:
    return train(job, source, WorkerFactors(SerialExecutor(source)), EventBus())


def limit_with(job: TrainingJob, source: ArraySource, share: float) -> int:
    """A limit that leaves memory for a share of the row matrices."""
    whole = plan_job(job, workload(job, source)).worker
    return whole.fixed + int(share * whole.resident.total)


@st.composite
def problems(draw: st.DrawFn) -> tuple[TrainingJob, ArraySource]:
    seed = draw(st.integers(0, 999))
    n, rows = draw(st.sampled_from([(60, 60), (90, 13), (300, 71), (300, 1), (1500, 1500), (2300, 1100)]))
    rows = rows if rows > 1 else 37
    rng = np.random.default_rng(seed)
    weights = draw(st.sampled_from([None, "zeros", "uneven"]))
    values = {None: None, "zeros": rng.integers(0, 3, n) / 1.0, "uneven": rng.uniform(0.5, 2.0, n)}[weights]
    kind = draw(st.sampled_from(["values", "columns", "shared", "one-vs-rest"]))
    criterion = draw(st.sampled_from(["error-reduction", "error-reduction", "residual"]))
    job = make_job(
        classification=kind in ("shared", "one-vs-rest"),
        one_vs_rest=kind == "one-vs-rest",
        criterion=criterion,
        dtype=draw(st.sampled_from(["float64", "float32"])),
        stop=draw(st.sampled_from([None, "validation", "gcv"])),
        sampler=draw(st.sampled_from(["mixture", "uniform"])),
        sigma=draw(st.sampled_from(["median", 1.0])),
        epsilon=draw(st.sampled_from([0.0, 0.25])),
        max_centers=8 if criterion == "residual" else 14,
        panel=draw(st.sampled_from([1, 4])),
        seed=seed,
    )
    if job.classification:
        X, y = make_classes(n, 3, seed=seed)
    else:
        X, y = make_data(n, seed=seed, n_targets=2 if kind == "columns" else 0)
    if draw(st.booleans()):
        X = X.astype(np.float32)
    return job, make_source(X, y, values, rows=rows)


@given(problems(), st.sampled_from([0.0, 1.0]) | st.floats(0.0, 1.0))
@settings(max_examples=40)
def test_the_model_does_not_depend_on_the_limit(problem: tuple[TrainingJob, ArraySource], share: float) -> None:
    job, source = problem
    result = run_training(job, source, memory_limit=limit_with(job, source, share))
    assert_same_bits(result, in_memory(job, source))
    plan = result.summary["plan"]
    out = sum(size for name, size in plan.items() if name.startswith("scratch_"))
    whole = out + sum(size for name, size in plan.items() if name.startswith("resident_"))
    assert out == whole - int(share * whole)


def test_slabs_and_tiles_in_scratch(tmp_path: Path) -> None:
    """Q in several slabs, blocks in several tiles, and blocks that are partly inside and partly not."""
    X, y = make_data(2700, 3, noise=1.0)
    job = make_job(max_centers=300, candidates=64, panel=16, sigma=0.2)
    source = make_source(X, y, rows=1500)
    expected = in_memory(job, source)
    assert len(expected.paths[0].rows) == 300
    for room in (0, 3_000_000):
        budget = MemoryBudget(room, str(tmp_path))
        executor = SerialExecutor(source, budget=budget)
        assert_same_bits(train(job, source, WorkerFactors(executor), EventBus()), expected)
        matrices = [m for b in executor._blocks for s in b.problems for m in (s.work, s.pool, *s.slabs)]
        assert any(m.in_memory for m in matrices) == (room > 0)
        assert not all(m.in_memory for m in matrices)
        assert budget.used <= room
        del matrices
        executor.close()
        assert budget.used == 0
        assert scratch_files(tmp_path) == {}


@pytest.mark.parametrize("width", [1, 4])
def test_threads(width: int) -> None:
    job, source = case("float32")
    with tile_threads(width):
        assert_same_bits(run_training(job, source, memory_limit=limit_with(job, source, 0.3)), reference("float32"))


# ---- Clusters

N = 320
CASES: dict[str, Callable[[], tuple[TrainingJob, ArraySource]]] = {
    "one-vs-rest": lambda: (
        make_job(classification=True, one_vs_rest=True, stop="validation", patience=50, sampler="mixture", seed=4),
        make_source(*make_classes(N, seed=4), np.random.default_rng(0).integers(0, 3, N) / 2, rows=40),
    ),
    "float32": lambda: (make_job(dtype="float32", panel=2, sigma="median"), make_source(*make_data(N, 3), rows=40)),
    "residual": lambda: (
        make_job(criterion="residual", max_centers=6),
        make_source(*make_data(N, n_targets=2), rows=40),
    ),
}


def case(name: str) -> tuple[TrainingJob, ArraySource]:
    return CASES[name]()


@cache
def reference(name: str) -> TrainingResult:
    return in_memory(*case(name))


def executor_and_backend(
    client: Any, source: ArraySource, events: EventBus, factors: str, room: int
) -> tuple[DaskExecutor, WorkerFactors | DriverFactors]:
    executor = DaskExecutor(client, source, events, with_factors=factors == "workers", room=room)
    if factors == "workers":
        return executor, WorkerFactors(executor)
    return executor, DriverFactors(executor, source, MemoryBudget(room))


@pytest.mark.parametrize("room", [0, 30_000])
@pytest.mark.parametrize("factors", ["workers", "driver"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["in_process", pytest.param("process", marks=pytest.mark.cluster)])
def test_workers_with_rows_in_scratch(
    request: pytest.FixtureRequest, kind: str, name: str, factors: str, room: int
) -> None:
    client = request.getfixturevalue(f"{kind}_client")
    job, source = case(name)
    executor, backend = executor_and_backend(client, source, EventBus(), factors, room)
    used: list[dict[str, int]] = []
    try:
        result = train(job, source, backend, EventBus())
        if kind == "process":
            used = list(client.run(in_scratch).values())
    finally:
        executor.close()
    assert_same_bits(result, reference(name))
    if kind == "process":
        assert all(used)
        assert not any(client.run(in_scratch).values())


def in_scratch(dask_worker: Any) -> dict[str, int]:
    """Scratch files in a worker's local directory, from inside the worker."""
    gc.collect()
    return scratch_files(dask_worker.local_directory)


@pytest.mark.parametrize("factors", ["workers", "driver"])
def test_the_limit_holds_for_all_workers_in_this_process_together(in_process_client: Any, factors: str) -> None:
    job, source = case("float32")
    result = run_training(
        job, source, client=in_process_client, factors=factors, memory_limit=limit_with(job, source, 0.5)
    )
    assert_same_bits(result, reference("float32"))


class Trouble(EventBus):
    """Makes trouble after a round."""

    def __init__(self, number: int, trouble: Callable[[], object]) -> None:
        super().__init__()
        self.lost: list[str] = []
        self._left = number
        self._trouble = trouble

    def emit(self, event: Event) -> None:
        if isinstance(event, WorkerLost):
            self.lost.append(event.worker)
        if isinstance(event, RoundDone):
            self._left -= 1
            if self._left == 0:
                self._trouble()


@pytest.fixture
def processes() -> Iterator[Any]:
    """Two worker processes that nobody restarts."""
    with cluster(2, processes=True) as client:
        for nanny in client.cluster.workers.values():
            nanny.auto_restart = False
        yield client


@pytest.mark.cluster
@pytest.mark.parametrize("factors", ["workers", "driver"])
def test_a_worker_killed_with_scratch_in_use(processes: Any, factors: str) -> None:
    job, source = case("one-vs-rest")
    pids = processes.run(os.getpid)
    folders = {address: worker["local_directory"] for address, worker in processes.scheduler_info()["workers"].items()}
    lost = min(pids)

    def kill() -> None:
        assert scratch_files(folders[lost], pids[lost])
        os.kill(pids[lost], signal.SIGKILL)

    events = Trouble(2, kill)
    executor, backend = executor_and_backend(processes, source, events, factors, 0)
    try:
        result = train(job, source, backend, events)
    finally:
        executor.close()
    assert_same_bits(result, reference("one-vs-rest"))
    assert events.lost == [lost]
    # The dead worker's space is free: its directory, if it is still there, holds nothing of ours.
    for folder in folders.values():
        assert not [name for name in names_in(folder) if "scratch" in name]
    assert not any(processes.run(in_scratch).values())


def names_in(folder: str) -> list[str]:
    return [name for _, _, files in os.walk(folder) for name in files]


class Failing(ArraySource):
    """Rows that cannot be read a second time, or from some block on."""

    inline = False
    bad_block = 5

    def read_features(self, block: int) -> Any:
        if block == self.bad_block:
            raise OSError("the disk is gone")
        return super().read_features(block)


def failing() -> Failing:
    _, whole = case("float32")
    return Failing(whole.X, whole.y, whole.weights, boundaries=whole.boundaries)


@pytest.mark.cluster
def test_an_exception_in_an_effect_leaves_no_scratch(process_client: Any) -> None:
    job, _ = case("float32")
    source = failing()
    for where in (OSError, RuntimeError):
        events = EventBus()
        executor, backend = executor_and_backend(process_client, source, events, "workers", 0)
        if where is RuntimeError:
            source.bad_block = -1
            source = failing()
            source.bad_block = -1
            executor.close()
            executor, backend = executor_and_backend(process_client, source, events, "workers", 0)
            backend = Broken(executor)
        try:
            with pytest.raises(where):
                train(job, source, backend, events)
        finally:
            executor.close()
        assert not any(process_client.run(in_scratch).values()), where
        assert not any(process_client.run(memo.held_runs).values())


class Broken(WorkerFactors):
    """Sends a message after some rounds that no block can apply."""

    def exchange(self, message: Any) -> Any:
        if self.exchanges > 6:
            message = type(message)((broken_step(),))
        return super().exchange(message)
