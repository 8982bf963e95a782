"""Every wrong parameter is a JobError that names it, every wrong input a DataError that names the place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import distkern as dk
from tests.estimators.fits import ALL, CLASSIFIERS, REGRESSORS, classes, data_for, fitted, regression

BAD_PARAMETERS: list[tuple[str, Any]] = [
    ("kernel", "gausian"),
    ("class_weight", "equal"),
    ("class_weight", {"a": 0.0}),
    ("class_weight", {}),
    ("fit_intercept", "no"),
    ("fit_intercept", None),
    ("folds", 1),
    ("folds", 2.5),
    ("kernel", None),
    ("kernel", 3),
    ("sigma", 0),
    ("sigma", -1.0),
    ("sigma", "mean"),
    ("sigma", float("nan")),
    ("sigma", float("inf")),
    ("sigma", None),
    ("sigma", True),
    ("sigma", []),
    ("sigma", [1.0, 0.0]),
    ("sigma", [1.0, "median"]),
    ("sigma", [1.0, 1.0]),
    ("sigma", [[1.0, 2.0]]),
    ("max_centers", 0),
    ("max_centers", -3),
    ("max_centers", 2.5),
    ("max_centers", "10"),
    ("max_centers", None),
    ("max_centers", True),
    ("criterion", "residuals"),
    ("criterion", None),
    ("sampler", "random"),
    ("sampler", None),
    ("candidates", 0),
    ("candidates", 1.5),
    ("candidates", None),
    ("huber_threshold", 0.0),
    ("huber_threshold", "wide"),
    ("probabilities", "gauss"),
    ("probabilities", None),
    ("quantile", -0.1),
    ("quantile", 1.0),
    ("quantile", None),
    ("loss", "hinge"),
    ("loss", None),
    ("intervals", "perhaps"),
    ("intervals", None),
    ("metric", "diagonals"),
    ("metric", None),
    ("metric_rank", 0),
    ("metric_rounds", -1),
    ("metric_rounds", 1.5),
    ("panel", 0),
    ("panel", "16"),
    ("regularization", "ridge"),
    ("regularization", -1e-9),
    ("regularization", float("nan")),
    ("regularization", None),
    ("regularization", True),
    ("refit", "norm"),
    ("refit", True),
    ("stop", "gvc"),
    ("stop", 3),
    ("stop", False),
    ("tol", -1.0),
    ("tol", "0.1"),
    ("tol", float("inf")),
    ("patience", 0),
    ("patience", 1.5),
    ("patience", "5"),
    ("selection_rows", 1),
    ("selection_rows", 0.25),
    ("selection_rows", "all"),
    ("solver", "cg"),
    ("solver", None),
    ("epsilon", -0.1),
    ("epsilon", None),
    ("epsilon", float("nan")),
    ("multiclass", "ovr"),
    ("multiclass", None),
    ("standardize", "yes"),
    ("standardize", None),
    ("standardize", 1),
    ("dtype", "float16"),
    ("dtype", None),
    ("factors", "worker"),
    ("factors", None),
    ("memory_limit", 0),
    ("memory_limit", -5),
    ("memory_limit", "2 potatoes"),
    ("memory_limit", True),
    ("max_seconds", 0),
    ("max_seconds", -1.0),
    ("max_seconds", float("nan")),
    ("max_seconds", float("inf")),
    ("max_seconds", "60"),
    ("max_seconds", True),
    ("random_state", -1),
    ("random_state", 0.5),
]


@pytest.mark.parametrize(
    ("cls", "name", "value"),
    [(cls, name, value) for cls in ALL for name, value in BAD_PARAMETERS if name in cls().get_params()],
    ids=lambda v: v.__name__ if v in ALL else str(v)[:20],
)
def test_a_wrong_parameter_is_named_with_its_value(cls: Any, name: str, value: Any) -> None:
    model = cls(**{name: value})
    with pytest.raises(dk.JobError) as caught:
        model.fit(*data_for(cls, 30))
    assert name in str(caught.value)
    assert repr(value) in str(caught.value)
    assert caught.value.kind == "invalid-parameter"
    assert isinstance(caught.value, ValueError)
    assert not hasattr(model, "coef_")


def test_parameters_are_checked_before_the_data() -> None:
    with pytest.raises(dk.JobError):
        dk.OROLSRegressor(max_centers=0).fit("no data", None)


def test_every_parameter_has_a_refused_value() -> None:
    free = {"client", "run_dir", "callbacks"}
    for cls in ALL:
        assert set(cls().get_params(deep=False)) - free <= {name for name, _ in BAD_PARAMETERS}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sigma", np.float32(1.5)),
        ("sigma", 2),
        ("max_centers", np.int64(5)),
        ("regularization", 0),
        ("regularization", np.float64(0.5)),
        ("kernel", dk.Polynomial(2, 1.0)),
        ("kernel", "sigmoid"),
        ("kernel", "linear"),
        ("tol", 0),
        ("patience", np.int8(3)),
        ("selection_rows", np.int64(60)),
        ("random_state", np.uint32(7)),
        ("candidates", 1),
        ("panel", 1),
        ("panel", 10_000),
        ("max_centers", 10_000),
        pytest.param(
            "standardize",
            np.True_,
        ),
    ],
    ids=lambda v: str(v)[:20],
)
def test_values_that_are_fine(name: str, value: Any) -> None:
    model = dk.OROLSRegressor(**{"max_centers": 5, name: value}).fit(*regression(40))
    assert model.n_centers_ >= 1
    assert model.get_params()[name] is value


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("cls", ALL)
def test_a_number_that_is_not_finite_in_x_is_named_by_place(cls: Any, value: float) -> None:
    X, y = data_for(cls)
    X[17, 1] = value
    with pytest.raises(dk.DataError, match=r"X holds .* in row 17 .*, column 1") as caught:
        cls(max_centers=5).fit(X, y)
    assert caught.value.kind == "not-finite"
    good, y = data_for(cls)
    with pytest.raises(dk.DataError, match=r"X holds .* in row 17 .*, column 1"):
        cls(max_centers=5).fit(good, y).predict(X)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("cls", ALL)
def test_a_number_that_is_not_finite_in_y_is_named_by_place(cls: Any, value: float) -> None:
    X, y = data_for(cls)
    y = y.astype(float)
    y[23] = value
    with pytest.raises(dk.DataError, match=r"y holds .* in row 23"):
        cls(max_centers=5).fit(X, y)


@pytest.mark.parametrize("cls", ALL)
def test_row_counts_that_differ_are_both_named(cls: Any) -> None:
    X, y = data_for(cls, 60)
    with pytest.raises(dk.DataError, match=r"60.*59"):
        cls().fit(X, y[:-1])
    with pytest.raises(dk.DataError, match="X has 60 rows but sample_weight has 7"):
        cls().fit(X, y, np.ones(7))


@pytest.mark.parametrize("cls", CLASSIFIERS)
@pytest.mark.parametrize("label", [4, "only"])
def test_one_class_is_named(cls: Any, label: Any) -> None:
    X, _ = classes(60)
    with pytest.raises(dk.DataError, match=rf"one class only.*{label}") as caught:
        cls().fit(X, np.full(60, label))
    assert caught.value.kind == "one-class"


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_one_class_with_weight_is_named(cls: Any) -> None:
    X, y = classes(60, 2)
    with pytest.raises(dk.DataError, match=r"one class only .*1\)") as caught:
        cls().fit(X, y, (y == 1).astype(float))
    assert caught.value.kind == "one-class"


@pytest.mark.parametrize("cls", ALL)
def test_one_row_and_no_row(cls: Any) -> None:
    X, y = data_for(cls, 30)
    for n in (0, 1):
        with pytest.raises(dk.DataError, match=rf"{n} sample"):
            cls().fit(X[:n], y[:n])


@pytest.mark.parametrize("cls", REGRESSORS)
def test_two_rows_are_too_few_and_three_are_enough(cls: Any) -> None:
    X, y = regression(30)
    with pytest.raises(dk.DataError, match="2 rows can train") as caught:
        cls().fit(X[:2], y[:2])
    assert caught.value.kind == "too-few-rows"
    assert cls().fit(X[:3], y[:3]).predict(X[:3]).shape == (3,)


@pytest.mark.parametrize("cls", ALL)
def test_constant_features_are_refused(cls: Any) -> None:
    _, y = data_for(cls, 40)
    with pytest.raises(dk.DataError, match="all 3 features are constant") as caught:
        cls().fit(np.full((40, 3), 0.1), y)
    assert caught.value.kind == "constant-features"


@pytest.mark.parametrize("cls", ALL)
def test_one_constant_feature_among_others_changes_nothing(cls: Any) -> None:
    X, y = data_for(cls, 60)
    plain = cls(max_centers=8, sigma=1.0).fit(X, y)
    wide = np.column_stack([X, np.full(60, 7.7)])
    model = cls(max_centers=8, sigma=1.0).fit(wide, y)
    np.testing.assert_array_equal(model.center_indices_, plain.center_indices_)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-9)


@pytest.mark.parametrize("cls", ALL)
def test_another_number_of_features_at_predict(cls: Any) -> None:
    model = fitted(cls)
    with pytest.raises(dk.DataError, match=rf"X has 5 features, but {cls.__name__} is expecting 2 features"):
        model.predict(np.zeros((3, 5)))


@pytest.mark.parametrize("cls", ALL)
def test_prediction_before_training(cls: Any) -> None:
    X, _ = data_for(cls, 20)
    for name in ("predict", "truncate", "save", "decision_function", "predict_proba"):
        if hasattr(cls, name):
            with pytest.raises(NotFittedError):
                getattr(cls(), name)(2 if name == "truncate" else X)


@pytest.mark.parametrize("n_centers", [0, -1, 16])
def test_truncate_to_what_is_not_on_the_path(n_centers: int) -> None:
    model = fitted(dk.OROLSRegressor, max_centers=15, stop=None)
    with pytest.raises(
        dk.JobError,
        match=rf"n_centers={n_centers}: (the path has between 1 and 15 centres|it must be a whole number above 0)",
    ):
        model.truncate(n_centers)


@pytest.mark.parametrize("n_centers", [2.5, "2", True, None])
def test_truncate_to_no_integer(n_centers: Any) -> None:
    with pytest.raises(dk.JobError):
        fitted(dk.OROLSRegressor).truncate(n_centers)


def test_a_run_directory_that_exists_is_refused_before_training(tmp_path: Path) -> None:
    events: list[Any] = []
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    with pytest.raises(dk.RunError):
        dk.OROLSRegressor(run_dir=tmp_path / "run", callbacks=[events.append]).fit(*regression(40))
    assert not events
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["mine"]
