"""The planned course of a training, against trainings that run to the end of their path."""

from __future__ import annotations

import weakref
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from distkern.monitoring.events import EventBus
from distkern.scheduler import run_training
from distkern.scheduler.execution.executor import Executor, SerialExecutor
from distkern.scheduler.planning.limits import WorkerFacts
from distkern.scheduler.planning.plan import Course, Plan
from distkern.scheduler.planning.training_plan import plan_training
from distkern.scheduler.protocol import selected_rows
from distkern.scheduler.protocol.messages import Step
from distkern.scheduler.runtime.spillable_matrix import LazyScratch, MemoryBudget
from distkern.scheduler.training.driver_loop import TrainingJob, train
from distkern.scheduler.training.run import plan_job, workload
from distkern.storage import ArraySource, ScratchFile
from tests.markers import variants
from tests.scheduler.trainings import cut, make_classes, make_data, make_job

LONG = {"candidates": 64, "panel": 8, "sigma": 0.3}

CASES: dict[str, dict[str, Any]] = {
    "short": {"max_centers": 20},
    "long": {"max_centers": 200},
    "narrow": {"max_centers": 60, "panel": 1, "candidates": 32},
    "float32": {"max_centers": 96, "dtype": "float32"},
    "columns": {"max_centers": 96, "n_targets": 3},
    "shared": {"max_centers": 96, "classes": 4},
    "one-vs-rest": {"max_centers": 40, "classes": 4, "multiclass": "one-vs-rest"},
    "one-vs-one": {"max_centers": 40, "classes": 4, "multiclass": "one-vs-one"},
    "leave-one-out": {"max_centers": 40, "classes": 3, "criterion": "loo-error"},
    "all rows": {"max_centers": 60, "candidates": 1000},
    "validation": {"max_centers": 96, "stop": "validation", "patience": 1000},
    "a row sample": {"max_centers": 64, "selection_rows": 300},
}


def training(name: str) -> tuple[TrainingJob, ArraySource]:
    options = {**LONG, **CASES[name]}
    classes, n_targets = options.pop("classes", 0), options.pop("n_targets", 0)
    n = 600
    if classes:
        X, labels = make_classes(n, classes, 3)
        values, y = np.unique(labels, return_inverse=True)
        source = ArraySource(X, y, classes=values, boundaries=cut(n, 100))
    else:
        X, y = make_data(n, 3, n_targets=n_targets, noise=1.0)
        source = ArraySource(X, y, boundaries=cut(n, 100))
    return make_job(classification=bool(classes), **options), source


@pytest.mark.parametrize("name", variants([name for name in CASES if name not in ("columns", "shared")], CASES))
def test_a_full_path_takes_what_was_planned(name: str) -> None:
    job, source = training(name)
    result = run_training(job, source)
    assert all(len(path.rows) == job.max_centers for path in result.paths)
    check_course(course_of(plan_job(job, workload(job, source))), result.summary)


def course_of(plan: Plan) -> Course:
    assert plan.course is not None
    return plan.course


def check_course(course: Course, summary: dict[str, Any]) -> None:
    for planned, actual in (
        (course.rounds, summary["rounds"]),
        (course.exchanges, summary["exchanges"]),
        (course.kernel_columns, summary["kernel_columns"]),
        (course.bytes_read, summary["bytes_read"]),
    ):
        assert actual <= planned <= 1.5 * actual, (planned, actual)


def test_bytes_read_are_exact() -> None:
    for name in ("short", "columns", "shared"):
        job, source = training(name)
        job = make_job(classification=job.classification, max_centers=2)
        summary = run_training(job, source).summary
        assert course_of(plan_job(job, workload(job, source))).bytes_read == summary["bytes_read"]


@pytest.mark.parametrize("factors", ["workers", "driver"])
def test_workers_take_no_more_exchanges_than_planned(in_process_client: Any, factors: str) -> None:
    job, source = training("short")
    result = run_training(job, source, client=in_process_client, factors=factors)
    course = course_of(plan_job(job, workload(job, source), WorkerFacts(2, 1, None, True), factors=factors))
    assert course.in_driver == (factors == "driver")
    assert result.summary["exchanges"] <= course.exchanges
    assert result.summary["kernel_columns"] <= course.kernel_columns


# ---- Scratch


class CountingFile(ScratchFile):
    """Counts the bytes that go through it."""

    def __init__(self, directory: str, counts: dict[str, int]) -> None:
        super().__init__(directory)
        self.counts = counts

    def read(self, offset: int, out: NDArray[Any]) -> None:
        self.counts["read"] += out.nbytes
        super().read(offset, out)

    def write(self, offset: int, values: NDArray[Any]) -> None:
        self.counts["written"] += values.nbytes
        super().write(offset, values)


class CountingScratch(LazyScratch):
    """Makes such files."""

    def __init__(self, directory: str, counts: dict[str, int]) -> None:
        super().__init__(directory)
        self._counts = counts

    @property
    def file(self) -> ScratchFile:
        if self._file is None:
            self._file = CountingFile(self._directory, self._counts)
            weakref.finalize(self, self._file.close)
        return self._file


class CountingBudget(MemoryBudget):
    """Gives out such scratch."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.counts = {"read": 0, "written": 0}

    def scratch(self) -> LazyScratch:
        return CountingScratch(self.directory, self.counts)


@pytest.mark.parametrize("name", variants(["float32", "one-vs-rest"], ["long", "float32", "shared", "one-vs-rest"]))
def test_scratch_traffic(name: str) -> None:
    """With everything in scratch, bytes read and written are as planned, but for a half."""
    job, source = training(name)
    budget = CountingBudget(0)
    executor = SerialExecutor(source, budget=budget)
    train(job, source, executor, EventBus())
    executor.close()
    work = workload(job, source)
    plan = plan_job(job, work, memory_limit=plan_job(job, work).needed)
    assert not any(plan.processes[0].resident.values())
    course = course_of(plan)
    assert budget.counts["written"] / 1.5 <= course.scratch_written <= 1.5 * budget.counts["written"]
    assert budget.counts["read"] / 1.5 <= course.scratch_read <= 1.5 * budget.counts["read"]


# ---- Products


@pytest.mark.parametrize(
    "name", variants(["long", "one-vs-rest", "all rows"], ["long", "float32", "shared", "one-vs-rest", "all rows"])
)
def test_products(name: str) -> None:
    """The shapes of the messages determine the products of every tile."""
    job, source = training(name)
    work, n, d = workload(job, source), source.n_rows, source.n_features
    done = dict.fromkeys(("kernel", "projection", "pool"), 0)

    class Reckoning(Executor):
        def __init__(self, executor: SerialExecutor) -> None:
            super().__init__(executor)
            self.columns = [1] * work.n_problems

        def exchange(self, message: Any) -> Any:
            if isinstance(message, Step):
                for number, step in enumerate(message.problems):
                    if step is not None:
                        self.reckon(number, step)
            return super().exchange(message)

        def reckon(self, number: int, step: Any) -> None:
            settings = job.selection(n)
            m = self.columns[number]
            if step.append is not None and step.append.correct is not None:
                done["projection"] += 2 * n * m * step.append.correct.shape[1]
            if step.project is not None:
                done["projection"] += 2 * n * m * settings.batch
            if step.append is not None:
                self.columns[number] = m = m + step.append.combine.shape[1]
            if step.columns is not None:
                done["kernel"] += 2 * n * d * settings.batch
            if step.form is not None or step.columns is not None:
                width = settings.panel + (settings.batch if step.columns is not None else 0)
                done["projection"] += 2 * n * m * width
            if step.eliminate is not None:
                done["pool"] += 2 * n * settings.panel * settings.pool
            if step.project is not None:
                done["pool"] += 2 * n * settings.batch * settings.pool

    train(job, source, Reckoning(SerialExecutor(source)), EventBus())
    planned = course_of(plan_job(job, work)).flops
    for term, flops in done.items():
        assert flops / 1.2 <= planned[term] <= 2 * flops, term


def test_a_row_sample_is_planned_for() -> None:
    """Selection on a share of the rows holds that share, in parts, and reads the data twice."""
    job, source = training("float32")
    work = workload(job, source)
    facts, options = WorkerFacts(2, 1, None, False), {"threads": 1, "limit": 1 << 50}
    plans = (
        plan_training(work, job.selection(600), facts, **options),
        plan_training(work, job.selection(150), facts, selected_rows=150, **options),
    )
    whole, part = map(course_of, plans)
    assert part.selected_rows == 150
    assert [plan.passes for plan in plans] == [1, 2]
    assert part.bytes_read == 2 * whole.bytes_read
    rows = [sum(plan.processes[0].resident.values()) for plan in plans]
    # A sample of one part has one owner, all rows have two.
    assert 2 * rows[1] == pytest.approx(rows[0], rel=0.01)
    with mock.patch.object(selected_rows, "PART_ROWS", 75):
        shared = plan_training(work, job.selection(150), facts, selected_rows=150, **options)
    assert 4 * sum(shared.processes[0].resident.values()) == pytest.approx(rows[0], rel=0.01)
    assert plans[1].terms["sample"] > plans[0].terms["sample"] == 0
    assert part.flops["total"] - part.flops["refit"] == pytest.approx(whole.flops["total"] / 4, rel=0.01)
    assert part.flops["refit"] > whole.flops["refit"] == 0
    assert plans[1].terms["refit"] > plans[0].terms["refit"] == 0
