"""Trainings on storage that fails, changes or lacks chunks: the same model, or an error that names the cause."""

from __future__ import annotations

import itertools
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore

from distkern.errors import DataError
from distkern.monitoring.events import ChunksAbsent, Event, EventBus, RoundDone, StorageRetried, WorkerLost
from distkern.scheduler import DaskArraySource
from distkern.scheduler.execution.dask_executor import DaskExecutor
from distkern.scheduler.execution.executor import Executor, SerialExecutor
from distkern.scheduler.execution.layers import DriverFactors
from distkern.scheduler.protocol.messages import Load
from distkern.scheduler.training.driver_loop import TrainingResult, train
from distkern.storage import ArraySource, Fault, SlowStore, ZarrSource, open_dataset, write_dataset
from distkern.storage.arrays.source import BlockSource
from tests.faulty import SOON, faulty, write_array
from tests.markers import variants
from tests.scheduler.trainings import assert_same_bits, cut, make_data, make_job
from tests.scheduler.worker_clusters import cluster

JOB = make_job(max_centers=12)
SAMPLED = make_job(max_centers=12, selection_rows=100)
X, Y = make_data(200)
N_BLOCKS = 5


class Recorder(EventBus):
    """Keeps events and does something after a round."""

    def __init__(self, after_round: int = 0, action: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.events: list[Event] = []
        self._left = after_round
        self._action = action

    def emit(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, RoundDone):
            self._left -= 1
            if not self._left:
                self._action()

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_array(tmp_path / "X", X, (40, 2))
    write_array(tmp_path / "y", Y, (40,))
    return tmp_path


def stored(path: Path, faults: list[Fault] | None = None, seed: int = 0) -> ZarrSource:
    targets = zarr.open_array(LocalStore(path / "y", read_only=True), mode="r")
    return ZarrSource(faulty(path / "X", faults or [], seed)[0], targets, policy=SOON)


def fit(
    source: BlockSource, events: EventBus, client: Any = None, job: Any = JOB, factors: str = "workers"
) -> TrainingResult:
    """Train serially, or on a cluster."""
    if client is None:
        return train(job, source, SerialExecutor(source), events)
    executor = DaskExecutor(client, source, events, with_factors=factors == "workers")
    backend: Executor = executor if factors == "workers" else DriverFactors(executor, source)
    try:
        return train(job, source, backend, events)
    finally:
        executor.close()


def change(path: Path, name: str, first: int = 80) -> None:
    """Write other numbers into a chunk, as another program would."""
    array = zarr.open_array(LocalStore(path / name), mode="r+")
    array[first : first + 40] = array[first : first + 40] + 1e-12


# ---- Reads that fail and succeed


@pytest.mark.parametrize("where", variants(["serial", "workers"], ["serial", "workers", "driver"]))
def test_retries_change_nothing_and_are_reported(store: Path, in_process_client: Any, where: str) -> None:
    faults = [Fault("transient", key="c/1/*", times=2), Fault("timeout", key="c/3/*", times=1)]
    events = Recorder()
    result = fit(stored(store, faults), events, None if where == "serial" else in_process_client, factors=where)
    assert_same_bits(result, fit(stored(store), EventBus()))
    (event,) = events.of(StorageRetried)
    assert (event.array, event.count) == ("X", 3)
    assert events.events[0] is event  # before anything else is known of the run
    assert event.as_record()["event"] == "StorageRetried"


def test_retries_of_the_final_pass_are_reported(store: Path, in_process_client: Any) -> None:
    for place in (None, in_process_client):
        events = Recorder()
        fault = Fault("transient", key="c/2/*", after=1, times=2)  # the second read of the chunk
        result = fit(stored(store, [fault]), events, place, SAMPLED)
        assert_same_bits(result, fit(stored(store), EventBus(), job=SAMPLED))
        assert [(event.array, event.count) for event in events.of(StorageRetried)] == [("X", 2)]


def test_retries_on_the_way_to_a_worker_are_reported(in_process_client: Any) -> None:
    """Rows of dask arrays are read by the driver and shipped; of two failures one is seen by each array."""
    failures = {"X": 2, "y": 1}

    def unreliable(values: Any, name: str) -> Any:
        if failures[name]:
            failures[name] -= 1
            raise ConnectionResetError("reset")
        return values

    lazy = {
        name: dask.array.from_array(values, chunks=40).rechunk({0: 40}).map_blocks(unreliable, name, dtype=values.dtype)
        for name, values in (("X", X), ("y", Y))
    }
    failures.update(X=0, y=0)  # map_blocks may try the function
    source = DaskArraySource(lazy["X"], lazy["y"])
    source._policy = SOON
    failures.update(X=2, y=1)
    events = Recorder()
    with dask.config.set(scheduler="synchronous"):
        fit(source, events, in_process_client)
    assert [(event.array, event.count) for event in events.of(StorageRetried)] == [("X", 2), ("y", 1)]


@pytest.mark.parametrize("where", ["serial", "dask"])
def test_storage_that_stays_away(store: Path, in_process_client: Any, where: str) -> None:
    source = stored(store, [Fault("transient", key="c/4/*", times=None)])
    with pytest.raises(DataError, match=r"X, rows 160 to 199") as caught:
        fit(source, EventBus(), in_process_client if where == "dask" else None)
    assert caught.value.kind == "unreachable"


def test_slow_storage_changes_nothing(store: Path) -> None:
    slow = zarr.open_array(SlowStore(LocalStore(store / "X", read_only=True), 0.005, jitter=0.01), mode="r")
    assert_same_bits(fit(ZarrSource(slow, Y, policy=SOON), EventBus()), fit(stored(store), EventBus()))


# ---- Data that changes


@pytest.mark.parametrize(
    ("where", "name"),
    variants([("serial", "X"), ("dask", "y")], itertools.product(["serial", "dask"], ["X", "y"])),
)
def test_data_that_changes_before_the_final_pass(store: Path, in_process_client: Any, where: str, name: str) -> None:
    events = Recorder(2, lambda: change(store, name))
    with pytest.raises(
        DataError, match=rf"^{name} changed while the training ran: rows 80 to 119 \(block 2\)"
    ) as caught:
        fit(stored(store), events, in_process_client if where == "dask" else None, SAMPLED)
    assert caught.value.kind == "changed"
    assert str(store / "X") in str(caught.value)


def test_data_that_is_not_read_again_may_change(store: Path) -> None:
    before = fit(stored(store), EventBus())
    assert_same_bits(fit(stored(store), Recorder(2, lambda: change(store, "X"))), before)


def test_arrays_in_memory_that_change() -> None:
    values, weights = X.copy(), np.ones(len(X))

    def source() -> ArraySource:
        return ArraySource(values, Y, weights, boundaries=cut(200, 40))

    rows = source()

    def meddle() -> None:
        assert rows.weights is not None
        rows.weights[199] = 2.0
        rows.X[199, 0] += 1

    with pytest.raises(DataError, match=r"^X and sample_weight changed .* rows 160 to 199 .*arrays in memory"):
        fit(rows, Recorder(2, meddle), None, SAMPLED)


def test_a_dask_array_that_is_never_the_same_twice() -> None:
    calls = iter(range(10**6))
    noisy = dask.array.from_array(X, chunks=(40, 2)).map_blocks(lambda x: x + 1e-9 * next(calls), dtype=X.dtype)
    with pytest.raises(DataError, match="persist a dask array") as caught:
        fit(DaskArraySource(noisy, Y), EventBus(), None, SAMPLED)
    assert caught.value.kind == "changed"


@pytest.mark.parametrize(
    ("changes", "factors"),
    variants([(True, "workers"), (False, "driver")], itertools.product([True, False], ["workers", "driver"])),
)
def test_blocks_that_are_loaded_again(store: Path, threads: Any, changes: bool, factors: str) -> None:
    """The blocks of a worker that has left are read by another: they must be what they were."""
    lost = sorted(threads.nthreads())[0]

    def trouble() -> None:
        if changes:
            change(store, "X", first=0)
        threads.retire_workers([lost])

    events = Recorder(2, trouble)
    if changes:
        with pytest.raises(DataError, match=r"X changed .* rows 0 to 39 \(block 0\)") as caught:
            fit(stored(store), events, threads, factors=factors)
        assert caught.value.kind == "changed"
    else:
        assert_same_bits(fit(stored(store), events, threads, factors=factors), fit(stored(store), EventBus()))
    assert len(events.of(WorkerLost)) == 1


@pytest.mark.parametrize("where", ["serial", "dask"])
def test_a_run_that_goes_on_knows_its_data(store: Path, in_process_client: Any, where: str) -> None:
    """Checksums of the first load, kept anywhere, hold for another executor."""

    def executor() -> Any:
        source = stored(store)
        return SerialExecutor(source) if where == "serial" else DaskExecutor(in_process_client, source, EventBus())

    load = Load(classification=False, sample_rows=0, seed=0, holdout=0.0)
    first, second, third = executor(), executor(), executor()
    try:
        loaded = first.exchange(load).load
        assert set(loaded.checksums) == set(range(N_BLOCKS))
        second.expect(loaded.checksums)
        assert second.exchange(load).load.checksums == loaded.checksums
        change(store, "y", first=120)
        third.expect(loaded.checksums)
        with pytest.raises(DataError, match=r"^y changed .* rows 120 to 159"):
            third.exchange(load)
    finally:
        for each in (first, second, third):
            each.close()


@pytest.mark.parametrize("where", ["serial", "dask"])
def test_a_dataset_that_was_tampered_with(tmp_path: Path, in_process_client: Any, where: str) -> None:
    dataset = write_dataset(tmp_path / "d", X, Y, chunk_rows=40)
    change(tmp_path / "d", "X")
    with pytest.raises(DataError, match=r"chunk 2 of X \(rows 80 to 119\)") as caught:
        fit(open_dataset(dataset.path).source(), EventBus(), in_process_client if where == "dask" else None)
    assert caught.value.kind == "corrupt"
    assert str(tmp_path / "d") in str(caught.value)


@pytest.mark.cluster
@pytest.mark.parametrize("factors", variants(["workers"], ["workers", "driver"]))
def test_worker_processes_retry_and_report(store: Path, process_client: Any, factors: str) -> None:
    """The store and its faults travel; each process counts for itself."""
    faults = [Fault("transient", key="c/1/*", times=2), Fault("timeout", key="c/4/*", times=1)]
    events = Recorder()
    result = fit(stored(store, faults), events, process_client, SAMPLED, factors)
    assert_same_bits(result, fit(stored(store), EventBus(), job=SAMPLED))
    assert [(event.array, event.count) for event in events.of(StorageRetried)] == [("X", 3)]


@pytest.mark.cluster
@pytest.mark.parametrize("changes", variants([True], [True, False]))
def test_a_killed_worker_and_data_that_changed(store: Path, changes: bool) -> None:
    with cluster(2, processes=True) as client:
        lost, pid = sorted(client.run(os.getpid).items())[0]

        def trouble() -> None:
            if changes:
                change(store, "y", first=0)
            os.kill(pid, signal.SIGKILL)

        events = Recorder(2, trouble)
        if changes:
            with pytest.raises(DataError, match=r"^y changed .* rows 0 to 39 \(block 0\)") as caught:
                fit(stored(store), events, client)
            assert caught.value.kind == "changed"
        else:
            assert_same_bits(fit(stored(store), events, client), fit(stored(store), EventBus()))
        assert [event.worker for event in events.of(WorkerLost)] == [lost]


# ---- Chunks that are absent


@pytest.mark.parametrize("where", variants(["serial", "workers"], ["serial", "workers", "driver"]))
def test_absent_chunks_are_reported_once(tmp_path: Path, in_process_client: Any, where: str, caplog: Any) -> None:
    features, targets = X.copy(), Y.copy()
    features[40:80] = 0.0
    targets[120:] = 0.0
    write_array(tmp_path / "X", features, (40, 2))
    write_array(tmp_path / "y", targets, (40,))
    events = Recorder()
    with caplog.at_level(logging.WARNING, "distkern"):
        result = fit(stored(tmp_path), events, None if where == "serial" else in_process_client, SAMPLED, factors=where)
    plain = ArraySource(features, targets, boundaries=cut(200, 40))
    assert_same_bits(result, fit(plain, EventBus(), job=SAMPLED))
    reported = [(event.array, event.count, event.chunks) for event in events.of(ChunksAbsent)]
    assert reported == [("X", 1, ((1, 0),)), ("y", 2, ((3,), (4,)))]
    assert sum("absent" in record.message for record in caplog.records) == 2
