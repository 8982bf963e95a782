"""Evaluation of a trained model, tile by tile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from references import dense_kernel_columns

from distkern import model as model_module
from distkern.kernels import Gaussian, Kernel, Linear, Polynomial, Sigmoid
from distkern.model import KernelModel
from distkern.scaling import FeatureScaling

Array = NDArray[Any]

KERNELS = [Gaussian(1.5), Polynomial(3, 0.5), Sigmoid(0.3, 0.1), Linear()]


def make_model(
    kernel: Kernel, dtype: str = "float64", m: int = 7, n_targets: int = 3, offset: float = 0.0
) -> KernelModel:
    rng = np.random.default_rng(0)
    return KernelModel(
        kernel,
        FeatureScaling(offset + rng.standard_normal(4), rng.uniform(0.5, 2.0, 4)),
        offset + rng.standard_normal((m, 4)),
        rng.standard_normal((m, n_targets)),
        rng.standard_normal(n_targets),
        dtype,
    )


def dense(model: KernelModel, X: Array) -> Array:
    """b + K a, one kernel value at a time."""
    rows = (X - model.scaling.shift) / model.scaling.scale
    centers = (model.centers - model.scaling.shift) / model.scaling.scale
    own = np.zeros(len(centers), dtype=np.int64)
    return model.intercept + dense_kernel_columns(model.kernel, rows, centers, own, 0.0) @ model.coef


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_evaluates_the_sum_over_centres(kernel: Kernel) -> None:
    model, X = make_model(kernel), np.random.default_rng(1).standard_normal((50, 4))
    np.testing.assert_allclose(model.evaluate(X), dense(model, X), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("tile_values", [1, 7, 8, 70, 1 << 20])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tiles_equal_one_product(monkeypatch: pytest.MonkeyPatch, tile_values: int, dtype: str) -> None:
    model, X = make_model(Gaussian(1.0), dtype), np.random.default_rng(1).standard_normal((53, 4))
    whole = model.evaluate(X)
    monkeypatch.setattr(model_module, "TILE_VALUES", tile_values)
    accurate = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(model.evaluate(X), whole, rtol=accurate, atol=accurate)


def test_float32_is_close_and_returned_as_float64() -> None:
    X = np.random.default_rng(1).standard_normal((50, 4))
    double = make_model(Gaussian(1.0))
    single = replace(double, dtype="float32")
    values = single.evaluate(X)
    assert values.dtype == np.float64
    np.testing.assert_allclose(values, double.evaluate(X), rtol=1e-4, atol=1e-5)
    assert (values != double.evaluate(X)).any()


def test_float32_far_from_the_origin() -> None:
    double = make_model(Gaussian(1.0), offset=1e6)
    X = 1e6 + np.random.default_rng(1).standard_normal((50, 4))
    np.testing.assert_allclose(replace(double, dtype="float32").evaluate(X), double.evaluate(X), atol=1e-4)


def test_without_centres_the_model_is_its_intercept() -> None:
    model = make_model(Gaussian(1.0), m=0)
    np.testing.assert_array_equal(model.evaluate(np.zeros((5, 4))), np.tile(model.intercept, (5, 1)))


def test_no_rows_give_no_values() -> None:
    assert make_model(Gaussian(1.0)).evaluate(np.empty((0, 4))).shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.uint8])
def test_rows_of_any_number_type(dtype: Any) -> None:
    model = make_model(Gaussian(2.0))
    X = np.random.default_rng(1).integers(0, 3, (20, 4)).astype(dtype)
    np.testing.assert_array_equal(model.evaluate(X), model.evaluate(X.astype(np.float64)))


def test_memory_order_of_the_rows_does_not_matter() -> None:
    model = make_model(Gaussian(2.0))
    X = np.random.default_rng(1).standard_normal((30, 4))
    np.testing.assert_array_equal(model.evaluate(np.asfortranarray(X)), model.evaluate(X))
    np.testing.assert_array_equal(model.evaluate(np.repeat(X, 2, axis=0)[::2]), model.evaluate(X))
