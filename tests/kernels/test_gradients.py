from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distkern.errors import JobError
from distkern.kernels import Gaussian, Gaussians, Kernel, Laplacian, Linear, Matern, Polynomial, Sigmoid, Wendland

from .test_kernels import KERNELS, wendland

Array = npt.NDArray[Any]

CASES = {
    "kernel": st.sampled_from([*KERNELS, Gaussians(np.ones(1))]),
    "seed": st.integers(0, 2**32 - 1),
    "n": st.integers(1, 30),
    "m": st.integers(1, 30),
    "d": st.integers(1, 9),
    "n_targets": st.integers(1, 3),
}
CUSPS = [Laplacian(1.5), Wendland(2.0, 0)]


def case(kernel: Kernel, seed: int, n: int, m: int, d: int, n_targets: int) -> tuple[Kernel, Array, Array, Array]:
    """Make rows and centres on a grid, so that points are equal or well apart, with duplicates, and weights."""
    rng = np.random.default_rng(seed)
    X = np.round(32.0 * rng.standard_normal((n, d))) / 32.0
    X[n // 2] = X[0]
    C = np.round(32.0 * rng.standard_normal((m, d))) / 32.0
    C[::2] = X[rng.integers(0, n, len(C[::2]))]
    if isinstance(kernel, Gaussians):
        kernel = Gaussians(rng.uniform(0.3, 3.0, m))
    return kernel, X, C, rng.standard_normal((m, n_targets))


def pair_gradients(kernel: Kernel, X: Array, C: Array) -> Array:
    """Return the gradient of k(x, c) of every pair in x by its formula, shape (n_rows, n_centers, n_features)."""
    differences = X[:, None] - C[None]
    products = np.broadcast_to((X[:, None] * C[None]).sum(axis=2)[:, :, None], differences.shape)
    centers = np.broadcast_to(C[None], differences.shape)
    if isinstance(kernel, Linear):
        return np.asarray(centers)
    if isinstance(kernel, Polynomial):
        return np.asarray(kernel.degree * (products + kernel.offset) ** (kernel.degree - 1) * centers)
    if isinstance(kernel, Sigmoid):
        return np.asarray(kernel.kappa / np.cosh(kernel.kappa * products + kernel.theta) ** 2 * centers)
    r = np.sqrt(np.square(differences).sum(axis=2))[:, :, None]
    if isinstance(kernel, Laplacian) and kernel.norm == "l1":
        r = np.abs(differences).sum(axis=2)[:, :, None]
        directions = np.sign(differences)
    else:
        directions = np.divide(differences, r, out=np.zeros_like(differences), where=r > 0.0)
    if isinstance(kernel, (Gaussian, Gaussians)):
        sigma = np.broadcast_to(kernel.sigma, (len(C),))[:, None]
        return np.asarray(-r / sigma**2 * np.exp(-(r**2) / (2.0 * sigma**2)) * directions)
    if isinstance(kernel, Laplacian):
        a, p = r / kernel.sigma, kernel.exponent
        slope = np.divide(-p * a**p, r, out=np.zeros_like(r), where=r > 0.0)
        return np.asarray(slope * np.exp(-(a**p)) * directions)
    if isinstance(kernel, Matern):
        factor = np.sqrt(2.0 * kernel.smoothness) / kernel.sigma
        a = factor * r
        slope = -a if kernel.smoothness == 1.5 else -(a + a**2) / 3.0
        return np.asarray(factor * slope * np.exp(-a) * directions)
    assert isinstance(kernel, Wendland)
    slope = wendland(X.shape[1], kernel.smoothness).deriv()(r / kernel.radius) / kernel.radius
    return np.where(r < kernel.radius, slope * directions, 0.0)


@settings(deadline=None)
@given(dtype=st.sampled_from([np.float32, np.float64]), **CASES)
def test_gradients_equal_the_formulas(dtype: Any, **sizes: Any) -> None:
    kernel, X, C, A = case(**sizes)
    found = kernel.gradients(X.astype(dtype), C.astype(dtype), A)
    assert found.dtype == dtype
    assert found.shape == (A.shape[1], *X.shape)
    pairs = pair_gradients(kernel, X, C)
    # Terms may cancel, and x sum(w) - sum(w c) cancels where x is long; the reference evaluates polynomials by powers.
    scale = 1.0 + np.abs(A).max() * np.abs(pairs).sum(axis=1).max() * (1.0 + np.abs(X).max())
    tolerance = 500 * np.finfo(dtype).eps * scale + 1e-16 * 4.0 ** (X.shape[1] / 2 + 9)
    np.testing.assert_allclose(found, np.einsum("nmd,mt->tnd", pairs, A), rtol=0, atol=tolerance)


@settings(deadline=None)
@given(**CASES)
def test_gradients_equal_central_differences(**sizes: Any) -> None:
    kernel, X, C, A = case(**sizes)
    h = 1e-5
    found, values = kernel.gradients(X, C, A), np.abs(kernel.block(X, C)).max()
    for j in range(X.shape[1]):
        step = np.zeros(X.shape[1])
        step[j] = h
        expected = (kernel.block(X + step, C) - kernel.block(X - step, C)) / (2.0 * h) @ A
        np.testing.assert_allclose(found[:, :, j].T, expected, rtol=1e-4, atol=1e-4 * (1.0 + values))


@pytest.mark.parametrize("kernel", [*KERNELS, Gaussians(np.full(40, 1.5))], ids=repr)
def test_parts_of_the_rows_equal_one_and_scratch_is_bounded(kernel: Kernel) -> None:
    _, X, C, A = case(Linear(), 0, 8000, 40, 3, 2)
    out = np.full((2, 8000, 3), np.nan)
    kernel.gradients(X, C, A, out)
    tracemalloc.start()
    try:
        assert kernel.gradients(X, C, A, out) is out
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8000 * 40 * 8 / 1.2
    for rows in (slice(0, 1), slice(700, 1900), slice(7990, 8000)):
        expected = kernel.gradients(X[rows], C, A)
        np.testing.assert_allclose(out[:, rows], expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("kernel", CUSPS, ids=repr)
@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 9),
    dtype=st.sampled_from([np.float32, np.float64]),
    gap=st.sampled_from([0.0, 1e-300, 1e-30, 1e-12, 1e-6]),
    offset=st.sampled_from([0, 9]),
)
def test_at_a_cusp_a_centre_adds_nothing_and_near_it_a_vector_of_the_right_length(
    kernel: Any, seed: int, d: int, dtype: Any, gap: float, offset: int
) -> None:
    rng = np.random.default_rng(seed)
    C = (offset + rng.standard_normal((20, d))).astype(dtype)
    X = C + (gap * rng.standard_normal((20, d))).astype(dtype)
    found = np.array([kernel.gradients(X, c[None], np.ones((1, 1)))[0, i] for i, c in enumerate(C)])
    differences = X.astype(np.float64) - C
    lengths = np.abs(differences).max(axis=1)
    steepest = (1.0 if isinstance(kernel, Laplacian) else d // 2 + 1) / kernel.width
    assert (np.linalg.norm(found, axis=1) <= 1.01 * steepest).all()
    assert not found[lengths == 0.0].any()
    apart = lengths > 1e-15
    expected = -steepest * differences[apart] / np.linalg.norm(differences[apart], axis=1)[:, None]
    np.testing.assert_allclose(found[apart], expected, rtol=0, atol=10 * steepest * (1e-6 + gap * d))


@given(
    make=st.sampled_from(
        [
            Gaussian,
            Laplacian,
            partial(Laplacian, norm="l1"),
            Matern,
            lambda s: Matern(s, 2.5),
            *(partial(Wendland, smoothness=k) for k in range(4)),
        ]
    ),
    dtype=st.sampled_from([np.float32, np.float64]),
    width=st.sampled_from([5e-324, 1e-200, 1e-25, 1e25, 1e200, 1.7e308]),
)
@example(make=Laplacian, dtype=np.float32, width=1e200)
@example(make=Laplacian, dtype=np.float64, width=1.7e308)
def test_gradients_are_finite_for_any_width(make: Callable[[float], Kernel], dtype: Any, width: float) -> None:
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [-2.0, 1.0]], dtype=dtype)
    found = make(width).gradients(X, X, np.full((4, 1), 3.0))
    assert np.abs(found).max() < 1e-20


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.stationary], ids=repr)
def test_rows_whose_square_overflows_have_gradients_of_zero(kernel: Kernel) -> None:
    X = np.array([[0.0, 0.0], [1e160, 0.0], [-1.2e154, 0.6e154], [1e308, 1e308]])
    np.testing.assert_array_equal(kernel.gradients(X, X[:2], np.ones((2, 1))), np.zeros((1, 4, 2)))


@pytest.mark.parametrize("kernel", [*KERNELS, Gaussians(np.ones(0))], ids=repr)
def test_gradients_of_nothing(kernel: Kernel) -> None:
    X, C = np.ones((2, 3)), np.ones((0, 3))
    np.testing.assert_array_equal(kernel.gradients(X, C, np.ones((0, 4))), np.zeros((4, 2, 3)))
    if not isinstance(kernel, Gaussians):
        assert kernel.gradients(C, X, np.ones((2, 4))).shape == (4, 0, 3)


def test_a_kernel_without_gradients_says_what_to_define() -> None:
    class Own(Linear):
        name: ClassVar[str] = "own"
        gradients = Kernel.gradients

    with pytest.raises(JobError, match="the kernel 'own' has no gradients: define gradients in Own") as error:
        Own().gradients(np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 1)))
    assert error.value.kind == "invalid-parameter"
