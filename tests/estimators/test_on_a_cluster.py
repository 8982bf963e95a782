"""Estimators on a dask client: given, current, or none."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest

import distkern as dk
from distkern.monitoring.events import Event, RunStarted
from distkern.scheduler import local_client
from tests.estimators.fits import assert_equal_models, data_for, regression

PARAMETERS: dict[str, Any] = {"max_centers": 20, "sigma": 1.0, "candidates": 64, "panel": 8, "stop": None}
N = 5000


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two workers in this process, not the current client."""
    from distributed import Client, LocalCluster

    with (
        dask.config.set(
            {
                "distributed.worker.memory.pause": False,
                "distributed.worker.memory.terminate": False,
                "distributed.admin.low-level-log-length": 10**6,
            }
        ),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
        Client(cluster, set_as_default=False) as made,
    ):
        yield made


def workers_of(events: list[Event]) -> int:
    (started,) = (event for event in events if isinstance(event, RunStarted))
    return started.workers


@pytest.mark.parametrize("cls", [dk.OROLSRegressor, dk.NPDClassifier])
@pytest.mark.parametrize("factors", ["auto", "driver", "workers"])
def test_a_client_changes_no_bit(cls: Any, factors: str, client: Any) -> None:
    X, y = data_for(cls, N)
    events: list[Event] = []
    model = cls(client=client, factors=factors, callbacks=[events.append], **PARAMETERS).fit(X, y)
    assert_equal_models(model, cls(**PARAMETERS).fit(X, y))
    assert workers_of(events) == 2
    assert model.client is client


def test_what_was_fitted_on_a_client_pickles_saves_and_truncates(client: Any, tmp_path: Path) -> None:
    X, y = regression(N)
    model = dk.OROLSRegressor(client=client, **PARAMETERS).fit(X, y)
    assert_equal_models(pickle.loads(pickle.dumps(model)), model)
    model.save(tmp_path / "m")
    assert_equal_models(dk.load_model(tmp_path / "m"), model)
    assert_equal_models(model.truncate(8), dk.OROLSRegressor(**{**PARAMETERS, "max_centers": 8}).fit(X, y))


def test_the_current_client_serves_stores_but_not_numpy(client: Any, tmp_path: Path) -> None:
    X, y = regression(N)
    dk.write_dataset(tmp_path / "set", X, y, chunk_rows=500, task="regression")
    inputs: list[tuple[Any, Any, int]] = [(dk.open_dataset(tmp_path / "set"), None, 2), (X, y, 1)]
    with client.as_current():
        for rows, targets, workers in inputs:
            events: list[Event] = []
            model = dk.OROLSRegressor(callbacks=[events.append], **PARAMETERS).fit(rows, targets)
            assert workers_of(events) == workers
            assert model.client is None


def test_the_current_client_serves_dask_arrays(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    X, y = regression(N)
    events: list[Event] = []
    with client.as_current():
        dk.OROLSRegressor(callbacks=[events.append], **PARAMETERS).fit(da.from_array(X, chunks=(500, 2)), y)
    assert workers_of(events) == 2


def test_data_that_is_refused_on_a_worker_is_a_data_error(client: Any) -> None:
    X, y = regression(N)
    X[1234, 1] = np.nan
    with pytest.raises(dk.DataError, match=r"row 1234 .*column 1"):
        dk.OROLSRegressor(client=client, **PARAMETERS).fit(da.from_array(X, chunks=(500, 2)), y)
    with pytest.raises(dk.DataError, match="constant"):
        dk.OROLSRegressor(client=client, **PARAMETERS).fit(np.ones((N, 2)), y)
    good, _ = regression(N)
    assert dk.OROLSRegressor(client=client, **PARAMETERS).fit(good, y).n_centers_ == 20


def predicted_on_workers(client: Any) -> int:
    """Blocks that the workers of an in-process cluster have predicted so far."""
    log = client.cluster.scheduler.transition_log.copy()  # it grows meanwhile
    return len({key for key, *_ in log if str(key).startswith("predict-block")})


@pytest.mark.parametrize("cls", [dk.OROLSRegressor, dk.OROLSClassifier])
@pytest.mark.parametrize("current", [False, True])
def test_stores_are_predicted_on_the_client(cls: Any, current: bool, client: Any, tmp_path: Path) -> None:
    X, y = data_for(cls, N)
    dk.write_dataset(
        tmp_path / "set", X, y, chunk_rows=100, task="regression" if cls is dk.OROLSRegressor else "classification"
    )
    data = dk.open_dataset(tmp_path / "set")
    model = cls(**PARAMETERS).fit(X, y)
    names = ["predict"] if cls is dk.OROLSRegressor else ["predict", "decision_function", "predict_proba"]
    expected = {name: getattr(model, name)(data)[:] for name in names}
    with client.as_current() if current else nullcontext():
        if not current:
            model.client = client
        for name in names:
            before = predicted_on_workers(client)
            np.testing.assert_array_equal(getattr(model, name)(data)[:], expected[name])
            np.testing.assert_array_equal(getattr(model, name)(data.X)[:], expected[name])
            assert predicted_on_workers(client) == before + 2 * N // 100
        before = predicted_on_workers(client)
        model.predict(X)
        assert predicted_on_workers(client) == before
        blocks = [values for _, values, _ in model.iter_predictions(data)]
        np.testing.assert_array_equal(np.concatenate(blocks), expected["predict"])
        lazy = model.predict(da.from_array(X, chunks=(100, 2)))
        np.testing.assert_array_equal(client.compute(lazy).result(), expected["predict"])


def test_a_client_that_was_closed_leaves_prediction_to_this_process(client: Any, tmp_path: Path) -> None:
    from distributed import Client

    X, y = regression(N)
    dk.write_dataset(tmp_path / "set", X, y, chunk_rows=500, task="regression")
    with Client(client.cluster, set_as_default=False) as second:
        model = dk.OROLSRegressor(client=second, **PARAMETERS).fit(X, y)
    result = model.predict(dk.open_dataset(tmp_path / "set"))
    np.testing.assert_allclose(result[:], model.predict(X), rtol=1e-10)


def test_no_task_carries_the_path(client: Any) -> None:
    """Workers and graphs get the model and what is to be returned, not the estimator and its factors."""
    X, y = regression(N)
    model = dk.OROLSRegressor(**PARAMETERS).fit(X, y)
    lazy = model.predict(da.from_array(X, chunks=(100, 2)))
    keys = [value for key, value in dict(lazy.__dask_graph__()).items() if "array-original" not in str(key)]
    assert b"TrainingResult" not in cloudpickle.dumps(keys)
    assert b"KernelModel" in cloudpickle.dumps(keys)


@pytest.mark.cluster
@pytest.mark.parametrize("cls", [dk.NPDRegressor, dk.OROLSClassifier])
def test_worker_processes_change_no_bit(cls: Any, tmp_path: Path) -> None:
    X, y = data_for(cls, N)
    dk.write_dataset(
        tmp_path / "set", X, y, chunk_rows=500, task="regression" if "Regressor" in cls.__name__ else "classification"
    )
    data = dk.open_dataset(tmp_path / "set")
    expected = cls(**PARAMETERS).fit(data)
    with local_client(2, 1 << 30) as workers:
        model = cls(client=workers, **PARAMETERS).fit(data)
    assert_equal_models(model, expected)
