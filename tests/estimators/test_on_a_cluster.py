"""Estimators on a dask client: given, current, or none."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from fits import assert_equal_models, data_for, regression

import distkern as dk
from distkern.events import Event, RunStarted
from distkern.scheduler import local_client

PARAMETERS: dict[str, Any] = {"max_centers": 20, "sigma": 1.0, "candidates": 64, "panel": 8, "stop": None}
N = 1500


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two workers in this process, not the current client."""
    from distributed import Client, LocalCluster

    with (
        dask.config.set({"distributed.worker.memory.pause": False, "distributed.worker.memory.terminate": False}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
        Client(cluster, set_as_default=False) as made,
    ):
        yield made


def workers_of(events: list[Event]) -> int:
    assert isinstance(events[0], RunStarted)
    return events[0].workers


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


@pytest.mark.cluster
@pytest.mark.parametrize("cls", [dk.NPDRegressor, dk.OROLSClassifier])
def test_worker_processes_change_no_bit(cls: Any, tmp_path: Path) -> None:
    X, y = data_for(cls, N)
    dk.write_dataset(
        tmp_path / "set", X, y, chunk_rows=500, task="regression" if "Regressor" in cls.__name__ else "classification"
    )
    data = dk.open_dataset(tmp_path / "set")
    expected = cls(**PARAMETERS).fit(data)
    with local_client(2, "1GiB") as workers:
        model = cls(client=workers, **PARAMETERS).fit(data)
    assert_equal_models(model, expected)
