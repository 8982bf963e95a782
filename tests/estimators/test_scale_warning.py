"""Features that differ in scale are warned of where they are not standardised, and only there."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import pandas as pd
import pytest

import distkern as dk
from tests.estimators.fits import ALL, data_for


def stretched(cls: Any, factor: float) -> tuple[Any, Any]:
    X, y = data_for(cls)
    X = X / X.std(axis=0)
    X[:, 1] *= factor
    return X, y


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("factor", [2e3, 1 / 2e3])
def test_both_columns_and_the_knob_are_named(cls: Any, factor: float) -> None:
    large, small = (1, 0) if factor > 1 else (0, 1)
    pattern = rf"^column {large} .* deviation of {max(1, factor):.0f} and column {small} .*standardize=True"
    with pytest.warns(dk.ScaleWarning, match=pattern) as caught:
        cls(standardize=False, max_centers=3).fit(*stretched(cls, factor))
    assert len(caught) == 1


def test_columns_with_names_are_called_by_them(tmp_path: Path) -> None:
    X, y = stretched(dk.OROLSRegressor, 1e5)
    frame = pd.DataFrame({"age": X[:, 0], "income": X[:, 1]})
    model = dk.OROLSRegressor(standardize=False, max_centers=3)
    with pytest.warns(dk.ScaleWarning, match="column 'income' .* column 'age'"):
        model.fit(frame, y)
    stored = dk.write_dataset(tmp_path / "d", X, y, feature_names=["age", "income"])
    with pytest.warns(dk.ScaleWarning, match="column 'income' .* column 'age'"):
        model.fit(stored)
    with pytest.warns(dk.ScaleWarning, match=r"column 1 \(counted from 0\)"):
        model.fit(da.from_array(X), y)


@pytest.mark.parametrize(
    ("factor", "parameters"),
    [(1e8, {}), (900.0, {"standardize": False}), (0.0, {"standardize": False})],
    ids=["standardized", "less than a thousand", "constant"],
)
def test_no_warning_without_need(factor: float, parameters: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = dk.OROLSRegressor(max_centers=3, **parameters).fit(*stretched(dk.OROLSRegressor, factor))
    assert 0 < model.n_centers_ <= 3


def test_the_warning_can_be_turned_into_an_error_before_anything_is_trained() -> None:
    model = dk.OROLSRegressor(standardize=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", dk.DistkernWarning)
        with pytest.raises(dk.ScaleWarning):
            model.fit(*stretched(dk.OROLSRegressor, 1e4))
    assert not hasattr(model, "coef_")


def test_a_width_that_joins_no_rows_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    X, y = stretched(dk.OROLSRegressor, 1.0)
    with caplog.at_level(logging.WARNING, "distkern"):
        dk.OROLSRegressor(sigma=1.0, max_centers=3).fit(X, y)
        assert not caplog.records
        dk.OROLSRegressor(sigma=1e-30, max_centers=3).fit(X, y)
    assert "sigma=1e-30 is far below the spread 1.41" in caplog.text
    assert "sigma='median'" in caplog.text
