"""A weight is the same as repeated rows, and zero the same as no row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distkern as dk
from tests.estimators.fits import ALL, assert_equal_models, classes, data_for, regression

PARAMETERS: dict[str, Any] = {"max_centers": 12, "stop": None, "candidates": 1000}


def weighted(cls: Any, n: int = 90, seed: int = 0) -> tuple[Any, Any, Any]:
    X, y = data_for(cls, n, seed)
    return X, y, np.random.default_rng(seed).integers(1, 4, n)


def outputs(model: Any, X: Any) -> Any:
    return np.asarray(model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X))


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("sigma", [1.0, "median"])
def test_a_weight_counts_as_repeated_rows(cls: Any, sigma: Any) -> None:
    """With no more rows than candidates nothing is drawn, and the models are equal to rounding."""
    X, y, weights = weighted(cls)
    compact = cls(sigma=sigma, **PARAMETERS).fit(X, y, weights)
    repeated = cls(sigma=sigma, **PARAMETERS).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights, axis=0))
    np.testing.assert_allclose(compact.centers_, repeated.centers_)
    np.testing.assert_allclose(compact.coef_, repeated.coef_, rtol=1e-6)
    np.testing.assert_allclose(compact.lambda_, repeated.lambda_, rtol=1e-8)
    np.testing.assert_allclose(compact.gcv_, repeated.gcv_, rtol=1e-8)
    np.testing.assert_allclose(outputs(compact, X), outputs(repeated, X), rtol=1e-7, atol=1e-9)
    assert compact.kernel_.sigma == pytest.approx(repeated.kernel_.sigma, rel=1e-12)  # type: ignore[union-attr]


@pytest.mark.parametrize("cls", [dk.OROLSRegressor, dk.OROLSClassifier])
def test_weights_under_the_gcv_rule_and_one_vs_rest(cls: Any) -> None:
    X, y, weights = weighted(cls)
    parameters: dict[str, Any] = {"sigma": 1.0, "max_centers": 60, "candidates": 1000, "patience": 10}
    if cls is dk.OROLSClassifier:
        # Further along, candidates of one class differ by rounding only.
        parameters |= {"multiclass": "one-vs-rest", "max_centers": 20}
    compact = cls(**parameters).fit(X, y, weights)
    repeated = cls(**parameters).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights, axis=0))
    assert compact.n_centers_ == repeated.n_centers_
    np.testing.assert_allclose(compact.centers_, repeated.centers_)
    np.testing.assert_allclose(outputs(compact, X), outputs(repeated, X), rtol=1e-6, atol=1e-7)


def test_the_largest_residual_is_that_of_the_row_whatever_its_weight() -> None:
    """criterion="residual" with weights follows repeated rows, too."""
    X, y, weights = weighted(dk.OROLSRegressor)
    parameters: dict[str, Any] = {"criterion": "residual", "max_centers": 12, "stop": None, "sigma": 1.0}
    compact = dk.OROLSRegressor(**parameters).fit(X, y, weights)
    repeated = dk.OROLSRegressor(**parameters).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_array_equal(compact.centers_, repeated.centers_)
    np.testing.assert_allclose(compact.predict(X), repeated.predict(X), rtol=1e-7)


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("criterion", ["error-reduction", "residual"])
def test_rows_of_weight_zero_are_absent(cls: Any, criterion: str) -> None:
    X, y, weights = weighted(cls)
    weights[::3] = 0
    weights[-3:] = 1
    present = weights > 0
    X[~present] += 1e6
    parameters: dict[str, Any] = {**PARAMETERS, "criterion": criterion}
    compact = cls(**parameters).fit(X, y, weights)
    without = cls(**parameters).fit(X[present], y[present], weights[present])
    np.testing.assert_array_equal(np.flatnonzero(present)[without.center_indices_], compact.center_indices_)
    np.testing.assert_allclose(compact.coef_, without.coef_, rtol=1e-7)
    np.testing.assert_allclose(compact.intercept_, without.intercept_, rtol=1e-7)
    assert compact.kernel_.sigma == pytest.approx(without.kernel_.sigma, rel=1e-12)
    assert compact.summary_["n_rows"] == 90


def test_a_class_without_weight_is_absent() -> None:
    X, y = classes(90, 4)
    weights = (y != 2).astype(float)
    model = dk.OROLSClassifier(**PARAMETERS).fit(X, y, weights)
    np.testing.assert_array_equal(model.classes_, [0, 1, 3])


@pytest.mark.parametrize("cls", ALL)
def test_weights_of_one_are_no_weights(cls: Any) -> None:
    X, y, _ = weighted(cls)
    plain = cls(**PARAMETERS).fit(X, y)
    for ones in (np.ones(90), np.ones(90, dtype=int), [1.0] * 90, 1.0, np.ones(90, dtype=bool)):
        assert_equal_models(cls(**PARAMETERS).fit(X, y, ones), plain, rtol=1e-7)


def test_a_number_weighs_every_row() -> None:
    X, y = regression()
    assert_equal_models(
        dk.OROLSRegressor(**PARAMETERS).fit(X, y, 3), dk.OROLSRegressor(**PARAMETERS).fit(X, y, np.full(len(X), 3.0))
    )


@pytest.mark.parametrize("cls", [dk.NPDRegressor, dk.NPDClassifier])
def test_without_lambda_a_common_factor_changes_nothing(cls: Any) -> None:
    X, y, weights = weighted(cls)
    a, b = (cls(**PARAMETERS).fit(X, y, factor * weights) for factor in (1.0, 8.0))
    np.testing.assert_array_equal(a.center_indices_, b.center_indices_)
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-6)


def test_drawn_candidates_follow_the_weights() -> None:
    """With more rows than candidates a weighted row is drawn as often as its repetitions: equal in distribution."""
    X, y = regression(800)
    weights = np.where(np.arange(800) < 400, 1.0, 5.0)
    shares = []
    for seed in range(6):
        model = dk.OROLSRegressor(
            max_centers=32, sampler="uniform", candidates=40, panel=8, stop=None, random_state=seed
        ).fit(X, y, weights)
        shares.append((model.center_indices_ >= 400).mean())
    assert 0.65 < np.mean(shares) < 0.98
