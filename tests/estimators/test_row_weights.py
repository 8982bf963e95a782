"""A weight is the same as repeated rows, and zero the same as no row."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from sklearn.ensemble import AdaBoostClassifier

import distkern as dk
from distkern.estimators import ESTIMATORS
from distkern.scheduler.protocol.messages import Load
from distkern.scheduler.rows.block_reading import row_statistics
from distkern.scheduler.rows.data_checks import weight_scale
from tests.estimators.fits import ALL, assert_equal_models, classes, data_for, regression
from tests.markers import name_of

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


def factor(weights: Any) -> float:
    statistics = row_statistics(
        Load(False, 0, 0, 0.0), np.arange(len(weights)), np.empty((len(weights), 0)), np.zeros(len(weights)), weights
    )
    return weight_scale(statistics)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([1.0, 1.0, 1.0], 1.0),
        ([0.0, 1.0, 0.0], 1.0),
        ([1.0, 2.0, 3.0], 1.0),
        ([0.0, 1.0, 4.0], 1.0),
        ([0.5, 1.5], 1.0),
        ([0.25, 0.25, 0.0], 4.0),
        ([1e-50, 1e-50], 1e50),
        ([1.0, 1e-16], 1.0),
        ([0.04, 0.16], 9.0),
    ],
)
def test_small_weights_are_multiplied_by_a_factor(weights: Any, expected: float) -> None:
    assert factor(np.array(weights)) == pytest.approx(expected, rel=1e-7)


def small_weights(n: int) -> Any:
    """Return shares whose sum is 1; some rows are absent."""
    weights = np.random.default_rng(1).exponential(size=n)
    weights[::9] = 0.0
    return weights / weights.sum()


# Of the linear classifiers only this one has a step for each row, and no invariant solution.
@pytest.mark.parametrize("cls", [cls for cls in ESTIMATORS if cls.__module__.split(".")[-2] != "linear"])
def test_the_scale_of_small_weights_is_ignored(cls: Any) -> None:
    X, y = data_for(cls, 90)
    weights = small_weights(90)
    plain, tiny, scaled = (cls(sigma=1.0).fit(X, y, weights * by) for by in (1.0, 1e-9, factor(weights)))
    for other in (tiny, scaled):
        np.testing.assert_allclose(outputs(other, X), outputs(plain, X), rtol=1e-5, atol=1e-6)


def test_the_steps_of_widrow_hoff_have_the_scale_of_rows() -> None:
    X, y = classes(90)
    weights = small_weights(90)
    plain, scaled = (dk.WidrowHoffClassifier().fit(X, y, weights * by) for by in (1e-9, factor(weights)))
    np.testing.assert_allclose(plain.coef_, scaled.coef_)


SMALL: dict[str, dict[str, Any]] = {
    "shared": {},
    "one-vs-one": {"multiclass": "one-vs-one"},
    "look-ahead": {"criterion": "residual"},
    "leave-one-out": {"criterion": "loo-error", "max_centers": 8},
    "validation": {"stop": "validation"},
    "sample": {"selection_rows": 60},
    "driver": {"factors": "driver"},
    "widths": {"sigma": "cv", "folds": 2},
}


@pytest.mark.parametrize("variant", SMALL)
def test_small_weights_in_every_variant(variant: str) -> None:
    X, y = classes(150)
    weights = small_weights(150)
    parameters = {**PARAMETERS, "sigma": 1.0, "stop": "gcv", **SMALL[variant]}
    # The roots of powers of four round nothing.
    plain, tiny = (dk.OROLSClassifier(**parameters).fit(X, y, weights * by) for by in (1.0, 4.0**-20))
    assert_equal_models(plain, tiny)
    np.testing.assert_array_equal(outputs(plain, X), outputs(tiny, X))


def test_small_weights_of_every_container(tmp_path: Any) -> None:
    X, y = regression(90)
    weights = small_weights(90)
    dataset = dk.write_dataset(tmp_path / "rows.zarr", X, y, sample_weight=weights)
    column = zarr.array(weights, chunks=90)
    parameters = {**PARAMETERS, "sigma": 1.0}
    expected = dk.OROLSRegressor(**parameters).fit(X, y, weights)
    for rows in (
        (dataset,),
        (zarr.array(X), zarr.array(y), column),
        (da.asarray(X), da.asarray(y), da.asarray(weights)),
    ):
        assert_equal_models(dk.OROLSRegressor(**parameters).fit(*rows), expected)


def test_a_run_with_small_weights_resumes(tmp_path: Any) -> None:
    X, y = regression(90)
    parameters: dict[str, Any] = {**PARAMETERS, "sigma": 1.0, "run_dir": tmp_path / "run", "panel": 2}
    short = dk.OROLSRegressor(**parameters, max_seconds=1e-9).fit(X, y, small_weights(90))
    resumed = dk.OROLSRegressor(**parameters).fit(X, y, small_weights(90))
    assert short.n_centers_ < resumed.n_centers_
    assert_equal_models(resumed, dk.OROLSRegressor(**{**parameters, "run_dir": None}).fit(X, y, small_weights(90)))


@pytest.mark.parametrize(
    "weak",
    [
        dk.OROLSClassifier(max_centers=3, sigma=1.0),
        dk.NPDClassifier(max_centers=3, sigma=1.0),
        dk.LSSVMClassifier(gamma=0.01, sigma=1.0),
        dk.KRLSClassifier(nu=0.7, sigma=1.0),
        dk.KernelFisherDiscriminant(regularization=10.0, sigma=3.0),
    ],
    ids=name_of,
)
def test_boosting_improves_a_weak_classifier(weak: Any) -> None:
    X, y = regression(120)
    boosted = AdaBoostClassifier(weak, n_estimators=5, random_state=0).fit(X, y > 0)
    assert len(boosted.estimators_) > 1
    assert boosted.score(X, y > 0) > weak.fit(X, y > 0).score(X, y > 0)
