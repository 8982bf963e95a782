"""Trainings whose row matrices are in scratch, in part or all: the same bits, and nothing left behind."""

from __future__ import annotations

import gc
import itertools
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from distkern.errors import RunError
from distkern.monitoring.events import Event, EventBus, RoundDone, WorkerLost
from distkern.numerics.row_draws import row_uniforms
from distkern.scheduler import run_training
from distkern.scheduler.blocks import block_registry as memo
from distkern.scheduler.blocks.block import HOLDOUT_STREAM
from distkern.scheduler.execution.dask_executor import DaskExecutor
from distkern.scheduler.execution.executor import Executor, SerialExecutor
from distkern.scheduler.execution.layers import DriverFactors
from distkern.scheduler.planning.limits import WorkerFacts
from distkern.scheduler.runtime.spillable_matrix import MemoryBudget
from distkern.scheduler.training.driver_loop import HOLDOUT_FRACTION, TrainingJob, TrainingResult, train
from distkern.scheduler.training.run import plan_job, workload
from distkern.storage import ArraySource
from tests.file_limits import largest_file
from tests.locations import ROOT
from tests.markers import variants
from tests.scheduler.scratch_files import scratch_files
from tests.scheduler.trainings import assert_same_bits, make_classes, make_data, make_job, make_source, tile_threads
from tests.scheduler.worker_clusters import cluster
from tests.waiting import wait_until


def in_memory(job: TrainingJob, source: ArraySource) -> TrainingResult:
    return train(job, source, SerialExecutor(source), EventBus())


def limit_with(job: TrainingJob, source: ArraySource, share: float) -> int:
    """A limit that leaves memory for a share of the row matrices."""
    whole = plan_job(job, workload(job, source)).processes[0]
    assert whole.scratch_bytes == 0
    return whole.fixed + int(share * sum(whole.resident.values()))


@st.composite
def problems(draw: st.DrawFn) -> tuple[TrainingJob, ArraySource]:
    seed = draw(st.integers(0, 999))
    n, rows = draw(st.sampled_from([(60, 60), (90, 13), (200, 71), (1300, 1300), (1200, 1100)]))
    rng = np.random.default_rng(seed)
    weights = draw(st.sampled_from([None, "zeros", "uneven"]))
    values: dict[Any, Any] = {None: None, "zeros": rng.integers(0, 3, n) / 1.0, "uneven": rng.uniform(0.5, 2.0, n)}
    kind = draw(st.sampled_from(["values", "columns", "shared", "one-vs-rest"]))
    criterion = draw(st.sampled_from(["error-reduction", "error-reduction", "residual"]))
    stop = draw(st.sampled_from([None, "validation", "gcv"]))
    held_out = row_uniforms(seed, HOLDOUT_STREAM, 0, n) < HOLDOUT_FRACTION
    assume(stop != "validation" or (held_out if weights is None else held_out & (values[weights] > 0)).any())
    job = make_job(
        classification=kind in ("shared", "one-vs-rest"),
        multiclass="one-vs-rest" if kind == "one-vs-rest" else "shared",
        criterion=criterion,
        dtype=draw(st.sampled_from(["float64", "float32"])),
        stop=stop,
        sampler=draw(st.sampled_from(["mixture", "uniform"])),
        sigma=draw(st.sampled_from(["median", 1.0])),
        epsilon=draw(st.sampled_from([0.0, 0.25])),
        max_centers=6 if criterion == "residual" else 10,
        panel=draw(st.sampled_from([1, 4])),
        seed=seed,
    )
    if job.classification:
        X, y = make_classes(n, 3, seed=seed)
    else:
        X, y = make_data(n, seed=seed, n_targets=2 if kind == "columns" else 0)
    if draw(st.booleans()):
        X = X.astype(np.float32)
    return job, make_source(X, y, values[weights], rows=rows)


@given(problems(), st.sampled_from([0.0, 1.0]) | st.floats(0.0, 1.0))
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
    X, y = make_data(1700, 3, noise=1.0)
    job = make_job(max_centers=300, candidates=64, panel=16, sigma=0.2)
    source = make_source(X, y, rows=1300)
    expected = in_memory(job, source)
    assert len(expected.paths[0].rows) == 300
    for room in (0, 3_000_000):
        budget = MemoryBudget(room, str(tmp_path))
        executor = SerialExecutor(source, budget=budget)
        assert_same_bits(train(job, source, executor, EventBus()), expected)
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
        make_job(
            classification=True, multiclass="one-vs-rest", stop="validation", patience=50, sampler="mixture", seed=4
        ),
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
) -> tuple[DaskExecutor, Executor]:
    executor = DaskExecutor(client, source, events, with_factors=factors == "workers", room=room)
    if factors == "workers":
        return executor, executor
    return executor, DriverFactors(executor, source, MemoryBudget(room))


def scratch_cases() -> Iterator[Any]:
    """Two jobs of every kind of workers, one a place of the factors; nightly, every combination."""
    rooms = {"one-vs-rest": 0, "float32": 8000, "residual": 0}
    for (i, kind), (j, name), (k, factors) in itertools.product(
        enumerate(["in_process", "process"]), enumerate(rooms), enumerate(["workers", "driver"])
    ):
        marks = [pytest.mark.cluster] if kind == "process" else []
        marks += [pytest.mark.nightly] if (i + j + k) % 2 or name == ("residual", "float32")[i] else []
        yield pytest.param(kind, name, factors, rooms[name], marks=marks)


@pytest.mark.parametrize(("kind", "name", "factors", "room"), [*scratch_cases()])
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
        else:
            used = [scratch_files(worker["local_directory"]) for worker in client.scheduler_info()["workers"].values()]
    finally:
        executor.close()
    assert_same_bits(result, reference(name))
    # With the factors in the driver, workers have the features alone, and may have room for them.
    assert all(used) or (factors == "driver" and room)
    if kind == "process":
        assert not any(client.run(in_scratch).values())
    else:
        del executor, backend
        gc.collect()
        for worker in client.scheduler_info()["workers"].values():
            assert scratch_files(worker["local_directory"]) == {}


def in_scratch(dask_worker: Any) -> dict[str, int]:
    """Scratch files in a worker's local directory, from inside the worker."""
    gc.collect()
    return scratch_files(dask_worker.local_directory)


@pytest.mark.parametrize("factors", variants(["workers"], ["workers", "driver"]))
def test_the_limit_holds_for_all_workers_in_this_process_together(in_process_client: Any, factors: str) -> None:
    X, y = make_data(1500, 20)
    job, source = make_job(max_centers=40), make_source(X, y, rows=100)
    facts = WorkerFacts(2, 1, None, True)
    free = plan_job(job, workload(job, source), facts, factors=factors).processes[0]
    limit = free.fixed + sum(free.resident.values()) // 2
    plan = plan_job(job, workload(job, source), facts, factors=factors, memory_limit=limit)
    assert plan.processes[0].scratch_bytes > 0
    inside: list[int] = []

    def look(event: Event) -> None:
        budgets = [m.budget for m in memo._memory.values()]
        inside.append(sum(budget.used for budget in budgets if budget is not None))

    result = run_training(
        job, source, client=in_process_client, factors=factors, memory_limit=limit, subscribers=[look]
    )
    assert_same_bits(result, in_memory(job, source))
    assert result.summary["plan"] == plan.terms
    process = plan.processes[0]
    room = process.resident["features"] if factors == "driver" else process.room
    assert room / 2 < max(inside) <= room


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
@pytest.mark.parametrize("factors", variants(["workers"], ["workers", "driver"]))
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


def limit_files(nbytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def long_path() -> tuple[TrainingJob, ArraySource]:
    """A path that needs a second slab, for which scratch has to grow in the middle of a step."""
    X, y = make_data(400, 3, noise=1.0)
    return make_job(max_centers=300, candidates=64, panel=16, sigma=0.2), make_source(X, y, rows=200)


NO_SECOND_SLAB = 200 * (64 + 24 + 300) * 8
"""Bytes that the file of a block of `long_path` may have: not the 24 + 64 + 3 + 301 columns that it needs."""


def test_a_disk_that_fills_up_in_a_step_ends_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    job, source = long_path()
    seen = []

    def look(event: Event) -> None:
        seen.append(sum(scratch_files(tmp_path).values()))

    limit = limit_with(job, source, 0.0)
    with largest_file(NO_SECOND_SLAB), pytest.raises(RunError) as error:
        run_training(job, source, memory_limit=limit, subscribers=[look])
    assert error.value.kind == "scratch-full"
    assert str(tmp_path) in str(error.value)
    assert max(seen) > 100_000
    del error
    gc.collect()
    assert scratch_files(tmp_path) == {}
    assert_same_bits(run_training(job, source, memory_limit=limit), in_memory(job, source))
    assert scratch_files(tmp_path) == {}
    assert os.listdir(tmp_path) == []


@pytest.mark.cluster
def test_an_exception_in_an_effect_leaves_no_scratch(process_client: Any) -> None:
    job, source = long_path()
    process_client.run(limit_files, NO_SECOND_SLAB)
    try:
        executor, backend = executor_and_backend(process_client, source, EventBus(), "workers", 0)
        try:
            with pytest.raises(RunError) as error:
                train(job, source, backend, EventBus())
        finally:
            executor.close()
    finally:
        process_client.run(limit_files, resource.RLIM_INFINITY)
    assert error.value.kind == "scratch-full"
    assert not any(process_client.run(in_scratch).values())
    assert not any(process_client.run(memo.held_runs).values())


DRIVER = """
import sys
from distributed import Client
from tests.scheduler.training.test_out_of_core import long_path
from distkern.monitoring.events import EventBus, RoundDone
from distkern.scheduler.execution.layers import DriverFactors
from distkern.scheduler.execution.dask_executor import DaskExecutor
from distkern.scheduler.execution.executor import Executor, SerialExecutor
from distkern.scheduler.runtime.spillable_matrix import MemoryBudget
from distkern.scheduler.training.driver_loop import train

def stop(event):
    if isinstance(event, RoundDone):
        print("training", flush=True)
        sys.stdin.read()

job, source = long_path()
if len(sys.argv) > 1:
    with Client(sys.argv[1], set_as_default=False) as client:
        train(job, source, DaskExecutor(client, source, EventBus(), room=0), EventBus([stop]))
else:
    train(job, source, SerialExecutor(source, budget=MemoryBudget(0)), EventBus([stop]))
"""


@contextmanager
def a_driver(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A training in another process that waits after its first round, to be killed."""
    here = os.pathsep.join([str(ROOT), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": here, "TMPDIR": str(folder)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "training\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_a_killed_training_leaves_no_scratch(tmp_path: Path) -> None:
    with a_driver(tmp_path) as driver:
        assert sum(scratch_files(tmp_path, driver.pid).values()) > 100_000
        driver.send_signal(signal.SIGKILL)
        driver.wait(20)
    assert os.listdir(tmp_path) == []


@pytest.mark.cluster
def test_workers_free_the_scratch_of_a_killed_driver(process_client: Any, tmp_path: Path) -> None:
    with a_driver(tmp_path, process_client.scheduler.address) as driver:
        assert all(process_client.run(in_scratch).values())
        driver.send_signal(signal.SIGKILL)
        driver.wait(20)
    wait_until(lambda: not any(process_client.run(in_scratch).values()), seconds=10)
