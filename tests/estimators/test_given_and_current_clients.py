"""Clients that a call cannot wait for: asynchronous ones, closed ones, and those of the task that makes the call."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, get_client, worker_client

import distkern as dk
from distkern.scheduler import worker_facts
from distkern.scheduler.execution import worker_pool
from distkern.scheduler.prediction import dask_arrays
from distkern.storage.arrays.lazy import occupies_worker
from tests.estimators.fits import assert_equal_models, classes, regression
from tests.markers import variants
from tests.scheduler.worker_clusters import QUIET, cluster

PARAMETERS: dict[str, Any] = {"max_centers": 6, "sigma": 1.0, "candidates": 16, "panel": 4, "stop": None}
N = 300


def regressor(**parameters: Any) -> Any:
    return dk.OROLSRegressor(**PARAMETERS, **parameters)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of targets and one of labels."""
    path = tmp_path_factory.mktemp("stores")
    dk.write_dataset(path / "targets", *regression(N), chunk_rows=100, task="regression")
    dk.write_dataset(path / "labels", *classes(N), chunk_rows=100, task="classification")
    return path


def calls(folder: Path, client: Any) -> dict[str, Callable[[], Any]]:
    """Return every kind of call that waits for the client it is given."""
    targets, labels = dk.open_dataset(folder / "targets"), dk.open_dataset(folder / "labels")
    X, y = regression(N)
    classifier = dk.OROLSClassifier(**PARAMETERS).fit(labels.X[:], labels.targets())
    fisher = dk.FisherDiscriminant().fit(labels.X[:], labels.targets())
    for model in (classifier, fisher):
        model.client = client
    grid = {"sigma": [1.0, 2.0]}
    return {
        "fit": lambda: regressor(client=client).fit(X, y),
        "fit of a store": lambda: regressor(client=client).fit(targets),
        "fit by passes": lambda: dk.LSSVMRegressor(sigma=1.0, client=client).fit(targets),
        "partial_fit of KRLS": lambda: dk.KRLSRegressor(sigma=1.0, client=client).partial_fit(X, y),
        "partial_fit of Widrow-Hoff": lambda: dk.WidrowHoffClassifier(client=client).partial_fit(
            labels, classes=[0, 1, 2]
        ),
        "search": lambda: dk.GridSearch(regressor(client=client), grid, folds=2).fit(targets),
        "sigma by cross-validation": lambda: dk.OROLSRegressor(sigma="cv", max_centers=4, client=client).fit(targets),
        "predict": lambda: classifier.predict(labels),
        "predict_proba": lambda: classifier.predict_proba(labels),
        "decision_function": lambda: classifier.decision_function(labels.X),
        "score": lambda: classifier.score(labels),
        "transform": lambda: fisher.transform(labels),
        "iter_predictions": lambda: list(classifier.iter_predictions(labels)),
        "workers of a plan": lambda: worker_facts(client),
    }


def in_loop_of_a_client(call: Callable[[Any], Any]) -> Any:
    """Call a function on the event loop of an asynchronous client, which is current."""

    async def main() -> Any:
        cluster = LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, asynchronous=True, dashboard_address=":0"
        )
        async with cluster, Client(cluster, asynchronous=True) as client:
            found = call(client)
            return await found if asyncio.iscoroutine(found) else found

    with dask.config.set(QUIET):
        return asyncio.run(main())


def test_an_asynchronous_client_that_is_given_is_refused_at_once(folder: Path) -> None:
    def every_call(client: Any) -> None:
        for name, call in calls(folder, client).items():
            with pytest.raises(dk.JobError, match=r"asyncio\.to_thread") as caught:
                call()
            assert caught.value.kind == "asynchronous-client", name

    in_loop_of_a_client(every_call)


def test_an_asynchronous_client_that_is_current_is_passed_over(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    targets = dk.open_dataset(folder / "targets")
    X, y = regression(N)
    expected = regressor().fit(targets)
    predictions = expected.predict(X)

    def every_call(client: Any) -> None:
        lazy = da.from_array(X, chunks=(100, 2))
        scaled, lazy_y = (lazy - lazy.mean(0)) + lazy.mean(0), da.from_array(y, chunks=100)
        assert_equal_models(regressor().fit(targets), expected)
        assert_equal_models(regressor().fit(lazy, lazy_y), expected)
        assert regressor().fit(scaled, lazy_y).n_centers_ == 6
        np.testing.assert_array_equal(expected.predict(targets), predictions)
        assert expected.score(lazy, lazy_y) == pytest.approx(expected.score(X, y))
        assert sum(len(values) for _, values, _ in expected.iter_predictions(lazy)) == N
        assert dk.GridSearch(regressor(), {"sigma": [1.0, 2.0]}, folds=2).fit(targets).best_params_
        with pytest.raises(dk.JobError, match=r"asyncio\.to_thread") as caught:
            regressor().fit(client.persist(lazy), y)
        assert caught.value.kind == "asynchronous-client"

    in_loop_of_a_client(every_call)
    assert "asyncio.to_thread" in caplog.text


def test_a_thread_waits_for_an_asynchronous_client(folder: Path) -> None:
    data = dk.open_dataset(folder / "targets")
    model = in_loop_of_a_client(lambda client: asyncio.to_thread(regressor(client=client).fit, data))
    assert_equal_models(model, regressor().fit(data))


def test_a_client_that_is_closed_is_refused_by_name(in_process_client: Any, folder: Path) -> None:
    with Client(in_process_client.cluster, set_as_default=False) as client:
        pass
    for name, call in calls(folder, client).items():
        if name in ("fit", "fit of a store", "fit by passes", "search") or "partial_fit" in name or "plan" in name:
            with pytest.raises(dk.ClusterError, match="closed: give a client") as caught:
                call()
            assert caught.value.kind == "client-closed", name
        elif name != "sigma by cross-validation":
            call()


def test_a_cluster_in_place_of_a_client_is_refused_by_name(in_process_client: Any, folder: Path) -> None:
    for name, call in calls(folder, in_process_client.cluster).items():
        if name != "workers of a plan":
            with pytest.raises(dk.JobError, match=r"cluster\.get_client\(\)") as caught:
                call()
            assert caught.value.kind == "invalid-parameter", name
    with pytest.raises(dk.JobError, match=r"Client\(address\)"):
        regressor(client="tcp://127.0.0.1:8786").fit(*regression(N))


def fit_given(data: Any, lazy: Any) -> Any:
    return regressor(client=get_client()).fit(data)


def fit_given_lazy(data: Any, lazy: Any) -> Any:
    return regressor(client=get_client()).fit(*lazy)


def fit_current(data: Any, lazy: Any) -> Any:
    get_client()
    return regressor().fit(data)


def fit_current_lazy(data: Any, lazy: Any) -> Any:
    get_client()
    return regressor().fit(*lazy)


def fit_on_worker_client(data: Any, lazy: Any) -> Any:
    with worker_client() as client:
        return regressor(client=client).fit(data)


def fit_persisted(data: Any, lazy: Any) -> Any:
    X, y = lazy
    X = get_client().persist(X)
    with pytest.raises(dk.JobError, match="worker_client") as caught:
        regressor().fit(X, y)
    assert caught.value.kind == "occupied-worker"
    with worker_client():
        return regressor().fit(X, y)


def search_given(data: Any, lazy: Any) -> Any:
    return dk.GridSearch(regressor(client=get_client()), {"sigma": [1.0]}, folds=2).fit(data).best_estimator_


def predict_given(data: Any, lazy: Any) -> Any:
    model = regressor().fit(data)
    expected = model.predict(data)[:]
    model.client = get_client()
    np.testing.assert_array_equal(model.predict(data)[:], expected)
    return model


def predict_current(data: Any, lazy: Any) -> Any:
    model = regressor().fit(data)
    get_client()
    np.testing.assert_array_equal(np.asarray(model.predict(lazy[0])), model.predict(data)[:])
    for _ in model.iter_predictions(data):
        break
    return model


def partial_fit_given(data: Any, lazy: Any) -> Any:
    parameters: dict[str, Any] = {"sigma": 1.0}
    ours = dk.KRLSRegressor(client=get_client(), **parameters).partial_fit(data)
    np.testing.assert_array_equal(ours.coef_, dk.KRLSRegressor(**parameters).partial_fit(data).coef_)
    return regressor().fit(data)


@pytest.mark.parametrize(
    "inside",
    variants(
        [fit_given, predict_given, fit_current_lazy],
        [
            fit_current,
            fit_given_lazy,
            fit_on_worker_client,
            fit_persisted,
            search_given,
            partial_fit_given,
            predict_current,
        ],
    ),
)
def test_a_dask_task_trains_and_predicts_on_a_worker_of_one_thread(
    inside: Callable[[Any, Any], Any], folder: Path
) -> None:
    X, y = regression(N)

    def task() -> tuple[Any, bool]:
        lazy = da.from_array(X, chunks=(100, 2)), da.from_array(y, chunks=100)
        return inside(dk.open_dataset(folder / "targets"), lazy), occupies_worker()

    # As the default client it is the one that tasks get.
    with cluster(1, processes=False) as outer, Client(outer.cluster) as client:
        model, occupies = client.submit(task).result(timeout=60)
    assert_equal_models(model, regressor().fit(dk.open_dataset(folder / "targets")))
    assert occupies


def test_a_cluster_that_adapts_from_no_worker_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr(worker_pool.logger, "warning", lambda text, *values: logged.append(text % values))
    with cluster(0, processes=False) as client, dask.config.set({"distkern.worker-wait": 60}):
        adaptive = client.cluster.adapt(minimum=0, maximum=2, interval="1h")
        with pytest.raises(dk.ClusterError, match=r"adapt\(minimum=n\)") as caught:
            regressor(client=client).fit(*regression(N))
        assert caught.value.kind == "no-workers"
        # A client of the address does not know that the cluster adapts.
        with Client(client.scheduler.address) as another, dask.config.set({"distkern.worker-wait": 0.01}):
            with pytest.raises(dk.ClusterError, match="no worker was usable"):
                regressor(client=another).fit(*regression(N))
            assert any("adapt(minimum=n)" in text for text in logged)
        adaptive.stop()


def futures_in(lazy: Any) -> list[Any]:
    return [task for task in dict(lazy.__dask_graph__()).values() if type(task).__name__ == "Future"]


def test_a_large_model_of_a_lazy_prediction_is_sent_once(
    in_process_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = regression(N, d=40)
    model = dk.LSSVMRegressor(sigma=5.0).fit(X, y)
    rows = da.random.default_rng(0).normal(size=(60, 40), chunks=(20, 40))
    expected = model.predict(rows).compute(scheduler="synchronous")
    monkeypatch.setattr(dask_arrays, "LARGE_MODEL_BYTES", model.centers_.nbytes)
    with (
        in_process_client.as_current(),
        dask.config.set({"distributed.admin.large-graph-warning-threshold": "50kB"}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        lazy = model.predict(rows)
        (held,) = futures_in(lazy)
        np.testing.assert_array_equal(lazy.compute(), expected)
        np.testing.assert_array_equal((2 * lazy).compute(), 2 * expected)
        assert futures_in(lazy) == [held]
        # A restart of the cluster cancels what clients hold; the model is then sent again.
        in_process_client.cancel([held])
        np.testing.assert_array_equal(lazy.compute(), expected)
        # So it is on the cluster of another client, and without a client it is in the graph.
        with Client(in_process_client.cluster) as another:
            np.testing.assert_array_equal(lazy.compute(), expected)
            assert [future.client for future in futures_in(lazy)] == [another]
    assert futures_in(lazy) == []
    np.testing.assert_array_equal(lazy.compute(scheduler="threads"), expected)


def test_nothing_is_logged_where_no_client_is_current(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "distkern.scheduler.clusters")
    regressor().fit(dk.open_dataset(folder / "targets"))
    assert not caplog.records
