"""Calibration against scikit-learn's logistic regression, and what it promises about order and agreement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distkern.probability import calibration
from distkern.probability.calibration import LARGEST_OUTPUT, Calibration, log_softmax

Array = NDArray[Any]


def outputs_of(seed: int, n: int, n_classes: int, noise: float = 0.7) -> tuple[Array, Array]:
    """Targets of +-1 with noise: one column for two classes."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    targets = np.where(codes[:, None] == np.arange(n_classes), 1.0, -1.0)
    values = targets + noise * rng.standard_normal(targets.shape)
    return (values[:, 1:] if n_classes == 2 else values), codes


def pooled(chances: Array, predicted: int) -> Array:
    """The nearest probabilities (Kullback-Leibler) whose largest is `predicted`, by trying every set that may share."""
    order = sorted((i for i in range(len(chances)) if i != predicted), key=lambda i: -chances[i])
    for count in range(len(order) + 1):
        members = [predicted, *order[:count]]
        level = chances[members].mean()
        if all(chances[i] <= level for i in order[count:]):
            result = chances.copy()
            result[members] = level
            return result
    raise AssertionError("all classes share in the end")


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_it_is_logistic_regression_on_outputs_of_unit_variance(n_classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.linear_model import LogisticRegression

    monkeypatch.setattr(calibration, "PRECISION", 1e-14)
    outputs, codes = outputs_of(0, 300, n_classes)
    weights = np.random.default_rng(1).uniform(0.2, 3.0, 300)
    clipped = np.clip(outputs, -LARGEST_OUTPUT, LARGEST_OUTPUT)
    means = np.average(clipped, axis=0, weights=weights)
    spreads = np.sqrt(np.average(np.square(clipped - means), axis=0, weights=weights))
    scaled = (clipped - means) / spreads
    reference = LogisticRegression(C=1.0, tol=1e-10, max_iter=2000).fit(scaled, codes, sample_weight=weights)
    fitted = Calibration.fit(outputs, codes, weights)
    logits = clipped @ fitted.slopes + fitted.offsets
    logs = np.column_stack([-np.logaddexp(0, logits), -np.logaddexp(0, -logits)]) if n_classes == 2 else None
    expected = reference.predict_log_proba(scaled)
    np.testing.assert_allclose(log_softmax(logits) if logs is None else logs, expected, atol=1e-3)


@pytest.mark.parametrize("directions", [7, 3])
def test_slopes_of_low_rank_for_many_classes_lose_little(directions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs of pairs of classes are correlated, which a diagonal alone cannot use."""
    mixed = np.kron(np.eye(4), [[1.0, 0.7], [0.7, 1.0]])
    (outputs, codes), (fresh, expected) = (outputs_of(seed, 2000, 8) for seed in (0, 1))
    outputs, fresh = outputs @ mixed, fresh @ mixed
    weights = np.random.default_rng(2).uniform(0.5, 1.5, len(codes))

    def loss() -> float:
        logs = Calibration.fit(outputs, codes, weights).log_posteriors(fresh)
        return -float(logs[np.arange(len(logs)), expected].mean())

    full = loss()
    monkeypatch.setattr(calibration, "MANY_CLASSES", directions)
    many = loss()
    assert many != full
    assert many < full + (0.003 if directions == 7 else 0.06)


@given(seed=st.integers(0, 1000), n_classes=st.integers(3, 7))
def test_probabilities_are_the_nearest_that_agree_with_the_prediction(seed: int, n_classes: int) -> None:
    rng = np.random.default_rng(seed)
    fitted = Calibration(rng.standard_normal((n_classes, n_classes)), rng.standard_normal(n_classes))
    outputs = rng.standard_normal((30, n_classes))
    found = np.exp(fitted.log_posteriors(outputs))
    np.testing.assert_array_equal(found.argmax(axis=1), outputs.argmax(axis=1))
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    free = np.exp(log_softmax(outputs @ fitted.slopes + fitted.offsets))
    for row in range(30):
        np.testing.assert_allclose(found[row], pooled(free[row], int(outputs[row].argmax())), rtol=2e-6)


@given(seed=st.integers(0, 1000), share=st.floats(0.05, 0.95))
def test_two_classes_keep_the_order_of_the_output_and_change_where_it_does(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    codes = np.r_[0, 1, rng.uniform(size=60) < share].astype(int)
    fitted = Calibration.fit((2.0 * codes - 1 + rng.standard_normal(62))[:, None], codes)
    values = np.linspace(-4, 4, 401)
    found = fitted.log_posteriors(values[:, None])
    assert (np.diff(found[:, 1]) > 0).all()
    assert (np.diff(found[:, 0]) < 0).all()
    np.testing.assert_array_equal(found.argmax(axis=1), values > 0)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1.0)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_weight_is_the_same_as_repeated_rows(n_classes: int) -> None:
    outputs, codes = outputs_of(2, 60, n_classes)
    repeats = np.random.default_rng(2).integers(0, 4, 60)
    a = Calibration.fit(outputs, codes, repeats * 1.0)
    b = Calibration.fit(np.repeat(outputs, repeats, axis=0), np.repeat(codes, repeats))
    np.testing.assert_allclose(a.log_posteriors(outputs), b.log_posteriors(outputs), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_hard_outputs(n_classes: int) -> None:
    outputs, codes = outputs_of(3, 40, n_classes, noise=1e-3)
    for values in (outputs, np.zeros_like(outputs), np.full_like(outputs, -0.4), 1e9 * outputs):
        logs = Calibration.fit(values, codes).log_posteriors(np.concatenate([values, 1e6 * outputs]))
        assert np.isfinite(logs).all()
    outputs[0] = 1e12  # a lone row's
    fitted = Calibration.fit(outputs, codes)
    assert (fitted.log_posteriors(outputs)[1:].argmax(axis=1) == codes[1:]).all()
    # A class without rows is possible, if unlikely.
    if n_classes > 2:
        logs = Calibration.fit(outputs[codes > 0], codes[codes > 0]).log_posteriors(outputs)
        assert np.isfinite(logs).all()
