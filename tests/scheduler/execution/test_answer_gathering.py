"""Answers of many workers are summed by trees of tasks: same bits, and a lost worker concerns one tree."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.scheduler.blocks import block_registry as memo
from distkern.scheduler.blocks.block_registry import Refusal
from distkern.scheduler.execution.answer_gathering import MessageGraph, Summed, sum_answers, trees
from distkern.scheduler.planning.limits import FAN_IN, results_fetched
from tests.markers import variants
from tests.scheduler.blocks.test_block_registry import Worker, answer_bits
from tests.scheduler.faults import N_BLOCKS, Trouble, addresses, check_events, expected, run
from tests.scheduler.trainings import assert_same_bits
from tests.scheduler.worker_clusters import cluster


@pytest.fixture(scope="module")
def five() -> Iterator[Any]:
    with cluster(5, processes=False) as client:
        yield client
    assert memo.held_runs() == []


@pytest.mark.parametrize("fan_in", variants([2, 16], [1, 2, 3, 4, 5, 16]))
def test_the_bits_do_not_depend_on_the_groups(five: Any, fan_in: int) -> None:
    result, workers = run(five, Trouble({}), fan_in=fan_in)
    assert workers == 5
    assert_same_bits(result, expected())


@pytest.mark.parametrize("fan_in", variants([2], [1, 2, 3]))
def test_a_worker_of_a_group_retires(fan_in: int) -> None:
    with cluster(4, processes=False) as client:
        lost = addresses(client)[1]
        events = Trouble({3: lambda: client.retire_workers([lost])})
        result, workers = run(client, events, fan_in=fan_in)
        assert workers == 3
        check_events(events, [lost], "retired")
    assert_same_bits(result, expected())


@pytest.mark.cluster
def test_a_worker_of_a_group_is_killed() -> None:
    with cluster(4, processes=True) as client:
        pids = client.run(os.getpid)
        lost = sorted(pids)[2]
        events = Trouble({2: lambda: os.kill(pids[lost], signal.SIGKILL)})
        result, _ = run(client, events, fan_in=2)
        check_events(events, [lost])
    assert_same_bits(result, expected())


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("number", variants([0], [0, 2]))
def test_a_worker_of_a_group_freezes(number: int) -> None:
    """The first of them has each message and hands it on: the others must get it from elsewhere then."""
    with cluster(4, processes=True) as client:
        pids = client.run(os.getpid)
        lost = sorted(pids)[number]
        events = Trouble({2: lambda: os.kill(pids[lost], signal.SIGSTOP)})
        try:
            result, workers = run(client, events, fan_in=2)
        finally:
            os.kill(pids[lost], signal.SIGCONT)
        assert workers == 3
        check_events(events, [lost], "frozen")
    assert_same_bits(result, expected())


class Recorder:
    """A client that notes the graphs of tasks, with the worker of each task."""

    def get(self, graph: Any, keys: list[str], **_: Any) -> list[str]:
        (layer,) = graph.layers.values()
        self.tasks = dict(layer)
        self.workers = {key: layer.annotations["workers"](key) for key in layer}
        return keys


@given(st.integers(1, 90), st.integers(2, 5))
def test_trees_ask_every_worker_once(n_workers: int, fan_in: int) -> None:
    members = [(f"w{number:03}", (number,)) for number in range(n_workers)]
    split = trees([worker for worker, _ in members], fan_in)
    assert len(split) <= fan_in
    assert list(itertools.chain(*split)) == [worker for worker, _ in members]
    client = Recorder()
    graph = MessageGraph(
        "step", "message", n_workers, fan_in, lambda worker, blocks: (memo.run_message, worker, blocks)
    )
    for tree in split:
        graph.ask([member for member in members if member[0] in tree])
    asked = graph.submit(client)
    assert [workers.members for workers in asked.values()] == [
        tuple(member for member in members if member[0] in tree) for tree in split
    ]
    for key, tree in asked.items():
        if tree.summed:
            assert key.startswith("sum-answers")
    named = [key for key in client.tasks if key.startswith("step")]
    assert sorted(client.workers[key] for key in named) == [[worker] for worker, _ in members]
    # A tree uses no other workers than those that it asks, and no task has more inputs than the fan-in and a message.
    for key, task in client.tasks.items():
        assert len(task.dependencies) <= fan_in
        above = next(tree for tree in asked.values() if client.workers[key][0] in tree.workers)
        assert all(client.workers[needed][0] in above.workers for needed in task.dependencies)
    for key in client.tasks:
        users = [task for task in client.tasks.values() if key in task.dependencies]
        assert len(users) <= fan_in


@pytest.mark.parametrize(("n_workers", "fetched"), [(1, 1), (8, 8), (9, 2), (48, 6), (64, 8), (65, 2), (1000, 2)])
def test_the_driver_fetches_few_results(n_workers: int, fetched: int) -> None:
    assert results_fetched(n_workers) == fetched == len(trees([str(n) for n in range(n_workers)], FAN_IN))


def test_refusals_come_back_by_position_and_parts_are_not_changed() -> None:
    first, second = Worker("tcp://a", "sum", (0, 1)), Worker("tcp://b", "sum", (2,))
    first.place()
    second.place()
    parts = [first.run(0), Refusal(versions={3: -1}), second.run(0)]
    before = [answer_bits(part) for part in parts]
    summed = sum_answers(N_BLOCKS, (0, 4, 5), ("a", "b", "c"), *parts)
    assert summed.refusals == {4: parts[1]}
    assert summed.nodes
    assert [answer_bits(part) for part in parts] == before
    above = sum_answers(N_BLOCKS, (0, 6), ("a", "d"), summed, Summed({}, {7: parts[1]}))
    assert above.refusals == {4: parts[1], 7: parts[1]}
    assert answer_bits(above.nodes) == answer_bits(summed.nodes)
    for worker in (first, second):
        memo.drop_run(worker.address, "sum")
