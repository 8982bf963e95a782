"""Evaluation of a trained model, in one piece."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from distkern.kernels import Gaussian, Kernel, Linear, Matern, Polynomial, Sigmoid, Wendland
from tests.references import dense_predictions, random_model

Array = NDArray[Any]

KERNELS = [Gaussian(1.5), Matern(1.5), Wendland(2.0), Polynomial(3, 0.5), Sigmoid(0.3, 0.1), Linear()]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_evaluates_the_sum_over_centres(kernel: Kernel) -> None:
    model, X = random_model(kernel), np.random.default_rng(1).standard_normal((50, 4))
    np.testing.assert_allclose(model.evaluate(X), dense_predictions(model, X), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("m", [0, 1, 7])
def test_given_arrays_are_used_and_change_nothing(dtype: str, m: int) -> None:
    model, X = random_model(Gaussian(1.0), dtype, m), np.random.default_rng(1).standard_normal((53, 4))
    lent: dict[tuple[str, str], Array] = {}

    def lend(name: str, shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
        assert (name, kind.str) not in lent
        lent[name, kind.str] = np.full(shape, np.nan, dtype=kind)
        return lent[name, kind.str]

    out = np.full((53, 3), np.nan)
    assert model.prepare().evaluate(X, out=out, scratch=lend) is out
    np.testing.assert_array_equal(out, model.evaluate(X))
    assert all(np.isfinite(array).all() for array in lent.values())
    assert any(array.shape == (53, m) for array in lent.values()) == (m > 0)


def test_a_prepared_model_is_contiguous_and_aligned() -> None:
    """Whatever arrays it was made of: dask delivers unaligned ones, and memory order changes products."""
    model = random_model(Gaussian(1.0))
    X = np.random.default_rng(1).standard_normal((53, 4))

    def shifted(array: Array) -> Array:
        raw = np.empty(array.nbytes + 1, dtype=np.uint8)
        moved = raw[1:].view(array.dtype).reshape(array.shape)
        moved[...] = array
        return moved

    for change in (shifted, np.asfortranarray):
        moved = replace(model, centers=change(model.centers), coef=change(model.coef))
        assert not (moved.coef.flags.aligned and moved.coef.flags.c_contiguous)
        prepared = moved.prepare()
        for array in (prepared.centers, prepared.coef):
            assert array.flags.aligned
            assert array.flags.c_contiguous
        np.testing.assert_array_equal(moved.evaluate(X), model.evaluate(X))


def test_float32_is_close_and_returned_as_float64() -> None:
    X = np.random.default_rng(1).standard_normal((50, 4))
    double = random_model(Gaussian(1.0))
    single = replace(double, dtype="float32")
    values = single.evaluate(X)
    assert values.dtype == np.float64
    np.testing.assert_allclose(values, double.evaluate(X), rtol=1e-4, atol=1e-5)
    assert (values != double.evaluate(X)).any()


def test_float32_far_from_the_origin() -> None:
    double = random_model(Gaussian(1.0), offset=1e6)
    X = 1e6 + np.random.default_rng(1).standard_normal((50, 4))
    np.testing.assert_allclose(replace(double, dtype="float32").evaluate(X), double.evaluate(X), atol=1e-4)


def test_without_centres_the_model_is_its_intercept() -> None:
    model = random_model(Gaussian(1.0), m=0)
    np.testing.assert_array_equal(model.evaluate(np.zeros((5, 4))), np.tile(model.intercept, (5, 1)))


def test_no_rows_give_no_values() -> None:
    assert random_model(Gaussian(1.0)).evaluate(np.empty((0, 4))).shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.uint8])
def test_rows_of_any_number_type(dtype: Any) -> None:
    model = random_model(Gaussian(2.0))
    X = np.random.default_rng(1).integers(0, 3, (20, 4)).astype(dtype)
    np.testing.assert_array_equal(model.evaluate(X), model.evaluate(X.astype(np.float64)))


def test_memory_order_of_the_rows_does_not_matter() -> None:
    model = random_model(Gaussian(2.0))
    X = np.random.default_rng(1).standard_normal((30, 4))
    np.testing.assert_array_equal(model.evaluate(np.asfortranarray(X)), model.evaluate(X))
    np.testing.assert_array_equal(model.evaluate(np.repeat(X, 2, axis=0)[::2]), model.evaluate(X))
