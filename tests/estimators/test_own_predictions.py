"""No model contradicts the fit that its training reports without saying so."""

from __future__ import annotations

import warnings
from typing import Any
from unittest import mock

import numpy as np
import pytest

import distkern as dk
from distkern.estimators.sparse import kernel_least_squares
from distkern.scheduler.protocol.selection_settings import SelectionSettings
from distkern.selection import forward_path

from .hard_cases import HardCase, contradiction, hard_case
from .hard_data import easy, labelled


def hold(case: HardCase) -> None:
    """Train, and require that the model agrees with its fit, with a warning where its path was cut."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = case.model.fit(case.X, case.y, sample_weight=case.weights)
        except dk.DataError:
            return
    warned = any(issubclass(w.category, dk.RoundingWarning) for w in caught)
    assert warned == (model.stop_reason_ is dk.StopReason.ROUNDING), model.get_params()
    if model.n_centers_:
        assert contradiction(case, model) <= 0.01, model.get_params()


@pytest.mark.parametrize("seed", range(24))
def test_small_hard_cases(seed: int) -> None:
    hold(hard_case(seed, 300, 120))


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, 400, 20))
def test_hard_cases(first: int) -> None:
    for seed in range(1000 + first, 1020 + first):
        hold(hard_case(seed, 4000, 3000))


def smooth_rows() -> tuple[Any, Any]:
    X = np.random.default_rng(0).uniform(-1, 1, (150, 2))
    return X, np.sin(5 * X[:, 0]) * np.cos(3 * X[:, 1])


def test_columns_of_rounding_end_the_path() -> None:
    """Without a limit of dependence float32 takes columns that are nothing but rounding."""
    case = HardCase(
        dk.OROLSRegressor(sigma=2.0, standardize=False, dtype="float32", stop=None, regularization="none"),
        *smooth_rows(),
        None,
    )
    with (
        mock.patch.object(SelectionSettings, "dependent", 1e-20),
        mock.patch.object(SelectionSettings, "condition_limit", 1e20),
        pytest.warns(dk.RoundingWarning, match="dtype='float64', a smaller sigma or max_centers="),
    ):
        model = case.model.fit(case.X, case.y)
    assert model.stop_reason_ is dk.StopReason.ROUNDING
    assert 5 < model.n_centers_ == len(model.history_)
    # Predictions take other tiles than the check of the training: their rounding is another one of the same size.
    assert contradiction(case, model) <= 0.02
    with pytest.raises(dk.JobError, match="path has between 1 and"):
        model.truncate(model.n_centers_ + 1)


def test_a_width_below_the_rounding_of_distances() -> None:
    """In float32 the distance of a centre to itself may be beyond the width: predictions at centres miss them."""
    X, y = easy()
    hold(HardCase(dk.OROLSRegressor(sigma=1e-300, dtype="float32"), X, y, None))
    # Here the same rounding is small beside the residual.
    assert dk.OROLSClassifier(sigma=1e-300, dtype="float32", criterion="residual").fit(X, labelled(y)).n_centers_


@pytest.mark.parametrize("kind", [dk.QRForwardRegressor, dk.OLSForwardRegressor])
def test_forward_selection_ends_before_rounding(kind: type[Any]) -> None:
    X, y = smooth_rows()
    settings = {"sigma": 2.0, "standardize": False, "max_centers": 60}
    with (
        mock.patch.object(forward_path, "DEPENDENT", 1e-32),
        mock.patch.object(forward_path, "CONDITION_LIMIT", 1e30),
        mock.patch.object(forward_path, "AGREES", 1e-9),
        pytest.warns(dk.RoundingWarning, match=r"float64 kernel values .* the model keeps the first"),
    ):
        model = kind(**settings, **({"tolerance": 0.0} if kind is dk.OLSForwardRegressor else {})).fit(X, y)
    assert model.stop_reason_ is dk.StopReason.ROUNDING
    assert 5 < model.n_centers_ == len(model.history_) < 60
    left = 1.0 - model.history_["error_reduction"].sum()
    np.testing.assert_allclose(np.var(model.predict(X) - y) / np.var(y), left, rtol=1e-6)


def test_weights_of_the_rkhs_norm_warn_of_rounding() -> None:
    X, y = smooth_rows()
    settings = {"sigma": 2.0, "standardize": False, "stop": None, "refit": "rkhs", "max_centers": 20}
    model = dk.OROLSRegressor(**settings).fit(X, y)
    assert model.stop_reason_ is not dk.StopReason.ROUNDING
    with (
        mock.patch.object(kernel_least_squares, "AGREES", 1e-30),
        pytest.warns(dk.RoundingWarning, match="a smaller sigma or fewer centres"),
    ):
        warned = dk.OROLSRegressor(**settings).fit(X, y)
    assert warned.stop_reason_ is dk.StopReason.ROUNDING
    assert warned.predict(X).tobytes() == model.predict(X).tobytes()
