"""Workers whose answers do not fit the message: a typed error that names the worker, and no model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from distkern.errors import ClusterError
from distkern.monitoring.events import EventBus
from distkern.scheduler.blocks import block_registry as memo
from distkern.scheduler.execution.dask_executor import DaskExecutor
from distkern.scheduler.execution.executor import SerialExecutor
from distkern.scheduler.protocol.answers import Answer
from distkern.scheduler.protocol.messages import message_name
from distkern.scheduler.training.driver_loop import train
from tests.scheduler.faults import addresses
from tests.scheduler.trainings import assert_same_bits, make_classes, make_data, make_job, make_source

Nodes = dict[Any, Any]


def changed_sums(nodes: Nodes, change: Callable[[Any], Any]) -> Nodes:
    for answer in nodes.values():
        for problem in answer.problems:
            problem.sums = {name: change(value) for name, value in problem.sums.items()}
    return nodes


LIES: dict[str, Callable[[Nodes], Any]] = {
    "nothing": lambda nodes: None,
    "text": lambda nodes: "answer",
    "no-blocks": lambda nodes: {},
    "other-blocks": lambda nodes: {(level, index ^ 1): answer for (level, index), answer in nodes.items()},
    "answers-without-problems": lambda nodes: dict.fromkeys(nodes, Answer()),
    "sums-of-one-number": lambda nodes: changed_sums(nodes, lambda value: np.zeros((1,) * value.ndim)),
    "sums-of-text": lambda nodes: changed_sums(nodes, lambda value: value.astype(str)),
    "no-sums": lambda nodes: (
        changed_sums(nodes, lambda value: value)
        and {node: Answer([type(part)() for part in answer.problems]) for node, answer in nodes.items()}
    ),
}


def lying(threads: Any, monkeypatch: pytest.MonkeyPatch, name: str, lie: Any, fan_in: int, **settings: Any) -> str:
    """Train where all workers but that of block 0 lie about one message; return the error, and check its kind."""
    honest = memo.run_message

    def run_message(fence: Any, numbers: Any, version: Any, previous: Any, message: Any) -> Any:
        answer = honest(fence, numbers, version, previous, message)
        lies = message_name(message) == name and 0 not in numbers and isinstance(answer, dict)
        return lie(answer) if lies else answer

    monkeypatch.setattr(memo, "run_message", run_message)
    source = make_source(*make_data(240))
    executor = DaskExecutor(threads, source, EventBus(), fan_in=fan_in)
    try:
        with pytest.raises(ClusterError) as caught:
            train(make_job(**settings), source, executor, EventBus())
    finally:
        executor.close()
    assert caught.value.kind == "bad-answer"
    return str(caught.value)


@pytest.mark.parametrize("fan_in", [8, 1])
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_ends_the_run(threads: Any, monkeypatch: pytest.MonkeyPatch, lie: str, fan_in: int) -> None:
    lying(threads, monkeypatch, "kernel-columns", LIES[lie], fan_in)


def without_one_sum(nodes: Nodes) -> Nodes:
    for answer in nodes.values():
        for problem in answer.problems:
            problem.sums.pop("gram")
    return nodes


def of_no_blocks(nodes: Nodes) -> Nodes:
    for answer in nodes.values():
        for problem in answer.problems:
            problem.blocks = 0
    return nodes


@pytest.mark.parametrize("fan_in", [8, 1])
@pytest.mark.parametrize(
    ("message", "settings"),
    [
        ("begin-run", {}),
        ("kernel-columns", {"stop": "validation"}),
        ("fit-all-rows", {"selection_rows": 120}),
    ],
)
def test_absent_sums_are_noticed(
    threads: Any, monkeypatch: pytest.MonkeyPatch, message: str, settings: dict[str, Any], fan_in: int
) -> None:
    error = lying(threads, monkeypatch, message, LIES["no-sums"], fan_in, **settings)
    assert "lacks the sums" in error
    assert sum(worker in error for worker in addresses(threads)) == 1


@pytest.mark.parametrize("fan_in", [8, 1])
def test_rows_that_a_worker_has_later_only(threads: Any, monkeypatch: pytest.MonkeyPatch, fan_in: int) -> None:
    """With held-out rows the first answer says which blocks have other rows, and the next one does not agree."""
    error = lying(threads, monkeypatch, "begin-run", LIES["no-sums"], fan_in, stop="validation")
    assert "are of 5 blocks, and" in error


@pytest.mark.parametrize("fan_in", [8, 1])
@pytest.mark.parametrize("lie", [without_one_sum, of_no_blocks])
def test_a_part_of_the_sums_is_absent(threads: Any, monkeypatch: pytest.MonkeyPatch, lie: Any, fan_in: int) -> None:
    lying(threads, monkeypatch, "kernel-columns", lie, fan_in)


@pytest.mark.parametrize("fan_in", [8, 1])
def test_statistics_are_absent(threads: Any, monkeypatch: pytest.MonkeyPatch, fan_in: int) -> None:
    error = lying(threads, monkeypatch, "load-blocks", lambda nodes: dict.fromkeys(nodes, Answer()), fan_in)
    assert "no statistics" in error
    assert sum(worker in error for worker in addresses(threads)) == 1


@pytest.mark.parametrize("multiclass", ["one-vs-one", "one-vs-rest"])
def test_blocks_without_rows_of_a_problem_are_no_lie(threads: Any, multiclass: str) -> None:
    X, labels = make_classes(240)
    order = np.argsort(labels)
    source = make_source(X[order], labels[order])
    job = make_job(classification=True, multiclass=multiclass)
    executor = DaskExecutor(threads, source, EventBus(), fan_in=1)
    try:
        result = train(job, source, executor, EventBus())
    finally:
        executor.close()
    assert_same_bits(result, train(job, source, SerialExecutor(source), EventBus()))


def test_a_sum_that_is_no_number_is_no_model(threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = memo.run_message

    def run_message(fence: Any, numbers: Any, version: Any, previous: Any, message: Any) -> Any:
        answer = honest(fence, numbers, version, previous, message)
        nan = message_name(message) == "kernel-columns" and isinstance(answer, dict)
        return changed_sums(answer, lambda value: value * np.nan) if nan else answer

    monkeypatch.setattr(memo, "run_message", run_message)
    source = make_source(*make_data(240))
    executor = DaskExecutor(threads, source, EventBus())
    try:
        with pytest.raises(ValueError, match="overflow") as caught:
            train(make_job(), source, executor, EventBus())
    finally:
        executor.close()
    assert caught.value.kind == "overflow"  # type: ignore[attr-defined]
