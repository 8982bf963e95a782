"""Estimators on a dask client: given, current, or none."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import cloudpickle
import dask.array as da
import numpy as np
import pytest
from distributed.diagnostics.plugin import SchedulerPlugin

import distkern as dk
from distkern.monitoring.events import Event, RunStarted
from distkern.scheduler import local_client
from tests.estimators.fits import assert_equal_models, data_for, regression
from tests.markers import variants

PARAMETERS: dict[str, Any] = {"max_centers": 20, "sigma": 1.0, "candidates": 64, "panel": 8, "stop": None}
N = 5000


def workers_of(events: list[Event]) -> int:
    (started,) = (event for event in events if isinstance(event, RunStarted))
    return started.workers


@pytest.mark.parametrize(
    ("cls", "factors"),
    [(dk.OROLSRegressor, "auto"), (dk.NPDClassifier, "driver")],
)
def test_a_client_changes_no_bit(cls: Any, factors: str, in_process_client: Any) -> None:
    X, y = data_for(cls, N)
    events: list[Event] = []
    model = cls(client=in_process_client, factors=factors, callbacks=[events.append], **PARAMETERS).fit(X, y)
    assert_equal_models(model, cls(**PARAMETERS).fit(X, y))
    assert workers_of(events) == 2
    assert model.client is in_process_client


def test_what_was_fitted_on_a_client_pickles_saves_and_truncates(in_process_client: Any, tmp_path: Path) -> None:
    X, y = regression(N)
    model = dk.OROLSRegressor(client=in_process_client, **PARAMETERS).fit(X, y)
    assert_equal_models(pickle.loads(pickle.dumps(model)), model)
    model.save(tmp_path / "m")
    assert_equal_models(dk.load_model(tmp_path / "m"), model)
    assert_equal_models(model.truncate(8), dk.OROLSRegressor(**{**PARAMETERS, "max_centers": 8}).fit(X, y))


def test_the_current_client_serves_stores_but_not_numpy(in_process_client: Any, tmp_path: Path) -> None:
    X, y = regression(N)
    dk.write_dataset(tmp_path / "set", X, y, chunk_rows=500, task="regression")
    inputs: list[tuple[Any, Any, int]] = [(dk.open_dataset(tmp_path / "set"), None, 2), (X, y, 1)]
    with in_process_client.as_current():
        for rows, targets, workers in inputs:
            events: list[Event] = []
            model = dk.OROLSRegressor(callbacks=[events.append], **PARAMETERS).fit(rows, targets)
            assert workers_of(events) == workers
            assert model.client is None


def test_the_current_client_serves_dask_arrays(in_process_client: Any, caplog: pytest.LogCaptureFixture) -> None:
    X, y = regression(N)
    events: list[Event] = []
    with in_process_client.as_current():
        dk.OROLSRegressor(callbacks=[events.append], **PARAMETERS).fit(da.from_array(X, chunks=(500, 2)), y)
    assert workers_of(events) == 2


def test_data_that_is_refused_on_a_worker_is_a_data_error(in_process_client: Any) -> None:
    X, y = regression(N)
    X[1234, 1] = np.nan
    with pytest.raises(dk.DataError, match=r"row 1234 .*column 1"):
        dk.OROLSRegressor(client=in_process_client, **PARAMETERS).fit(da.from_array(X, chunks=(500, 2)), y)
    with pytest.raises(dk.DataError, match="constant"):
        dk.OROLSRegressor(client=in_process_client, **PARAMETERS).fit(np.ones((N, 2)), y)
    good, _ = regression(N)
    assert dk.OROLSRegressor(client=in_process_client, **PARAMETERS).fit(good, y).n_centers_ == 20


class PredictedBlocks(SchedulerPlugin):  # type: ignore[misc]  # distributed has no types
    """Counts the blocks that workers have predicted."""

    name = "predicted-blocks"

    def __init__(self) -> None:
        self.keys: set[str] = set()

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if str(key).startswith("predict-block") and finish == "memory":
            self.keys.add(str(key))


@pytest.fixture
def predicted(in_process_client: Any) -> Iterator[PredictedBlocks]:
    counter = PredictedBlocks()
    scheduler = in_process_client.cluster.scheduler
    scheduler.add_plugin(counter)
    yield counter
    scheduler.remove_plugin(counter.name)


@pytest.mark.parametrize(
    ("cls", "current"),
    variants([(dk.OROLSClassifier, False)], [(dk.OROLSRegressor, True), (dk.OROLSClassifier, False)]),
)
def test_stores_are_predicted_on_the_client(
    cls: Any, current: bool, in_process_client: Any, predicted: PredictedBlocks, tmp_path: Path
) -> None:
    X, y = data_for(cls, N)
    dk.write_dataset(
        tmp_path / "set", X, y, chunk_rows=500, task="regression" if cls is dk.OROLSRegressor else "classification"
    )
    data = dk.open_dataset(tmp_path / "set")
    model = cls(**PARAMETERS).fit(X, y)
    names = ["predict"] if cls is dk.OROLSRegressor else ["predict", "decision_function", "predict_proba"]
    expected = {name: getattr(model, name)(data)[:] for name in names}
    with in_process_client.as_current() if current else nullcontext():
        if not current:
            model.client = in_process_client
        for name in names:
            before = len(predicted.keys)
            np.testing.assert_array_equal(getattr(model, name)(data)[:], expected[name])
            np.testing.assert_array_equal(getattr(model, name)(data.X)[:], expected[name])
            assert len(predicted.keys) == before + 2 * N // 500
        before = len(predicted.keys)
        model.predict(X)
        assert len(predicted.keys) == before
        blocks = [values for _, values, _ in model.iter_predictions(data)]
        np.testing.assert_array_equal(np.concatenate(blocks), expected["predict"])
        lazy = model.predict(da.from_array(X, chunks=(500, 2)))
        np.testing.assert_array_equal(in_process_client.compute(lazy).result(), expected["predict"])


def test_a_client_that_was_closed_leaves_prediction_to_this_process(in_process_client: Any, tmp_path: Path) -> None:
    from distributed import Client

    X, y = regression(N)
    dk.write_dataset(tmp_path / "set", X, y, chunk_rows=500, task="regression")
    with Client(in_process_client.cluster, set_as_default=False) as second:
        model = dk.OROLSRegressor(client=second, **PARAMETERS).fit(X, y)
    result = model.predict(dk.open_dataset(tmp_path / "set"))
    np.testing.assert_allclose(result[:], model.predict(X), rtol=1e-10)


def test_no_task_carries_the_path(in_process_client: Any) -> None:
    """Workers and graphs get the model and what is to be returned, not the estimator and its factors."""
    X, y = regression(N)
    model = dk.OROLSRegressor(**PARAMETERS).fit(X, y)
    lazy = model.predict(da.from_array(X, chunks=(500, 2)))
    keys = [value for key, value in dict(lazy.__dask_graph__()).items() if "array-original" not in str(key)]
    assert b"TrainingResult" not in cloudpickle.dumps(keys)
    assert b"KernelModel" in cloudpickle.dumps(keys)


@pytest.mark.cluster
@pytest.mark.parametrize("cls", variants([dk.OROLSClassifier], [dk.NPDRegressor, dk.OROLSClassifier]))
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
