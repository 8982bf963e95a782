"""Targets of different scale are fitted alike, whatever their units."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import r2_score

import distkern as dk
from distkern.numerics.target_scales import target_units
from tests.estimators.fits import assert_equal_models
from tests.scheduler.worker_clusters import cluster

Array = NDArray[Any]
UNITS = np.array([1.0, 2.0**-10, 2.0**-31])
"""Powers of two change no digit, so that predictions can be compared bit by bit."""


def data(n: int = 300, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    Y = np.column_stack([np.sin(2 * X[:, 0]), np.sin(2 * X[:, 1] + 1), X[:, 2]])
    Y = (Y - Y.mean(axis=0)) / Y.std(axis=0)
    return X, Y + 0.1 * rng.standard_normal(Y.shape)


@given(st.lists(st.floats(1e-140, 1e140), min_size=2, max_size=6), st.integers(-60, 60))
def test_units_are_powers_of_two_that_bring_the_deviations_together(deviations: list[float], power: int) -> None:
    d = np.array(deviations)
    found = target_units(d)
    units = np.ones(len(d)) if found is None else np.array(found)
    assert (np.frexp(units)[0] == 0.5).all()
    scaled = d / units
    near = units > 2.0**-500
    assert scaled[near].max() <= 2.0 * scaled[near].min() * (1 + 1e-12)
    assert target_units(d * 2.0**power) == found  # units are relative to the largest


@pytest.mark.parametrize("d", [[3.0], [1.0, 0.8], [1.0, 0.0], [np.nan, 1.0], [0.0, 0.0], [np.inf, 2.0]])
def test_one_scale_needs_no_units(d: list[float]) -> None:
    assert target_units(np.array(d)) is None


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"selection_rows": 100},
        {"criterion": "residual"},
        {"regularization": "gcv-per-target", "stop": "bic"},
        {"refit": "rkhs"},
        {"sigma": "cv", "folds": 3, "max_centers": 10},
        {"stop": "validation"},
        {"solver": "conjugate-gradients"},
        {"metric": "diagonal", "metric_rounds": 1, "sigma": "median"},
        {"dtype": "float32"},
        {"loss": "huber"},
    ],
    ids=repr,
)
def test_units_change_no_bit(settings: dict[str, Any]) -> None:
    X, Y = data()
    plain, small = (
        dk.OROLSRegressor(**{"max_centers": 25, "sigma": 1.5, **settings}).fit(X, Y * units) for units in (1.0, UNITS)
    )
    np.testing.assert_array_equal(small.center_indices_, plain.center_indices_)
    np.testing.assert_array_equal(small.predict(X), plain.predict(X) * UNITS)
    np.testing.assert_array_equal(small.lambda_, plain.lambda_)
    if small._has_closed_form():
        ends, theirs = small.predict_interval(X), plain.predict_interval(X)
        np.testing.assert_allclose(ends, theirs * UNITS[:, None], rtol=1e-9)
        np.testing.assert_allclose(small.predict(X, return_std=True)[1], plain.predict(X, return_std=True)[1] * UNITS)


@pytest.mark.parametrize("cls", [dk.OROLSRegressor, dk.NPDRegressor])
def test_both_targets_are_fitted(cls: Any) -> None:
    X, Y = data(900)
    Y = Y[:, :2] * [1.0, 1e-3]
    model = cls(max_centers=100, sigma=1.5).fit(X[:600], Y[:600])
    assert r2_score(Y[600:], model.predict(X[600:]), multioutput="raw_values").min() > 0.9


def test_appended_rows_and_runs_keep_the_units(tmp_path: Path) -> None:
    X, Y = data()
    plain = dk.OROLSRegressor(max_centers=25, sigma=1.5).fit(X[:150], Y[:150])
    small = dk.OROLSRegressor(max_centers=25, sigma=1.5, run_dir=tmp_path / "a.run").fit(X[:150], Y[:150] * UNITS)
    plain.append(X[150:], Y[150:])
    loaded = dk.load_model(tmp_path / "a.run")
    for model in (small, loaded):
        model.run_dir = None
        model.append(X[150:], Y[150:] * UNITS)
        np.testing.assert_array_equal(model.predict(X), plain.predict(X) * UNITS)
        np.testing.assert_array_equal(model.lambda_, plain.lambda_)


@pytest.mark.cluster
def test_workers_have_the_bits_of_one_process() -> None:
    X, Y = data()
    here = dk.OROLSRegressor(max_centers=20, sigma=1.5, selection_rows=120).fit(X, Y * UNITS)
    with cluster(2, processes=False) as client:
        there = copy(here).set_params(client=client).fit(X, Y * UNITS)
    assert_equal_models(there, here)
