"""Clusters that grow, shrink, restart and vanish while trainings run."""

from __future__ import annotations

import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from distkern.errors import ClusterError
from distkern.monitoring.events import BlocksReplayed, WorkerLost, WorkersAwaited
from distkern.scheduler.blocks import block_registry as memo
from distkern.scheduler.clusters.placement import place
from distkern.scheduler.runtime.environment import process_facts
from tests.scheduler.execution.test_unusable_workers import waiting_source
from tests.scheduler.faults import N_BLOCKS, Trouble, addresses, expected, pids, run, wait_for
from tests.scheduler.trainings import assert_same_bits
from tests.scheduler.worker_clusters import cluster


@pytest.mark.slow
def test_a_late_worker_joins_three_trainings_of_one_client(threads: Any) -> None:
    """It gets work once a training rebalances; until then nothing moves, and then no more than must."""
    before = addresses(threads)
    ready, joined = threading.Barrier(3), threading.Barrier(3)

    def join() -> None:
        if ready.wait(30) == 0:
            threads.cluster.scale(3)
            wait_for(threads, lambda workers: len(workers) == 3)
        joined.wait(30)

    troubles = [Trouble({3: join}) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda events: run(threads, events), troubles))
    owners = place(N_BLOCKS, before)
    new_owners = place(N_BLOCKS, addresses(threads), owners)
    moved = sorted(block for block in owners if owners[block] != new_owners[block])
    for events, (result, n_workers) in zip(troubles, results, strict=True):
        assert_same_bits(result, expected())
        assert n_workers == 3
        assert events.of(WorkerLost) == []
        replayed = events.of(BlocksReplayed)
        assert sorted(block for event in replayed for block in event.blocks) == moved
        first = min(events.events.index(event) for event in replayed)
        assert sum(type(event).__name__ == "RoundDone" for event in events.events[:first]) == 3


@pytest.mark.cluster
@pytest.mark.parametrize("processes", [True], indirect=True)
def test_a_worker_that_is_restarted(processes: Any) -> None:
    lost = addresses(processes)[0]
    events = Trouble({3: lambda: processes.restart_workers([lost])})
    result, n_workers = run(processes, events)
    assert_same_bits(result, expected())
    assert [event.worker for event in events.of(WorkerLost)] == [lost]
    assert n_workers == 2


@pytest.mark.cluster
def test_a_worker_comes_back_under_its_old_address() -> None:
    """As on machines where workers have a fixed port: it is another process, and its death counts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with cluster(1, processes=True, worker_port=port) as client:
        (address,) = before = addresses(client)

        def kill() -> None:
            (pid,) = pids(client).values()
            os.kill(pid, signal.SIGKILL)
            wait_for(client, lambda workers: not workers)
            wait_for(client, lambda workers: len(workers) == 1)

        events = Trouble({2: kill, 4: kill})
        result, _ = run(client, events)
        assert addresses(client) == before
    assert_same_bits(result, expected())
    assert [event.worker for event in events.of(WorkerLost)] == [address] * 2


@pytest.mark.slow
def test_adaptive_scaling() -> None:
    """dask adds workers while other work waits, and retires them, with blocks or not, when it is done."""
    with cluster(1, processes=False) as client:
        adaptive = client.cluster.adapt(minimum=1, maximum=3, interval="50ms", wait_count=2, target_duration="50ms")
        other: list[Any] = []

        def crowd() -> None:
            other.extend(client.submit(sleep, 0.05, pure=False) for _ in range(400))
            wait_for(client, lambda workers: len(workers) == 3)

        def leave() -> None:
            client.cancel(other)
            wait_for(client, lambda workers: len(workers) == 1)

        events = Trouble({2: crowd, 4: leave})
        result, n_workers = run(client, events)
        adaptive.stop()
    assert_same_bits(result, expected())
    assert n_workers == 1
    lost = events.of(WorkerLost)
    assert {event.reason for event in lost} == {"retired"}
    assert events.of(BlocksReplayed)
    assert memo.held_runs() == []


def kill_readers(folder: Path, pids_: list[int]) -> None:
    """Kill all workers while one of them reads a block."""
    while not list(folder.glob("reading-*")):
        sleep(0.02)
    for pid in pids_:
        os.kill(pid, signal.SIGKILL)
    (folder / "go").touch()


@pytest.mark.cluster
@pytest.mark.nightly
@pytest.mark.parametrize("processes", [True], indirect=True)
def test_all_workers_are_lost_in_the_middle_of_a_task_and_come_back(processes: Any, tmp_path: Path) -> None:
    thread = threading.Thread(target=kill_readers, args=(tmp_path, list(pids(processes).values())))
    thread.start()
    events = Trouble({})
    result, _ = run(processes, events, rows=waiting_source(tmp_path))
    thread.join()
    assert_same_bits(result, expected())
    # Whether none is there for a moment depends on how fast new ones start.
    assert len(events.of(WorkerLost)) >= 2
    assert {event.reason for event in events.of(WorkerLost)} == {"left"}


@pytest.mark.cluster
def test_all_workers_are_lost_and_none_comes_back(processes: Any, tmp_path: Path) -> None:
    processes.run(process_facts)  # imports may take longer than this run waits for workers
    thread = threading.Thread(target=kill_readers, args=(tmp_path, list(pids(processes).values())))
    thread.start()
    events = Trouble({})
    with pytest.raises(ClusterError, match=r"within 0.5 s .the cluster has none") as error:
        run(processes, events, rows=waiting_source(tmp_path), worker_wait=0.5)
    thread.join()
    assert error.value.kind == "no-workers"
    assert error.value.exit_code == 5
    (awaited,) = events.of(WorkersAwaited)
    assert (awaited.seconds, awaited.unusable) == (0.5, ())


@pytest.mark.cluster
@pytest.mark.slow
def test_a_block_whose_workers_are_killed_again_and_again_ends_the_run() -> None:
    with cluster(2, processes=True) as client:

        def kill() -> None:
            wait_for(client, lambda workers: len(workers) == 2)
            for pid in pids(client).values():
                os.kill(pid, signal.SIGKILL)

        events = Trouble(dict.fromkeys(range(1, 5), kill))
        with pytest.raises(ClusterError, match=r"4 workers failed while they owned block \d .limit 3") as error:
            run(client, events)
    assert error.value.kind == "workers-dying"
