"""Calibrated probabilities of classifiers: leave-one-out outputs, containers, prefixes, stores and likelihoods."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss

import distkern as dk
from distkern.estimators.base import output_functions as outputs
from distkern.estimators.base.probability_arrays import probability_arrays, restore_probabilities
from distkern.scheduler.training import calibration_rows as calibrating
from distkern.storage import ArraySource
from tests.estimators.fits import CLASSIFIERS, classes, fitted
from tests.markers import every_value
from tests.scheduler.worker_clusters import cluster

Array = NDArray[Any]


def overlapping(n: int, n_classes: int, seed: int = 0) -> tuple[Array, Array]:
    """Rows whose classes overlap, so that no probability is extreme."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_classes, n)
    angles = 2 * np.pi * codes / n_classes
    return np.column_stack([np.cos(angles), np.sin(angles)]) + 0.8 * rng.standard_normal((n, 2)), codes


def refitted_without(model: Any, X: Array, targets: Array, row: int) -> Array:
    """Output of a row from a ridge fit without it: the features are those of Q, lambda and scaling stay."""
    path, result = model._result.paths[0], model._result
    k = path.n_centers + 1
    rows, centers = ((a - result.scaling.shift) / result.scaling.scale for a in (X, path.features[: k - 1]))
    squares = np.square(rows[:, None] - centers).sum(axis=2)
    design = np.column_stack([np.ones(len(X)), np.exp(-squares / (2 * result.kernel.sigma**2))])
    q = design @ np.linalg.inv(path.u[:k, :k])
    penalty = np.diag(np.r_[0.0, np.full(k - 1, path.lambdas[k - 1][0])])
    rest = np.arange(len(X)) != row
    return np.asarray(q[row] @ np.linalg.solve(q[rest].T @ q[rest] + penalty, q[rest].T @ targets[rest]))


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_calibration_rests_on_models_without_the_row(cls: Any) -> None:
    X, y = classes(90, 3)
    model = cls(max_centers=8, sigma=1.0, stop=None).fit(X, y)
    targets = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    found = model._outputs_left_out()
    for row in range(0, 90, 7):
        np.testing.assert_allclose(found[row], refitted_without(model, X, targets, row), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_probabilities_are_calibrated_on_new_rows(n_classes: int) -> None:
    X, y = overlapping(1500, n_classes)
    X_test, y_test = overlapping(6000, n_classes, seed=1)
    model = dk.OROLSClassifier(max_centers=60, sigma=0.5, stop=None).fit(X, y)
    chances = model.predict_proba(X_test)
    uncalibrated = outputs.probabilities(model.decision_function(X_test).reshape(len(X_test), -1))
    assert log_loss(y_test, chances) < log_loss(y_test, uncalibrated)
    observed, predicted = calibration_curve(y_test == 1, chances[:, 1], n_bins=8, strategy="quantile")
    np.testing.assert_allclose(observed, predicted, atol=0.08)


@pytest.mark.parametrize(
    ("cls", "multiclass", "stop", "selection_rows"),
    every_value(CLASSIFIERS, ["shared", "one-vs-rest"], [None, "validation"], [None, 150]),
)
def test_every_training_calibrates(cls: Any, multiclass: str, stop: Any, selection_rows: Any) -> None:
    X, y = overlapping(400, 3)
    model = cls(max_centers=12, sigma=1.0, multiclass=multiclass, stop=stop, selection_rows=selection_rows).fit(X, y)
    assert model._calibrated() is not None
    chances = model.predict_proba(X)
    np.testing.assert_array_equal(chances.argmax(axis=1), model.predict(X))
    assert log_loss(y, chances) < 0.75


def test_rows_held_out_count_as_they_are() -> None:
    X, y = overlapping(400, 2)
    model = dk.OROLSClassifier(max_centers=12, sigma=1.0, stop="validation").fit(X, y)
    same = np.isclose(model._outputs_left_out()[:, 0], model.decision_function(X), rtol=1e-10, atol=1e-12)
    assert 20 <= np.count_nonzero(same) <= 60


def test_epsilon_is_part_of_the_columns() -> None:
    X, y = overlapping(80, 2)
    model = dk.NPDClassifier(max_centers=10, sigma=0.7, stop=None, epsilon=0.5).fit(X, y)
    path, sample = model._result.paths[0], model._sample
    centers = model._result.scaling.apply(path.features, np.dtype(float))
    rows = model._result.scaling.apply(X, np.dtype(float))
    design = calibrating._design(model._result, path, rows, sample.rows, centers, 0.5)
    plain = calibrating._design(model._result, path, rows, sample.rows, centers, 0.0)
    expected = np.zeros_like(plain)
    expected[path.rows, 1 + np.arange(10)] = 0.5
    np.testing.assert_allclose(design - plain, expected, atol=1e-12)
    np.testing.assert_allclose((design.T @ design)[0], path.s[0] * path.u[0], rtol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_likelihoods_are_posteriors_over_shares(n_classes: int) -> None:
    X, y = overlapping(300, n_classes)
    y = np.where(np.arange(300) < 100, 0, y)
    model = dk.OROLSClassifier(max_centers=15, sigma=1.0).fit(X, y)
    np.testing.assert_allclose(model.class_prior_, np.bincount(y) / 300)
    scores = model.log_likelihood(X)
    assert scores.shape == (300, n_classes)
    np.testing.assert_allclose(scores, np.log(model.predict_proba(X) / model.class_prior_), rtol=1e-9, atol=1e-9)
    distant = model.log_likelihood(1e3 * X)
    assert np.isfinite(distant).all()


def test_shares_are_weighted() -> None:
    X, y = overlapping(200, 3)
    weights = np.random.default_rng(0).integers(0, 4, 200)
    model = dk.OROLSClassifier(max_centers=10, sigma=1.0).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(model.class_prior_, np.bincount(y, weights) / weights.sum())
    repeated = dk.OROLSClassifier(max_centers=10, sigma=1.0).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(model.predict_proba(X), repeated.predict_proba(X), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_a_prefix_is_calibrated_as_a_training_that_ends_there(cls: Any, tmp_path: Path) -> None:
    X, y = overlapping(250, 3)
    long = cls(max_centers=20, sigma=1.0, stop=None, panel=5).fit(X, y)
    short = cls(max_centers=10, sigma=1.0, stop=None, panel=5).fit(X, y)
    prefix = long.truncate(10)
    np.testing.assert_array_equal(prefix.predict_proba(X), short.predict_proba(X))
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(long)).truncate(10).predict_proba(X), short.predict_proba(X)
    )
    long.truncate(10).save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(X), short.predict_proba(X))
    np.testing.assert_array_equal(loaded.log_likelihood(X), short.log_likelihood(X))
    np.testing.assert_array_equal(loaded.class_prior_, short.class_prior_)


def test_likelihoods_of_every_container(tmp_path: Path) -> None:
    import dask.array as da

    X, y = overlapping(500, 3)
    model = dk.OROLSClassifier(max_centers=12, sigma=1.0).fit(X, y)
    expected = model.log_likelihood(X)
    dk.write_dataset(tmp_path / "set", X, y, chunk_rows=128, task="classification")
    rows = dk.open_dataset(tmp_path / "set")
    for found in (model.log_likelihood(rows), model.log_likelihood(rows.X)):
        np.testing.assert_allclose(np.asarray(found[:]), expected, rtol=1e-9)
    lazy = model.log_likelihood(da.from_array(X, chunks=(100, 2)))
    assert lazy.shape == (500, 3)
    np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-9)


def test_a_model_from_before_there_were_shares_says_so(tmp_path: Path) -> None:
    X, _ = classes(120)
    model = fitted(dk.OROLSClassifier)
    del model.class_prior_, model._sample
    model._made_calibration = [None]
    model.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(X), outputs.probabilities(loaded.decision_function(X)))
    with pytest.raises(dk.JobError, match="class_prior_"):
        loaded.log_likelihood(X)


# --- the sample ------------------------------------------------------------------------------------------------------


def draw(X: Array, y: Array, boundaries: tuple[int, ...], client: Any = None, weights: Any = None) -> Any:
    source = ArraySource(X, y, weights, classes=np.unique(y), boundaries=boundaries)
    shares = np.bincount(y, weights) / (len(y) if weights is None else weights.sum())
    return calibrating.draw_rows(source, np.unique(y), shares, seed=3, client=client)


@pytest.fixture
def small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrating, "MOST_ROWS", 300)
    monkeypatch.setattr(calibrating, "LEAST_ROWS", 300)
    monkeypatch.setattr(calibrating, "ROWS_OF_A_CLASS", 40)


@pytest.mark.usefixtures("small_samples")
def test_the_sample_depends_on_rows_alone_and_keeps_rare_classes() -> None:
    X, y = overlapping(6000, 3)
    y[y == 2] = 0
    y[::120] = 2
    whole = draw(X, y, (0, 6000))
    cut = draw(X, y, (0, 1, 700, 4000, 6000))
    with cluster(2, processes=False) as client:
        on_workers = draw(X, y, (0, 1, 700, 4000, 6000), client)
    for other in (cut, on_workers):
        for name in ("rows", "features", "codes", "weights", "shares"):
            assert getattr(whole, name).tobytes() == getattr(other, name).tobytes(), name
    np.testing.assert_array_equal(whole.features, X[whole.rows])
    np.testing.assert_array_equal(whole.codes, y[whole.rows])
    assert 230 < np.count_nonzero(whole.codes != 2) < 370
    assert np.count_nonzero(whole.codes == 2) > 25
    # What is drawn more often counts less.
    np.testing.assert_allclose(whole.mass[whole.codes == 2], (300 / 6000) / (40 / 50))
    assert (whole.mass[whole.codes != 2] == 1.0).all()


@pytest.mark.usefixtures("small_samples")
def test_rows_of_weight_zero_are_never_drawn() -> None:
    X, y = overlapping(900, 2)
    weights = (np.arange(900) % 2).astype(float)
    assert (draw(X, y, (0, 400, 900), weights=weights).rows % 2 == 1).all()


@pytest.mark.usefixtures("small_samples")
def test_a_sample_of_the_rows_does_nearly_as_well() -> None:
    X, y = overlapping(3000, 3)
    X_test, y_test = overlapping(4000, 3, seed=1)
    model = dk.OROLSClassifier(max_centers=30, sigma=0.7, stop=None).fit(X, y)
    assert 220 < len(model._sample.rows) < 400
    chances = model.predict_proba(X_test)
    best = dk.OROLSClassifier(max_centers=30, sigma=0.7, stop=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibrating, "MOST_ROWS", 3000)
        best.fit(X, y)
    assert log_loss(y_test, chances) < log_loss(y_test, best.predict_proba(X_test)) + 0.03


def test_a_client_changes_no_bit_of_the_probabilities() -> None:
    X, y = overlapping(3000, 3)
    parameters: dict[str, Any] = {"max_centers": 12, "sigma": 1.0, "stop": None}
    here = dk.OROLSClassifier(**parameters).fit(X, y)
    with cluster(2, processes=False) as client:
        there = dk.OROLSClassifier(client=client, **parameters).fit(X, y)
    assert there._calibrated().slopes.tobytes() == here._calibrated().slopes.tobytes()
    assert there._calibrated().offsets.tobytes() == here._calibrated().offsets.tobytes()
    np.testing.assert_array_equal(there.predict_proba(X), here.predict_proba(X))


# --- published sets --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_pendigits_is_better_than_the_linear_estimate(shared_data: Callable[[str], dict[str, Array]]) -> None:
    data = shared_data("pendigits")
    model = dk.OROLSClassifier(max_centers=300, sigma=2.0, stop=None).fit(data["X_train"], data["y_train"])
    chances = model.predict_proba(data["X_test"])
    linear = outputs.probabilities(model.decision_function(data["X_test"]))
    assert log_loss(data["y_test"], chances) < 0.5 * log_loss(data["y_test"], linear)


# --- Gaussians of pairs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "n_classes", "multiclass"),
    [
        (dk.OROLSClassifier, 2, "shared"),
        (dk.OROLSClassifier, 3, "shared"),
        (dk.OROLSClassifier, 3, "one-vs-one"),
        (dk.NPDClassifier, 3, "one-vs-rest"),
        (dk.LOOForwardClassifier, 2, "shared"),
    ],
)
def test_gaussian_probabilities(cls: Any, n_classes: int, multiclass: str, tmp_path: Path) -> None:
    X, y = classes(400, n_classes)
    model = cls(probabilities="gaussian", max_centers=15, sigma=2.0, multiclass=multiclass).fit(X[:200], y[:200])
    chances = model.predict_proba(X[200:])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    usual = cls(max_centers=15, sigma=2.0, multiclass=multiclass).fit(X[:200], y[:200])
    np.testing.assert_array_equal(model.coef_, usual.coef_)
    assert not np.allclose(chances, usual.predict_proba(X[200:]))
    losses = [log_loss(y[200:], each.predict_proba(X[200:])) for each in (model, usual)]
    assert losses[0] < losses[1] + 0.4 < np.log(n_classes) + 0.4
    assert np.mean(model.classes_[chances.argmax(axis=1)] == y[200:]) > 0.8
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(dk.load_model(tmp_path / "m").predict_proba(X), model.predict_proba(X))


def test_gaussians_of_a_store_must_fit(tmp_path: Path) -> None:
    X, y = classes(100)
    model = dk.OROLSClassifier(probabilities="gaussian", max_centers=5).fit(X, y)
    arrays = probability_arrays(model)
    for name, value in (("gaussian_means", np.zeros((2, 2))), ("gaussian_deviations", np.zeros((3, 2)))):
        with pytest.raises(ValueError, match="gaussian"):
            restore_probabilities(model, {"classes": model.classes_, **arrays, name: value})
    with pytest.raises(dk.JobError, match="log odds"):
        dk.OROLSClassifier(probabilities="gaussian", loss="logistic").fit(X, y)
