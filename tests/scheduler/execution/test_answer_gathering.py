"""Answers of many workers are summed by tasks: same bits, and a lost worker costs only a question."""

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
from distkern.scheduler.execution.answer_gathering import Gatherer, TaskChain, sum_answers
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


@given(st.lists(st.integers(0, 6), min_size=1, max_size=20), st.integers(1, 4), st.data())
def test_a_group_is_summed_once_none_of_it_is_pending(owners: list[int], fan_in: int, data: st.DataObject) -> None:
    where = {block: f"worker-{owner}" for block, owner in enumerate(owners)}
    chains = [
        TaskChain(worker, tuple(block for block, owner in where.items() if owner == worker))
        for worker in sorted(set(where.values()))
    ]
    gatherer = Gatherer(where, fan_in)
    assert gatherer.active == (len(chains) > fan_in)
    order = data.draw(st.permutations(chains))
    summed: list[list[str]] = []
    for done, chain in enumerate(order):
        gatherer.hold(object(), chain)
        pending = order[done + 1 :]
        for group in gatherer.complete(pending):
            members = [member.worker for _, member in group.parts]
            assert len(members) <= fan_in
            assert group.workers == set(members)
            assert not group.workers & {other.worker for other in pending}
            summed.append(members)
    assert sorted(itertools.chain(*summed)) == sorted(chain.worker for chain in chains)
    assert gatherer.blocks == set()


def test_the_answers_of_a_lost_worker_are_dropped() -> None:
    gatherer = Gatherer({0: "a", 1: "b", 2: "c"}, 2)
    for block, worker in enumerate("abc"):
        gatherer.hold(worker, TaskChain(worker, (block,)))
    gatherer.forget("b")
    assert gatherer.blocks == {0, 2}
    assert [[future for future, _ in group.parts] for group in gatherer.complete([])] == [["a"], ["c"]]


def test_refusals_come_back_by_position_and_parts_are_not_changed() -> None:
    first, second = Worker("tcp://a", "sum", (0, 1)), Worker("tcp://b", "sum", (2,))
    first.place()
    second.place()
    parts = [first.run(0), Refusal(versions={3: -1}), second.run(0)]
    before = [answer_bits(part) for part in parts]
    nodes, refusals = sum_answers(N_BLOCKS, parts)
    assert refusals == {1: parts[1]}
    assert nodes
    assert [answer_bits(part) for part in parts] == before
    for worker in (first, second):
        memo.drop_run(worker.address, "sum")
