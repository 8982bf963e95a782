"""One-vs-one and decision graphs, through the estimators."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import log_loss

import distkern as dk
from distkern.probability.decisions import decide, pair_scores


def clusters(n: int = 400, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 4, n)
    middle = np.array([[0, 0], [2, 0], [0, 2], [2, 2]])[codes]
    return middle + 0.6 * rng.normal(size=(n, 2)), np.array(["north", "south", "west", "east"])[codes]


def test_votes_and_graphs_row_by_row() -> None:
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=(200, 10))
    outputs[:20] = np.sign(outputs[:20])
    pairs = list(combinations(range(5), 2))
    scores = pair_scores(outputs, 5)
    for row, score in zip(outputs, scores, strict=True):
        votes, sums = np.zeros(5), np.zeros(5)
        for value, (first, second) in zip(row, pairs, strict=True):
            votes[second if value > 0 else first] += 1
            sums[second] += value
            sums[first] -= value
        np.testing.assert_array_equal(np.round(score), votes)
        np.testing.assert_allclose(score - votes, sums / (3 * (np.abs(sums) + 1)))
        left = list(range(5))
        while len(left) > 1:
            value = row[pairs.index((left[0], left[-1]))]
            left = left[1:] if value > 0 else left[:-1]
        assert decide(row[None], 5, "dag")[0] == left[0]
    np.testing.assert_array_equal(decide(outputs, 5, "one-vs-one"), scores.argmax(axis=1))


@pytest.mark.parametrize(("method", "multiclass"), [(dk.OROLSClassifier, "one-vs-one"), (dk.NPDClassifier, "dag")])
def test_a_model_of_pairs(method: Any, multiclass: str, tmp_path: Any) -> None:
    X, y = clusters()
    new, truth = clusters(1000, seed=1)
    model = method(multiclass=multiclass, max_centers=15).fit(X, y)
    assert model.coef_.shape == (model.n_centers_, 6)
    assert model.score(new, truth) > 0.85
    scores = model.decision_function(new)
    assert scores.shape == (1000, 4)
    if multiclass == "one-vs-one":
        np.testing.assert_array_equal(model.classes_[scores.argmax(axis=1)], model.predict(new))
    chances = model.predict_proba(new)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(new)).mean() > 0.97
    shared = dk.OROLSClassifier(max_centers=40).fit(X, y)
    assert log_loss(truth, chances) < 1.15 * log_loss(truth, shared.predict_proba(new))
    np.testing.assert_allclose(model.log_likelihood(new), np.log(chances) - np.log(model.class_prior_), atol=1e-9)
    np.testing.assert_allclose(model.class_prior_, [np.mean(y == name) for name in model.classes_])
    model.save(tmp_path / "model")
    again = dk.load_model(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    np.testing.assert_array_equal(again.predict_proba(new), chances)
    assert model.truncate(3).predict_proba(new).shape == (1000, 4)


def test_each_pair_is_the_training_of_its_rows() -> None:
    X, y = clusters(150)
    settings: dict[str, Any] = {"sampler": "all", "standardize": False, "sigma": 1.0, "max_centers": 6, "stop": None}
    model = dk.OROLSClassifier(multiclass="one-vs-one", **settings).fit(X, y)
    for column, (first, second) in enumerate(combinations(range(4), 2)):
        chosen = np.isin(y, model.classes_[[first, second]])
        pair = dk.OROLSClassifier(**settings).fit(X[chosen], y[chosen])
        np.testing.assert_array_equal(pair.classes_, model.classes_[[first, second]])
        used = np.flatnonzero(model.coef_[:, column])
        assert set(model.center_indices_[used]) == set(np.flatnonzero(chosen)[pair.center_indices_])
        outputs = model._model.evaluate(X)[:, column]
        np.testing.assert_allclose(outputs, pair.decision_function(X), rtol=1e-8, atol=1e-8)


def test_two_classes_are_one_pair() -> None:
    X, y = clusters()
    chosen = np.isin(y, ["north", "east"])
    pair = dk.OROLSClassifier(multiclass="dag", max_centers=10).fit(X[chosen], y[chosen])
    shared = dk.OROLSClassifier(max_centers=10, sigma="median").fit(X[chosen], y[chosen])
    assert pair.coef_.tobytes() == shared.coef_.tobytes()
    np.testing.assert_array_equal(pair.predict_proba(X), shared.predict_proba(X))


def test_a_search_decides_as_the_model_does() -> None:
    X, y = clusters(200)
    model = dk.OROLSClassifier(multiclass="one-vs-one", sigma="cv", folds=3, max_centers=8).fit(X, y)
    assert model.cv_results_["mean_error"].min() < 0.15
