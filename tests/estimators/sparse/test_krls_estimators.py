"""KRLSRegressor and KRLSClassifier: scikit-learn's contract, streams, weights, stores and refusals."""

from __future__ import annotations

import pickle
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import distkern as dk
from distkern.errors import JobError
from distkern.scheduler import Workload
from distkern.storage import ArraySource
from tests.estimators.fits import classes, data_for, regression
from tests.markers import marked

BOTH = (dk.KRLSRegressor, dk.KRLSClassifier)
PLAIN: dict[str, Any] = {"standardize": False, "sigma": 1.0}


def outputs(model: Any, X: Any) -> Any:
    return np.asarray(model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X))


def assert_same(ours: Any, theirs: Any, rtol: float = 0.0) -> None:
    for name in ("center_indices_", "centers_"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    for name in ("coef_", "intercept_"):
        a, b = getattr(ours, name), getattr(theirs, name)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max())
    for name, value in theirs.kernel_.parameters().items():
        # The median distance follows the scaling, which chunks change in its last bit.
        assert ours.kernel_.parameters()[name] == pytest.approx(value, rel=rtol and 1e-12, abs=0.0)


@pytest.mark.parametrize("cls", BOTH)
def test_the_model_is_the_kernel_plus_one(cls: Any) -> None:
    X, y = data_for(cls)
    model = cls(nu=0.002).fit(X, y)
    assert model.n_centers_ == len(model.centers_) == len(model.coef_) > 3
    np.testing.assert_array_equal(model.centers_, X[model.center_indices_])
    assert (np.diff(model.center_indices_) > 0).all()
    np.testing.assert_allclose(model.intercept_, model.coef_.sum(axis=0))
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    values = (model.kernel_.block(scaled, scaled[model.center_indices_]) + 1) @ model.coef_
    np.testing.assert_allclose(outputs(model, X).reshape(len(X), -1), values, rtol=1e-7, atol=1e-9)
    assert model.score(X, y) > 0.65


def test_fewer_centres_with_a_larger_nu() -> None:
    X, y = regression(400)
    counts = [dk.KRLSRegressor(nu=nu).fit(X, y).n_centers_ for nu in (0.001, 0.1, 1.0)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_several_targets_share_one_dictionary() -> None:
    X, y = regression(200, n_targets=3)
    together = dk.KRLSRegressor().fit(X, y)
    assert together.coef_.shape == (together.n_centers_, 3)
    for target in range(3):
        alone = dk.KRLSRegressor().fit(X, y[:, target])
        np.testing.assert_array_equal(alone.center_indices_, together.center_indices_)
        np.testing.assert_allclose(alone.coef_[:, 0], together.coef_[:, target], rtol=1e-9)


# --- row weights -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("settings", [{}, PLAIN, {"kernel": "polynomial", "nu": 0.5}], ids=str)
def test_a_weight_counts_as_repeated_rows(cls: Any, settings: Any) -> None:
    X, y = data_for(cls)
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    compact = cls(**settings).fit(X, y, weights)
    repeated = cls(**settings).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights, axis=0))
    np.testing.assert_array_equal(compact.centers_, repeated.centers_)
    np.testing.assert_allclose(outputs(compact, X), outputs(repeated, X), rtol=1e-6, atol=1e-7)
    assert weights[compact.center_indices_].all()


# --- streams ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 119), max_size=5), st.booleans(), st.booleans())
def test_a_stream_gives_the_model_of_one_fit(cuts: list[int], classify: bool, weighted: bool) -> None:
    cls = BOTH[classify]
    X, y = data_for(cls)
    weights = np.random.default_rng(1).integers(0, 3, len(X)).astype(float) if weighted else None
    if weights is not None:
        weights[0] = 1.0
    whole, parts = cls(**PLAIN).fit(X, y, weights), cls(**PLAIN)
    edges = [0, *sorted(set(cuts)), len(X)]
    given_classes = {"classes": np.unique(y)} if classify else {}
    for a, b in pairwise(edges):
        parts.partial_fit(X[a:b], y[a:b], sample_weight=None if weights is None else weights[a:b], **given_classes)
    assert_same(parts, whole, rtol=1e-8)
    assert parts.summary_["n_rows"] == len(X)
    if classify:
        np.testing.assert_allclose(parts.class_prior_, whole.class_prior_)


@pytest.mark.parametrize("cls", BOTH)
def test_a_stream_goes_on_after_fit_pickling_and_a_store(cls: Any, tmp_path: Path) -> None:
    X, y = data_for(cls)
    whole = cls(**PLAIN).fit(X, y)
    begun = cls(**PLAIN).fit(X[:70], y[:70])
    begun.save(tmp_path / "m")
    for model in (begun, pickle.loads(pickle.dumps(begun)), dk.load_model(tmp_path / "m")):
        model.partial_fit(X[70:], y[70:])
        assert_same(model, whole, rtol=1e-8)
        assert model.get_params() == whole.get_params()


@pytest.mark.parametrize("cls", BOTH)
def test_a_stream_keeps_the_space_that_its_first_rows_gave(cls: Any) -> None:
    X, y = data_for(cls)
    model = cls().fit(X[:60], y[:60])
    first, kernel = model.center_indices_, model.kernel_
    model.partial_fit(100 + 10 * X[60:], y[60:])
    assert model.kernel_ == kernel
    np.testing.assert_array_equal(model.center_indices_[: len(first)], first)
    assert model.n_centers_ > len(first)
    assert_same(cls().partial_fit(X, y), cls().fit(X, y))


def test_a_fit_forgets_the_stream() -> None:
    X, y = regression()
    model = dk.KRLSRegressor().partial_fit(X[:50], y[:50]).fit(X, y)
    assert_same(model, dk.KRLSRegressor().fit(X, y))
    assert not hasattr(clone(model), "coef_")


def test_rows_one_by_one_and_rows_without_weight() -> None:
    X, y = regression(30)
    model = dk.KRLSRegressor(**PLAIN)
    for row, target in zip(X, y, strict=True):
        model.partial_fit(row[None], [target])
    assert_same(model, dk.KRLSRegressor(**PLAIN).fit(X, y), rtol=1e-8)
    before = model.coef_
    model.partial_fit(X, y, sample_weight=np.zeros(30))
    np.testing.assert_allclose(model.coef_, before, rtol=1e-12)
    assert model.summary_["n_rows"] == 60
    with pytest.raises(dk.DataError, match="positive weight"):
        dk.KRLSRegressor(**PLAIN).partial_fit(X, y, sample_weight=np.zeros(30))


def test_classes_of_a_stream() -> None:
    X, codes = classes(90, 3)
    y = np.array(["ape", "bee", "cat"])[codes]
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    model = dk.KRLSClassifier(**PLAIN)
    for a in range(0, 90, 15):
        model.partial_fit(X[a : a + 15], y[a : a + 15], classes=["cat", "ape", "bee"])
    assert model.classes_.tolist() == ["ape", "bee", "cat"]
    assert_same(model, dk.KRLSClassifier(**PLAIN).fit(X, y), rtol=1e-8)
    before = model.coef_
    with pytest.raises(dk.DataError, match="none of the 3 classes") as error:
        model.partial_fit(X[:2], ["ape", "dog"])
    assert error.value.kind == "unknown-class"
    assert model.coef_ is before
    with pytest.raises(dk.DataError, match="one class") as error:
        dk.KRLSClassifier(**PLAIN).partial_fit(X[:10], y[:10])
    assert error.value.kind == "one-class"


def test_a_stream_must_keep_its_shape() -> None:
    X, y = regression(50, n_targets=2)
    model = dk.KRLSRegressor(**PLAIN).partial_fit(X, y)
    with pytest.raises(dk.DataError, match="2 features"):
        model.partial_fit(X[:, :1], y)
    with pytest.raises(dk.DataError, match="begun with 2"):
        model.partial_fit(X, y[:, 0])
    assert model.summary_["n_rows"] == 50


def test_feature_names_of_a_stream() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = regression()
    frame = pandas.DataFrame(X, columns=["length", "width"])
    model = dk.KRLSRegressor(**PLAIN).fit(frame[:60], y[:60]).partial_fit(frame[60:], y[60:])
    assert model.feature_names_in_.tolist() == ["length", "width"]
    assert_same(model, dk.KRLSRegressor(**PLAIN).fit(X, y), rtol=1e-8)
    with pytest.raises(dk.DataError, match="feature names"):
        model.partial_fit(frame[["width", "length"]], y)


# --- containers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("settings", [PLAIN, {}], ids=str)
def test_every_container_gives_the_same_model(cls: Any, settings: Any, tmp_path: Path) -> None:
    X, y = data_for(cls)
    expected = cls(**settings).fit(X, y)
    task = "regression" if cls is dk.KRLSRegressor else "classification"
    dk.write_dataset(tmp_path / "set", X, y, chunk_rows=30, task=task)
    stored = zarr.array(X, chunks=(25, 2))
    for rows, targets in (
        (dk.open_dataset(tmp_path / "set"), None),
        (stored, zarr.array(y, chunks=(25,))),
        (da.from_array(X, chunks=(40, 2)), da.from_array(y, chunks=40)),
    ):
        assert_same(cls(**settings).fit(rows, targets), expected, rtol=1e-8)
    if settings:
        half = cls(**settings).fit(X[:60], y[:60]).partial_fit(stored[60:], y[60:])
        streamed = cls(**settings).fit(X, y).partial_fit(dk.open_dataset(tmp_path / "set"))
        assert_same(half, expected, rtol=1e-8)
        assert streamed.summary_["n_rows"] == 2 * len(X)


def test_a_client_changes_no_bit() -> None:
    from distributed import Client, LocalCluster

    X, y = regression(3000)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        model = dk.KRLSRegressor(client=client).fit(X, y)
    assert_same(model, dk.KRLSRegressor().fit(X, y))


# --- stores ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("settings", [{}, {"dtype": "float32"}, {"kernel": dk.Polynomial(2, 0.5)}], ids=str)
def test_round_trip(cls: Any, settings: Any, tmp_path: Path) -> None:
    X, y = data_for(cls)
    model = cls(**settings).fit(X, y)
    model.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    assert_same(loaded, model)
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.summary_ == model.summary_
    loaded.save(tmp_path / "again")
    assert_same(dk.load_model(tmp_path / "again"), model)


def test_a_store_whose_centres_depend_on_each_other_cannot_go_on(tmp_path: Path) -> None:
    X, y = regression(60)
    dk.KRLSRegressor(**PLAIN).fit(X, y).save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    loaded.centers_ = np.ones_like(loaded.centers_)
    with pytest.raises(dk.StoreError, match="depend on each other") as error:
        loaded.partial_fit(X, y)
    assert error.value.kind == "corrupt"


# --- limits and refusals ---------------------------------------------------------------------------------------------


def test_max_centers_warns_once_and_the_rows_still_count() -> None:
    X, y = regression(300)
    free = dk.KRLSRegressor(**PLAIN).fit(X, y)
    with pytest.warns(dk.DistkernWarning, match="max_centers=5, and rows as far as delta="):
        model = dk.KRLSRegressor(max_centers=5, **PLAIN).fit(X, y)
    np.testing.assert_array_equal(model.center_indices_, free.center_indices_[:5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X, y)
        exact = dk.KRLSRegressor(max_centers=free.n_centers_, **PLAIN).fit(X, y)
    assert model.n_centers_ == 5
    assert_same(exact, free)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("nu", value) for value in (0, -0.1, float("nan"), "0.1", True)),
        *(("max_centers", value) for value in (0, 1.5, "all")),
        ("sigma", "mean"),
        ("sigma", 0.0),
        ("dtype", "float16"),
        ("standardize", "yes"),
        ("memory_limit", 0),
        ("client", "tcp://there"),
        ("kernel", "cosine"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_parameters_out_of_range(name: str, value: Any, method: str) -> None:
    X, y = regression(20)
    with pytest.raises(dk.JobError, match=name) as error:
        getattr(dk.KRLSRegressor(**{name: value}), method)(X, y)
    assert error.value.kind == "invalid-parameter"


@pytest.mark.parametrize("settings", [{}, PLAIN], ids=str)
def test_rows_that_say_too_little(settings: Any) -> None:
    X, y = regression(30)
    for rows, kind in ((np.ones((30, 2)), "constant-features"), (X[:2], "too-few-rows")):
        with pytest.raises(dk.DataError) as error:
            dk.KRLSRegressor(**settings).fit(rows, y[: len(rows)])
        assert error.value.kind == kind
    with pytest.raises(dk.DataError, match="one class"):
        dk.KRLSClassifier(**settings).fit(X, np.zeros(30))


def test_too_little_memory_is_refused_before_anything_is_read() -> None:
    X, y = regression(3000)
    with pytest.raises(dk.BudgetError, match=r"the limit is 1\.0 MiB") as error:
        dk.KRLSRegressor(memory_limit="1MiB", max_centers=500).fit(X, y)
    assert error.value.kind == "memory"
    work = Workload.of(ArraySource(X, y), 1, 1)
    plans = [dk.KRLSRegressor(max_centers=m).plan(work, None).needed for m in (100, 1000)]
    assert plans[0] < plans[1]
    assert dk.KRLSRegressor().plan(work, None).passes == 2
    assert dk.KRLSRegressor(**PLAIN).plan(work, None).passes == 1


def test_a_nu_that_no_row_reaches() -> None:
    X, y = regression(30)
    with pytest.raises(dk.DataError, match="no row joined") as error:
        dk.KRLSRegressor(nu=2.5).fit(X, y)
    assert error.value.kind == "empty-dictionary"


@pytest.mark.parametrize(("name", "error_below"), [("optdigits", 3.0), *marked(pytest.mark.slow, ("pendigits", 3.5))])
@pytest.mark.slow
def test_published_sets(name: str, error_below: float, shared_data: Any) -> None:
    data = shared_data(name)
    model = dk.KRLSClassifier(nu=0.02).fit(data["X_train"], data["y_train"])
    assert 100 * np.mean(model.predict(data["X_test"]) != data["y_test"]) < error_below


def test_a_class_that_no_row_had_has_no_likelihood() -> None:
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.zeros(40, dtype=int)
    model = dk.KRLSClassifier(sigma=1.0).partial_fit(X, y, classes=[0, 1])
    scores = model.log_likelihood(X)
    assert (scores[:, 1] == -np.inf).all()
    assert np.isfinite(scores[:, 0]).all()
    with pytest.raises(JobError, match=r"classes.*as in the first call, \[0, 1\]"):
        model.partial_fit(X, y, classes=[0, 1, 2])
