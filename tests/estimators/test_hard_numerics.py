"""Data that is hard on arithmetic gives a valid model with its reason, or an error with its cause; never NaN."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import qr

import distkern as dk
from tests.estimators.fits import ALL, CLASSIFIERS, REGRESSORS
from tests.estimators.hard_data import CASES, Array, Hard, easy, kernel_columns, labelled
from tests.fuzzing import refusal
from tests.markers import variants

CRITERIA = ("error-reduction", "residual")
DTYPES = ("float64", "float32")
SAMPLES = (None, 60)

Settings = tuple[Any, str, str, int | None]


def quick(number: int, case: Hard) -> list[Settings]:
    """A regression or a classification, with one criterion and precision; cases take them in turn."""
    regression = case.regression_only or number % 2 == 0
    first, second = number // 2 % 2, number // 4 % 2
    return [(dk.OROLSRegressor if regression else dk.OROLSClassifier, CRITERIA[first], DTYPES[second], None)]


QUICK = [(name, *settings) for number, (name, case) in enumerate(CASES.items()) for settings in quick(number, case)]


def outputs(model: Any, X: Array) -> Array:
    return np.asarray(model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X))


def check_valid(model: Any, X: Array) -> None:
    for name in ("coef_", "intercept_", "centers_", "lambda_"):
        assert np.isfinite(getattr(model, name)).all(), name
    n_paths = len(np.atleast_1d(model.lambda_))
    assert model.n_centers_ == len(model.centers_) == len(model.coef_) <= n_paths * model.max_centers
    assert not model.n_centers_ or np.isfinite(model.gcv_)
    assert np.all(np.asarray(model.lambda_) >= 0.0)
    for name in ("lambda_", "gcv", "q_norm", "residual_max"):
        assert np.isfinite(model.history_[name]).all(), name
    assert isinstance(model.stop_reason_, dk.StopReason)
    assert model.stop_reason_.advice
    assert np.isfinite(outputs(model, X)).all()
    if isinstance(model, CLASSIFIERS):
        probabilities = model.predict_proba(X)
        assert np.isfinite(probabilities).all()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        assert set(model.predict(X)) <= set(model.classes_)


def train(case: Hard, cls: Any, criterion: str, dtype: str, selection_rows: int | None) -> None:
    X, y, weights = case.make()
    if cls in CLASSIFIERS:
        y = labelled(y)
    model = cls(max_centers=30, criterion=criterion, dtype=dtype, selection_rows=selection_rows, random_state=3)
    model.set_params(**{name: value for name, value in case.parameters.items() if name in model.get_params()})
    refused = case.refused.get(dtype)
    with warnings.catch_warnings():
        if dtype in case.warns:
            warnings.simplefilter("ignore", dk.ScaleWarning)
        if dtype in case.rounds:
            warnings.simplefilter("ignore", dk.RoundingWarning)
        if refused is None:
            check_valid(model.fit(X, y, weights), X)
            return
        with pytest.raises(dk.DataError) as caught:
            model.fit(X, y, weights)
    assert caught.value.kind == refused
    assert not hasattr(model, "coef_")


def name_of(value: Any) -> str:
    return value.__name__ if value in ALL else str(value)


@pytest.mark.parametrize(("name", "cls", "criterion", "dtype", "selection_rows"), QUICK, ids=name_of)
def test_hard_data(name: str, cls: Any, criterion: str, dtype: str, selection_rows: int | None) -> None:
    train(CASES[name], cls, criterion, dtype, selection_rows)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_hard_data_with_all_settings(name: str) -> None:
    for settings in product(ALL, CRITERIA, DTYPES, SAMPLES):
        if not (CASES[name].regression_only and settings[0] in CLASSIFIERS):
            train(CASES[name], *settings)


@pytest.mark.parametrize(
    "name",
    variants(
        ["duplicates", "features-1e100"],
        ["duplicates", "rank-one", "outlier-in-x", "features-1e100", "half-weights-1e-12"],
    ),
)
def test_hard_data_one_versus_the_rest(name: str) -> None:
    X, y, weights = CASES[name].make()
    for criterion, dtype in product(CRITERIA, DTYPES):
        model = dk.OROLSClassifier(multiclass="one-vs-rest", max_centers=30, criterion=criterion, dtype=dtype)
        check_valid(model.fit(X, labelled(y), weights), X)


def dense_fit(model: Any, X: Array, y: Array, weights: Array | None = None) -> Array:
    """Fitted values of the same centres and lambda, from a QR decomposition of all kernel columns."""
    rows, w = model.center_indices_, np.ones(len(X)) if weights is None else weights
    mean = np.average(X, axis=0, weights=w)
    spread = np.sqrt(np.average(np.square(X - mean), axis=0, weights=w))
    Z = (X - mean) / np.where(spread > 0, spread, 1.0)
    sigma = model.kernel_.sigma
    K = np.array([np.exp(-np.square(Z - Z[row]).sum(axis=1) / (2 * sigma**2)) for row in rows]).T
    columns = np.column_stack([np.ones(len(X)), K])
    target = y - np.average(y, weights=w)
    orthonormal, r = qr(np.sqrt(w)[:, None] * columns, mode="economic")
    s = np.square(r.diagonal())
    z = (orthonormal * r.diagonal()).T @ (np.sqrt(w) * target)
    z[0] = 0.0
    unit = r / r.diagonal()[:, None]
    return np.asarray(columns @ np.linalg.solve(unit, z / (model.lambda_ + s)) + np.average(y, weights=w))


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(
    "name", ["duplicates", "rank-one", "outlier-in-x", "constant-column", "half-weights-1e12", "half-weights-1e-12"]
)
def test_what_is_degenerate_is_fitted_as_a_dense_solver_would(name: str, criterion: str) -> None:
    X, y, weights = CASES[name].make()
    model = dk.OROLSRegressor(max_centers=30, criterion=criterion, regularization=1e-3, stop=None).fit(X, y, weights)
    assert model.n_centers_ >= 3
    np.testing.assert_allclose(model.predict(X), dense_fit(model, X, y, weights), atol=1e-6 * np.abs(y).max())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("regularization", ["gcv", "none"])
def test_a_target_of_three_kernel_columns_is_found(criterion: str, dtype: str, regularization: str) -> None:
    X, _ = easy()
    y = kernel_columns(X)
    model = dk.OROLSRegressor(
        sigma=1.0, standardize=False, max_centers=40, criterion=criterion, dtype=dtype, regularization=regularization
    ).fit(X, y)
    # Only error reduction finds the very rows; rounding decides on the last ones otherwise.
    exact = dtype == "float64" and criterion == "error-reduction"
    assert np.abs(model.predict(X) - y).max() < (1e-9 if exact else 2e-3) * y.std()


@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.parametrize("value", [0.0, 3.7, -1e300, 5e-324])
def test_equal_targets_give_a_constant_and_say_so(cls: Any, value: float) -> None:
    X, _ = easy()
    model = cls().fit(X, np.full(len(X), value))
    assert model.stop_reason_ is dk.StopReason.RESIDUAL_BELOW
    assert "equal" in model.stop_reason_.advice
    assert model.n_centers_ == 0
    np.testing.assert_array_equal(model.predict(X), np.full(len(X), value))


def test_one_equal_target_among_others_stays_constant() -> None:
    X, y = easy()
    model = dk.OROLSRegressor(max_centers=20).fit(X, np.column_stack([y, np.full(len(X), 0.1)]))
    alone = dk.OROLSRegressor(max_centers=20).fit(X, y)
    np.testing.assert_array_equal(model.predict(X)[:, 1], np.full(len(X), 0.1))
    np.testing.assert_allclose(model.predict(X)[:, 0], alone.predict(X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_sample_that_sees_one_target_value_is_refused(value: float) -> None:
    X, y = easy(1000)
    y = np.full(1000, value)
    y[np.argmax(X[:, 0])] = 2.0
    with pytest.raises(dk.DataError, match="selection_rows") as caught:
        dk.OROLSRegressor(selection_rows=20, max_centers=5).fit(X, y)
    assert caught.value.kind == "constant-sample"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("criterion", CRITERIA)
@given(exponents=st.tuples(st.integers(-95, 95), st.integers(-95, 95)), standardize=st.booleans())
def test_powers_of_two_change_nothing(
    criterion: str, dtype: str, exponents: tuple[int, int], standardize: bool
) -> None:
    """Scaling features or targets by a power of two rounds nothing, so every bit of the model's shape stays."""
    of_x, of_y = (e * (4 if dtype == "float64" else 1) for e in exponents)
    if dtype == "float32" and not standardize:
        of_x //= 3
    X, y = easy(60)
    settings = {"criterion": criterion, "dtype": dtype, "standardize": standardize, "max_centers": 12}
    plain = dk.OROLSRegressor(**settings).fit(X, y)
    scaled = dk.OROLSRegressor(**settings).fit(np.ldexp(X, of_x), np.ldexp(y, of_y))
    assert scaled.center_indices_.tolist() == plain.center_indices_.tolist()
    assert scaled.lambda_ == plain.lambda_
    assert scaled.stop_reason_ is plain.stop_reason_
    np.testing.assert_array_equal(np.ldexp(scaled.predict(np.ldexp(X, of_x)), -of_y), plain.predict(X))


@given(offset=st.floats(-1e6, 1e6), scale=st.floats(1e-100, 1e100))
def test_units_of_features_change_no_prediction(offset: float, scale: float) -> None:
    X, y = easy(80)
    plain = dk.OROLSRegressor(max_centers=15, stop=None).fit(X, y)
    moved = dk.OROLSRegressor(max_centers=15, stop=None).fit((X + offset) * scale, y)
    error = np.abs(moved.predict((X + offset) * scale) - plain.predict(X)).max()
    assert error < 1e-5 * max(1.0, abs(offset) / 1e3)


numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1.0, 5e-324, 1e-308, 1e-150, 1e150, 1.7e308, 1e30, 1e12, 2.0**53]),
)
tables = st.integers(3, 12).flatmap(
    lambda n: st.tuples(
        st.lists(st.lists(numbers, min_size=2, max_size=2), min_size=n, max_size=n),
        st.lists(numbers, min_size=n, max_size=n),
        st.none() | st.lists(st.floats(0, 1e300), min_size=n, max_size=n),
    )
)


@pytest.mark.parametrize("cls", ALL)
@given(table=tables, settings=st.tuples(*map(st.sampled_from, (CRITERIA, DTYPES, SAMPLES, (True, False)))))
def test_any_numbers(cls: Any, table: tuple[Any, Any, Any], settings: tuple[str, str, int | None, bool]) -> None:
    X, y, weights = (None if part is None else np.array(part) for part in table)
    if cls in CLASSIFIERS:
        y = np.array(y) > np.median(y)
    criterion, dtype, selection_rows, standardize = settings
    model = cls(
        max_centers=8, criterion=criterion, dtype=dtype, selection_rows=selection_rows and 5, standardize=standardize
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dk.ScaleWarning)
        error = refusal(lambda: model.fit(X, y, weights))
    if error is None:
        # The model is sound; a row may be too far for a kernel that is not bounded.
        error = refusal(lambda: check_valid(model, X))
        assert error is None or error.kind == "overflow"
    else:
        assert isinstance(error, dk.DataError)
        assert error.kind != "unspecified"


@given(sigma=st.floats(1e-30, 1e30), dtype=st.sampled_from(DTYPES), criterion=st.sampled_from(CRITERIA))
def test_any_width(sigma: float, dtype: str, criterion: str) -> None:
    X, y = easy(60)
    model = dk.OROLSRegressor(sigma=sigma, dtype=dtype, criterion=criterion, max_centers=10).fit(X, y)
    check_valid(model, X)
    if sigma > 1e9:
        assert model.stop_reason_ is dk.StopReason.CANDIDATES_EXHAUSTED
        assert "sigma is too large" in model.stop_reason_.advice


@pytest.mark.parametrize(
    ("cls", "criterion"), variants([(dk.OROLSClassifier, "error-reduction")], product(CLASSIFIERS, CRITERIA))
)
@pytest.mark.slow
def test_one_row_of_a_class_among_a_hundred_thousand(cls: Any, criterion: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100_001, 2))
    y = np.zeros(100_001, dtype=int)
    X[77_777], y[77_777] = (9.0, 9.0), 1
    model = cls(max_centers=10, criterion=criterion, sigma=0.5, stop=None).fit(X, y)
    check_valid(model, X[77_770:77_780])
    assert model.predict(X[77_777:77_778]).tolist() == [1]
    assert 77_777 in model.center_indices_


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [1e18, 1e30, 1e160, 1e300, -1.7e308])
def test_a_row_far_outside_is_predicted_as_the_gaussian_does(dtype: str, value: float) -> None:
    X, y = easy()
    model = dk.OROLSRegressor(dtype=dtype, max_centers=20).fit(X, y)
    distant = np.array([[value, 0.0], [0.0, value], [value, -value], [0.0, 0.0]])
    predicted = model.predict(distant)
    np.testing.assert_allclose(predicted[:3], model.intercept_[0])
    np.testing.assert_allclose(predicted[3:], model.predict(distant[3:]), atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_prediction_that_overflows_names_the_feature(dtype: str) -> None:
    X, y = easy()
    model = dk.OROLSRegressor(kernel=dk.Polynomial(5, 1.0), dtype=dtype, max_centers=20).fit(X, y)
    distant = np.zeros((3, 2))
    distant[1, 1] = 1e200
    with pytest.raises(dk.DataError, match=r"1e\+200 in column 1 .*polynomial") as caught:
        model.predict(distant)
    assert caught.value.kind == "overflow"


@pytest.mark.parametrize("standardize", [True, False])
def test_an_overflow_is_named(standardize: bool) -> None:
    X, y = easy()
    wide, targets = X.copy(), np.column_stack([y, y])
    wide[3, 1], targets[3, 1] = 1e200, 1e200
    model = dk.OROLSRegressor(standardize=standardize)
    with pytest.raises(dk.DataError, match=r"column 1 .* squares overflow"):
        model.fit(wide, y)
    with pytest.raises(dk.DataError, match=r"target 1 .* squares overflow"):
        model.fit(X, targets)


def test_a_knob_is_named_only_where_it_helps() -> None:
    X, y = easy()
    model = dk.OROLSRegressor(standardize=False, dtype="float32")
    with pytest.raises(
        dk.DataError, match=r"1e\+15 is the most before products overflow in float32: .*standardize=True"
    ):
        model.fit(1e20 * X, y)
    with pytest.raises(dk.DataError, match=r"scale it to ordinary sizes$"):
        model.fit(1e-200 * X, y)


def test_the_message_about_a_tiny_feature_names_it_and_the_limit() -> None:
    import pandas as pd

    X, y = easy()
    frame = pd.DataFrame({"height": X[:, 0], "charge": X[:, 1] * 1e-200})
    with pytest.raises(dk.DataError, match=r"column 'charge' has a standard deviation below 1e-150, and 1e-140 is"):
        dk.OROLSRegressor().fit(frame, y)
