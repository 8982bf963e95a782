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
from distkern.scheduler.protocol.answers import Answer
from distkern.scheduler.protocol.messages import message_name
from distkern.scheduler.training.driver_loop import train
from tests.scheduler.trainings import make_data, make_job, make_source

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


@pytest.mark.parametrize("fan_in", [8, 1])
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_ends_the_run(threads: Any, monkeypatch: pytest.MonkeyPatch, lie: str, fan_in: int) -> None:
    if fan_in == 1 and lie in ("answers-without-problems", "no-sums"):
        pytest.skip("sums of a tree do not say which worker had no rows")
    honest, change = memo.run_message, LIES[lie]

    def run_message(fence: Any, numbers: Any, version: Any, previous: Any, message: Any) -> Any:
        answer = honest(fence, numbers, version, previous, message)
        lies = message_name(message) == "kernel-columns" and 0 not in numbers and isinstance(answer, dict)
        return change(answer) if lies else answer

    monkeypatch.setattr(memo, "run_message", run_message)
    source = make_source(*make_data(240))
    executor = DaskExecutor(threads, source, EventBus(), fan_in=fan_in)
    try:
        with pytest.raises(ClusterError) as caught:
            train(make_job(), source, executor, EventBus())
    finally:
        executor.close()
    assert caught.value.kind == "bad-answer"


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
