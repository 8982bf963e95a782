from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from distkern.estimators.scoring import ClassificationScore, RegressionScore
from distkern.text import plain


def fed(score: Any, truth: Any, predicted: Any, blocks: int) -> Any:
    for a, b in zip(np.array_split(truth, blocks), np.array_split(predicted, blocks), strict=True):
        score.update(a, b)
    return score


@pytest.mark.parametrize("blocks", [1, 3, 40])
def test_regression_figures_equal_scikit_learn(blocks: int) -> None:
    rng = np.random.default_rng(0)
    truth = 1e6 + rng.standard_normal(100)
    predicted = truth + 0.1 * rng.standard_normal(100)
    score = fed(RegressionScore(), truth, predicted, blocks)
    assert score.rmse == pytest.approx(metrics.root_mean_squared_error(truth, predicted), rel=1e-12)
    assert score.mae == pytest.approx(metrics.mean_absolute_error(truth, predicted), rel=1e-12)
    assert score.r2 == pytest.approx(metrics.r2_score(truth, predicted), rel=1e-9)
    assert score.n_rows == 100


def test_several_targets_are_averaged_as_scikit_learn_does() -> None:
    rng = np.random.default_rng(1)
    truth = rng.standard_normal((50, 3)) * [1, 10, 100]
    predicted = truth + rng.standard_normal((50, 3))
    score = fed(RegressionScore(), truth, predicted, 4)
    assert score.rmse == pytest.approx(metrics.root_mean_squared_error(truth, predicted))
    assert score.r2 == pytest.approx(metrics.r2_score(truth, predicted))


def test_a_constant_target_has_no_r2() -> None:
    assert plain(fed(RegressionScore(), np.ones(5), np.zeros(5), 1).as_record())["r2"] is None


def test_no_rows_have_no_score() -> None:
    assert plain(RegressionScore().as_record())["rmse"] is None
    assert plain(ClassificationScore(np.array([0, 1])).as_record())["error"] is None


@pytest.mark.parametrize("labels", [np.array([3, 5, 9]), np.array(["ant", "bee", "cat"])])
@pytest.mark.parametrize("blocks", [1, 7])
def test_class_figures_equal_scikit_learn(labels: Any, blocks: int) -> None:
    rng = np.random.default_rng(2)
    truth, predicted = labels[rng.integers(0, 3, 90)], labels[rng.integers(0, 3, 90)]
    score = fed(ClassificationScore(labels), truth, predicted, blocks)
    assert score.error == pytest.approx(1 - metrics.accuracy_score(truth, predicted))
    assert np.array_equal(score.confusion, metrics.confusion_matrix(truth, predicted, labels=labels))
    precision, recall, f1, rows = metrics.precision_recall_fscore_support(truth, predicted, labels=labels)
    per_class = list(score.per_class())
    assert [item["label"] for item in per_class] == labels.tolist()
    assert [item["rows"] for item in per_class] == rows.tolist()
    assert [item["precision"] for item in per_class] == pytest.approx(precision)
    assert [item["recall"] for item in per_class] == pytest.approx(recall)
    assert [item["f1"] for item in per_class] == pytest.approx(f1)


def test_a_label_that_the_model_never_saw_counts_as_wrong() -> None:
    score = fed(ClassificationScore(np.array([0, 1])), np.array([0, 1, 7, 1]), np.array([0, 1, 1, 1]), 2)
    assert score.error == 0.25
    assert score.labels == [0, 1, 7]
    assert score.confusion.tolist() == [[1, 0, 0], [0, 2, 0], [0, 1, 0]]


@pytest.mark.parametrize("blocks", [1, 7])
def test_losses_of_probabilities_equal_scikit_learn(blocks: int) -> None:
    rng = np.random.default_rng(3)
    labels = np.array(["ant", "bee", "cat"])
    truth, chances = labels[rng.integers(0, 3, 90)], rng.dirichlet(np.ones(3), 90)
    score = ClassificationScore(labels)
    for part in np.array_split(np.arange(90), blocks):
        score.update(truth[part], labels[chances[part].argmax(axis=1)], chances[part])
    assert score.log_loss == pytest.approx(metrics.log_loss(truth, chances, labels=labels))
    assert score.brier == pytest.approx(np.square(chances - (truth[:, None] == labels)).sum(axis=1).mean())
    assert score.as_record()["log_loss"] == score.log_loss


def test_a_label_that_the_model_never_saw_has_no_probability() -> None:
    score = ClassificationScore(np.array([0, 1]))
    score.update(np.array([0, 7]), np.array([0, 0]), np.array([[0.75, 0.25], [1.0, 0.0]]))
    assert score.log_loss == pytest.approx((-np.log(0.75) - np.log(1e-15)) / 2)
    assert score.brier == pytest.approx((2 * 0.25**2 + 2.0) / 2)


def test_without_probabilities_there_are_no_losses() -> None:
    record = plain(fed(ClassificationScore(np.array([0, 1])), np.array([0, 1]), np.array([0, 1]), 1).as_record())
    assert record["log_loss"] is None
    assert record["brier"] is None
