"""Weights of classes: the same as row weights, in memory, stores, runs and on workers."""

from __future__ import annotations

import pickle
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_class_weight

import distkern as dk
from distkern.estimators.base.inputs import weighted
from distkern.scheduler.rows.class_weights import ClassWeighted
from distkern.storage import ArraySource, open_dataset, write_dataset
from tests.estimators.fits import assert_equal_models, classes
from tests.scheduler.worker_clusters import cluster

Array = NDArray[Any]
NAMES = np.array(["ant", "bee", "cat"])


def data(n: int = 200) -> tuple[Array, Array]:
    X, codes = classes(n)
    keep = (codes != 0) | (np.arange(n) % 4 == 0)  # a rare class
    return X[keep], NAMES[codes[keep]]


def row_weights(y: Array, factors: dict[str, float]) -> Array:
    return np.array([factors.get(str(label), 1.0) for label in y])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scheme", ["shared", "one-vs-one"])
def test_factors_are_row_weights(scheme: str, weighted: bool) -> None:
    X, y = data()
    factors = {"ant": 5.0, "cat": 0.5}
    own = np.random.default_rng(0).integers(0, 3, len(y)).astype(float) if weighted else np.ones(len(y))
    given = dk.OROLSClassifier(sigma=1.0, max_centers=10, multiclass=scheme, class_weight=factors)
    plain = dk.OROLSClassifier(sigma=1.0, max_centers=10, multiclass=scheme)
    given.fit(X, y, sample_weight=own if weighted else None)
    plain.fit(X, y, sample_weight=own * row_weights(y, factors))
    assert_equal_models(given, plain)
    np.testing.assert_array_equal(given.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(given.class_weight_, [5.0, 1.0, 0.5])


def test_balanced_is_that_of_sklearn_and_gives_equal_shares() -> None:
    X, y = data()
    model = dk.OROLSClassifier(sigma=1.0, max_centers=10, class_weight="balanced").fit(X, y)
    np.testing.assert_allclose(model.class_weight_, compute_class_weight("balanced", classes=NAMES, y=y))
    np.testing.assert_allclose(model.class_prior_, 1 / 3)
    plain = dk.OROLSClassifier(sigma=1.0, max_centers=10).fit(X, y)
    rare = y == "ant"
    assert (model.predict(X[rare]) == "ant").mean() >= (plain.predict(X[rare]) == "ant").mean()


def test_stores_and_runs_have_the_bits_of_arrays(tmp_path: Path) -> None:
    X, y = data()
    write_dataset(tmp_path / "d.zarr", X, y, chunk_rows=32, task="classification")
    source = open_dataset(tmp_path / "d.zarr").source()
    settings: dict[str, Any] = {"sigma": 1.0, "max_centers": 10, "class_weight": "balanced"}
    stored = dk.OROLSClassifier(**settings, run_dir=tmp_path / "a.run").fit(open_dataset(tmp_path / "d.zarr"))
    again = dk.OROLSClassifier(**settings, run_dir=tmp_path / "a.run").fit(open_dataset(tmp_path / "d.zarr"))
    assert_equal_models(again, stored)
    with pytest.raises(dk.RunError, match="content"):
        dk.OROLSClassifier(**settings, run_dir=tmp_path / "a.run").set_params(class_weight={"bee": 2.0}).fit(
            open_dataset(tmp_path / "d.zarr")
        )
    blocks = ArraySource(X, np.searchsorted(NAMES, y), classes=NAMES, boundaries=source.boundaries)
    memory = dk.OROLSClassifier(**settings)
    memory.n_features_in_ = 2
    memory._train(weighted(memory, blocks, more=False), None)
    assert_equal_models(memory, stored)


def test_models_keep_the_factors(tmp_path: Path) -> None:
    X, y = data()
    codes = np.searchsorted(NAMES, y)
    model = dk.OROLSClassifier(sigma=1.0, max_centers=8, class_weight={0: 4.0}, run_dir=tmp_path / "a.run")
    model.fit(X, codes)
    model.save(tmp_path / "model")
    loaded = dk.load_model(tmp_path / "model")
    assert loaded.class_weight == {"0": 4.0}  # keys of JSON are texts
    assert_equal_models(loaded.fit(X, codes), model)
    run, ours = dk.load_model(tmp_path / "a.run"), pickle.loads(pickle.dumps(model))
    run.run_dir = ours.run_dir = None
    plain = dk.OROLSClassifier(sigma=1.0, max_centers=8).fit(X, codes, sample_weight=np.where(codes == 0, 4.0, 1.0))
    drift = plain.append(X[:50], codes[:50], sample_weight=np.where(codes[:50] == 0, 4.0, 1.0))
    for appended in (run, ours):
        assert appended.append(X[:50], codes[:50]) == drift
        assert_equal_models(appended, plain)


def test_unknown_labels_are_refused_and_a_later_fit_forgets() -> None:
    X, y = data()
    model = dk.OROLSClassifier(sigma=1.0, max_centers=8, class_weight={"dog": 2.0})
    with pytest.raises(dk.JobError, match=r"'dog'.*'ant', 'bee', 'cat'"):
        model.fit(X, y)
    assert not hasattr(model, "class_weight_")
    model.set_params(class_weight={"ant": 2.0}).fit(X, y)
    assert hasattr(model, "class_weight_")
    model.set_params(class_weight=None).fit(X, y)
    assert not hasattr(model, "class_weight_")


def test_a_search_uses_them_and_cannot_vary_them() -> None:
    X, y = data()
    grid = {"sigma": [0.7, 1.5]}
    given = dk.GridSearch(dk.OROLSClassifier(max_centers=8, class_weight="balanced"), grid, folds=3).fit(X, y)
    factors = dict(zip(NAMES, given.best_estimator_.class_weight_, strict=True))
    plain = dk.GridSearch(dk.OROLSClassifier(max_centers=8), grid, folds=3)
    plain.fit(X, y, sample_weight=row_weights(y, factors))
    assert_equal_models(given.best_estimator_, plain.best_estimator_)
    for name, values in (("class_weight", ["balanced", None]), ("fit_intercept", [True, False])):
        with pytest.raises(dk.JobError, match=name):
            dk.GridSearch(dk.OROLSClassifier(), {name: values}).fit(X, y)


@pytest.mark.cluster
def test_workers_have_the_bits_of_one_process(tmp_path: Path) -> None:
    X, y = data()
    write_dataset(tmp_path / "d.zarr", X, y, chunk_rows=32, task="classification")
    rows = open_dataset(tmp_path / "d.zarr")
    here = dk.OROLSClassifier(sigma=1.0, max_centers=10, class_weight="balanced").fit(rows)
    with cluster(2, processes=True) as client:
        there = copy(here).set_params(client=client).fit(rows)
    assert_equal_models(there, here)


def test_a_source_with_factors_can_be_pickled() -> None:
    X, y = data()
    source = ClassWeighted(ArraySource(X, np.searchsorted(NAMES, y), classes=NAMES), NAMES, np.array([2.0, 1.0, 3.0]))
    copied = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(copied.read_weights(0), source.read_weights(0))
    assert copied.fingerprint() == source.fingerprint()
    assert copied.feature_names is None
