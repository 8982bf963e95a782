"""The map to the columns of Q: definition, containers, stores, scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import distkern as dk
from distkern.estimators.sparse.projections import projection_weights
from distkern.storage import read_model, write_model
from tests.estimators.fits import ALL, classes, data_for, fitted, regression
from tests.references import dense_kernel_columns

Array = NDArray[Any]


def dense_q(model: Any, X: Array, weights: Array, epsilon: float = 0.0) -> Array:
    """Orthogonalise [1 K] column by column, twice, with the weighted inner product; unit weighted variance."""
    shift = np.average(X, axis=0, weights=weights) if model.kernel_.stationary else 0.0
    rows = model.center_indices_
    K = dense_kernel_columns(model.kernel_, X - shift, X[rows] - shift, rows, epsilon)
    q = [np.ones(len(X))]
    for column in K.T:
        for _ in range(2):
            for earlier in q:
                column = column - earlier * (weights * earlier @ column) / (weights * earlier @ earlier)
        q.append(column)
    return np.column_stack([c * np.sqrt(weights.sum() / (weights * c @ c)) for c in q[1:]])


@pytest.mark.parametrize("cls", [*ALL, dk.LOOForwardClassifier])
@pytest.mark.parametrize("weighted", [False, True])
def test_training_rows_have_the_images_of_the_dense_reference(cls: Any, weighted: bool) -> None:
    X, y = data_for(cls)
    weights = np.random.default_rng(1).integers(0, 4, len(X)).astype(float) if weighted else np.ones(len(X))
    given = {"sample_weight": weights} if weighted else {}
    model = cls(max_centers=12, sigma=1.0, stop=None, standardize=False).fit(X, y, **given)
    Z = model.transform(X)
    assert Z.shape == (len(X), model.n_centers_)
    assert Z.dtype == np.float64
    if cls is not dk.LOOForwardClassifier:
        np.testing.assert_allclose(Z, dense_q(model, X, weights), rtol=0, atol=1e-8 * np.abs(Z).max())
        np.testing.assert_allclose(weights @ Z / weights.sum(), 0.0, atol=1e-9)
    # Without an intercept the columns are orthogonal, not centred.
    np.testing.assert_allclose(Z.T @ (weights[:, None] * Z) / weights.sum(), np.eye(Z.shape[1]), atol=1e-8)


@pytest.mark.parametrize("cls", ALL)
def test_predictions_are_linear_in_the_map(cls: Any) -> None:
    model = fitted(cls)
    X, _ = data_for(cls, 300, 5)
    outputs = (model.decision_function(X) if hasattr(model, "classes_") else model.predict(X)).reshape(300, -1)
    design = np.column_stack([np.ones(300), model.transform(X)])
    weights = np.linalg.lstsq(design, outputs, rcond=None)[0]
    np.testing.assert_allclose(design @ weights, outputs, atol=1e-8)


@pytest.mark.parametrize("settings", [{"selection_rows": 60}, {"dtype": "float32"}, {"refit": "rkhs"}], ids=str)
def test_the_covariance_is_that_of_all_rows_whatever_the_selection_saw(settings: dict[str, Any]) -> None:
    X, y = regression(300)
    Z = dk.OROLSRegressor(max_centers=10, sigma=1.0, stop=None, **settings).fit(X, y).transform(X)
    np.testing.assert_allclose(Z.T @ Z / 300, np.eye(10), atol=1e-3 if "dtype" in settings else 1e-7)


@pytest.mark.parametrize("cls", ALL)
def test_a_prefix_has_the_first_columns(cls: Any) -> None:
    model = fitted(cls, stop=None)
    X, _ = data_for(cls, 50, 3)
    whole, part = model.transform(X), model.truncate(4).transform(X)
    np.testing.assert_allclose(part, whole[:, :4], rtol=1e-10, atol=1e-10)


def test_weights_of_a_prefix_are_a_part_of_the_weights() -> None:
    rng = np.random.default_rng(0)
    u, s = np.triu(rng.standard_normal((7, 7)), 1) + np.eye(7), rng.uniform(1, 9, 7)
    weights = projection_weights(u, s)
    np.testing.assert_allclose(u @ weights, np.eye(7)[:, 1:] * np.sqrt(s[0] / s[1:]), atol=1e-10)
    np.testing.assert_allclose(projection_weights(u[:4, :4], s[:4]), weights[:4, :3], rtol=1e-13)


@pytest.mark.parametrize("cls", [dk.OROLSClassifier, dk.NPDRegressor])
def test_every_container_gives_its_own_kind_and_the_same_numbers(cls: Any, tmp_path: Path) -> None:
    model = fitted(cls)
    X, y = data_for(cls, 900, 4)
    expected = model.transform(X)
    rows = zarr.create_array(str(tmp_path / "X"), shape=X.shape, chunks=(128, 2), dtype=X.dtype)
    rows[...] = X
    task = "regression" if cls is dk.NPDRegressor else "classification"
    dk.write_dataset(tmp_path / "set", X, y, chunk_rows=128, task=task)
    for given in (rows, dk.open_dataset(tmp_path / "set")):
        found = model.transform(given)
        assert isinstance(found, zarr.Array)
        np.testing.assert_allclose(found[...], expected, rtol=1e-10, atol=1e-10)
    lazy = model.transform(da.from_array(X, chunks=(300, 1)))
    assert isinstance(lazy, da.Array)
    assert lazy.shape == expected.shape
    np.testing.assert_allclose(lazy.compute(scheduler="synchronous"), expected, rtol=1e-10, atol=1e-10)
    fitted_again = clone(model).fit_transform(dk.open_dataset(tmp_path / "set"))
    assert isinstance(fitted_again, zarr.Array)
    assert fitted_again.shape[0] == 900


def test_training_on_workers_gives_the_same_map(tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    X, y = regression(3000)
    settings: dict[str, Any] = {"max_centers": 12, "sigma": 1.0, "stop": None}
    here = dk.OROLSRegressor(**settings).fit(X, y)
    dk.write_dataset(tmp_path / "set", X, y, chunk_rows=500, task="regression")
    data = dk.open_dataset(tmp_path / "set")
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as c,
        Client(c, set_as_default=False) as client,
    ):
        there = dk.OROLSRegressor(client=client, **settings).fit(X, y)
        on_workers = there.transform(data)[...]
    assert here.transform(X).tobytes() == there.transform(X).tobytes()
    assert on_workers.tobytes() == here.transform(data)[...].tobytes()


@pytest.mark.parametrize("cls", ALL)
def test_a_store_keeps_the_map(cls: Any, tmp_path: Path) -> None:
    model = fitted(cls)
    X, _ = data_for(cls, 50, 3)
    model.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    assert loaded.transform(X).tobytes() == model.transform(X).tobytes()
    np.testing.assert_array_equal(loaded.get_feature_names_out(), model.get_feature_names_out())
    m = model.n_centers_
    assert (tmp_path / "m" / "projection_weights.npy").stat().st_size <= 4 * m * (m + 3) + 128


def test_a_store_from_before_there_was_a_map(tmp_path: Path) -> None:
    X, y = regression()
    model = dk.OROLSRegressor(max_centers=6).fit(X, y)
    model.save(tmp_path / "m")
    meta, arrays = read_model(tmp_path / "m")
    weights = arrays.pop("projection_weights")
    write_model(tmp_path / "old", meta, arrays)
    loaded = dk.load_model(tmp_path / "old")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    with pytest.raises(dk.JobError, match="saved without the factors") as caught:
        loaded.transform(X)
    assert caught.value.kind == "no-projections"
    loaded.save(tmp_path / "again")
    assert "projection_weights" not in read_model(tmp_path / "again")[1]
    for bad in (weights[:-1], weights * np.nan, weights.astype(int)):
        write_model(tmp_path / "bad", meta, {**arrays, "projection_weights": bad}, overwrite=True)
        with pytest.raises(dk.StoreError, match="projection_weights"):
            dk.load_model(tmp_path / "bad")


@pytest.mark.parametrize("multiclass", ["one-vs-rest", "one-vs-one", "dag"])
def test_without_one_basis_there_is_no_map(multiclass: str, tmp_path: Path) -> None:
    X, y = classes()
    model = dk.OROLSClassifier(max_centers=5, multiclass=multiclass)
    for state in (model, model.fit(X, y)):
        assert not hasattr(state, "transform")
        assert not hasattr(state, "fit_transform")
        with pytest.raises(AttributeError) as caught:
            state.transform(X)
        assert isinstance(caught.value.__cause__, dk.JobError)
        assert "use multiclass='shared'" in str(caught.value.__cause__)
    model.save(tmp_path / "m")
    assert not hasattr(dk.load_model(tmp_path / "m"), "transform")


def test_a_model_without_centres_has_nothing_to_project_on(tmp_path: Path) -> None:
    X, y = regression()
    model = dk.OROLSRegressor(tol=1e3).fit(X, y)
    model.save(tmp_path / "m")
    for state in (model, dk.load_model(tmp_path / "m")):
        with pytest.raises(dk.JobError, match="no centre"):
            state.transform(X)


def test_a_pipeline_into_logistic_regression() -> None:
    X, y = classes(300, 3)
    pipeline = make_pipeline(dk.OROLSClassifier(max_centers=20, sigma=1.0), LogisticRegression())
    alone = cross_val_score(pipeline[0], X, y, cv=3).mean()
    assert cross_val_score(pipeline, X, y, cv=3).mean() > alone - 0.05 > 0.5
    names = pipeline.fit(X, y)[:-1].get_feature_names_out()
    assert names.tolist() == [f"orolsclassifier{j}" for j in range(pipeline[0].n_centers_)]
    assert pipeline[-1].n_features_in_ == pipeline[0].n_centers_


def test_frames_come_out_on_request() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = regression()
    model = dk.OROLSRegressor(max_centers=4).set_output(transform="pandas").fit(X, y)
    frame = model.transform(X)
    assert isinstance(frame, pandas.DataFrame)
    assert frame.columns.tolist() == model.get_feature_names_out().tolist()
    np.testing.assert_array_equal(frame.to_numpy(), clone(model).set_output(transform="default").fit_transform(X, y))


def test_rows_of_another_width_are_refused() -> None:
    model = fitted(dk.OROLSRegressor)
    with pytest.raises(dk.DataError, match="features"):
        model.transform(np.zeros((3, 5)))
