"""One contract for all executors, both places of the factors and all sources: the same bits, and nothing left."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from distkern.errors import DataError, DistkernError, JobError
from distkern.monitoring.events import BlocksReplayed, EventBus, ExchangeDone, RoundDone, RunEnded, RunStarted
from distkern.scheduler import run_training
from distkern.scheduler.blocks import block_registry as memo
from distkern.scheduler.execution import dask_executor as cluster_module
from distkern.scheduler.execution.dask_executor import DaskExecutor
from distkern.scheduler.execution.executor import Executor, SerialExecutor, total
from distkern.scheduler.execution.layers import DriverFactors
from distkern.scheduler.execution.shipping import InlineBlocks
from distkern.scheduler.protocol.answers import Answer
from distkern.scheduler.protocol.messages import Columns, FetchRows, KernelColumns, Load, ProblemStep, Step
from distkern.scheduler.training.driver_loop import TrainingJob, TrainingResult, train
from distkern.storage import ArraySource, BlockSource, ZarrSource
from tests.scheduler.trainings import assert_same_bits, cut, make_classes, make_data, make_job
from tests.scheduler.worker_clusters import cluster
from tests.waiting import wait_until

ROWS, BLOCK = 300, 43


def regression() -> tuple[Any, Any, Any]:
    X, y = make_data(ROWS, 3, n_targets=2, seed=1)
    return X, y, None


def classification() -> tuple[Any, Any, Any]:
    X, y = make_classes(ROWS, 3, seed=2)
    weights = np.random.default_rng(3).integers(0, 3, ROWS) / 2
    weights[2 * BLOCK : 3 * BLOCK] = 0.0
    return X.astype(np.float32), y, weights


CASES: dict[str, tuple[Callable[[], tuple[Any, Any, Any]], TrainingJob]] = {
    "pool": (regression, make_job(sigma="median", standardize=True, stop="gcv", sampler="mixture", epsilon=0.01)),
    "float32": (regression, make_job(dtype="float32", panel=2, max_centers=20, regularization="gcv-per-target")),
    "one-vs-rest": (
        classification,
        make_job(classification=True, multiclass="one-vs-rest", stop="validation", sigma=2.0, max_centers=12),
    ),
    "residual": (classification, make_job(classification=True, criterion="residual", max_centers=25)),
    "residual-float32": (
        classification,
        make_job(
            classification=True,
            criterion="residual",
            multiclass="one-vs-rest",
            stop="validation",
            dtype="float32",
            epsilon=0.01,
            max_centers=12,
        ),
    ),
    "sample": (regression, make_job(selection_rows=150, stop="gcv", sampler="mixture", epsilon=0.01, sigma="median")),
    "sample, conditioned": (
        classification,
        make_job(
            classification=True,
            multiclass="one-vs-rest",
            selection_rows=160,
            stop="validation",
            sigma=20.0,
            max_centers=12,
        ),
    ),
    "sample, float32": (regression, make_job(selection_rows=100, dtype="float32", sigma=3.0)),
}


def array_source(case: str, folder: Path) -> BlockSource:
    X, y, weights = CASES[case][0]()
    return ArraySource(X, y, weights, boundaries=cut(ROWS, BLOCK))


def zarr_source(case: str, folder: Path) -> BlockSource:
    X, y, weights = CASES[case][0]()
    stored = []
    for name, values, chunks in (("X", X, (BLOCK, 1)), ("y", y, 31), ("weights", weights, 100)):
        if values is None or values.dtype.kind == "U":
            stored.append(values)
            continue
        shape = chunks if isinstance(chunks, tuple) else (chunks, *values.shape[1:])
        array = zarr.create_array(folder / name, shape=values.shape, chunks=shape, dtype=values.dtype)
        array[...] = values
        stored.append(array)
    return ZarrSource(*stored)


SOURCES = {"array": array_source, "zarr": zarr_source}

_reference: dict[str, TrainingResult] = {}


def reference(case: str) -> TrainingResult:
    """The serial training over arrays."""
    if case not in _reference:
        source = array_source(case, Path())
        _reference[case] = train(CASES[case][1], source, SerialExecutor(source), EventBus())
    return _reference[case]


EXECUTORS = ["serial", "in-process", "processes"]


@pytest.fixture(params=[*EXECUTORS[:2], pytest.param("processes", marks=pytest.mark.cluster)])
def make_executor(request: pytest.FixtureRequest) -> Callable[..., Executor]:
    """Makes executors of one kind."""
    if request.param == "serial":
        return lambda source, with_factors=True: SerialExecutor(source)
    fixture = {"in-process": "in_process_client", "processes": "process_client"}[request.param]
    client = request.getfixturevalue(fixture)
    return lambda source, with_factors=True: DaskExecutor(client, source, EventBus(), with_factors=with_factors)


def everything_held(client: Any) -> list[Any]:
    return [run for runs in client.run(memo.held_runs).values() for run in runs]


def combinations() -> Iterator[Any]:
    """Every pair of executor, case, place of the factors and source; nightly, every combination."""
    for (i, case), (j, executor) in itertools.product(enumerate(CASES), enumerate(EXECUTORS)):
        for (k, factors), (m, kind) in itertools.product(enumerate(["workers", "driver"]), enumerate(SOURCES)):
            marks = [pytest.mark.cluster] if executor == "processes" else []
            if (k, m) != ((i + j) % 2, (i // 2 + j) % 2) or (executor == "serial" and i % 2):
                marks.append(pytest.mark.nightly)
            yield pytest.param(executor, case, factors, kind, marks=marks)


@pytest.mark.parametrize(("make_executor", "case", "factors", "kind"), [*combinations()], indirect=["make_executor"])
def test_same_bits(make_executor: Callable[..., Executor], case: str, factors: str, kind: str, tmp_path: Path) -> None:
    source = SOURCES[kind](case, tmp_path)
    executor = make_executor(source, factors == "workers")
    backend = executor if factors == "workers" else DriverFactors(executor, source)
    result = train(CASES[case][1], source, backend, EventBus())
    executor.close()
    assert_same_bits(result, reference(case))
    ours, theirs = result.summary, reference(case).summary
    for key in ("n_rows", "n_features", "n_targets", "rounds", "kernel_columns", "passes"):
        assert ours[key] == theirs[key]
    if factors == "workers":
        assert ours["exchanges"] == theirs["exchanges"]


def begin_and_steps(case: str) -> list[Any]:
    """Messages of the serial training."""
    source = array_source(case, Path())
    sent = []

    class Listening(Executor):
        def exchange(self, message: Any) -> Answer:
            sent.append(message)
            return super().exchange(message)

    train(CASES[case][1], source, Listening(SerialExecutor(source)), EventBus())
    return sent


def test_answers_are_sums_over_all_blocks(make_executor: Callable[..., Executor]) -> None:
    source = array_source("one-vs-rest", Path())
    ours, theirs = make_executor(source), SerialExecutor(source)
    for message in begin_and_steps("one-vs-rest")[:8]:
        a, b = ours.exchange(message), theirs.exchange(message)
        for p, q in zip(a.problems, b.problems, strict=True):
            assert p.sums.keys() == q.sums.keys()
            for name, array in p.sums.items():
                assert array.tobytes() == q.sums[name].tobytes(), name
                assert array.flags.c_contiguous
                assert array.flags.aligned
                assert array.flags.writeable
            assert (p.drawn is None) == (q.drawn is None)
            if p.drawn is not None and q.drawn is not None:
                np.testing.assert_array_equal(p.drawn.rows, q.drawn.rows)
                np.testing.assert_array_equal(p.drawn.features, q.drawn.features)
    ours.close()


def test_queries(make_executor: Callable[..., Executor]) -> None:
    X, _, _weights = regression()
    source = array_source("pool", Path())
    executor = make_executor(source)
    load, begin, *_ = begin_and_steps("pool")
    executor.exchange(load)
    executor.exchange(begin)
    rows = np.array([2, 77, 150, 299])
    for _ in range(2):
        fetched = executor.query(FetchRows(rows)).rows
        np.testing.assert_array_equal([fetched[int(row)] for row in rows], X[rows])
        columns = executor.query(KernelColumns((Columns(rows, X[rows], np.empty(0, dtype=np.int64)),))).columns
        assert sorted(columns) == list(range(7))
        K = np.concatenate([columns[block][0] for block in range(7)])
        np.testing.assert_allclose(K[rows, np.arange(4)], 1.01, rtol=1e-15)
    # Questions are not in the log: the next message has the same answer as without them.
    step = Step((ProblemStep(columns=Columns(rows, X[rows], np.empty(0, dtype=np.int64))),))
    other = SerialExecutor(source)
    other.exchange(load)
    other.exchange(begin)
    ours, theirs = executor.exchange(step), other.exchange(step)
    assert ours.problems[0].sums["cross"].tobytes() == theirs.problems[0].sums["cross"].tobytes()
    executor.close()


def test_what_a_driver_changes_in_an_answer_stays_with_the_driver(
    make_executor: Callable[..., Executor],
) -> None:
    """Replies arrive by reference where workers are threads."""
    source = array_source("pool", Path())
    ours, theirs = make_executor(source), SerialExecutor(source)
    for message in begin_and_steps("pool")[:9]:
        a, b = ours.exchange(message), theirs.exchange(message)
        for p, q in zip(a.problems, b.problems, strict=True):
            for name, array in p.sums.items():
                assert array.tobytes() == q.sums[name].tobytes(), name
                array[...] = np.nan
            if p.drawn is not None:
                assert p.drawn.features is not None
                p.drawn.features[...] = np.nan
    ours.close()


def test_peak_rss(make_executor: Callable[..., Executor], request: pytest.FixtureRequest) -> None:
    executor = make_executor(array_source("pool", Path()))
    executor.exchange(Load(False, 0, 0, 0.0))
    peak = executor.peak_rss()
    if "processes" in request.node.callspec.id:
        assert 30 << 20 < peak < 4 << 30
    else:
        assert peak == 0
    executor.close()


def test_n_workers(make_executor: Callable[..., Executor], request: pytest.FixtureRequest) -> None:
    executor = make_executor(array_source("pool", Path()))
    assert executor.n_workers == (1 if "serial" in request.node.callspec.id else 2)
    executor.close()


def test_closing_twice_does_no_harm(make_executor: Callable[..., Executor]) -> None:
    executor = make_executor(array_source("pool", Path()))
    executor.exchange(Load(False, 0, 0, 0.0))
    for _ in range(2):
        executor.close()
        assert not isinstance(executor, DaskExecutor) or not executor._staff._leases
        assert not getattr(executor, "_blocks", [])


def test_an_exception_in_a_block_reaches_the_caller(make_executor: Callable[..., Executor], tmp_path: Path) -> None:
    X, y, _ = regression()
    X[211, 1] = np.nan
    stored = zarr.create_array(tmp_path / "X", shape=X.shape, chunks=(BLOCK, 3), dtype=X.dtype)
    stored[...] = X
    source = ZarrSource(stored, y)
    executor = make_executor(source)
    with pytest.raises(DataError, match="row 211") as error:
        train(CASES["pool"][1], source, executor, EventBus())
    assert error.value.kind == "not-finite"
    executor.close()


class TimeoutSource(ArraySource):
    """Rows behind a store that does not answer."""

    inline = False

    def read_features(self, block: int) -> Any:
        raise TimeoutError(f"block {block} timed out")


@pytest.mark.timeout(20)
def test_a_timeout_while_reading_reaches_the_caller(make_executor: Callable[..., Executor]) -> None:
    """A task's own TimeoutError is not the timeout of waiting for the task."""
    X, y, _ = regression()
    executor = make_executor(TimeoutSource(X, y, boundaries=cut(ROWS, BLOCK)))
    try:
        with pytest.raises(TimeoutError, match="timed out"):
            executor.exchange(Load(False, 0, 0, 0.0))
    finally:
        executor.close()


@pytest.mark.parametrize("factors", ["workers", pytest.param("driver", marks=pytest.mark.nightly)])
def test_a_slow_reply_is_waited_for(in_process_client: Any, monkeypatch: pytest.MonkeyPatch, factors: str) -> None:
    """A reply that takes longer to fetch than the poll is not lost."""
    monkeypatch.setattr(cluster_module, "WORKERS_SECONDS", 1e-4)
    result = run_training(CASES["pool"][1], array_source("pool", Path()), client=in_process_client, factors=factors)
    assert_same_bits(result, reference("pool"))


def test_an_incomplete_answer_is_an_internal_error() -> None:
    with pytest.raises(DistkernError, match="blocks are missing") as error:
        total({(0, 1): Answer()}, 2)
    assert error.value.kind == "internal"


# ---- dask alone


def test_close_frees_the_workers(in_process_client: Any) -> None:
    executor = DaskExecutor(in_process_client, array_source("pool", Path()), EventBus())
    executor.exchange(Load(False, 0, 0, 0.0))
    assert len(memo.held_runs()) == 2
    executor.close()
    assert memo.held_runs() == []


def test_a_failed_run_frees_the_workers(in_process_client: Any) -> None:
    _X, y, _ = regression()
    with pytest.raises(DataError, match="constant"):
        run_training(make_job(), ArraySource(np.ones((50, 2)), y[:50, 0]), client=in_process_client)
    assert memo.held_runs() == []


def test_a_client_that_goes_frees_the_workers() -> None:
    from distributed import Client

    with cluster(2, processes=False) as client:
        with Client(client.cluster, set_as_default=False) as other:
            executor = DaskExecutor(other, array_source("pool", Path()), EventBus())
            executor.exchange(Load(False, 0, 0, 0.0))
            wait_until(lambda: len(memo.held_runs()) == 2)
        wait_until(lambda: memo.held_runs() == [])
        executor.close()
        assert memo.held_runs() == []


@pytest.mark.cluster
def test_worker_processes_are_freed(process_client: Any) -> None:
    from distributed import Client

    executor = DaskExecutor(process_client, array_source("pool", Path()), EventBus())
    executor.exchange(Load(False, 0, 0, 0.0))
    assert len(everything_held(process_client)) == 2
    executor.close()
    assert everything_held(process_client) == []
    with Client(process_client.scheduler.address, set_as_default=False) as other:
        lost = DaskExecutor(other, array_source("pool", Path()), EventBus())
        lost.exchange(Load(False, 0, 0, 0.0))
        wait_until(lambda: len(everything_held(process_client)) == 2)
    wait_until(lambda: everything_held(process_client) == [])


def test_a_released_lease_frees_the_workers(in_process_client: Any) -> None:
    executor = DaskExecutor(in_process_client, array_source("pool", Path()), EventBus())
    executor.exchange(Load(False, 0, 0, 0.0))
    leases, executor._staff._leases = executor._staff._leases, {}
    for lease in leases.values():
        lease.release()
    wait_until(lambda: memo.held_runs() == [])
    executor.close()


def test_memory_that_is_gone_is_rebuilt(in_process_client: Any) -> None:
    """A worker that lives and has forgotten everything refuses, and catches up."""
    events: list[Any] = []
    messages = begin_and_steps("one-vs-rest")
    source = array_source("one-vs-rest", Path())
    executor = DaskExecutor(in_process_client, source, EventBus([events.append]))
    other = SerialExecutor(source)
    for n, message in enumerate(messages[:8]):
        if n == 5:
            for worker, run in memo.held_runs():
                memo.drop_run(worker, run)
        ours, theirs = executor.exchange(message), other.exchange(message)
        for p, q in zip(ours.problems, theirs.problems, strict=True):
            assert {k: v.tobytes() for k, v in p.sums.items()} == {k: v.tobytes() for k, v in q.sums.items()}
    assert [type(event) for event in events] == [BlocksReplayed] * 2
    assert sorted(block for event in events for block in event.blocks) == list(range(7))
    assert {event.messages for event in events} == {5}
    executor.close()


@pytest.mark.slow
def test_two_trainings_at_once(in_process_client: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def run(case: str) -> TrainingResult:
        return run_training(CASES[case][1], array_source(case, Path()), client=in_process_client, factors="workers")

    cases = ["pool", "residual", "pool"]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(run, cases))
    for case, result in zip(cases, results, strict=True):
        assert_same_bits(result, reference(case))
    assert memo.held_runs() == []


def test_the_client_gets_its_topic_back(in_process_client: Any) -> None:
    from distkern.scheduler.clusters.worker_events import TOPIC

    def handler(event: Any) -> None: ...

    in_process_client.subscribe_topic(TOPIC, handler)
    try:
        executor = DaskExecutor(in_process_client, array_source("pool", Path()), EventBus())
        assert in_process_client._event_handlers[TOPIC] is not handler
        executor.close()
        assert in_process_client._event_handlers[TOPIC] is handler
    finally:
        in_process_client.unsubscribe_topic(TOPIC)


@contextmanager
def noted_tasks(client: Any) -> Iterator[list[str]]:
    """Note the keys of all tasks that the client submits; each must be for one worker and no other."""
    keys: list[str] = []
    submit, get = client.submit, client.get

    def note_task(function: Any, *arguments: Any, key: str, **options: Any) -> Any:
        keys.append(key)
        assert options["allow_other_workers"] is False
        assert len(options["workers"]) == 1
        return submit(function, *arguments, key=key, **options)

    def note_graph(graph: Any, wanted: list[str], **options: Any) -> Any:
        for layer in graph.layers.values():
            keys.extend(layer)
            assert all(len(layer.annotations["workers"](key)) == 1 for key in layer)
        return get(graph, wanted, **options)

    client.submit, client.get = note_task, note_graph
    try:
        yield keys
    finally:
        del client.submit, client.get


def test_tasks_are_named_after_what_they_do(in_process_client: Any) -> None:
    with noted_tasks(in_process_client) as keys:
        run_training(CASES["pool"][1], array_source("pool", Path()), client=in_process_client, factors="workers")
    names = {key.rsplit("-", 1)[0] for key in keys}
    assert {name for name in names if not name.startswith("distkern-")} == {
        "place-blocks",
        "load-blocks",
        "begin-run",
        "kernel-columns",
        "append-panel",
        "project-candidates",
        *({"form-panel"} & names),
    }


def test_one_task_a_worker_and_exchange(in_process_client: Any) -> None:
    source = array_source("pool", Path())
    executor = DaskExecutor(in_process_client, source, EventBus())
    messages = begin_and_steps("pool")
    executor.exchange(messages[0])
    with noted_tasks(in_process_client) as keys:
        for message in messages[1:4]:
            executor.exchange(message)
    assert len(keys) == 3 * 2
    executor.close()


def test_inline_blocks_carry_rows() -> None:
    source = array_source("one-vs-rest", Path())
    shipment = InlineBlocks(source)
    shipment.add(source, 2)
    shipment.add(source, 5)
    import pickle

    received = pickle.loads(pickle.dumps(shipment))
    for block in (2, 5):
        for read in ("read_features", "read_targets", "read_weights"):
            np.testing.assert_array_equal(getattr(received, read)(block), getattr(source, read)(block))
    assert received.boundaries == source.boundaries
    assert received.nbytes == sum(
        getattr(source, read)(block).nbytes
        for block in (2, 5)
        for read in ("read_features", "read_targets", "read_weights")
    )


# ---- run_training


def test_run_training_without_a_client() -> None:
    events: list[Any] = []
    result = run_training(CASES["pool"][1], array_source("pool", Path()), subscribers=[events.append])
    assert_same_bits(result, reference("pool"))
    assert isinstance(events[0], ExchangeDone)
    assert isinstance(events[1], RunStarted)
    assert isinstance(events[-1], RunEnded)
    assert all(isinstance(event, (RoundDone, ExchangeDone)) for event in events[2:-1])
    assert sum(isinstance(event, ExchangeDone) for event in events) == result.summary["exchanges"]
    assert result.summary["planned_peak_bytes"] > 0
    assert result.summary["peak_rss_driver"] > 0
    assert result.summary["peak_rss_worker"] == 0


def test_rounds_are_reported_once_each() -> None:
    """A round is a panel that was accepted: every panel has an event, and none has two."""
    events: list[Any] = []
    job = make_job(max_centers=16, panel=4)
    result = run_training(job, array_source("pool", Path()), subscribers=[events.append])
    rounds = [event for event in events if isinstance(event, RoundDone)]
    assert [event.n_centers for event in rounds] == [4, 8, 12, 16]
    assert [event.round for event in rounds] == sorted(set(result.history["round"].tolist()))


@pytest.mark.parametrize("factors", ["auto", "driver"])
def test_run_training_with_a_client(in_process_client: Any, factors: str) -> None:
    result = run_training(CASES["pool"][1], array_source("pool", Path()), client=in_process_client, factors=factors)
    assert_same_bits(result, reference("pool"))
    assert memo.held_runs() == []


def test_run_training_refuses_an_unknown_place() -> None:
    with pytest.raises(JobError, match="factors='both'"):
        run_training(make_job(), array_source("pool", Path()), factors="both")


def test_a_failing_subscriber_does_not_end_a_training(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: Any) -> None:
        raise RuntimeError("full disk")

    result = run_training(CASES["pool"][1], array_source("pool", Path()), subscribers=[fail])
    assert_same_bits(result, reference("pool"))
    assert "gets no more events" in caplog.text
