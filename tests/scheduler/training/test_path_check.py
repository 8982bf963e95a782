"""A training compares what its model predicts with its own fit, and keeps the prefix that agrees."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import fields
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from distkern.errors import RoundingWarning
from distkern.models.kernel_model import KernelModel
from distkern.monitoring.events import EventBus
from distkern.scheduler.blocks.block import Block
from distkern.scheduler.execution.executor import Executor, SerialExecutor
from distkern.scheduler.execution.layers import DriverFactors
from distkern.scheduler.protocol.answers import Answer
from distkern.scheduler.protocol.messages import Compare, Message
from distkern.scheduler.protocol.path import Path
from distkern.scheduler.training import path_check
from distkern.scheduler.training.driver_loop import TrainingJob, TrainingResult, train
from distkern.selection.stopping import StopReason
from distkern.storage import ArraySource
from tests.scheduler.trainings import assert_same_bits, make_classes, make_data, make_job, make_source

X, Y = make_data(90, n_targets=2)
ROWS, LABELS = make_classes(90)
WEIGHTS = np.random.default_rng(3).uniform(0.1, 3.0, 90)
WEIGHTS[::7] = 0.0


class Watched(Executor):
    """Keeps the comparisons and their answers."""

    def __init__(self, below: Executor) -> None:
        super().__init__(below)
        self.compared: list[tuple[Compare, Answer]] = []

    def exchange(self, message: Message) -> Answer:
        answer = super().exchange(message)
        if isinstance(message, Compare):
            self.compared.append((message, answer.copy()))
        return answer


def watched(
    job: TrainingJob, source: ArraySource, make: Callable[[ArraySource], Executor] = SerialExecutor
) -> tuple[TrainingResult, list[tuple[Compare, Answer]]]:
    executor = Watched(make(source))
    return train(job, source, executor, EventBus([])), executor.compared


def in_driver(source: ArraySource) -> Executor:
    workers = SerialExecutor(source)
    workers._blocks = [Block(source, block.number, with_factors=False) for block in workers._blocks]
    return DriverFactors(workers, source)


def always() -> Any:
    """Compare even where the weights are too small to magnify rounding."""
    return mock.patch.object(path_check._Check, "_doubtful", return_value=True)


JOBS: dict[str, tuple[dict[str, Any], ArraySource]] = {
    "float64": ({}, make_source(X, Y, rows=20)),
    "float32": ({"dtype": "float32"}, make_source(X, Y, rows=20)),
    "ends within a panel": ({"max_centers": 19}, make_source(X, Y, rows=20)),
    "residual": ({"criterion": "residual"}, make_source(X, Y[:, 0], rows=20)),
    "residual, stopped": ({"criterion": "residual", "stop": "gcv", "patience": 3}, make_source(X, Y[:, 0], rows=20)),
    "weights": ({}, make_source(X, Y, WEIGHTS, rows=20)),
    "epsilon": ({"epsilon": 0.01}, make_source(X, Y, rows=20)),
    "held out": ({"stop": "validation"}, make_source(X, Y, rows=20)),
    "several widths": ({"sigma": (0.5, 1.0, 2.0)}, make_source(X, Y, rows=20)),
    "sample": ({"selection_rows": 40, "max_centers": 10}, make_source(X, Y, rows=20)),
    "pairs": ({"classification": True, "multiclass": "one-vs-one"}, make_source(ROWS, LABELS, rows=20)),
    "loo": (
        {"classification": True, "criterion": "loo-error", "stop": "loo"},
        make_source(ROWS, LABELS, rows=20),
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_blocks_answer_with_predictions_and_fits(name: str) -> None:
    changes, source = JOBS[name]
    job = make_job(**changes)
    with always():
        result, compared = watched(job, source)
        there, answers = watched(job, source, in_driver)
    plain, nothing = watched(make_job(**changes), source) if job.dtype == "float64" else (result, [])
    assert not nothing
    assert_same_bits(plain, result)
    assert_same_bits(there, result)
    ((message, answer),) = compared
    for number, (path, prefixes, part) in enumerate(zip(result.paths, message.problems, answer.problems, strict=True)):
        assert prefixes is not None
        assert part.candidates is not None
        rows, values = part.candidates.rows, part.candidates.values
        same = answers[0][1].problems[number].candidates
        assert same is not None
        assert (rows.tobytes(), values.tobytes()) == (same.rows.tobytes(), same.values.tobytes())
        n_targets = path.z.shape[1]
        predicted, fitted, targets, weights = np.split(
            values, np.cumsum([prefixes.weights.shape[1]] * 2 + [n_targets]), axis=1
        )
        # A sample selects in float32.
        accurate = 2e-4 if job.dtype == "float32" or job.selection_rows else 1e-9
        np.testing.assert_allclose(predicted, fitted, rtol=0, atol=accurate)
        np.testing.assert_array_equal(weights[:, 0], 1.0 if source.weights is None else source.weights[rows])
        if job.classification:
            continue
        assert path.reason is not StopReason.ROUNDING
        if job.selection_rows is None:
            expected = source.y.reshape(len(source.y), -1)[rows] - result.target_means
            np.testing.assert_allclose(targets, expected, rtol=0, atol=accurate)
        if not job.epsilon and not isinstance(job.sigma, tuple):
            at = path.weights(path.n_centers)
            model = KernelModel(
                result.kernel, result.scaling, path.features[: path.n_centers], at[1:], at[0], job.dtype
            )
            np.testing.assert_allclose(predicted[:, :n_targets], model.evaluate(source.X[rows]), atol=accurate)


def test_small_weights_are_not_compared() -> None:
    source = make_source(X, Y, rows=20)
    assert not watched(make_job(), source)[1]
    ((message, _),) = watched(make_job(dtype="float32"), source)[1]
    assert message.problems[0] is not None
    assert message.problems[0].weights.shape[1] == 2, "one prefix of two targets: the whole path"


def test_few_of_many_rows_are_compared() -> None:
    source = make_source(*make_data(3000), rows=400)
    with mock.patch.object(path_check, "compared_rows", return_value=300):
        ((_, answer),) = watched(make_job(dtype="float32"), source)[1]
    found = answer.problems[0].candidates
    assert found is not None
    assert 220 < len(found.rows) < 380
    assert (np.diff(found.rows) > 0).all()


@pytest.mark.parametrize("selection_rows", [None, 60])
def test_rows_that_lack_the_largest_weight_show_no_residual_of_all(selection_rows: int | None) -> None:
    """Their residuals are large beside that of the sum, which one row decides."""
    weights = np.ones(3000)
    weights[6] = 1e7
    job = make_job(dtype="float32", max_centers=8, regularization=1.0, selection_rows=selection_rows)
    with mock.patch.object(path_check, "compared_rows", return_value=300):
        result, compared = watched(job, make_source(*make_data(3000, noise=1.0), weights, rows=400))
    found = compared[0][1].problems[0].candidates
    assert found is not None
    assert 6 not in found.rows
    assert result.reason is StopReason.MAX_CENTERS


def disagreeing(beyond: int) -> Any:
    """Let every prefix longer than some length contradict its fit."""

    def apart(self: Any, length: int, predicted: NDArray[Any], *rest: Any) -> NDArray[Any]:
        return np.full(predicted.shape[1], 2.5 if length > beyond else 0.0)

    return mock.patch.object(path_check._Check, "_apart", apart)


@pytest.mark.parametrize("name", ["float64", "residual", "sample", "several widths"])
def test_a_path_is_cut_to_the_prefix_that_agrees(name: str) -> None:
    changes, source = JOBS[name]
    whole = watched(make_job(**changes), source)[0]
    with (
        always(),
        disagreeing(7),
        pytest.warns(RoundingWarning, match=r"first 7 centres; a smaller sigma or max_centers=7"),
    ):
        result = watched(make_job(**changes), source)[0]
    (path,), (full,) = result.paths, whole.paths
    assert (path.n_centers, path.reason, result.reason) == (7, StopReason.ROUNDING, StopReason.ROUNDING)
    assert result.history.tobytes() == whole.history[:7].tobytes()
    assert (path.u.shape, path.s.shape, path.z.shape, path.lambdas.shape) == (
        (8, 8),
        (8,),
        (8, full.z.shape[1]),
        (8, 1),
    )
    for field in fields(path):
        if isinstance(ours := getattr(path, field.name), np.ndarray) and field.name != "target_norms":
            assert np.array_equal(ours, getattr(full, field.name)[tuple(slice(n) for n in ours.shape)]), field.name
    np.testing.assert_array_equal(path.weights(7), full.weights(7))


def test_a_disagreement_beyond_the_model_gives_no_warning() -> None:
    """The path loses the end that `truncate` could reach."""
    job, source = make_job(stop="gcv", patience=4, max_centers=40), make_source(*make_data(90, noise=1.0), rows=20)
    whole = watched(job, source)[0]
    (full,) = whole.paths
    assert full.n_centers < len(full.rows)
    with always(), disagreeing(full.n_centers + 1), warnings.catch_warnings():
        warnings.simplefilter("error")
        result = watched(job, source)[0]
    (path,) = result.paths
    assert (path.n_centers, path.reason) == (full.n_centers, full.reason)
    assert len(path.rows) == full.n_centers + 1


def test_of_several_paths_only_those_are_cut_that_disagree() -> None:
    job = make_job(classification=True, multiclass="one-vs-rest", max_centers=12)
    source = make_source(ROWS, LABELS, rows=20)
    checks = []
    original = path_check._Check._apart

    def apart(self: Any, length: int, *rest: Any) -> Any:
        if self not in checks:
            checks.append(self)
        return np.array([1.0]) if checks.index(self) == 1 and length > 3 else original(self, length, *rest)

    with always(), mock.patch.object(path_check._Check, "_apart", apart), pytest.warns(RoundingWarning):
        result, compared = watched(job, source)
    assert [path.n_centers for path in result.paths] == [12, 3, 12]
    assert result.reason is StopReason.ROUNDING
    assert all(part is None for message, _ in compared[1:] for i, part in enumerate(message.problems) if i != 1)


def test_many_paths_are_compared_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(classification=True, multiclass="one-vs-rest", max_centers=12)
    source = make_source(ROWS, LABELS, rows=20)
    with always():
        whole, together = watched(job, source)
        monkeypatch.setattr(path_check, "COMPARED_PROBLEMS", 2)
        result, compared = watched(job, source)
    assert max(sum(part is not None for part in message.problems) for message, _ in together) == 3
    assert max(sum(part is not None for part in message.problems) for message, _ in compared) == 2
    assert len(compared) > len(together)
    for ours, theirs in zip(result.paths, whole.paths, strict=True):
        assert ours.weights(ours.n_centers).tobytes() == theirs.weights(theirs.n_centers).tobytes()


def test_overflowing_predictions_disagree() -> None:
    def overflowing(self: Path, count: int) -> NDArray[Any]:
        return np.full((count + 1, self.z.shape[1]), 1e200)

    with mock.patch.object(Path, "weights", overflowing), pytest.warns(RoundingWarning):
        result = watched(make_job(dtype="float32", max_centers=8), make_source(X, Y, rows=20))[0]
    assert result.paths[0].n_centers == 0
