"""Estimators that choose among several widths."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone

import distkern as dk
from distkern.errors import JobError, StoreError
from distkern.kernels import Gaussians
from tests.estimators.fits import ALL, CLASSIFIERS, assert_equal_models, classes, data_for, fitted, regression
from tests.markers import every_value
from tests.references import dense_kernel_columns

Array = NDArray[Any]

WIDTHS = [0.5, 1.0, 2.0]


def kernel_matrix(model: Any, X: Array, epsilon: float = 0.0) -> Array:
    """K + epsilon I of a model trained without standardising."""
    shift, rows = X.mean(axis=0), model.center_indices_
    return dense_kernel_columns(model.kernel_, X - shift, X[rows] - shift, rows, epsilon)


def outputs(model: Any, X: Array) -> Array:
    values = model.predict(X) if "Regressor" in type(model).__name__ else model.decision_function(X)
    return np.asarray(values).reshape(len(X), -1)


@pytest.mark.parametrize(("cls", "one"), every_value([*ALL, dk.LOOForwardClassifier], [[1.0], (1.0,), np.array([1.0])]))
def test_one_width_in_a_list_is_that_width(cls: Any, one: Any) -> None:
    model = fitted(cls, sigma=one)
    assert_equal_models(model, fitted(cls, sigma=1.0))
    assert model.kernel_ == dk.Gaussian(1.0)


@pytest.mark.parametrize("cls", [*ALL, dk.LOOForwardClassifier])
def test_the_model_is_its_centres_with_their_widths(cls: Any) -> None:
    model = fitted(cls, sigma=WIDTHS, standardize=False)
    X, _ = data_for(cls)
    assert isinstance(model.kernel_, Gaussians)
    assert model.kernel_.sigma.shape == (model.n_centers_,)
    assert set(model.kernel_.sigma) <= set(WIDTHS)
    np.testing.assert_array_equal(X[model.center_indices_], model.centers_)
    expected = model.intercept_ + kernel_matrix(model, X) @ model.coef_
    found = outputs(model, X)
    np.testing.assert_allclose(found if found.shape[1] > 1 else found[:, 0], np.squeeze(expected), atol=1e-10)


def test_widths_of_any_sequence_are_the_same() -> None:
    models = [fitted(dk.OROLSRegressor, sigma=kind(WIDTHS)) for kind in (list, tuple, np.array)]
    for model in models[1:]:
        assert_equal_models(model, models[0])
    copied = clone(models[2])
    np.testing.assert_array_equal(copied.sigma, WIDTHS)


@pytest.mark.parametrize("cls", ALL)
def test_every_prefix_is_the_dense_fit_of_its_centres(cls: Any) -> None:
    """With lambda = 0, least squares; with `selection_rows` over all rows."""
    free = {} if "NPD" in cls.__name__ else {"regularization": "none"}
    for more in ({}, {"selection_rows": 90}):
        whole = fitted(cls, n=150, sigma=WIDTHS, standardize=False, epsilon=0.2, stop=None, **free, **more)
        X, y = data_for(cls, 150)
        targets = y[:, None] if "Regressor" in cls.__name__ else np.where(y[:, None] == np.unique(y), 1.0, -1.0)
        for m in (4, 15):
            model = whole.truncate(m)
            assert len(model.kernel_.sigma) == m
            A = np.column_stack([np.ones(150), kernel_matrix(model, X, 0.2)])
            expected = np.linalg.lstsq(A, targets, rcond=None)[0]
            np.testing.assert_allclose(np.vstack([model.intercept_, model.coef_]), expected, atol=1e-7)


@pytest.mark.parametrize(("dtype", "cls"), every_value(["float64", "float32"], ALL))
def test_saved_pickled_and_loaded(cls: Any, dtype: str, tmp_path: Path) -> None:
    model = fitted(cls, sigma=np.array(WIDTHS), dtype=dtype)
    model.save(tmp_path / "model")
    loaded = dk.load_model(tmp_path / "model")
    assert loaded.sigma == WIDTHS
    X, _ = data_for(cls)
    for other in (loaded, pickle.loads(pickle.dumps(model))):
        assert_equal_models(other, model)
        assert outputs(other, X).tobytes() == outputs(model, X).tobytes()
    if cls in CLASSIFIERS:
        assert loaded.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
    assert_equal_models(loaded.fit(*data_for(cls)), model)


def test_a_store_whose_widths_do_not_fit_is_refused(tmp_path: Path) -> None:
    from distkern.storage import read_model, write_model

    fitted(dk.OROLSRegressor, sigma=WIDTHS).save(tmp_path / "model")
    meta, arrays = read_model(tmp_path / "model")
    right = arrays["center_sigmas"]
    for wrong in (right[:-1], -right, np.full_like(right, np.nan), right[:, None], np.full(len(right), "a")):
        write_model(tmp_path / "wrong", meta, {**arrays, "center_sigmas": wrong}, overwrite=True)
        with pytest.raises(StoreError):
            dk.load_model(tmp_path / "wrong")
    del arrays["center_sigmas"]
    write_model(tmp_path / "wrong", meta, arrays, overwrite=True)
    with pytest.raises(StoreError):
        dk.load_model(tmp_path / "wrong")


@pytest.mark.parametrize("multiclass", ["one-vs-rest", "one-vs-one", "dag"])
def test_schemes_of_several_problems(multiclass: str, tmp_path: Path) -> None:
    """A model a class or a pair, whose centres are merged where row and width agree."""
    X, y = classes(150)
    model = dk.OROLSClassifier(
        sigma=WIDTHS, multiclass=multiclass, max_centers=8, stop=None, standardize=False, sampler="all"
    ).fit(X, y)
    pairs = set(zip(model.center_indices_.tolist(), model.kernel_.sigma.tolist(), strict=True))
    assert len(pairs) == model.n_centers_
    for number, path in enumerate(model._result.paths):
        column = model.coef_[:, number]
        own = set(zip(path.rows.tolist(), np.array(WIDTHS)[path.widths].tolist(), strict=True))
        weighted = np.flatnonzero(column)
        assert {(int(model.center_indices_[i]), float(model.kernel_.sigma[i])) for i in weighted} <= own
    assert model.score(X, y) > 0.8
    assert np.isfinite(model.predict_proba(X)).all()
    model.save(tmp_path / "model")
    loaded = dk.load_model(tmp_path / "model")
    assert loaded.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
    assert model.truncate(3).score(X, y) > 0.6


def test_rows_left_out_are_from_models_without_them() -> None:
    """With lambda = 0 and the same centres, least squares over the other rows."""
    X, y = classes(60, 2)
    model = dk.OROLSClassifier(
        sigma=WIDTHS, max_centers=6, stop=None, standardize=False, regularization="none", epsilon=0.1
    ).fit(X, y)
    found = model._outputs_left_out()[:, 0]
    A = np.column_stack([np.ones(60), kernel_matrix(model, X, 0.1)])
    for row in range(0, 60, 7):
        others = np.arange(60) != row
        weights = np.linalg.lstsq(A[others], 2.0 * y[others] - 1.0, rcond=None)[0]
        assert found[row] == pytest.approx(A[row] @ weights, abs=1e-7)


def test_weights_count_as_repeated_rows() -> None:
    X, y = regression(50)
    counts = np.random.default_rng(0).integers(0, 4, 50)
    parameters: dict[str, Any] = {"sigma": WIDTHS, "sampler": "all", "max_centers": 8, "stop": None}
    weighted = dk.OROLSRegressor(**parameters).fit(X, y, counts)
    repeated = dk.OROLSRegressor(**parameters).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-8)
    np.testing.assert_array_equal(weighted.kernel_.sigma, repeated.kernel_.sigma)


def test_two_scales_need_two_widths() -> None:
    """A function that is fast on one side and slow on the other."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-10, 10, (800, 1))

    def f(x: Array) -> Array:
        return np.where(x < 0, np.sin(6 * x), np.sin(0.6 * x))

    y, grid = f(X[:, 0]) + 0.05 * rng.standard_normal(800), np.linspace(-9.9, 9.9, 500)[:, None]
    widths = [0.25, 2.0]
    errors = [
        np.sqrt(np.mean((dk.OROLSRegressor(**parameters).fit(X, y).predict(grid) - f(grid[:, 0])) ** 2))
        for parameters in (
            {"sigma": sigma, "standardize": False, "max_centers": 55, "stop": None} for sigma in (widths, *widths)
        )
    ]
    assert errors[0] < 0.8 * min(errors[1:])


def test_few_rows_are_all_candidates_with_all_widths() -> None:
    """As many pairs as the pool holds are all candidates, and then nothing is drawn."""
    X, y = regression(80)
    parameters: dict[str, Any] = {"sigma": WIDTHS, "max_centers": 8, "stop": None}
    drawn = [dk.OROLSRegressor(candidates=240, random_state=seed, **parameters).fit(X, y) for seed in (0, 1)]
    assert_equal_models(*drawn)
    assert_equal_models(drawn[0], dk.OROLSRegressor(sampler="all", **parameters).fit(X, y))
    fewer = [dk.OROLSRegressor(candidates=60, random_state=seed, **parameters).fit(X, y) for seed in (0, 1)]
    assert fewer[0].center_indices_.tolist() != fewer[1].center_indices_.tolist()


def test_a_grid_may_hold_lists_of_widths() -> None:
    X, y = regression(150)
    grid = {"sigma": [0.05, [0.5, 1.0, 2.0], [1.0, 3.0], [0.05]], "max_centers": [4, 10]}
    search = dk.GridSearch(dk.OROLSRegressor(), grid, folds=3).fit(X, y)
    sigma = [params["sigma"] for params in search.cv_results_["params"]]
    errors = search.cv_results_["mean_error"]
    one = [e for s, e in zip(sigma, errors, strict=True) if s == 0.05]
    listed = [e for s, e in zip(sigma, errors, strict=True) if s == [0.05]]
    assert one == listed
    assert isinstance(search.best_params_["sigma"], list)
    assert search.predict(X).shape == (150,)
    # A setting beside others is what it is alone.
    for index, params in enumerate(search.cv_results_["params"]):
        if params == {"sigma": [1.0, 3.0], "max_centers": 10}:
            alone = dk.GridSearch(dk.OROLSRegressor(), {k: [v] for k, v in params.items()}, folds=3).fit(X, y)
            assert alone.cv_results_["mean_error"][0] == pytest.approx(errors[index], rel=1e-9)


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"criterion": "residual"}, "criterion"),
        ({"refit": "rkhs"}, "refit"),
        ({"kernel": "polynomial"}, "sigma"),
        ({"kernel": dk.Gaussian(1.0)}, "sigma"),
        ({"kernel": Gaussians(np.array([1.0, 2.0])), "sigma": 1.0}, "kernel"),
        ({"kernel": "gaussians", "sigma": 1.0}, "kernel"),
    ],
)
def test_what_does_not_go_together_is_refused(parameters: dict[str, Any], named: str) -> None:
    with pytest.raises(JobError, match=named):
        dk.OROLSRegressor(**{"sigma": WIDTHS, **parameters}).fit(*regression(30))


@pytest.mark.parametrize("cls", [dk.LSSVMRegressor, dk.KRLSRegressor, dk.QRForwardRegressor])
def test_other_methods_take_one_width(cls: Any) -> None:
    with pytest.raises(JobError, match="sigma"):
        cls(sigma=WIDTHS).fit(*regression(30))


def test_a_run_resumes_with_the_same_widths_only(tmp_path: Path) -> None:
    X, y = regression(100)
    parameters: dict[str, Any] = {"run_dir": tmp_path / "run", "stop": None}
    first = dk.OROLSRegressor(sigma=WIDTHS, max_centers=6, **parameters).fit(X, y)
    longer = dk.OROLSRegressor(sigma=WIDTHS, max_centers=12, **parameters).fit(X, y)
    assert longer.center_indices_[:6].tolist() == first.center_indices_.tolist()
    with pytest.raises(dk.RunError, match="sigma"):
        dk.OROLSRegressor(sigma=[0.5, 1.0], max_centers=12, **parameters).fit(X, y)
