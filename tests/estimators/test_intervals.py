"""Intervals and standard deviations of regressors: explicit refits, coverage, containers, stores and refusals."""

from __future__ import annotations

import pickle
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import distkern as dk
from benchmarks.datasets import present
from distkern.errors import JobError
from distkern.estimators.sparse.uncertainty import restore_uncertainty
from distkern.probability.intervals import choice_of_centers
from distkern.selection.regularization import effective_trace
from tests.estimators.fits import REGRESSORS, fitted, regression
from tests.scheduler.worker_clusters import cluster

Array = NDArray[Any]


def columns_of_q(model: Any, X: Array) -> Array:
    """[1 K] inv(U) on some rows."""
    path, result = model._result.paths[0], model._result
    k = path.n_centers + 1
    rows, centers = ((a - result.scaling.shift) / result.scaling.scale for a in (X, path.features[: k - 1]))
    squares = np.square(rows[:, None] - centers).sum(axis=2)
    design = np.column_stack([np.ones(len(X)), np.exp(-squares / (2 * result.kernel.sigma**2))])
    return np.asarray(design @ np.linalg.inv(path.u[:k, :k]))


def dense_half_widths(model: Any, X: Array, Y: Array, weights: Array, coverage: float) -> Array:
    """Quantiles of the residuals of explicit refits without each row, with the same centres and lambda."""
    path = model._result.paths[0]
    k = path.n_centers + 1
    q, lam = columns_of_q(model, X), path.lambdas[k - 1]
    sizes = np.empty(Y.shape)
    for row in range(len(X)):
        rest = weights.copy()
        rest[row] -= min(1.0, rest[row])
        penalty = np.diag(np.r_[0.0, np.full(k - 1, lam[0])])
        fit = np.linalg.solve((q * rest[:, None]).T @ q + penalty, (q * rest[:, None]).T @ Y)
        sizes[row] = np.abs(Y[row] - q[row] @ fit)
    s = path.s[:k]
    sizes *= choice_of_centers(effective_trace(s, lam, s[0]), effective_trace(s, lam, s[0], 2.0), 1.0)
    wanted = coverage * (weights.sum() + 1)
    halves = []
    for t in range(Y.shape[1]):
        order = np.argsort(sizes[:, t])
        halves.append(sizes[order, t][np.searchsorted(np.cumsum(weights[order]), wanted * (1 - 1e-12))])
    return np.array(halves)


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 1000),
    n_targets=st.integers(0, 3),
    kind=st.sampled_from(["ones", "repeats", "fractions", "small"]),
    cls=st.sampled_from(REGRESSORS),
    coverage=st.sampled_from([0.5, 0.8, 0.9]),
)
def test_widths_are_those_of_refits(seed: int, n_targets: int, kind: str, cls: Any, coverage: float) -> None:
    X, y = regression(60, n_targets=n_targets, seed=seed)
    rng = np.random.default_rng(seed)
    weights = {
        "ones": np.ones(60),
        "repeats": rng.integers(1, 4, 60) * 1.0,
        "fractions": rng.uniform(0.5, 2.5, 60),
        "small": rng.uniform(0.5, 2.5, 60) / 60,
    }[kind]
    model = cls(max_centers=8, sigma=1.0, stop=None).fit(X, y, sample_weight=weights)
    found = model.predict_interval(X, coverage, width="constant")
    halves = dense_half_widths(model, X, y.reshape(60, -1), weights * model._result.weight_scale, coverage)
    middle = model.predict(X).reshape(60, -1)
    expected = np.stack([middle - halves, middle + halves], axis=2)
    np.testing.assert_allclose(found, expected[:, 0] if n_targets < 2 else expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["same", "spread"])
def test_intervals_cover_new_rows(kind: str) -> None:
    shares: dict[tuple[str, float], list[float]] = {}
    widths: dict[str, list[float]] = {"local": [], "constant": []}

    def rows(n: int, rng: Any) -> tuple[Array, Array]:
        X = rng.uniform(-2, 2, (n, 2))
        noise = 0.3 if kind == "same" else 0.05 + 0.4 * np.abs(X[:, 0])
        return X, np.sin(2 * X[:, 0]) + X[:, 1] + noise * rng.standard_normal(n)

    for draw in range(50):
        rng = np.random.default_rng(draw)
        X, y = rows(200, rng)
        X_new, y_new = rows(2000, rng)
        model = dk.OROLSRegressor(max_centers=20, sigma=1.0).fit(X, y)
        for width in ("local", "constant"):
            for coverage in (0.8, 0.9, 0.95):
                low, high = model.predict_interval(X_new, coverage, width=width).T
                shares.setdefault((width, coverage), []).append(np.mean((low <= y_new) & (y_new <= high)))
            widths[width].append(float(np.mean(high - low)))
    for (_, coverage), covered in shares.items():
        assert coverage - 0.005 < np.mean(covered) < coverage + 0.04
    if kind == "spread":
        assert np.mean(widths["local"]) < 0.9 * np.mean(widths["constant"])


@pytest.mark.parametrize("n_targets", [0, 1, 2])
def test_deviations(n_targets: int) -> None:
    X, y = regression(200, n_targets=n_targets)
    X_new, _ = regression(50, seed=1)
    model = dk.OROLSRegressor(max_centers=10, sigma=1.0, stop=None).fit(X, y)
    mean, deviations = model.predict(X_new, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(X_new))
    assert deviations.shape == mean.shape
    path = model._result.paths[0]
    q, lam = columns_of_q(model, X_new), path.lambdas[10]
    covariance = np.diag(1 / np.r_[path.s[0], path.s[1:] + lam])
    leverages = np.einsum("ij,jk,ik->i", q, covariance, q)
    residuals = y.reshape(200, -1) - model.predict(X).reshape(200, -1)
    freedom = 200 - 1 - 2 * np.sum(path.s[1:] / (path.s[1:] + lam))
    variance = np.square(residuals).sum(axis=0) / freedom
    np.testing.assert_allclose(deviations.reshape(50, -1), np.sqrt(variance * (1 + leverages[:, None])), rtol=1e-6)
    assert 0.08 < deviations.mean() < 0.13  # the noise has 0.1


def test_every_container_has_the_same_intervals(tmp_path: Path) -> None:
    import dask.array as da

    X, y = regression(300, n_targets=2)
    model = dk.NPDRegressor(max_centers=12, sigma=1.0).fit(X, y)
    expected, (_, deviations) = model.predict_interval(X), model.predict(X, return_std=True)
    dk.write_dataset(tmp_path / "set", X, y, chunk_rows=64)
    rows = dk.open_dataset(tmp_path / "set")
    lazy = da.from_array(X, chunks=(70, 2))
    for given_rows in (rows, rows.X, lazy):
        found = model.predict_interval(given_rows)
        assert found.shape == (300, 2, 2)
        np.testing.assert_allclose(np.asarray(found[:]), expected, rtol=1e-12)
        of_rows = model.predict(given_rows, return_std=True)[1]
        np.testing.assert_allclose(np.asarray(of_rows[:]), deviations, rtol=1e-9)
    parts = list(model.iter_predictions(rows, interval=0.9))
    np.testing.assert_allclose(np.concatenate([part[2] for part in parts]), expected, rtol=1e-12)
    for _, predicted, ends in parts:
        assert ((ends[..., 0] <= predicted) & (predicted <= ends[..., 1])).all()


@pytest.mark.parametrize("n_targets", [0, 2])
def test_stores_and_pickles_keep_intervals(tmp_path: Path, n_targets: int) -> None:
    X, y = regression(250, n_targets=n_targets)
    model = dk.OROLSRegressor(max_centers=15, sigma=1.0, intervals=True).fit(X, y)
    model.save(tmp_path / "m")
    for again in (dk.load_model(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        for width in ("local", "constant"):
            np.testing.assert_array_equal(
                again.predict_interval(X, 0.8, width=width), model.predict_interval(X, 0.8, width=width)
            )
        for found, expected in zip(again.predict(X, return_std=True), model.predict(X, return_std=True), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("interval_local_sizes", lambda array: array[::-1]),
        ("interval_local_masses", lambda array: array[:, :0]),
        ("interval_constant_sizes", lambda array: -array),
        ("interval_scale_coef", lambda array: np.zeros((99, 1))),
        ("interval_scale_low", lambda array: array * np.nan),
        ("deviation_inverse", lambda array: array[1:]),
        ("deviation_variance", lambda array: -array),
        ("deviation_factors", None),
        ("interval_constant_masses", None),
    ],
)
def test_damaged_arrays_are_refused(name: str, change: Any) -> None:
    model = fitted(dk.OROLSRegressor, intervals=True)
    arrays = model._stored_arrays() | {"coef": model.coef_, "intercept": model.intercept_}
    restore_uncertainty(model, arrays)
    changed = arrays | {name: None if change is None else change(arrays[name])}
    with pytest.raises((ValueError, KeyError)):
        restore_uncertainty(model, {key: array for key, array in changed.items() if array is not None})


def test_a_prefix_has_the_intervals_of_a_training_that_ends_there() -> None:
    X, y = regression(250)
    long = dk.OROLSRegressor(max_centers=20, sigma=1.0, stop=None, panel=5).fit(X, y)
    short = dk.OROLSRegressor(max_centers=10, sigma=1.0, stop=None, panel=5).fit(X, y)
    np.testing.assert_array_equal(long.truncate(10).predict_interval(X), short.predict_interval(X))


def test_rows_of_stores_are_read_once_more_only_on_request(tmp_path: Path) -> None:
    X, y = regression(300)
    dk.write_dataset(tmp_path / "set", X, y, chunk_rows=64)
    rows = dk.open_dataset(tmp_path / "set")
    plain = dk.OROLSRegressor(max_centers=10, sigma=1.0)
    asked = dk.OROLSRegressor(max_centers=10, sigma=1.0, intervals=True)
    without, with_them = plain.fit(rows), asked.fit(rows)
    with pytest.raises(JobError, match="intervals=True"):
        without.predict_interval(X)
    assert with_them.predict_interval(X).shape == (300, 2)
    assert with_them.summary_["passes"] == without.summary_["passes"] + 1
    with rows_to_plan(asked, rows) as planned, rows_to_plan(plain, rows) as fewer:
        assert planned.passes == fewer.passes + 1
    without.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    for call in (loaded.predict_interval, lambda X: loaded.predict(X, return_std=True)):
        with pytest.raises(JobError, match="intervals=True"):
            call(X)


def rows_to_plan(estimator: Any, rows: Any) -> Any:
    """A context with the plan of a training on a dataset."""
    from contextlib import nullcontext

    return nullcontext(estimator.plan(estimator.shapes(rows.source()), None))


@pytest.mark.cluster
def test_workers_give_the_same_bits(tmp_path: Path) -> None:
    X, y = regression(400)
    dk.write_dataset(tmp_path / "set", X, y, chunk_rows=64)
    rows = dk.open_dataset(tmp_path / "set")
    here = dk.OROLSRegressor(max_centers=10, sigma=1.0, intervals=True).fit(rows)
    expected = here.predict_interval(rows)[:]
    with cluster(2, processes=True) as client:
        there = dk.OROLSRegressor(max_centers=10, sigma=1.0, intervals=True, client=client).fit(rows)
        np.testing.assert_array_equal(there.predict_interval(rows)[:], expected)
        for found, own in zip(there.predict(rows, return_std=True), here.predict(rows, return_std=True), strict=True):
            np.testing.assert_array_equal(found[:], own[:])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kin40k", "california", "protein", "diamonds", "abalone"])
def test_coverage_and_time_on_published_sets(name: str) -> None:
    found = list(present((name,)))
    if not found:
        pytest.skip(f"{name}.npz is not in the folder of the data sets")
    (split,) = found
    sigma = split.recipe.sigma or "median"
    model = dk.OROLSRegressor(max_centers=split.recipe.centers, sigma=sigma).fit(split.X, split.y)
    widths: dict[str, list[float]] = {}
    for width in ("local", "constant"):
        for coverage in (0.8, 0.9, 0.95):
            low, high = model.predict_interval(split.X_test, coverage, width=width).T
            assert np.mean((low <= split.y_test) & (split.y_test <= high)) == pytest.approx(coverage, abs=0.015)
            widths.setdefault(width, []).append(float(np.mean(high - low)))
    assert np.less(widths["local"], widths["constant"]).all()
    rows = np.tile(split.X_test, (1 + 20_000 // len(split.X_test), 1))
    seconds: dict[str, list[float]] = {"predict": [], "predict_interval": []}
    for _ in range(5):
        for call, times in seconds.items():
            started = process_time()
            getattr(model, call)(rows)
            times.append(process_time() - started)
    assert min(seconds["predict_interval"]) <= 1.5 * min(seconds["predict"])


def test_a_run_that_is_opened_again_has_the_same_intervals(tmp_path: Path) -> None:
    X, y = regression(300)
    settings_of_run = {"max_centers": 12, "sigma": 1.0, "intervals": True, "run_dir": tmp_path / "run"}
    first = dk.OROLSRegressor(**settings_of_run).fit(X, y)
    again = dk.OROLSRegressor(**settings_of_run).fit(X, y)
    np.testing.assert_array_equal(again.predict_interval(X), first.predict_interval(X))


@pytest.mark.parametrize(
    "parameters",
    [
        {"dtype": "float32"},
        {"kernel": dk.Wendland(1.5), "max_centers": 80, "stop": None, "sampler": "uniform"},
        {"sigma": [0.5, 1.0]},
        {"kernel": "polynomial"},
        {"stop": "validation"},
        {"epsilon": 0.1},
        {"selection_rows": 300},
        {"metric": "diagonal"},
        {"regularization": "gcv-per-target"},
    ],
    ids=lambda parameters: next(iter(parameters)),
)
def test_every_kind_of_model_has_intervals(parameters: dict[str, Any]) -> None:
    X, y = regression(1200, n_targets=2, noise=0.3)
    X, X_new, y, y_new = X[:600], X[600:], y[:600], y[600:]
    model = dk.OROLSRegressor(**({"max_centers": 30, "sigma": 1.0, "stop": None} | parameters)).fit(X, y)
    ((_, predicted, ends),) = model.iter_predictions(X_new, interval=0.9)
    np.testing.assert_array_equal(predicted, model.predict(X_new))
    np.testing.assert_array_equal(ends, model.predict_interval(X_new))
    inside = (ends[..., 0] <= y_new) & (y_new <= ends[..., 1])
    assert (np.abs(inside.mean(axis=0) - 0.9) < 0.05).all()
    np.testing.assert_allclose(ends.mean(axis=2), predicted, rtol=1e-9, atol=1e-9)
    mean, deviations = model.predict(X_new, return_std=True)
    np.testing.assert_array_equal(mean, predicted)
    assert (np.abs(deviations.mean(axis=0) - 0.3) < 0.06).all()


def test_refusals() -> None:
    X, y = regression(80)
    model = fitted(dk.OROLSRegressor)
    for coverage in (0, 1.0, 90, "0.9"):
        with pytest.raises(JobError, match="coverage="):
            model.predict_interval(X, coverage)
    with pytest.raises(JobError, match="width="):
        model.predict_interval(X, width="narrow")
    with pytest.raises(JobError, match="rows of total weight 120"):
        model.predict_interval(X, 0.999)
    with pytest.raises(JobError, match="predict_proba"):
        fitted(dk.OROLSClassifier).predict_interval(X)
    with pytest.raises(JobError, match="OROLSRegressor or NPDRegressor"):
        dk.KRLSRegressor().fit(X, y).predict_interval(X)
    with pytest.raises(JobError, match="refit="):
        dk.OROLSRegressor(refit="rkhs", intervals=True).fit(X, y)
    with pytest.raises(JobError, match="refit=None"):
        dk.OROLSRegressor(refit="rkhs", max_centers=5).fit(X, y).predict_interval(X)
    with pytest.raises(JobError, match="refit=None"):
        dk.OROLSRegressor(refit="rkhs", max_centers=5).fit(X, y).predict(X, return_std=True)
    with pytest.raises(JobError, match="intervals="):
        dk.OROLSRegressor(intervals="yes").fit(X, y)
    with pytest.raises(JobError, match="solver="):
        dk.OROLSRegressor(intervals=True, solver="conjugate-gradients").fit(X, y)
