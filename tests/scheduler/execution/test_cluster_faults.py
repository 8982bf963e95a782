"""Workers that die, leave, join and never come: the numbers stay, and what cannot go on says so."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
import zarr

from distkern.errors import ClusterError, DataError
from distkern.monitoring.events import BlocksReplayed, EventBus, WorkerLost
from distkern.scheduler import run_training
from distkern.scheduler.blocks import block_registry as memo
from distkern.scheduler.execution.dask_executor import DaskExecutor
from distkern.scheduler.protocol.messages import Load
from distkern.scheduler.runtime.environment import process_facts
from distkern.scheduler.training.driver_loop import train
from distkern.storage import ArraySource, ZarrSource
from tests.markers import variants
from tests.scheduler.faults import (
    JOB,
    N_BLOCKS,
    Trouble,
    addresses,
    check_events,
    expected,
    pids,
    run,
    source,
    wait_for,
)
from tests.scheduler.trainings import assert_same_bits, make_data, make_job
from tests.scheduler.worker_clusters import cluster

# ---- Workers in this process: they retire and join


@pytest.mark.parametrize("factors", ["workers", "driver"])
def test_a_worker_that_retires(threads: Any, factors: str) -> None:
    lost = addresses(threads)[0]
    events = Trouble({3: lambda: threads.retire_workers([lost])})
    result, n_workers = run(threads, events, factors)
    assert_same_bits(result, expected())
    assert n_workers == 1
    check_events(events, [lost], "retired")


def test_a_worker_that_joins_gets_blocks(threads: Any) -> None:
    before = set(addresses(threads))

    def join() -> None:
        threads.cluster.scale(3)
        wait_for(threads, lambda workers: len(workers) == 3)

    events = Trouble({3: join})
    result, n_workers = run(threads, events)
    assert_same_bits(result, expected())
    assert n_workers == 3
    assert events.of(WorkerLost) == []
    replayed = events.of(BlocksReplayed)
    (joined,) = set(addresses(threads)) - before
    assert joined in {event.worker for event in replayed}
    # Ranges stay in order, so some blocks move between the others too, but not all.
    assert sum(len(event.blocks) for event in replayed) < N_BLOCKS


def test_a_worker_joins_and_another_retires(threads: Any) -> None:
    first = addresses(threads)[0]

    def join() -> None:
        threads.cluster.scale(3)
        wait_for(threads, lambda workers: len(workers) == 3)

    events = Trouble({2: join, 4: lambda: threads.retire_workers([first])})
    result, n_workers = run(threads, events)
    assert_same_bits(result, expected())
    assert n_workers == 2
    check_events(events, [first], "retired")


def test_no_worker_at_all() -> None:
    with cluster(0, processes=False) as client:
        with pytest.raises(ClusterError, match=r"no worker was usable within 0.2 s \(the cluster has none\)") as error:
            DaskExecutor(client, source(), EventBus(), worker_wait=0.2)
        assert error.value.kind == "no-workers"


def test_no_worker_is_left(threads: Any) -> None:
    def leave() -> None:
        threads.cluster.scale(0)
        wait_for(threads, lambda workers: not workers)

    with pytest.raises(ClusterError, match="no worker was usable") as error:
        run(threads, Trouble({3: leave}), worker_wait=0.3)
    assert error.value.kind == "no-workers"


def test_a_worker_that_comes_late_is_waited_for() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with cluster(0, processes=False) as client, ThreadPoolExecutor(1) as pool:
        future = pool.submit(run, client, Trouble({}))
        sleep(0.3)
        assert not future.done()
        client.cluster.scale(1)
        result, n_workers = future.result(60)
    assert_same_bits(result, expected())
    assert n_workers == 1


def test_a_failed_start_leaves_nothing() -> None:
    from distkern.scheduler.clusters.worker_events import _watches

    with cluster(0, processes=False) as client:
        with pytest.raises(ClusterError):
            DaskExecutor(client, source(), EventBus(), worker_wait=0.0)
        watch = _watches.get(client)
        assert watch is None or watch._listeners == []


def test_more_workers_than_blocks(threads: Any) -> None:
    X, y = make_data(60)
    one = ArraySource(X, y, boundaries=(0, 60))
    job = make_job(max_centers=8)
    result = run_training(job, one, client=threads, factors="workers")
    assert_same_bits(result, run_training(job, one))
    assert result.summary["exchanges"] > 0


# ---- Worker processes: they are killed


@pytest.mark.cluster
@pytest.mark.parametrize("factors", variants(["workers"], ["workers", "driver"]))
def test_a_worker_that_is_killed(processes: Any, factors: str) -> None:
    lost, pid = next(iter(pids(processes).items()))
    events = Trouble({4: lambda: os.kill(pid, signal.SIGKILL)})
    result, n_workers = run(processes, events, factors)
    assert_same_bits(result, expected())
    assert n_workers == 1
    check_events(events, [lost])


@pytest.mark.cluster
@pytest.mark.nightly
@pytest.mark.parametrize("processes", [True], indirect=True)
def test_both_workers_are_killed_and_restarted(processes: Any) -> None:
    (first, one), (second, other) = pids(processes).items()

    def kill_other() -> None:
        # The first has come back under another address and may already own blocks.
        wait_for(processes, lambda workers: len(workers) == 2 and first not in workers)
        os.kill(other, signal.SIGKILL)

    events = Trouble({2: lambda: os.kill(one, signal.SIGKILL), 4: kill_other})
    result, _ = run(processes, events)
    assert_same_bits(result, expected())
    check_events(events, [first, second])


@pytest.mark.cluster
@pytest.mark.parametrize("processes", [True], indirect=True)
def test_all_workers_are_killed_at_once_and_restarted(processes: Any) -> None:
    before = pids(processes)

    def kill_all() -> None:
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)

    events = Trouble({3: kill_all})
    result, _ = run(processes, events)
    assert_same_bits(result, expected())
    assert {event.worker for event in events.of(WorkerLost)} >= set(list(before)[:1])
    assert {block for event in events.of(BlocksReplayed) for block in event.blocks} == set(range(N_BLOCKS))


class Deadly(ArraySource):
    """Kills the worker that reads one of its blocks: once, or always."""

    inline = False
    once: Path | None = None

    def read_features(self, block: int) -> Any:
        if block == 5:
            if self.once is None:
                os.kill(os.getpid(), signal.SIGKILL)
            elif not self.once.exists():
                self.once.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().read_features(block)


def deadly(once: Path | None) -> Deadly:
    whole = source()
    made = Deadly(whole.X, whole.y, whole.weights, boundaries=whole.boundaries)
    made.once = once
    return made


@pytest.mark.cluster
def test_a_worker_that_dies_in_a_task(processes: Any, tmp_path: Path) -> None:
    rows = deadly(tmp_path / "dead")
    events = Trouble({})
    executor = DaskExecutor(processes, rows, events)
    result = train(JOB, rows, executor, events)
    executor.close()
    assert_same_bits(result, expected())
    assert len(events.of(WorkerLost)) == 1


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("processes", [True], indirect=True)
def test_a_block_that_kills_every_worker_ends_the_run(processes: Any) -> None:
    executor = DaskExecutor(processes, deadly(None), EventBus())
    try:
        with pytest.raises(ClusterError, match="owned block") as error:
            executor.exchange(Load(True, 0, 0, 0.0))
        assert error.value.kind == "workers-dying"
    finally:
        executor.close()


@pytest.mark.cluster
def test_a_data_error_travels_from_a_worker(process_client: Any, tmp_path: Path) -> None:
    X, y = make_data(100)
    X[77, 1] = np.inf
    stored = zarr.create_array(tmp_path / "X", shape=X.shape, chunks=(20, 2), dtype=X.dtype)
    stored[...] = X
    with pytest.raises(DataError, match="row 77") as error:
        run_training(make_job(), ZarrSource(stored, y), client=process_client)
    assert error.value.kind == "not-finite"
    assert not any(process_client.run(memo.held_runs).values())


@pytest.mark.cluster
@pytest.mark.nightly
def test_a_worker_process_that_joins_gets_blocks(processes: Any) -> None:
    before = set(pids(processes))

    def join() -> None:
        processes.cluster.scale(3)
        (joined,) = wait_for(processes, lambda workers: len(workers) == 3) - before
        # Imports may take longer than a round waits, and there may be no later one.
        processes.run(process_facts, workers=[joined])

    events = Trouble({3: join})
    result, n_workers = run(processes, events)
    assert_same_bits(result, expected())
    assert n_workers == 3
    (joined,) = set(addresses(processes)) - before
    assert joined in {event.worker for event in events.of(BlocksReplayed)}
