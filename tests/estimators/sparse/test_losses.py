"""The parameter `loss`: probabilities, quantiles and outliers, stores, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import log_loss

import distkern as dk
from distkern.errors import JobError
from distkern.scheduler.training import loss_fits
from tests.estimators.fits import classes, regression

Array = NDArray[Any]


def skewed(n: int) -> tuple[Array, Array]:
    """Return rows whose noise is skewed and grows with x."""
    rng = np.random.default_rng(n)
    X = rng.uniform(-2, 2, (n, 1))
    return X, np.sin(2 * X[:, 0]) + (0.2 + 0.1 * X[:, 0]) * rng.exponential(1.0, n)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_logistic_outputs_are_log_odds_and_need_no_calibration(n_classes: int, tmp_path: Path) -> None:
    X, y = classes(600, n_classes)
    names = np.array(["a", "b", "c"])[y]
    model = dk.OROLSClassifier(loss="logistic", max_centers=30).fit(X[:300], names[:300])
    squares = dk.OROLSClassifier(max_centers=30, sigma="median").fit(X[:300], names[:300])
    scores, chances = model.decision_function(X[300:]), model.predict_proba(X[300:])
    logits = np.column_stack([np.zeros(300), scores]) if n_classes == 2 else scores
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(chances, expected, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X[300:]), model.classes_[chances.argmax(axis=1)])
    losses = [log_loss(names[300:], each.predict_proba(X[300:])) for each in (model, squares)]
    assert losses[0] < losses[1] + 0.02
    assert model.loss_ == model.summary_["loss"] == "logistic"
    assert squares.loss_ == "squared"
    np.testing.assert_array_equal(model.center_indices_, squares.center_indices_)
    model.save(tmp_path / "m")
    again = dk.load_model(tmp_path / "m")
    assert again.loss_ == "logistic"
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_log_odds_are_the_mean_of_two_kinds_unless_lambda_is_given(n_classes: int) -> None:
    X, y = classes(500, n_classes)
    common: dict[str, Any] = {"max_centers": 20, "sigma": "median", "stop": None, "random_state": 0}
    squares = dk.OROLSClassifier(**common).fit(X, y, sample_weight := 1.0 + (np.arange(500) % 3))
    with mock.patch.object(loss_fits, "SQUARES_SHARES", (0.5,)):
        pooled = dk.OROLSClassifier(loss="logistic", **common).fit(X, y, sample_weight)
    pure = dk.OROLSClassifier(loss="logistic", regularization=pooled.lambda_, **common).fit(X, y, sample_weight)
    logs = [np.log(each.predict_proba(X)) for each in (squares, pure)]
    expected = np.exp(0.5 * (logs[0] + logs[1]))
    expected /= expected.sum(axis=1, keepdims=True)
    # Probabilities of squares agree with their predicted class, which the log odds by themselves need not.
    clear = np.sort(squares.predict_proba(X), axis=1)[:, -1] > 0.6
    assert clear.mean() > 0.5
    np.testing.assert_allclose(pooled.predict_proba(X)[clear], expected[clear], atol=2e-3)
    assert np.abs(expected - np.exp(logs[1])).max() > 0.02


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_a_quantile_has_its_share_of_the_targets_below(level: float) -> None:
    X, y = skewed(1500)
    model = dk.OROLSRegressor(loss="quantile", quantile=level, max_centers=20).fit(X, y)
    X_test, y_test = skewed(4000)
    predicted = model.predict(X_test)
    for part in (slice(None), X_test[:, 0] < 0, X_test[:, 0] > 1):
        assert np.mean(y_test[part] <= predicted[part]) == pytest.approx(level, abs=0.06)
    exact = np.sin(2 * X_test[:, 0]) - (0.2 + 0.1 * X_test[:, 0]) * np.log(1 - level)
    assert np.abs(predicted - exact).mean() < 0.12


def test_outliers_move_the_huber_loss_little() -> None:
    X, y = regression(600)
    spoilt = y.copy()
    spoilt[::10] += 20.0
    settings: dict[str, Any] = {"sigma": 1.0, "max_centers": 20, "stop": None}
    models = [dk.OROLSRegressor(**settings, loss=loss).fit(X, spoilt) for loss in ("squared", "huber")]
    errors = [np.abs(model.predict(X) - y).mean() for model in models]
    assert errors[1] < 0.15 < errors[0]
    # Without outliers, and with a threshold beyond all residuals, the loss is the square.
    wide = dk.OROLSRegressor(**settings, loss="huber", huber_threshold=1e3, regularization=1e-3).fit(X, y)
    squares = dk.OROLSRegressor(**settings, regularization=1e-9).fit(X, y)
    assert np.abs(wide.predict(X) - squares.predict(X)).mean() < 0.02


@pytest.mark.parametrize("loss", ["huber", "quantile"])
def test_the_unit_of_the_targets_does_not_matter(loss: str) -> None:
    X, y = regression(300)
    settings: dict[str, Any] = {"sigma": 1.0, "max_centers": 20, "stop": None, "loss": loss}
    ours, theirs = (dk.OROLSRegressor(**settings).fit(X, scale * y) for scale in (1.0, 1024.0))
    assert ours.lambda_ == theirs.lambda_
    np.testing.assert_allclose(1024.0 * ours.predict(X), theirs.predict(X), atol=5.0)


def test_weights_of_a_loss_belong_to_all_centres() -> None:
    X, y = regression(200)
    model = dk.OROLSRegressor(loss="huber", sigma=1.0, max_centers=12, stop=None).fit(X, y)
    assert model.n_centers_ == len(model.history_) == 12
    assert model.truncate(12).n_centers_ == 12
    with pytest.raises(JobError, match="fitted together"):
        model.truncate(6)
    with pytest.raises(JobError, match="loss='squared'"):
        model.predict_interval(X)
    with pytest.raises(JobError, match="loss='squared'"):
        model.predict(X, return_std=True)
    with pytest.raises(JobError, match="loss='squared'"):
        model.append(X, y)
    assert model.transform(X).shape == (200, 12)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (dk.OROLSRegressor, "loss", "logistic"),
        (dk.OROLSClassifier, "loss", "huber"),
        (dk.OROLSClassifier, "multiclass", "one-vs-rest"),
        (dk.OROLSClassifier, "regularization", "evidence"),
        (dk.OROLSRegressor, "regularization", "gcv-per-target"),
        (dk.OROLSRegressor, "refit", "rkhs"),
        (dk.OROLSRegressor, "sigma", [1.0, 2.0]),
        (dk.OROLSRegressor, "kernel", "sigmoid"),
        (dk.OROLSRegressor, "solver", "conjugate-gradients"),
        (dk.OROLSRegressor, "intervals", True),
    ],
)
def test_what_a_loss_cannot_serve_is_refused(kind: Any, name: str, value: object) -> None:
    own = {"loss": "huber" if kind is dk.OROLSRegressor else "logistic", name: value}
    with pytest.raises(JobError) as caught:
        kind(**own).fit(*(regression(50) if kind is dk.OROLSRegressor else classes(50)))
    assert caught.value.kind in ("invalid-parameter", "indefinite-kernel")


def test_a_search_does_not_compare_losses() -> None:
    with pytest.raises(JobError, match="squares"):
        dk.GridSearch(dk.OROLSRegressor(), {"loss": ["squared", "huber"]}).fit(*regression(60))
    found = dk.OROLSClassifier(loss="logistic", sigma="cv", max_centers=10, folds=2).fit(*classes(100))
    assert found.loss_ == "logistic"


def test_a_constant_target_and_a_model_without_centres() -> None:
    X, _ = regression(80)
    rng = np.random.default_rng(0)
    labels = (rng.random(80) < 0.3).astype(int)
    model = dk.OROLSClassifier(loss="logistic", sigma=0.01, max_centers=3, standardize=False).fit(X, labels)
    assert np.isfinite(model.predict_proba(X)).all()
    for loss in ("huber", "quantile"):
        flat = dk.OROLSRegressor(loss=loss, sigma=1.0, max_centers=3).fit(
            X, np.where(np.arange(80) < 79, 1.0, 1.0 + 1e-9)
        )
        assert np.isfinite(flat.predict(X)).all()
