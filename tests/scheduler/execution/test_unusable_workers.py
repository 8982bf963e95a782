"""Workers that are there and cannot be used: frozen, stuck, paused, or of other versions than the driver."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from distkern.errors import ClusterError
from distkern.monitoring.events import BlocksReplayed, EventBus, WorkerLost, WorkerRefused, WorkersAwaited
from distkern.scheduler.blocks import block_registry as memo
from distkern.scheduler.clusters import step_watch
from distkern.scheduler.clusters.worker_queries import workers_of
from distkern.scheduler.execution import dask_executor, worker_pool
from distkern.scheduler.execution.dask_executor import DaskExecutor
from distkern.scheduler.runtime.environment import process_facts
from distkern.storage import ArraySource
from tests.scheduler.faults import Trouble, addresses, check_events, expected, pids, run, source, wait_for
from tests.scheduler.trainings import assert_same_bits
from tests.scheduler.worker_clusters import cluster
from tests.waiting import wait_until

# ---- Frozen


@contextmanager
def stoppable(pids: list[int]) -> Iterator[Callable[[int], None]]:
    """Stop processes by signal; all go on at the end, or they could not be closed."""
    try:
        yield lambda pid: os.kill(pid, signal.SIGSTOP)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def wait_for_status(client: Any, worker: str, status: str) -> None:
    wait_until(lambda: workers_of(client).get(worker, {}).get("status") == status)


class Waits(ArraySource):
    """Rows of which one block cannot be read before a file is there; another file says that it is being read."""

    inline = False
    folder = Path()

    def read_features(self, block: int) -> Any:
        if block == 1:
            (self.folder / f"reading-{os.getpid()}").touch()
            for _ in range(3000):
                if (self.folder / "go").exists():
                    break
                sleep(0.02)
        return super().read_features(block)


def waiting_source(folder: Path, kind: type[Waits] = Waits) -> Waits:
    whole = source()
    made = kind(whole.X, whole.y, whole.weights, boundaries=whole.boundaries)
    made.folder = folder
    return made


@pytest.mark.cluster
@pytest.mark.slow
def test_a_worker_that_freezes_is_replaced_and_used_again(processes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "AWAY_SECONDS", 0.0)  # the next round sees that it is back
    lost, pid = next(iter(pids(processes).items()))
    with stoppable([pid]) as stop:

        def go_on() -> None:
            before = workers_of(processes)[lost]["last_seen"]
            os.kill(pid, signal.SIGCONT)
            wait_until(lambda: workers_of(processes)[lost]["last_seen"] > before)

        events = Trouble({2: lambda: stop(pid), 4: go_on})
        result, n_workers = run(processes, events)
    assert_same_bits(result, expected())
    check_events(events, [lost], "frozen")
    assert n_workers == 2
    assert lost in {event.worker for event in events.of(BlocksReplayed)}
    assert not any(processes.run(memo.held_runs).values())


@pytest.mark.cluster
@pytest.mark.slow
def test_a_worker_that_freezes_in_the_middle_of_a_task(processes: Any, tmp_path: Path) -> None:
    """It goes on while others have its blocks: what it computes then counts for nothing, and it forgets the run."""
    rows = waiting_source(tmp_path)
    found = pids(processes)
    with stoppable(list(found.values())) as stop:

        def freeze() -> None:
            while not list(tmp_path.glob("reading-*")):
                sleep(0.02)
            stop(int(next(tmp_path.glob("reading-*")).name.split("-")[1]))
            (tmp_path / "go").touch()

        thread = threading.Thread(target=freeze)
        thread.start()
        events = Trouble({2: lambda: [os.kill(pid, signal.SIGCONT) for pid in found.values()]})
        result, _ = run(processes, events, rows=rows)
        thread.join()
    assert_same_bits(result, expected())
    assert [event.reason for event in events.of(WorkerLost)] == ["frozen"]
    wait_until(lambda: not any(processes.run(memo.held_runs).values()))


class WaitsOnce(Waits):
    """Rows of which the first read of one block waits, as on a disk that hangs, and no other."""

    def read_features(self, block: int) -> Any:
        if block == 1:
            try:
                (self.folder / "first").touch(exist_ok=False)
            except FileExistsError:
                return ArraySource.read_features(self, block)
        return super().read_features(block)


@pytest.mark.cluster
@pytest.mark.slow
def test_a_worker_that_hangs_in_a_task_is_replaced(
    processes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends heartbeats and answers pings; only its work makes no progress."""
    monkeypatch.setenv("DISTKERN_READ_SECONDS", "0.1")
    monkeypatch.setenv("DISTKERN_READ_ATTEMPTS", "1")
    monkeypatch.setattr(worker_pool, "STUCK_SECONDS", 3.0)
    for module in (dask_executor, step_watch):
        monkeypatch.setattr(module, "ASK_SECONDS", 0.5)
    events = Trouble({})
    try:
        result, _ = run(processes, events, rows=waiting_source(tmp_path, WaitsOnce))
    finally:
        (tmp_path / "go").touch()
    assert_same_bits(result, expected())
    lost = {event.worker: event.reason for event in events.of(WorkerLost)}
    found = pids(processes)
    assert "stuck" in {reason for worker, reason in lost.items() if (tmp_path / f"reading-{found[worker]}").exists()}
    wait_until(lambda: not any(processes.run(memo.held_runs).values()))


@pytest.mark.cluster
@pytest.mark.slow
def test_the_only_worker_freezes_and_goes_on() -> None:
    with cluster(1, processes=True) as client:
        worker, pid = next(iter(pids(client).items()))
        with stoppable([pid]) as stop:
            events = Trouble({2: lambda: stop(pid)}, {WorkersAwaited: lambda: os.kill(pid, signal.SIGCONT)})
            result, _ = run(client, events)
    assert_same_bits(result, expected())
    check_events(events, [worker], "frozen")
    (awaited,) = events.of(WorkersAwaited)
    assert awaited.unusable == (worker,)


@pytest.mark.cluster
@pytest.mark.nightly
def test_the_only_worker_freezes_for_good() -> None:
    with cluster(1, processes=True) as client:
        client.run(process_facts)  # imports may take longer than this run waits for workers
        worker, pid = next(iter(pids(client).items()))
        with stoppable([pid]) as stop:
            events = Trouble({2: lambda: stop(pid)})
            with pytest.raises(ClusterError, match=f"within 0.5 s .{worker} is frozen") as error:
                run(client, events, worker_wait=0.5)
    assert error.value.kind == "no-workers"
    assert error.value.exit_code == 5


def keep_interpreter_lock(seconds: float) -> float:
    """Do arithmetic that no other thread of the process can interrupt."""
    started = monotonic()
    number = 3
    while monotonic() - started < seconds:
        number = pow(3, 1_500_000)  # some tenths of a second without a chance for others
    return monotonic() - started + 0 * (number & 1)


@pytest.mark.cluster
@pytest.mark.nightly
def test_a_busy_worker_is_not_frozen(processes: Any) -> None:
    """Tasks that keep the interpreter lock for long stretches delay heartbeats and answers, no more."""

    def busy() -> None:
        futures.extend(
            processes.submit(keep_interpreter_lock, 8.0, workers=[worker], pure=False)
            for worker in addresses(processes)
        )

    futures: list[Any] = []
    events = Trouble({2: busy})
    result, n_workers = run(processes, events)
    assert_same_bits(result, expected())
    assert n_workers == 2
    assert events.of(WorkerLost) == []
    assert all(seconds >= 8.0 for seconds in processes.gather(futures))


# ---- Paused


def set_status(client: Any, worker: str, status: str) -> None:
    from distributed.core import Status

    def set_it(dask_worker: Any) -> None:
        dask_worker.status = Status[status]

    client.run(set_it, workers=[worker])
    wait_for_status(client, worker, status)


def test_a_paused_worker_is_replaced_and_used_again(threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "AWAY_SECONDS", 0.0)  # the next round sees that it is back
    paused = addresses(threads)[0]
    events = Trouble(
        {2: lambda: set_status(threads, paused, "paused"), 4: lambda: set_status(threads, paused, "running")}
    )
    result, n_workers = run(threads, events)
    assert_same_bits(result, expected())
    check_events(events, [paused], "paused")
    assert n_workers == 2
    assert paused in {event.worker for event in events.of(BlocksReplayed)}


def test_a_worker_that_is_paused_from_the_start_is_not_used(threads: Any) -> None:
    paused, running = addresses(threads)
    set_status(threads, paused, "paused")
    events = Trouble({})
    result, n_workers = run(threads, events)
    assert_same_bits(result, expected())
    assert n_workers == 1
    assert events.of(WorkerLost) == []
    assert {event.worker for event in events.of(BlocksReplayed)} <= {running}


@pytest.mark.nightly
def test_pausing_never_ends_a_run_as_killing_does(threads: Any) -> None:
    """A block may change hands many times where nobody died."""
    workers = addresses(threads)

    def swap(number: int) -> Callable[[], None]:
        def do() -> None:
            set_status(threads, workers[1 - number % 2], "running")
            set_status(threads, workers[number % 2], "paused")

        return do

    events = Trouble({number: swap(number) for number in range(1, 6)})
    result, _ = run(threads, events)
    assert_same_bits(result, expected())
    assert len(events.of(WorkerLost)) == 5
    assert {event.reason for event in events.of(WorkerLost)} == {"paused"}


# ---- Of other versions


def facts_by_name(dask_worker: Any = None) -> dict[str, str]:
    """Facts of an imagined cluster: the third worker, and the driver's, are as they should be, or not."""
    odd = dask_worker is not None and dask_worker.name == 2
    return {"distkern": "1.0", "numpy": "2.1.0" if odd else "2.0.0"}


def other_facts(dask_worker: Any = None) -> dict[str, str]:
    return {"numpy": "2.0.0" if dask_worker is None else f"2.1.{dask_worker.name}"}


def cannot_import(dask_worker: Any = None) -> dict[str, str]:
    if dask_worker is not None:
        raise ModuleNotFoundError("No module named 'distkern'")
    return {"distkern": "1.0"}


def test_a_worker_that_differs_at_the_start_is_an_error(threads: Any) -> None:
    with pytest.raises(ClusterError, match=r"numpy is 2.1.\d there and 2.0.0 here") as error:
        DaskExecutor(threads, source(), EventBus(), ask_facts=other_facts)
    assert error.value.kind == "version-mismatch"
    assert error.value.exit_code == 5
    assert any(worker in str(error.value) for worker in addresses(threads))
    assert "environment" in str(error.value)


def test_a_worker_without_distkern_is_an_error(threads: Any) -> None:
    with pytest.raises(ClusterError, match=r"distkern is unusable \(No module named 'distkern'\) there") as error:
        DaskExecutor(threads, source(), EventBus(), ask_facts=cannot_import)
    assert error.value.kind == "version-mismatch"


def test_a_worker_that_joins_and_differs_is_not_used(threads: Any) -> None:
    before = set(addresses(threads))

    def join() -> None:
        threads.cluster.scale(3)
        wait_for(threads, lambda workers: len(workers) == 3)

    events = Trouble({2: join})
    result, n_workers = run(threads, events, ask_facts=facts_by_name)
    assert_same_bits(result, expected())
    assert n_workers == 2
    (refused,) = events.of(WorkerRefused)
    assert {refused.worker} == set(addresses(threads)) - before
    assert (refused.what, refused.driver, refused.found) == ("numpy", "2.0.0", "2.1.0")
    assert events.of(BlocksReplayed) == []


class FactsOfFile:
    """Facts of a worker whose environment is exchanged when a file has its name."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __call__(self, dask_worker: Any = None) -> dict[str, str]:
        upgraded = dask_worker is not None and self.file.exists() and self.file.read_text() == dask_worker.address
        return {"distkern": "1.1" if upgraded else "1.0"}


@pytest.mark.cluster
def test_a_worker_of_another_version_under_the_same_address(tmp_path: Path) -> None:
    """As in a rolling upgrade of workers with fixed ports."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with cluster(1, processes=True, worker_port=port) as client:
        (address,) = addresses(client)

        def replace() -> None:
            (tmp_path / "upgraded").write_text(address)
            (pid,) = pids(client).values()
            os.kill(pid, signal.SIGKILL)
            wait_for(client, lambda workers: not workers)
            wait_for(client, lambda workers: len(workers) == 1)

        events = Trouble({2: replace})
        with pytest.raises(ClusterError, match=rf"{address} differs: distkern is 1.1 there and 1.0 here") as error:
            run(client, events, ask_facts=FactsOfFile(tmp_path / "upgraded"), worker_wait=2.0)
        assert error.value.kind == "no-workers"
        assert [event.worker for event in events.of(WorkerRefused)] == [address]


@pytest.mark.parametrize("expected_end", [True, False])
def test_a_process_that_is_replaced_between_two_looks(threads: Any, tmp_path: Path, expected_end: bool) -> None:
    first, second = addresses(threads)
    events = Trouble({})
    facts = FactsOfFile(tmp_path / "upgraded")
    staff = worker_pool.Workforce(threads, events, "run", 1, 4, worker_wait=5.0, ask_facts=facts)
    staff.start()
    try:
        assert staff.busy == {first, second}
        facts.file.write_text(first)
        staff._on_worker("remove-worker", first, expected_end)
        staff._on_worker("add-worker", first, False)
        staff.rebalance()
        assert staff.busy == {second}
        wait_until(lambda: staff.look() == set() and bool(events.of(WorkerRefused)))
        assert staff.usable() == [second]
        (lost,) = events.of(WorkerLost)
        assert (lost.worker, lost.reason) == (first, "retired" if expected_end else "left")
    finally:
        staff.close()
