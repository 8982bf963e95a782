"""Labels of any dtype, decisions and probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distkern as dk
from distkern.estimators.base import output_functions as outputs
from tests.estimators.fits import CLASSIFIERS, REGRESSORS, classes, regression
from tests.markers import every_value

LABELS = [
    np.array(["nein", "ja", "vielleicht"]),
    np.array(["nein", "ja", "vielleicht"], dtype=object),
    np.array([-7, 0, 3]),
    np.array([-7, 0, 3], dtype=np.int8),
    np.array([250, 1, 7], dtype=np.uint8),
    np.array([1.0, 2.0, -5.0]),
    np.array([10, 2, 7], dtype=object),
    np.array(["a", "b", "c"], dtype="U5"),
]


def kind(labels: Any) -> str:
    return f"{labels.dtype}-{len(labels)}"


@pytest.mark.parametrize(
    ("cls", "labels"),
    every_value(CLASSIFIERS, [*LABELS, *(label[:2] for label in LABELS[:6]), np.array([True, False])]),
    ids=lambda value: value.__name__ if isinstance(value, type) else kind(value),
)
def test_labels_come_back_as_given(cls: Any, labels: Any) -> None:
    X, codes = classes(90, len(labels))
    y = labels[codes]
    model = cls(max_centers=12, sigma=1.0).fit(X, y)
    assert model.classes_.dtype == y.dtype
    np.testing.assert_array_equal(model.classes_, np.sort(labels))
    predicted = model.predict(X)
    assert predicted.dtype == y.dtype
    assert set(predicted.tolist()) <= set(labels.tolist())
    assert type(predicted.tolist()[0]) is type(y.tolist()[0])
    assert np.mean(model.predict(X) == y) > 0.8


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_the_model_does_not_depend_on_the_names_of_the_classes(cls: Any) -> None:
    X, codes = classes(90, 3)
    plain = cls(max_centers=12, sigma=1.0).fit(X, codes)
    named = cls(max_centers=12, sigma=1.0).fit(X, np.array(["a", "b", "c"])[codes])
    np.testing.assert_array_equal(plain.coef_, named.coef_)
    np.testing.assert_array_equal(named.classes_[plain.predict(X)], named.predict(X))


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_two_classes_have_one_target(cls: Any) -> None:
    X, y = classes(90, 2)
    model = cls(max_centers=12, sigma=1.0).fit(X, y)
    assert model.coef_.shape == (model.n_centers_, 1)
    assert model.intercept_.shape == (1,)
    decision = model.decision_function(X)
    assert decision.shape == (90,)
    np.testing.assert_array_equal(model.predict(X), (decision > 0).astype(int))
    assert model.predict_proba(X).shape == (90, 2)
    # One-vs-rest is the same thing for two classes.
    other = cls(max_centers=12, sigma=1.0, multiclass="one-vs-rest").fit(X, y)
    np.testing.assert_array_equal(other.coef_, model.coef_)


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_the_order_of_two_classes_only_changes_the_sign(cls: Any) -> None:
    X, y = classes(90, 2)
    a, b = (cls(max_centers=12, sigma=1.0).fit(X, codes) for codes in (y, 1 - y))
    np.testing.assert_array_equal(a.center_indices_, b.center_indices_)
    np.testing.assert_allclose(a.decision_function(X), -b.decision_function(X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("cls", CLASSIFIERS)
@pytest.mark.parametrize("multiclass", ["shared", "one-vs-rest"])
def test_many_classes_have_a_target_each(cls: Any, multiclass: str) -> None:
    X, y = classes(150, 5)
    model = cls(max_centers=10, sigma=1.0, multiclass=multiclass).fit(X, y)
    assert model.coef_.shape == (model.n_centers_, 5)
    decision = model.decision_function(X)
    assert decision.shape == (150, 5)
    np.testing.assert_array_equal(model.predict(X), decision.argmax(axis=1))


@pytest.mark.parametrize("cls", CLASSIFIERS)
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("multiclass", ["shared", "one-vs-rest"])
def test_probabilities_sum_to_one_and_rank_like_predict(cls: Any, n_classes: int, multiclass: str) -> None:
    X, y = classes(120, n_classes)
    model = cls(max_centers=12, sigma=1.0, multiclass=multiclass).fit(X, y)
    everywhere = np.random.default_rng(0).uniform(-8, 8, (500, 2))
    probabilities = model.predict_proba(everywhere)
    assert probabilities.shape == (500, n_classes)
    assert (probabilities > 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(everywhere))


def test_probabilities_rank_like_predict_far_from_the_data() -> None:
    """One-vs-rest decisions may all be below -1, where every estimate is negative."""
    decisions = np.random.default_rng(0).uniform(-5, -1.1, (2000, 4))
    probabilities = outputs.probabilities(decisions)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), decisions.argmax(axis=1))


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_unbalanced_classes_shift_the_intercept(cls: Any) -> None:
    """Targets are centred by their mean, 2 p - 1."""
    X, _ = classes(100, 2)
    y = (np.arange(100) < 10).astype(int)
    model = cls(max_centers=1, sigma=1e-3, stop=None).fit(X, y)
    distant = np.full((1, 2), 1e3)
    assert model.decision_function(distant)[0] == pytest.approx(-0.8, abs=0.05)


@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_regression_targets_keep_their_shape(cls: Any, shape: tuple[int, ...]) -> None:
    X, y = regression(100, n_targets=shape[0] if shape else 0)
    model = cls(max_centers=12, sigma=1.0).fit(X, y)
    n_targets = shape[0] if shape else 1
    assert model.predict(X).shape == y.shape
    assert model.coef_.shape == (model.n_centers_, n_targets)
    assert model.intercept_.shape == (n_targets,)
    assert model.score(X, y) > 0.8


def test_a_single_column_equals_the_flat_target() -> None:
    X, y = regression()
    flat = dk.OROLSRegressor(max_centers=12).fit(X, y)
    column = dk.OROLSRegressor(max_centers=12).fit(X, y[:, None])
    np.testing.assert_array_equal(column.predict(X)[:, 0], flat.predict(X))


def test_integer_targets_of_a_regression() -> None:
    X, y = regression()
    rounded = np.rint(10 * y).astype(np.int64)
    a, b = (dk.OROLSRegressor(max_centers=12).fit(X, target) for target in (rounded, rounded.astype(float)))
    np.testing.assert_array_equal(a.predict(X), b.predict(X))


def test_a_target_that_is_constant_is_predicted_exactly() -> None:
    X, _ = regression()
    model = dk.OROLSRegressor(max_centers=12).fit(X, np.full(len(X), 4.25))
    np.testing.assert_array_equal(model.predict(X), 4.25)


def test_a_constant_target_beside_another() -> None:
    X, y = regression()
    model = dk.OROLSRegressor(max_centers=12, sigma=1.0).fit(X, np.column_stack([y, np.full(len(X), -2.0)]))
    predicted = model.predict(X)
    np.testing.assert_allclose(predicted[:, 1], -2.0, rtol=1e-12)
    assert np.corrcoef(predicted[:, 0], y)[0, 1] > 0.9


def test_gcv_per_target_gives_every_target_its_lambda() -> None:
    X, y = regression(n_targets=2)
    y[:, 1] += 3 * np.random.default_rng(0).standard_normal(len(y))
    model = dk.OROLSRegressor(max_centers=12, regularization="gcv-per-target", stop=None).fit(X, y)
    assert model.lambda_.shape == (2,)
    assert model.lambda_[0] < model.lambda_[1]
    shared = dk.OROLSRegressor(max_centers=12, stop=None).fit(X, y)
    assert isinstance(shared.lambda_, float)
