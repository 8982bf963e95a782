"""The plan of memory: its terms against real arrays and traced peaks, its refusals, and its defaults."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from distkern.errors import BudgetError
from distkern.monitoring.events import EventBus
from distkern.scheduler import run_training
from distkern.scheduler.execution.executor import Executor, SerialExecutor
from distkern.scheduler.planning.limits import WorkerFacts, available_memory, default_limit
from distkern.scheduler.planning.memory import answer_bytes, plan_memory
from distkern.scheduler.planning.plan import BASELINE, MIB, Memory, Plan
from distkern.scheduler.planning.training_plan import plan_training
from distkern.scheduler.planning.workload import Workload
from distkern.scheduler.protocol.answers import Answer, ProblemAnswer
from distkern.scheduler.training.driver_loop import TrainingJob, train
from distkern.scheduler.training.run import plan_job, workload
from distkern.storage import ArraySource
from distkern.text import byte_size
from tests.markers import marked
from tests.scheduler.trainings import (
    assert_same_bits,
    cut,
    make_classes,
    make_data,
    make_job,
    tile_threads,
    train_serial,
)

# ---- Shapes


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    n_rows = draw(st.integers(1, 200_000))
    block_rows = draw(st.integers(1, n_rows))
    n_targets = draw(st.integers(1, 12))
    n_problems = draw(st.sampled_from([1, n_targets]))
    return Workload(
        n_rows=n_rows,
        n_features=draw(st.integers(1, 600)),
        feature_itemsize=draw(st.sampled_from([1, 4, 8])),
        block_rows=block_rows,
        n_blocks=-(-n_rows // block_rows),
        target_columns=draw(st.sampled_from([1, n_targets])),
        n_targets=n_targets,
        n_problems=n_problems,
        memberships=draw(st.integers(1, n_problems)),
    )


jobs = st.builds(
    make_job,
    max_centers=st.integers(1, 3000),
    candidates=st.integers(1, 512),
    panel=st.integers(1, 32),
    dtype=st.sampled_from(["float64", "float32"]),
    criterion=st.sampled_from(["error-reduction", "residual"]),
    sampler=st.sampled_from(["mixture", "top-residual"]),
)

NO_LIMIT = 1 << 60

limits = st.just(NO_LIMIT) | st.integers(1, 1 << 36)


def rows_in_memory(process: Memory) -> int:
    return sum(process.resident.values())


@given(workloads(), jobs, st.integers(1, 9), limits, st.booleans(), st.booleans())
def test_plans_add_up(
    work: Workload, job: TrainingJob, n_workers: int, limit: int, in_driver: bool, together: bool
) -> None:
    plan = plan_training(
        work,
        job.selection(work.n_rows),
        WorkerFacts(n_workers, 1, None, together),
        threads=2,
        limit=limit,
        in_driver=in_driver,
        feature_limit=limit,
    )
    assert len(plan.processes) == (2 if in_driver and not together else 1)
    for memory in plan.processes:
        assert all(isinstance(size, int) and size >= 0 for size in memory.named().values())
        assert memory.total == BASELINE + memory.fixed + rows_in_memory(memory)
        assert sum(memory.matrices.values()) == rows_in_memory(memory) + memory.scratch_bytes
        if limit == NO_LIMIT:
            assert memory.scratch_bytes == 0
        elif memory.fits:
            assert memory.total <= BASELINE + limit
            assert rows_in_memory(memory) <= memory.room
            assert memory.scratch_bytes == 0 or memory.total == BASELINE + limit
        else:
            assert rows_in_memory(memory) == 0
    process, record = plan.processes[0], plan.record()
    assert record["planned_peak_bytes"] == max(memory.total for memory in plan.processes) == plan.peak
    assert sum(size for name, size in record["memory"].items() if not name.startswith("scratch_")) == process.total
    assert record["flops"]["total"] == sum(value for name, value in record["flops"].items() if name != "total")
    assert all(not isinstance(value, int) or value >= 0 for value in record.values())
    assert (plan.driver_peak == process.total) == (in_driver or together) or plan.driver_peak > 0
    # What goes to workers and what stays with the driver never exceeds what there is.
    if together and process.scratch_bytes:
        workers = n_workers * plan.worker_room
        assert workers + (plan.driver_room if in_driver else 0) <= process.room


@given(workloads(), jobs, st.integers(1, 9), st.booleans(), st.booleans())
def test_a_refit_comes_after_the_rows(
    work: Workload, job: TrainingJob, n_workers: int, in_driver: bool, together: bool
) -> None:
    """It takes the place of the rows in the driver's process, and adds nothing to what is there before."""

    def plan(limit: int, norm_refit: bool) -> Plan:
        return plan_training(
            work,
            job.selection(work.n_rows),
            WorkerFacts(n_workers, 1, None, together),
            threads=2,
            limit=limit,
            in_driver=in_driver,
            feature_limit=limit,
            norm_refit=norm_refit,
        )

    without, planned = plan(NO_LIMIT, False), plan(NO_LIMIT, True)
    here = in_driver or together
    assert planned.terms == without.terms
    assert planned.processes[: len(without.processes)] == without.processes
    assert len(planned.processes) == len(without.processes) + here
    assert planned.course is not None
    added = planned.course.norm_refit
    assert added >= 8 * 9 * job.selection(work.n_rows).max_centers ** 2
    assert planned.driver_peak == max(without.driver_peak, BASELINE + added)
    assert planned.peak == (max(without.peak, BASELINE + added) if here else without.peak)
    plan(max(added, planned.needed), True).require_fit()
    if here:
        with pytest.raises(BudgetError):
            plan(added - 1, True).require_fit()


@given(workloads(), jobs, st.integers(1, 8), st.data())
def test_more_of_anything_takes_more(work: Workload, job: TrainingJob, n_workers: int, data: st.DataObject) -> None:
    def plan(work: Workload, job: TrainingJob, threads: int = 1, n_workers: int = n_workers) -> Plan:
        facts = WorkerFacts(n_workers, threads, None, False)
        return plan_training(work, job.selection(work.n_rows), facts, threads=threads, limit=NO_LIMIT)

    base = plan(work, job)
    more_blocks = data.draw(st.integers(1, 4))
    larger = {
        "rows": plan(
            replace(work, n_rows=work.n_rows + more_blocks * work.block_rows, n_blocks=work.n_blocks + more_blocks), job
        ),
        "features": plan(replace(work, n_features=work.n_features + 1), job),
        "centres": plan(work, replace(job, max_centers=job.max_centers + data.draw(st.integers(1, 500)))),
        "candidates": plan(work, replace(job, candidates=job.candidates + 8)),
        "threads": plan(work, job, threads=3),
        "targets": plan(replace(work, n_targets=work.n_targets + work.n_problems), job),
        "fewer workers": plan(work, job, n_workers=max(1, n_workers - 1)),
    }
    assert base.course is not None
    for what, plan_ in larger.items():
        assert plan_.course is not None
        assert plan_.peak >= base.peak, what
        if what not in ("threads", "fewer workers"):
            assert plan_.driver_peak >= base.driver_peak, what
            assert plan_.course.bytes_read >= base.course.bytes_read, what
        if what not in ("threads", "fewer workers", "candidates"):  # more of these may take fewer rounds
            assert plan_.course.exchanges >= base.course.exchanges, what
            assert plan_.course.flops["total"] >= base.course.flops["total"], what


@given(workloads(), jobs, st.integers(0, 1 << 34), st.integers(0, 1 << 32))
def test_a_higher_limit_keeps_more_in_memory(work: Workload, job: TrainingJob, limit: int, more: int) -> None:
    settings_ = job.selection(work.n_rows)
    low, high = (
        plan_memory(work, work.n_rows, settings_, threads=2, is_driver=True, limit=value)
        for value in (limit, limit + more)
    )
    assert low.fixed == high.fixed
    assert rows_in_memory(low) <= rows_in_memory(high)
    for name, size in low.resident.items():
        assert size <= high.resident[name]


matrices = st.dictionaries(st.sampled_from(["features", "work", "pool", "factors"]), st.integers(0, 1 << 40))


@given(matrices, st.integers(0, 1 << 40), st.integers(0, 1 << 42))
def test_matrices_fill_the_memory_that_is_left_in_their_order(need: dict[str, int], fixed: int, limit: int) -> None:
    process = Memory({"fixed": fixed}, limit, "take less", matrices=need)
    inside, outside = process.resident, process.scratch
    for name, size in need.items():
        assert inside[name] + outside[name] == size
        assert inside[name] >= 0
        assert outside[name] >= 0
    assert sum(inside.values()) == min(sum(need.values()), max(limit - fixed, 0))
    # In order: nothing of a later matrix is inside while a part of an earlier one is not.
    names = list(need)
    for i, name in enumerate(names):
        if outside[name]:
            assert not any(inside[later] for later in names[i + 1 :])


@given(workloads(), st.integers(1, 50))
def test_rows_of_a_worker(work: Workload, n_workers: int) -> None:
    """The largest share when blocks go out in turn."""
    from distkern.scheduler.clusters.placement import owned, place

    assume(work.n_blocks < 500)
    workers = [f"w{i}" for i in range(n_workers)]
    blocks = owned(place(work.n_blocks, workers))
    edges = [*range(0, work.n_rows, work.block_rows), work.n_rows]
    held = [sum(edges[b + 1] - edges[b] for b in blocks.get(worker, ())) for worker in workers]
    assert max(held) <= work.rows_of_a_worker(n_workers) <= work.n_rows


# ---- Terms against the arrays of real blocks


@st.composite
def trainings(draw: st.DrawFn) -> tuple[TrainingJob, ArraySource]:
    seed = draw(st.integers(0, 99))
    n, rows = draw(st.sampled_from([(80, 80), (150, 40), (1300, 1300), (1500, 700)]))
    d = draw(st.sampled_from([2, 3, 40]))
    kind = draw(st.sampled_from(["values", "columns", "shared", "two classes", "one-vs-rest", "one-vs-one"]))
    classification = kind not in ("values", "columns")
    criteria = ["error-reduction", "residual", *(["loo-error"] if classification else [])]
    job = make_job(
        classification=classification,
        multiclass=kind if kind.startswith("one-vs") else "shared",
        criterion=draw(st.sampled_from(criteria)),
        dtype=draw(st.sampled_from(["float64", "float32"])),
        max_centers=draw(st.integers(1, 12)),
        panel=draw(st.sampled_from([1, 3, 8])),
        candidates=draw(st.sampled_from([8, 40])),
        sigma=draw(st.sampled_from(["median", 0.5, (0.5, 2.0, 3.0)])),
        seed=seed,
    )
    if job.n_widths > 1 and job.criterion == "residual":
        job = replace(job, sigma="median")
    weights = draw(st.sampled_from([None, np.random.default_rng(seed).uniform(0.5, 2.0, n)]))
    X, y, classes = made(kind, n, d, seed)
    return job, ArraySource(X.astype(draw(st.sampled_from(["float64", "float32"]))), y, weights, classes, cut(n, rows))


def made(kind: str, n: int, d: int, seed: int) -> tuple[Any, Any, Any]:
    if kind in ("values", "columns"):
        return *make_data(n, d, seed=seed, n_targets=0 if kind == "values" else 5), None
    X, labels = make_classes(n, 2 if kind == "two classes" else 6, d, seed=seed)
    classes, codes = np.unique(labels, return_inverse=True)
    return X, codes, classes


@given(trainings())
def test_terms_are_the_sizes_of_the_arrays(training: tuple[TrainingJob, ArraySource]) -> None:
    job, source = training
    inside = train_serial(job, source)
    plan = plan_job(job, workload(job, source)).processes[0]
    blocks = inside.blocks
    states = [state for block in blocks for state in block.problems]
    size = {
        "features": sum(nbytes(block.data.features) for block in blocks),
        "work": sum(nbytes(state.work) for state in states),
        "pool": sum(nbytes(state.pool) for state in states),
    }
    for name, actual in size.items():
        assert plan.resident[name] == actual, name
    # The last slab is as wide as the path can fill, so a full path takes what was planned.
    assert sum(nbytes(slab) for state in states for slab in state.slabs) == plan.resident["factors"]
    assert sum(state.residual.nbytes for state in states) <= plan.terms["residual"]
    rows = sum(
        array.nbytes
        for block in blocks
        for array in (block.data.rows, block.data.weights, block.data.roots)
        if array is not None
    ) + sum(state.taken.nbytes for state in states)
    assert rows + source.y.nbytes <= plan.terms["rows"]
    assert plan.scratch_bytes == 0


def nbytes(matrix: Any) -> int:
    return int(np.prod(matrix.shape)) * matrix.dtype.itemsize


@given(trainings())
def test_answers_are_as_large_as_planned(training: tuple[TrainingJob, ArraySource]) -> None:
    job, source = training
    work = workload(job, source)
    largest = 0

    class Weighing(Executor):
        def exchange(self, message: Any) -> Answer:
            nonlocal largest
            answer = super().exchange(message)
            largest = max(largest, sum(map(weight, answer.problems)))
            return answer

    train(job, source, Weighing(SerialExecutor(source)), EventBus())
    assert largest <= answer_bytes(work, job.selection(work.n_rows), work.n_rows, 1)


def test_answers_of_thousands_of_pairs_of_classes_fit() -> None:
    work = Workload.imagined(100_000, 60, 4, 3403, n_problems=3403, memberships=82)
    settings = make_job(classification=True, multiclass="one-vs-one", max_centers=5, candidates=16, panel=5)
    assert answer_bytes(work, settings.selection(work.n_rows), work.n_rows, 4) < 512 * MIB


def weight(answer: ProblemAnswer) -> int:
    sums = sum(array.nbytes for array in answer.sums.values())
    if answer.drawn is None or answer.drawn.features is None:
        return sums
    return sums + answer.drawn.features.nbytes


TRACED: dict[str, tuple[dict[str, Any], Any]] = {
    "float64": ({"max_centers": 64}, ("values", 5000, 4, 1000)),
    "float32": ({"max_centers": 64, "dtype": "float32"}, ("values", 5000, 40, 1000)),
    "many features": (
        {"max_centers": 16, "panel": 4, "candidates": 256, "sigma": "median"},
        ("values", 1500, 600, 200),
    ),
    "many targets": ({"max_centers": 32, "candidates": 32, "panel": 4}, ("columns", 8000, 3, 1000)),
    "classes": ({"max_centers": 32}, ("shared", 8000, 3, 1000)),
    "one-vs-rest": ({"max_centers": 32, "multiclass": "one-vs-rest"}, ("one-vs-rest", 1500, 3, 500)),
    "one-vs-one": ({"max_centers": 24, "multiclass": "one-vs-one"}, ("one-vs-one", 1800, 3, 600)),
    "leave-one-out": ({"max_centers": 12, "criterion": "loo-error"}, ("shared", 5000, 3, 5000)),
    "leave-one-out of two": ({"max_centers": 12, "criterion": "loo-error"}, ("two classes", 5000, 3, 5000)),
    "many centres": ({"max_centers": 300, "sigma": 0.1, "panel": 16}, ("values", 800, 3, 800)),
    "residual": ({"max_centers": 16, "criterion": "residual", "sigma": 0.3}, ("values", 8000, 3, 8000)),
    "all candidates": ({"max_centers": 50, "sampler": "all", "panel": 16}, ("values", 500, 3, 500)),
    "validation": ({"max_centers": 48, "stop": "validation"}, ("values", 5000, 3, 1000)),
    "a row sample": ({"max_centers": 200, "sigma": 0.1, "selection_rows": 800}, ("values", 5000, 3, 1000)),
    "a large block": ({"max_centers": 16, "candidates": 32, "panel": 4}, ("values", 9000, 20, 9000)),
}


@pytest.mark.parametrize(
    ("name", "share"),
    [
        *[("float64", 0.4), ("a row sample", None)],
        *marked(
            pytest.mark.slow,
            *[("many features", 0.0), ("one-vs-rest", 0.2), ("many targets", None), ("leave-one-out", None)],
            *[("many centres", None), ("a large block", None)],
        ),
        *marked(
            pytest.mark.nightly,
            *[(name, None) for name in ("float64", "many features", "classes", "one-vs-rest", "leave-one-out of two")],
            *[(name, None) for name in ("validation", "float32", "one-vs-one", "residual", "all candidates")],
        ),
    ],
)
def test_traced_peaks_are_within_the_plan(name: str, share: float | None) -> None:
    """numpy reports to Python all it allocates: the largest sum, without the interpreter that hides small errors."""
    options, (kind, n, d, rows) = TRACED[name]
    X, y, classes = made(kind, n, d, 0)
    source = ArraySource(X, y, classes=classes, boundaries=cut(n, rows))
    job = make_job(**{"candidates": 128, "panel": 8, "classification": classes is not None, **options})
    limit = None
    plan = plan_job(job, workload(job, source)).processes[0]
    if share is not None:
        limit = plan.fixed + int(share * rows_in_memory(plan))
        plan = plan_job(job, workload(job, source), memory_limit=limit).processes[0]
    with tile_threads(2):  # fresh threads, whose buffers count
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            run_training(job, source, memory_limit=limit)
            peak = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
    planned = plan.total - BASELINE
    assert peak <= planned
    # Terms that never meet (loading, tiles) are added up, so a small training takes less, but not by far.
    apart = sum(plan.terms[name] for name in ("loading", "workspaces", "answers"))
    assert peak > 0.2 * planned or planned < 2 * apart
    if limit is not None:
        assert planned <= limit


# ---- Refusals


class Counting(ArraySource):
    """Counts what is read."""

    reads = 0

    def read_features(self, block: int) -> Any:
        self.reads += 1
        return super().read_features(block)

    def read_targets(self, block: int) -> Any:
        self.reads += 1
        return super().read_targets(block)

    def read_weights(self, block: int) -> Any:
        self.reads += 1
        return super().read_weights(block)


def counting(n: int = 1500, d: int = 5) -> Counting:
    X, y = make_data(n, d)
    return Counting(X, y, boundaries=cut(n, 500))


@pytest.mark.parametrize("where", ["serial", "workers", "driver"])
def test_what_cannot_fit_is_refused_before_anything_is_read(request: pytest.FixtureRequest, where: str) -> None:
    client = None if where == "serial" else request.getfixturevalue("in_process_client")
    factors = "auto" if where == "serial" else where
    source, job = counting(), make_job(max_centers=50)
    facts = None if client is None else WorkerFacts(2, 1, None, True)
    least = plan_job(job, workload(job, source), facts, factors=factors).processes[0].fixed
    with pytest.raises(BudgetError) as error:
        run_training(job, source, client=client, factors=factors, memory_limit=least - MIB)
    assert source.reads == 0
    assert error.value.kind == "memory"
    assert error.value.exit_code == 4
    message = str(error.value)
    assert message.startswith("this process needs")
    assert f"{byte_size(least)} beside" in message
    assert f"the limit is {byte_size(least - MIB)}" in message
    assert "memory_limit" in message
    assert "[cluster] memory" in message
    run_training(job, source, client=client, factors=factors, memory_limit=least)
    assert source.reads > 0


class Greedy(Counting):
    """Rows that no memory is left for."""

    inline = False

    def read_features(self, block: int) -> Any:
        return np.zeros(1 << 50)


@pytest.mark.parametrize("where", ["serial", "in_process_client"])
def test_memory_that_runs_out_is_a_budget_error(request: pytest.FixtureRequest, where: str) -> None:
    client = None if where == "serial" else request.getfixturevalue(where)
    X, y = make_data(300)
    with pytest.raises(BudgetError, match=r"memory ran out .*Unable to allocate .*memory_limit") as error:
        run_training(make_job(), Greedy(X, y, boundaries=cut(300, 100)), client=client)
    assert error.value.kind == "out-of-memory"
    assert isinstance(error.value.__cause__, MemoryError)


def test_workers_that_cannot_hold_their_rows_are_named() -> None:
    source, job = counting(), make_job()
    for factors in ("workers", "driver"):
        plan = plan_job(job, workload(job, source), WorkerFacts(2, 1, 100, False), factors=factors)
        # With factors in the driver, workers hold features only.
        plan = replace(plan, processes=plan.processes[-1:])
        with pytest.raises(BudgetError, match="a worker needs"):
            plan.require_fit()


@pytest.mark.parametrize(
    ("term", "changes", "advice"),
    [
        ("residual", {"n_rows": 10_000_000, "n_targets": 90}, "more workers, or selection_rows"),
        ("rows", {"n_rows": 100_000_000, "block_rows": 1000}, "more workers, or selection_rows"),
        ("loading", {"block_rows": 10_000_000, "n_rows": 10_000_000}, "smaller chunks of X"),
        (
            "answers",
            {"n_rows": 2000, "block_rows": 50, "n_targets": 90, "n_problems": 90, "memberships": 90},
            "fewer max_centers, or fewer cand",
        ),
    ],
)
def test_the_largest_term_decides_the_advice(term: str, changes: dict[str, int], advice: str) -> None:
    work = replace(Workload.imagined(100_000, 10, 4, 1), **changes)
    job = make_job(max_centers=500)
    plan = plan_memory(work, work.n_rows, job.selection(work.n_rows), threads=1, is_driver=False, limit=1000)
    with pytest.raises(BudgetError) as error:
        plan.require_fit()
    assert f"most of it is {term} ({byte_size(plan.terms[term])})" in str(error.value)
    assert advice in str(error.value)
    assert plan.terms[term] == max(plan.terms.values())


def test_centres_decide_the_memory_of_the_driver() -> None:
    work = Workload.imagined(100_000, 10, 8, 1)
    plan = plan_memory(work, 1000, make_job(max_centers=20_000).selection(100_000), threads=1, is_driver=True, limit=1)
    with pytest.raises(BudgetError, match=r"this process needs .* most of it is driver .*fewer max_centers"):
        plan.require_fit()


def test_a_limit_that_is_just_enough() -> None:
    source, job = counting(300), make_job()
    process = plan_job(job, workload(job, source)).processes[0]
    replace(process, limit=process.fixed).require_fit()
    with pytest.raises(BudgetError):
        replace(process, limit=process.fixed - 1).require_fit()


# ---- Limits that nobody stated


def test_available_memory(tmp_path: Path) -> None:
    import psutil

    machine = psutil.virtual_memory().total
    assert 0 < available_memory() <= machine
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(tmp_path) > 0.5 * available_memory()


@pytest.mark.parametrize(
    ("limit", "used", "stat"),
    [
        ("memory.max", "memory.current", "inactive_file 1048576"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file 1048576"),
    ],
)
def test_a_control_group_bounds_the_available_memory(tmp_path: Path, limit: str, used: str, stat: str) -> None:
    """Memory of other processes of the group is not available; cached files are."""
    (tmp_path / limit).parent.mkdir(exist_ok=True)
    (tmp_path / limit).write_text(str(40 * MIB))
    (tmp_path / used).write_text(str(30 * MIB))
    assert available_memory(tmp_path) == 10 * MIB
    (tmp_path / limit).with_name("memory.stat").write_text(f"anon 7\n{stat}\nfile 9\n")
    assert available_memory(tmp_path) == 11 * MIB
    (tmp_path / used).write_text(str(60 * MIB))
    assert available_memory(tmp_path) == 0


def test_default_limits() -> None:
    free = available_memory()
    assert 0.5 * free < default_limit() < 0.9 * free
    with_dask = default_limit(WorkerFacts(4, 1, 2 << 30, False))
    assert with_dask == int(0.7 * (2 << 30)) - BASELINE
    shared = [default_limit(WorkerFacts(n, 1, None, False)) for n in (1, 2)]
    assert 2 * shared[1] < shared[0] + BASELINE
    assert default_limit(WorkerFacts(1, 1, 1000, False)) == 1


def test_a_training_without_a_limit_has_one() -> None:
    source, job = counting(300), make_job()
    result = run_training(job, source)
    plan = plan_job(job, workload(job, source))
    assert 0 < plan.limit < available_memory()
    assert result.summary["planned_peak_bytes"] == plan.peak
    assert result.summary["plan"] == plan.terms
    assert_same_bits(result, run_training(job, source, memory_limit=1 << 40))
