"""Trainings and predictions on rows behind a network: the same numbers, each chunk once a pass, and little waiting."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal
from zarr.storage import LocalStore

import distkern as dk
from distkern.cli.job.data_section import PlainArrays
from distkern.estimators.scoring import score_model
from distkern.monitoring.events import Event, WorkerLost
from distkern.scheduler import local_client
from distkern.scheduler.execution.executor import SerialExecutor
from distkern.scheduler.protocol.messages import Load
from distkern.storage import CountingStore, SlowStore, open_dataset, write_dataset
from tests.estimators.fits import assert_equal_models, classes, data_for, regression
from tests.markers import marked
from tests.s3_server import BUCKET, S3Server

pytest.importorskip("moto")
pytest.importorskip("obstore")

PARAMETERS: dict[str, Any] = {"max_centers": 12, "sigma": 1.0, "candidates": 32, "panel": 8, "stop": None}
LATENCY = 0.05


@pytest.fixture(scope="module")
def stores(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small datasets on disk, by task; the server has them under the same names."""
    folder = tmp_path_factory.mktemp("stores")
    for task, (X, y) in {"regression": regression(600), "classification": classes(600)}.items():
        write_dataset(folder / task, X, y, chunk_rows=50)
        server.upload(folder / task, task)
    return {task: folder / task for task in ("regression", "classification")}


def passes_of(s3: S3Server, name: str) -> set[int]:
    """Reads of each chunk since the last reset; every one of 12 of X and 12 of y was read."""
    reads = s3.chunk_reads(name)
    assert len(reads) == 24
    return set(reads.values())


@pytest.mark.parametrize(
    "model",
    [
        dk.OROLSRegressor(**PARAMETERS),
        dk.OROLSRegressor(**PARAMETERS, selection_rows=150),
        dk.KRLSRegressor(sigma=1.0),
        *marked(
            pytest.mark.nightly,
            dk.NPDClassifier(**PARAMETERS),
            dk.LSSVMRegressor(sigma=1.0),
            dk.FisherDiscriminant(),
        ),
    ],
    ids=lambda model: type(model).__name__,
)
def test_each_chunk_is_read_once_a_pass(model: Any, s3: S3Server, stores: dict[str, Path]) -> None:
    task = "regression" if type(model).__name__.endswith("Regressor") else "classification"
    data = open_dataset(f"s3://{BUCKET}/{task}")
    # Long enough that requests overlap on a machine that is busy with other work.
    s3.reset(0.1)
    model.fit(data)
    assert passes_of(s3, task) == {model.summary_["passes"]}
    assert s3.most_at_once > 3
    assert_array_equal(model.coef_, type(model)(**model.get_params()).fit(open_dataset(stores[task])).coef_)
    s3.reset(0.01)
    predicted = np.concatenate([values for _, values, _ in model.iter_predictions(data)])
    # No request is for targets.
    assert s3.chunk_reads(task) == {f"{task}/X/c/{chunk}/0": 1 for chunk in range(12)}
    assert_array_equal(predicted, np.asarray(model.predict(open_dataset(stores[task]))))


def test_a_model_travels_through_a_store(s3: S3Server, stores: dict[str, Path]) -> None:
    model = dk.OROLSClassifier(**PARAMETERS).fit(open_dataset(stores["classification"]))
    model.save(f"s3://{BUCKET}/models/first")
    back = dk.load_model(f"s3://{BUCKET}/models/first")
    X, _ = classes(50, seed=1)
    assert_array_equal(back.predict_proba(X), model.predict_proba(X))


def test_failed_requests_change_nothing(s3: S3Server, stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTKERN_READ_WAIT", "0.001")
    data = open_dataset(f"s3://{BUCKET}/regression")
    s3.fail("regression/X/c/*", cut=0.3, times=5)
    s3.fail("regression/y/c/*", status=503, times=5)
    model = dk.OROLSRegressor(**PARAMETERS).fit(data)
    assert_equal_models(model, dk.OROLSRegressor(**PARAMETERS).fit(open_dataset(stores["regression"])))


def test_a_store_that_refuses_ends_the_training(s3: S3Server, stores: dict[str, Path]) -> None:
    data = open_dataset(f"s3://{BUCKET}/regression")
    s3.fail("regression/X/c/7/0", status=403, code="AccessDenied", times=100)
    with pytest.raises(dk.DataError, match=r"rows 350 to 399 of X.*AccessDenied") as caught:
        dk.OROLSRegressor(**PARAMETERS).fit(data)
    assert caught.value.kind == "denied"


def slow_arrays(path: Path, X: Any, y: Any, chunk_rows: int) -> tuple[Any, Any, list[CountingStore]]:
    """Arrays behind stores that count, and then wait."""
    opened, stores = [], []
    for name, values in (("X", X), ("y", y)):
        chunks = (chunk_rows, *values.shape[1:])
        array = zarr.create_array(LocalStore(path / name), shape=values.shape, chunks=chunks, dtype=values.dtype)
        array[...] = values
        stores.append(CountingStore(LocalStore(path / name, read_only=True)))
        opened.append(zarr.open_array(SlowStore(stores[-1], 0.01), mode="r"))
    return opened[0], opened[1], stores


@pytest.mark.parametrize("memory_limit", [None, "24MiB"])
def test_waiting_reads_run_ahead_as_far_as_memory_allows(tmp_path: Path, memory_limit: str | None) -> None:
    X, y = data_for(dk.OROLSRegressor, 800)
    slow_X, slow_y, stores = slow_arrays(tmp_path, X, y, 50)
    parameters = PARAMETERS | {"memory_limit": memory_limit}
    model = dk.OROLSRegressor(**parameters).fit(slow_X, slow_y)
    near = [zarr.open_array(str(tmp_path / name), mode="r") for name in ("X", "y")]
    reference = dk.OROLSRegressor(**parameters).fit(*near)
    assert_equal_models(model, reference)
    for store in stores:
        assert {count for (verb, key), count in store.keys.items() if verb == "get" and "c/" in key} == {1}
    assert model.plan_["loading"] > reference.plan_["loading"]


@pytest.mark.cluster
def test_worker_processes_read_for_themselves(s3: S3Server, stores: dict[str, Path]) -> None:
    events: list[Event] = []
    near = open_dataset(stores["regression"])
    with local_client(2) as client:
        for model in (dk.OROLSRegressor(**PARAMETERS), dk.LSSVMRegressor(sigma=1.0), dk.KRLSRegressor(sigma=1.0)):
            reference = type(model)(**model.get_params()).fit(near)
            model.set_params(client=client)
            if "callbacks" in model.get_params():
                model.set_params(callbacks=[events.append])
            data = open_dataset(f"s3://{BUCKET}/regression")
            s3.reset(0.01)
            model.fit(data)
            assert passes_of(s3, "regression") == {model.summary_["passes"]}
            assert_array_equal(model.coef_, reference.coef_)
            s3.reset(0.01)
            assert_array_equal(np.asarray(model.predict(data)), np.asarray(reference.predict(near)))
            assert set(s3.chunk_reads("regression").values()) == {1}
    assert not any(isinstance(event, WorkerLost) for event in events)


def test_a_score_does_not_wait_for_targets_one_by_one(s3: S3Server, stores: dict[str, Path]) -> None:
    remote, near = open_dataset(f"s3://{BUCKET}/classification"), open_dataset(stores["classification"])
    model = dk.OROLSClassifier(**PARAMETERS).fit(near)
    expected = score_model(model, near).as_record()
    s3.reset(latency=0.1)
    started = time.perf_counter()
    assert score_model(model, remote).as_record() == expected
    assert time.perf_counter() - started < 12 * 0.1, "12 chunks of y, with those of X beside them"
    assert passes_of(s3, "classification") == {1}
    s3.reset()
    s3.fail("classification/y/*", status=403, times=1)
    with pytest.raises(dk.DataError, match=r"y.*refused"):
        score_model(model, remote)


def test_a_score_of_arrays_that_a_user_keeps_apart(s3: S3Server, stores: dict[str, Path]) -> None:
    near = open_dataset(stores["regression"])
    model = dk.OROLSRegressor(**PARAMETERS).fit(near)
    url = f"s3://{BUCKET}/regression"
    assert score_model(model, PlainArrays(f"{url}/X", f"{url}/y")).as_record() == score_model(model, near).as_record()
    assert passes_of(s3, "regression") == {1}


@pytest.mark.nightly
def test_a_remote_pass_takes_less_than_twice_as_long(s3: S3Server, tmp_path: Path) -> None:
    """One pass over 64 MB in 1 MB chunks, with 50 ms a request, against the same pass on the local disk.

    The pass evaluates a model of 200 centres, which is what the final pass of a training does, and less.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((250_000, 32)).astype(np.float64)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    write_dataset(tmp_path / "rows", X, y, chunk_rows=4000)
    url = s3.upload(tmp_path / "rows", "ratio")
    model = dk.OROLSRegressor(sigma=5.0, max_centers=200, stop=None).fit(X[:4000], y[:4000])

    def seconds(place: Any) -> float:
        data = open_dataset(place)
        s3.reset(LATENCY)
        started = time.perf_counter()
        for _ in model.iter_predictions(data):
            pass
        return time.perf_counter() - started

    near, remote = (min(seconds(place) for _ in range(3)) for place in (tmp_path / "rows", url))
    assert set(s3.chunk_reads("ratio").values()) == {1}
    requests = len(s3.chunk_reads("ratio"))

    def loading(place: Any) -> float:
        s3.reset(LATENCY)
        executor = SerialExecutor(open_dataset(place).source())
        started = time.perf_counter()
        executor.exchange(Load(classification=False, sample_rows=0, seed=0, holdout=0.0))
        return time.perf_counter() - started

    # Nothing is computed but moments, so that there is little to hide the waiting behind.
    at_hand, over_there = (min(loading(place) for _ in range(3)) for place in (tmp_path / "rows", url))
    assert over_there < 2 * at_hand + 4 * LATENCY
    # One after another the requests alone would take longer.
    assert remote < requests * LATENCY
    assert remote < 2 * near
