"""Work that is lost half way: torn effects, replies that nobody can fetch, drivers that vanish."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from distkern.errors import BudgetError
from distkern.monitoring.events import BlocksReplayed, WorkerLost
from distkern.scheduler import run_training
from distkern.scheduler.blocks import block_registry as memo
from distkern.scheduler.clusters.futures import MAX_MEMORY_ERRORS
from distkern.storage import ArraySource
from tests.locations import ROOT
from tests.markers import variants
from tests.scheduler.faults import Trouble, addresses, expected, pids, run, source, wait_for
from tests.scheduler.trainings import assert_same_bits, make_job
from tests.waiting import wait_until


class Torn:
    """A block that runs out of memory once it has changed its state."""

    def __init__(self, block: Any) -> None:
        self._block = block
        self.torn = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block, name)

    def run_strip(self, *arguments: Any, **options: Any) -> Any:
        self._block.run_strip(*arguments, **options)
        self.torn = True
        raise MemoryError("torn")


def test_a_memory_error_in_the_middle_of_an_effect(threads: Any) -> None:
    torn: list[Torn] = []

    def tear() -> None:
        (memory,) = (memory for (worker, _), memory in memo._memory.items() if worker == addresses(threads)[0])
        torn.append(Torn(memory.held[2].block))
        memory.held[2].block = torn[0]  # type: ignore[assignment]

    events = Trouble({3: tear})
    result, n_workers = run(threads, events)
    assert torn[0].torn
    assert_same_bits(result, expected())
    assert n_workers == 2
    assert events.of(WorkerLost) == []
    assert {2} <= {block for event in events.of(BlocksReplayed) for block in event.blocks}


class NoMemory(ArraySource):
    """Rows that never fit."""

    inline = False
    reads = 0

    def read_features(self, block: int) -> Any:
        type(self).reads += 1
        raise MemoryError(f"block {block}")


def test_memory_that_is_short_again_and_again_ends_the_run(threads: Any) -> None:
    X = source().X
    with pytest.raises(BudgetError, match="memory ran out") as error:
        run_training(make_job(), NoMemory(X, X[:, 0], boundaries=(0, len(X))), client=threads, factors="workers")
    assert error.value.kind == "out-of-memory"
    assert NoMemory.reads == 1 + MAX_MEMORY_ERRORS


class WithoutSomeResults:
    """A client of a cluster on which the results of some tasks are errors, for want of memory of a worker."""

    def __init__(self, client: Any, at: range, error: Exception) -> None:
        self._client, self._at, self._error, self._count = client, at, error, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def gather(self, future: Any, **options: Any) -> Any:
        self._count += 1
        if self._count in self._at:
            raise self._error
        return await self._client.gather(future, **options)


NO_ROOM_TO_SEND = TypeError("Could not serialize object of type Answer\nMemoryError")
LOST = KeyError("sum-answers-" + 32 * "0")


@pytest.mark.parametrize("error", [NO_ROOM_TO_SEND, LOST], ids=["not sent", "lost"])
def test_a_worker_runs_out_of_memory_while_it_sends_its_answer(threads: Any, error: Exception) -> None:
    result, n_workers = run(WithoutSomeResults(threads, range(5, 7), error), Trouble({}))
    assert_same_bits(result, expected())
    assert n_workers == 2


def test_a_worker_that_never_has_the_memory_to_send_ends_the_run(threads: Any) -> None:
    with pytest.raises(MemoryError, match="Could not serialize"):
        run(WithoutSomeResults(threads, range(5, 100), NO_ROOM_TO_SEND), Trouble({}))


class BeforeFetching:
    """A client that has something happen between a task's end and the fetch of its result."""

    def __init__(self, client: Any, at: int, trouble: Callable[[str], object]) -> None:
        self._client, self._countdown, self._trouble = client, at, trouble

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def gather(self, future: Any, **options: Any) -> Any:
        self._countdown -= 1
        if self._countdown == 0:
            (holders,) = self._client.who_has([future]).values()
            self._trouble(holders[0])
        return self._client.gather(future, **options)


@pytest.mark.cluster
@pytest.mark.parametrize(("at", "noticed"), variants([(3, True), (12, False)], [(3, False), (12, True)]))
def test_a_worker_is_killed_after_computing_and_before_its_reply_was_fetched(
    processes: Any, at: int, noticed: bool
) -> None:
    found = pids(processes)
    killed: list[str] = []

    def kill(worker: str) -> None:
        killed.append(worker)
        os.kill(found[worker], signal.SIGKILL)
        if noticed:
            wait_for(processes, lambda workers: worker not in workers)

    events = Trouble({})
    result, n_workers = run(BeforeFetching(processes, at, kill), events)
    assert_same_bits(result, expected())
    assert [event.worker for event in events.of(WorkerLost)] == killed
    assert n_workers == 1


DRIVER = """
import sys, time
from distributed import Client
from tests.scheduler.faults import JOB, source
from distkern.monitoring.events import RoundDone
from distkern.scheduler import run_training

def slow(event):
    if isinstance(event, RoundDone):
        print("round", event.round, flush=True)
        time.sleep(0.2)

with Client(sys.argv[1], set_as_default=False) as client:
    run_training(JOB, source(), client=client, factors="workers", subscribers=[slow])
"""


@pytest.mark.cluster
@pytest.mark.parametrize("at", variants([1], [1, 3]))
def test_a_driver_that_is_killed_leaves_nothing_on_the_workers(process_client: Any, at: int) -> None:
    def held() -> int:
        return sum(len(runs) for runs in process_client.run(memo.held_runs).values())

    path = os.pathsep.join([str(ROOT), *sys.path])
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, process_client.scheduler.address],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        assert driver.stdout is not None
        for _ in range(at):
            assert driver.stdout.readline().startswith("round")
        assert held() == 2
    finally:
        driver.kill()
        driver.communicate()
    wait_until(lambda: not held(), seconds=10)
