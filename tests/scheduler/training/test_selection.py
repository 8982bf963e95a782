"""Precision of the selection: float32 on a sample, and once more in the job's where that does not suffice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from distkern.errors import DataError
from distkern.kernels import Gaussian, Kernel, Laplacian, Polynomial
from distkern.monitoring.events import EventBus
from distkern.numerics.scaling import DirectionScaling, FeatureScaling
from distkern.scheduler import run_training
from distkern.scheduler.blocks import block_registry
from distkern.scheduler.execution.dask_executor import DaskExecutor
from distkern.scheduler.execution.executor import Executor, SerialExecutor
from distkern.scheduler.execution.layers import DriverFactors
from distkern.scheduler.protocol.answers import Answer
from distkern.scheduler.protocol.messages import Accumulate, Begin, Step
from distkern.scheduler.training import selection
from distkern.scheduler.training.driver_loop import TrainingJob, TrainingResult, train
from distkern.selection.stopping import StopReason
from distkern.storage import ArraySource, RunDirectory
from tests.scheduler.trainings import assert_same_bits, make_classes, make_data, make_job, make_source

SUFFICES = make_job(selection_rows=120, max_centers=12)

FLAT = make_job(selection_rows=120, max_centers=20, sigma=30.0)
"""Columns that depend on each other in float32 after a few centres."""


class Listening(Executor):
    """Keeps the messages, and does something before some of them."""

    def __init__(self, executor: Any, kind: type[Any] = Begin, before: Any = lambda: None) -> None:
        super().__init__(executor)
        self.messages: list[Any] = []
        self._kind, self._do = kind, before

    def exchange(self, message: Any) -> Answer:
        if isinstance(message, self._kind):
            self._do()
        self.messages.append(message)
        return super().exchange(message)

    @property
    def precisions(self) -> list[str | None]:
        """Dtype of the factors after each start, None for the job's."""
        return [message.selection_dtype for message in self.messages if isinstance(message, Begin)]


def source_of(job: TrainingJob) -> ArraySource:
    X, y = make_classes(300) if job.classification else make_data(300)
    return make_source(X, y, rows=40)


def trained(job: TrainingJob, source: ArraySource | None = None) -> tuple[TrainingResult, Listening]:
    source = source or source_of(job)
    executor = Listening(SerialExecutor(source))
    return train(job, source, executor, EventBus()), executor


def in_precision_of_the_job(job: TrainingJob) -> TrainingResult:
    with mock.patch.object(selection, "_precisions", lambda job, data, *, sampled: [job.dtype]):
        return trained(job)[0]


def test_a_sample_selects_in_float32() -> None:
    result, executor = trained(SUFFICES)
    assert executor.precisions == ["float32"]
    other = in_precision_of_the_job(SUFFICES)
    assert result.paths[0].rows.tolist() == other.paths[0].rows.tolist()
    # The weights are those of float64: the same centres have the same factors over all rows.
    for name in ("u", "s", "z", "lambdas"):
        np.testing.assert_allclose(getattr(result.paths[0], name), getattr(other.paths[0], name), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("changes", [{}, {"classification": True, "multiclass": "one-vs-rest"}])
def test_a_path_that_ends_early_is_selected_again(changes: dict[str, Any]) -> None:
    job = replace(FLAT, **changes)
    result, executor = trained(job)
    assert executor.precisions == ["float32", None]
    with mock.patch.object(selection, "_precisions", return_value=["float32"]):
        short = trained(job)[0]
    assert max(path.reason in selection.SHORT for path in short.paths)
    expected = in_precision_of_the_job(job)
    assert_same_bits(result, expected)
    assert sum(len(path.rows) for path in short.paths) < sum(len(path.rows) for path in result.paths)
    assert result.summary["kernel_columns"] > expected.summary["kernel_columns"]


def test_weights_that_show_rounding_are_selected_again() -> None:
    with mock.patch.object(selection, "sensitive", return_value=True):
        result, executor = trained(SUFFICES)
    assert executor.precisions == ["float32", None]
    assert_same_bits(result, in_precision_of_the_job(SUFFICES))


def test_products_that_overflow_are_selected_again() -> None:
    kept = selection.run_steps

    def overflow(*arguments: Any) -> Any:
        if arguments[0][0].settings.single_precision:
            raise DataError("too large", kind="overflow")
        return kept(*arguments)

    with mock.patch.object(selection, "run_steps", overflow):
        result, executor = trained(SUFFICES)
    assert executor.precisions == ["float32", None]
    assert_same_bits(result, in_precision_of_the_job(SUFFICES))


def test_a_time_limit_ends_the_selection_in_either_precision() -> None:
    def end(selectors: Any, limit: Any, after: Any) -> None:
        if selectors[0].n_centers:
            selectors[0].reason = StopReason.TIME_LIMIT

    with mock.patch.object(selection, "end_in_time", end):
        result, executor = trained(FLAT)
    assert executor.precisions == ["float32"]
    assert result.reason is StopReason.TIME_LIMIT


WIDE = FeatureScaling(np.zeros(3), np.ones(3))


@pytest.mark.parametrize(
    ("kernel", "scaling", "expected"),
    [
        (Gaussian(1.0), WIDE, True),
        (Gaussian(0.01), WIDE, False),
        (Laplacian(1.0), WIDE, True),
        (Laplacian(0.01), WIDE, False),
        (Gaussian(0.01), FeatureScaling(np.zeros(3), np.full(3, 100.0)), True),
        (Gaussian(0.01), DirectionScaling(np.zeros(3), np.ones(3), np.full((2, 3), 0.01)), True),
        (Gaussian(1.0), DirectionScaling(np.zeros(3), np.ones(3), np.full((2, 3), 100.0)), False),
        (Polynomial(), WIDE, False),
    ],
)
def test_kernels_that_float32_is_enough_for(kernel: Kernel, scaling: FeatureScaling, expected: bool) -> None:
    data = mock.Mock()
    data.loaded.features.std.return_value = np.ones(3)
    data.scaling = scaling
    assert selection._wide(kernel, data) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"selection_rows": None},
        {"criterion": "residual"},
        {"criterion": "loo-error", "classification": True},
        {"dtype": "float32"},
        {"sigma": 0.01},
        {"kernel": "polynomial"},
    ],
)
def test_other_trainings_keep_the_precision_of_the_job(changes: dict[str, Any]) -> None:
    _, executor = trained(replace(SUFFICES, max_centers=4, **changes))
    assert executor.precisions == [None]


@pytest.mark.parametrize("factor", [1e-33, 1e33])
def test_targets_beyond_float32(factor: float) -> None:
    X, y = make_data(300)
    result, executor = trained(SUFFICES, make_source(X, factor * y, rows=40))
    assert executor.precisions == [None]
    expected = in_precision_of_the_job(SUFFICES)
    assert result.paths[0].rows.tolist() == expected.paths[0].rows.tolist()


@pytest.mark.parametrize("in_driver", [False, True])
@pytest.mark.parametrize("kind", [Begin, Step, Accumulate])
def test_blocks_that_begin_twice_catch_up(kind: type[Any], in_driver: bool, in_process_client: Any) -> None:
    """A worker forgets its blocks before every start, before every step, or before the pass over all rows."""

    def forget() -> None:
        for worker, run in block_registry.held_runs():
            block_registry.drop_run(worker, run)

    source = source_of(FLAT)
    below: Any = DaskExecutor(in_process_client, source, EventBus(), with_factors=not in_driver)
    listening = Listening(below, kind, forget)
    result = train(FLAT, source, DriverFactors(listening, source) if in_driver else listening, EventBus())
    below.close()
    assert_same_bits(result, trained(FLAT)[0])


def test_a_longer_run_may_begin_again(tmp_path: Path) -> None:
    """Four centres are found in float32; more of them are not, so the recorded selection is not that of the path."""
    few, source = replace(FLAT, max_centers=2), source_of(FLAT)
    assert trained(few)[1].precisions == ["float32"]
    run = RunDirectory.create(tmp_path / "run", {"a": 1})
    run_training(few, source, run=run)
    assert_same_bits(run_training(FLAT, source, run=run), trained(FLAT)[0])
    assert_same_bits(run_training(FLAT, source, run=run), trained(FLAT)[0])
    assert_same_bits(run_training(few, source, run=run), trained(few)[0])
