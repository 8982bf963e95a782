"""The linear methods as estimators: scikit-learn's checks, stores, clones, streams."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import distkern as dk
from tests.estimators.fits import classes
from tests.markers import variants

LABELS: list[list[Any]] = [["ape", "bee", "cat"], [0, 1]]
LINEAR = (dk.FisherDiscriminant, dk.MSEClassifier, dk.WidrowHoffClassifier, dk.HoKashyapClassifier)


@pytest.mark.parametrize(
    ("cls", "labels", "standardize"),
    variants(
        [
            (cls, labels, standardize)
            for number, cls in enumerate(LINEAR)
            for labels, standardize in [(LABELS[number % 2], True), (LABELS[1 - number % 2], False)]
        ],
        itertools.product(LINEAR, LABELS, [True, False]),
    ),
)
def test_a_store_gives_the_same_estimator_back(cls: Any, labels: list[Any], standardize: bool, tmp_path: Path) -> None:
    X, codes = classes(80, len(labels), 3)
    model = cls(standardize=standardize).fit(X + 1e6, np.array(labels)[codes])
    model.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    assert type(loaded) is cls
    assert loaded.get_params() == model.get_params()
    for twin in (loaded, pickle.loads(pickle.dumps(model))):
        fitted = {name for name in vars(model) if name.endswith("_")}
        assert {name for name in vars(twin) if name.endswith("_")} == fitted
        for name in fitted:
            np.testing.assert_equal(getattr(twin, name), getattr(model, name), err_msg=name)
        for method in ("predict", "predict_proba", "decision_function", "transform"):
            if hasattr(model, method):
                np.testing.assert_array_equal(getattr(twin, method)(X + 1e6), getattr(model, method)(X + 1e6))
    again = dk.load_model(tmp_path / "m")
    again.save(tmp_path / "n")
    for file in (tmp_path / "m").iterdir():
        assert file.read_bytes() == (tmp_path / "n" / file.name).read_bytes()


@pytest.mark.parametrize("cls", LINEAR)
def test_feature_names_and_clones(cls: Any) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = classes(60, 3, 2)
    frame = pandas.DataFrame(X, columns=["length", "width"])
    model = cls().fit(frame, y)
    assert model.feature_names_in_.tolist() == ["length", "width"]
    np.testing.assert_array_equal(model.predict(frame), cls().fit(X, y).predict(X))
    assert not hasattr(clone(model), "coef_")


@pytest.mark.parametrize("cls", LINEAR)
def test_a_second_fit_forgets_the_first(cls: Any) -> None:
    model = cls().fit(*classes(60, 3, 3))
    model.fit(*classes(60, 2, 2))
    fresh = cls().fit(*classes(60, 2, 2))
    np.testing.assert_array_equal(model.coef_, fresh.coef_)
    assert model.n_features_in_ == 2


def test_projections_in_a_pipeline() -> None:
    X, y = classes(120, 3, 5)
    model = make_pipeline(dk.FisherDiscriminant(), dk.OROLSClassifier(max_centers=10)).fit(X, y)
    assert model.score(X, y) > 0.8


# --- streams ---------------------------------------------------------------------------------------------------------


def test_a_stream_is_one_pass_over_its_rows() -> None:
    X, y = classes(192, 3, 2)
    settings: dict[str, Any] = {"standardize": False, "learning_rate": 0.01, "schedule": "row"}
    stream = dk.WidrowHoffClassifier(**settings)
    for start in range(0, 192, 64):
        stream.partial_fit(X[start : start + 64], y[start : start + 64], classes=[0, 1, 2])
    whole = dk.WidrowHoffClassifier(passes=1, **settings).fit(X, y)
    np.testing.assert_array_equal(stream.coef_, whole.coef_)
    assert stream.seen_ == 192
    assert stream.passes_ == 3
    assert stream.summary_["n_rows"] == 64


def test_a_stream_goes_on_after_fit_and_after_a_store(tmp_path: Path) -> None:
    X, y = classes(100, 2, 3)
    labels = np.array(["no", "yes"])[y]
    ours = dk.WidrowHoffClassifier(passes=2).fit(X, labels)
    ours.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    for model in (ours, loaded):
        model.partial_fit(X[:10], labels[:10])
        # A part of a stream may hold one class only.
        model.partial_fit(X[labels == "no"], labels[labels == "no"], sample_weight=np.full((labels == "no").sum(), 2.0))
    np.testing.assert_array_equal(ours.coef_, loaded.coef_)
    three = dk.WidrowHoffClassifier(passes=3).fit(X, labels)
    two = dk.WidrowHoffClassifier(passes=2).fit(X, labels).partial_fit(X, labels)
    np.testing.assert_allclose(two.coef_, three.coef_, rtol=1e-12)


def test_what_a_stream_refuses() -> None:
    X, y = classes(60, 3, 2)
    with pytest.raises(dk.JobError, match="classes is missing"):
        dk.WidrowHoffClassifier().partial_fit(X, y)
    with pytest.raises(dk.JobError, match="at least two"):
        dk.WidrowHoffClassifier().partial_fit(X, y, classes=[1])
    model = dk.WidrowHoffClassifier().partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(dk.JobError, match="first call"):
        model.partial_fit(X, y, classes=[0, 1])
    before = model.coef_.copy()
    with pytest.raises(dk.DataError, match="not among classes"):
        model.partial_fit(X, y + 1)
    with pytest.raises(dk.DataError, match="expecting 2 features"):
        model.partial_fit(np.ones((4, 3)), y[:4])
    da = pytest.importorskip("dask.array")
    with pytest.raises(dk.DataError, match="not among classes"):
        model.partial_fit(da.from_array(X, chunks=(20, 2)), da.from_array(y + 1, chunks=20))
    assert model.n_features_in_ == 2
    np.testing.assert_array_equal(model.coef_, before)
    model.partial_fit(X, y)
