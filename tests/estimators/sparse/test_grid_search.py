"""Widths by cross-validation and grids of settings, through the estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, PredefinedSplit

import distkern as dk
from distkern.errors import DataError, JobError
from distkern.estimators.sparse.width_search import SIGMA_FACTORS
from distkern.scheduler.protocol.problems import Folds


def ring(n: int = 300, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    radius = np.linalg.norm(X, axis=1)
    return X, np.where(radius < 0.8, "in", np.where(radius < 1.5, "mid", "out"))


@pytest.mark.slow
def test_the_width_is_the_best_of_ten_multiples_of_the_median_distance() -> None:
    X, y = ring()
    model = dk.OROLSClassifier(sigma="cv", max_centers=25, folds=4).fit(X, y)
    median = dk.OROLSClassifier(sigma="median", max_centers=2).fit(X, y).kernel_.sigma
    found = model.cv_results_
    np.testing.assert_allclose(found["sigma"], median * SIGMA_FACTORS)
    assert found["errors"].shape == (10, 4)
    best = int(np.argmin(found["mean_error"]))
    assert model.kernel_.sigma == pytest.approx(found["sigma"][best])
    np.testing.assert_allclose(found["mean_error"], np.nanmean(found["errors"], axis=1))
    # The final model is that of an ordinary fit with this width.
    direct = dk.OROLSClassifier(sigma=model.kernel_.sigma, max_centers=25).fit(X, y)
    np.testing.assert_array_equal(model.center_indices_, direct.center_indices_)
    np.testing.assert_allclose(model.coef_, direct.coef_, rtol=1e-10)


def test_the_grid_agrees_with_scikit_learns_on_the_same_folds() -> None:
    X, y = ring(300)
    estimator = dk.OROLSClassifier(sampler="all", max_centers=20, standardize=False)
    grid = {"sigma": [0.05, 0.3, 1.0, 4.0], "regularization": ["gcv", 10.0]}
    ours = dk.GridSearch(estimator, grid, folds=4, complete=True).fit(X, y)
    folds = PredefinedSplit(Folds(4, 0).numbers(0, len(X)))
    theirs = GridSearchCV(estimator, grid, cv=folds).fit(X, y)
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    expected = 1 - np.column_stack([theirs.cv_results_[f"split{k}_test_score"] for k in range(4)])
    # Blocks differ, and with them the last digits that decide which of two equally good centres is taken.
    assert np.abs(ours.cv_results_["errors"] - expected).max() <= 0.02
    assert np.abs(ours.cv_results_["errors"] - expected).mean() < 0.001
    assert ours.best_params_ == theirs.best_params_
    assert ours.passes_ == 2  # of 32 models, 20 at a time
    assert ours.score(X, y) == ours.best_estimator_.score(X, y)
    np.testing.assert_array_equal(ours.predict(X), ours.best_estimator_.predict(X))
    assert ours.predict_proba(X).shape == (300, 3)
    short = dk.GridSearch(estimator, grid, folds=4).fit(X, y)
    assert (short.best_params_, short.best_error_) == (ours.best_params_, ours.best_error_)
    left_out = np.isnan(short.cv_results_["errors"])
    assert 0 < left_out.sum() < left_out.size / 2
    np.testing.assert_array_equal(short.cv_results_["errors"][~left_out], ours.cv_results_["errors"][~left_out])
    assert (short.cv_results_["mean_error"][left_out.any(axis=1)] > ours.best_error_).all()
    whole = ~left_out.any(axis=1)
    for name in "n_centers", "std_error":
        np.testing.assert_allclose(short.cv_results_[name][whole], ours.cv_results_[name][whole])


@pytest.mark.parametrize(
    ("estimator", "grid"),
    [
        (dk.OROLSRegressor(refit="rkhs", stop=None, max_centers=60), {"sigma": [0.1, 0.3, 1.0]}),
        (dk.OROLSRegressor(sigma=0.2, stop=None, max_centers=60), {"refit": [None, "rkhs"]}),
        (
            dk.OROLSClassifier(multiclass="dag", max_centers=8),
            {"sigma": [0.2, 1.0], "multiclass": ["dag", "one-vs-one"]},
        ),
    ],
)
def test_a_fold_is_predicted_as_the_estimator_would(estimator: Any, grid: Any) -> None:
    X, y = ring(300)
    if isinstance(estimator, dk.OROLSRegressor):
        y = np.sin(3 * X[:, 0]) + 0.3 * np.random.default_rng(0).normal(size=len(X))
    else:
        y = np.where(X[:, 0] + 0.4 * X[:, 1] > 0.2, y, "left")
    estimator = estimator.set_params(sampler="all", standardize=False)
    ours = dk.GridSearch(estimator, grid, folds=3, complete=True).fit(X, y)
    scoring = "accuracy" if hasattr(estimator, "predict_proba") else "neg_mean_squared_error"
    folds = PredefinedSplit(Folds(3, 0).numbers(0, len(X)))
    theirs = GridSearchCV(estimator, grid, cv=folds, scoring=scoring, refit=False).fit(X, y).cv_results_
    expected = np.column_stack([theirs[f"split{k}_test_score"] for k in range(3)])
    expected = 1 - expected if scoring == "accuracy" else -expected
    tolerance = {"atol": 0.011} if scoring == "accuracy" else {"rtol": 1e-6}
    np.testing.assert_allclose(ours.cv_results_["errors"], expected, **tolerance)
    assert ours.best_index_ == int(np.argmin(expected.mean(axis=1)))


def test_a_fold_that_leaves_one_class_is_named() -> None:
    X, y = ring(90)
    alone = np.where(np.arange(90) == 89, "rare", "common")
    with pytest.raises(DataError, match=r"outside fold \d of 3 .* one class only \('common'\)"):
        dk.GridSearch(dk.OROLSClassifier(max_centers=9), {"sigma": [0.3, 1.0]}, folds=3).fit(X, alone)
    with pytest.raises(DataError, match="folds=91: there are 90 rows only"):
        dk.OROLSClassifier(sigma="cv", folds=91).fit(X, y)


def test_regression_from_a_store(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (300, 1))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=300)
    dk.write_dataset(tmp_path / "sine.zarr", X, y, chunk_rows=100)
    model = dk.OROLSRegressor(sigma="cv", folds=3, max_centers=15).fit(dk.open_dataset(tmp_path / "sine.zarr"))
    assert model.cv_results_["mean_error"].min() < 0.02
    assert not hasattr(dk.GridSearch(model, {}), "predict_proba")
    model.save(tmp_path / "model")
    assert dk.load_model(tmp_path / "model").sigma == "cv"


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"sigma": ["cv"]}, "searches by itself"),
        ({"sigma": [-1.0]}, "sigma"),
        ({"client": [None]}, "set it on the estimator"),
        ({"selection_rows": [50, None]}, "cannot be compared"),
        ({"sigma": [1.0], "memory_limit": ["1GiB"]}, "set it on the estimator"),
    ],
)
def test_grids_that_make_no_sense_are_refused(grid: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        dk.GridSearch(dk.OROLSRegressor(), grid).fit(*ring())


def test_other_refusals() -> None:
    X, y = ring()
    with pytest.raises(JobError, match="folds=1"):
        dk.OROLSClassifier(sigma="cv", folds=1).fit(X, y)
    with pytest.raises(JobError, match="'cv' is for 'gaussian'"):
        dk.OROLSClassifier(sigma="cv", kernel="linear").fit(X, y)
    with pytest.raises(JobError, match="GridSearch is for OROLS"):
        dk.GridSearch(object(), {"a": [1]}).fit(X, y)
    assert clone(dk.GridSearch(dk.OROLSClassifier(), {"sigma": [1.0]}, folds=3)).folds == 3
