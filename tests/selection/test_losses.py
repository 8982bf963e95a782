"""Losses: derivatives against differences, and values against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import log_loss, mean_pinball_loss

from distkern.selection.losses import CHECK_WIDTH, HUBER, LOGISTIC, QUANTILE, Loss

Array = NDArray[Any]

STEP = 1e-6


def rows(name: str, T: int) -> tuple[Loss, Array, Array]:
    """Return a loss, scores and targets of 40 rows."""
    rng = np.random.default_rng(T)
    scores = 2.0 * rng.standard_normal((40, T))
    if name == LOGISTIC:
        codes = rng.integers(0, max(T, 2), 40)
        targets = np.where(codes[:, None] == (np.arange(T) if T > 1 else 1), 1.0, -1.0)
        return Loss(name, 0.0, np.ones(T)), scores, targets
    scales = np.linspace(1.0, 3.0, T)
    return Loss(name, 0.3 if name == QUANTILE else 1.345, scales), scores, 3.0 * rng.standard_normal((40, T))


@pytest.mark.parametrize("T", [1, 3])
@pytest.mark.parametrize("name", [LOGISTIC, HUBER, QUANTILE])
def test_slopes_and_curvatures_are_derivatives(name: str, T: int) -> None:
    loss, scores, targets = rows(name, T)
    _, slopes, curvatures = loss.evaluate(scores, targets)
    for t in range(T):
        step = np.zeros(T)
        step[t] = STEP
        above, below = loss.evaluate(scores + step, targets), loss.evaluate(scores - step, targets)
        np.testing.assert_allclose((above[0] - below[0]) / (2 * STEP), slopes[:, t], atol=1e-6)
        np.testing.assert_allclose((above[1] - below[1])[:, t] / (2 * STEP), curvatures[:, t], atol=1e-5)


@pytest.mark.parametrize("T", [1, 3])
def test_the_logistic_loss_is_the_log_loss(T: int) -> None:
    loss, scores, targets = rows(LOGISTIC, T)
    logits = np.hstack([-scores / 2, scores / 2]) if T == 1 else scores
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    codes = (targets[:, 0] > 0).astype(int) if T == 1 else targets.argmax(axis=1)
    expected = log_loss(codes, chances, labels=np.arange(chances.shape[1]))
    assert loss.evaluate(scores, targets)[0].mean() == pytest.approx(expected, rel=1e-12)


def test_scores_of_any_size_have_a_finite_loss() -> None:
    for T in (1, 3):
        loss, scores, targets = rows(LOGISTIC, T)
        for part in loss.evaluate(1e6 * scores, targets):
            assert np.isfinite(part).all()


def test_the_check_function_is_that_of_the_pinball_loss_and_its_parabola_near() -> None:
    loss, scores, targets = rows(QUANTILE, 1)
    exact = loss.exact(scores, targets)
    assert exact.mean() == pytest.approx(mean_pinball_loss(targets / loss.scales, scores, alpha=0.3), rel=1e-12)
    smooth = loss.evaluate(scores, targets)[0]
    assert (smooth <= exact).all()
    assert (exact - smooth <= 0.5 * CHECK_WIDTH).all()


def test_the_huber_loss_is_linear_beyond_its_constant() -> None:
    loss = Loss(HUBER, 1.5, np.array([2.0]))
    values = loss.evaluate(np.zeros((3, 1)), np.array([[2.0], [4.0], [-8.0]]))[0]
    np.testing.assert_allclose(values, [0.5, 1.5 * (2.0 - 0.75), 1.5 * (4.0 - 0.75)])
