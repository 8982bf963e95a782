from __future__ import annotations

import math
import pickle
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import laplacian_kernel

from distkern.errors import JobError
from distkern.kernels import (
    Gaussian,
    Gaussians,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    Sigmoid,
    Wendland,
    kernel_from_parameters,
    kernel_of_centers,
    make_kernel,
    width_count,
)
from tests.markers import every_value

Array = npt.NDArray[Any]

KERNELS: list[Kernel] = [
    Gaussian(1.5),
    Polynomial(),
    Polynomial(1, 0.0),
    Polynomial(2, -0.5),
    Polynomial(11, 0.25),
    Sigmoid(),
    Sigmoid(-0.3, 0.2),
    Linear(),
    Laplacian(1.5),
    Laplacian(1.5, exponent=1.7),
    Laplacian(1.5, "l1"),
    Laplacian(1.5, "l1", 0.5),
    Matern(1.5),
    Matern(0.7, 2.5),
    Wendland(2.0, 0),
    Wendland(2.5),
    Wendland(30.0, 2),
    Wendland(3.0, 3),
]

RADIAL = [kernel for kernel in KERNELS if isinstance(kernel, (Laplacian, Matern, Wendland))]

kernels = st.sampled_from(KERNELS)
seeds = st.integers(0, 2**32 - 1)
dtypes = st.sampled_from([np.float32, np.float64])
sizes = st.integers(1, 40)


def wendland(d: int, k: int) -> np.polynomial.Polynomial:
    """Wendland's construction: k times f -> integral of t f(t) from r to 1, from (1 - r)^l, scaled to one at zero."""
    exact = np.array([Fraction(math.comb(d // 2 + k + 1, i) * (-1) ** i) for i in range(d // 2 + k + 2)], dtype=object)
    for _ in range(k):
        integral = np.concatenate([[Fraction(0), Fraction(0)], exact / np.arange(2, len(exact) + 2)])
        exact = -integral
        exact[0] += integral.sum()
    return np.polynomial.Polynomial((exact / exact[0]).astype(float))


def reference(kernel: Kernel, X: Array, C: Array) -> Array:
    """Compute the definition in float64, distances from differences."""
    X, C = X.astype(np.float64), C.astype(np.float64)
    if isinstance(kernel, Gaussian):
        return np.exp(-cdist(X, C, "sqeuclidean") / (2.0 * kernel.sigma**2))
    if isinstance(kernel, Laplacian):
        distances = cdist(X, C) if kernel.norm == "l2" else np.abs(X[:, None] - C[None]).sum(axis=2)
        return np.asarray(np.exp(-((distances / kernel.sigma) ** kernel.exponent)))
    if isinstance(kernel, Matern):
        a = np.sqrt(2 * kernel.smoothness) * cdist(X, C) / kernel.sigma
        return np.asarray((1 + a + (a**2 / 3 if kernel.smoothness == 2.5 else 0)) * np.exp(-a))
    if isinstance(kernel, Wendland):
        r = cdist(X, C) / kernel.radius
        return np.where(r < 1, wendland(X.shape[1], kernel.smoothness)(r), 0.0)
    products = (X[:, None, :] * C[None, :, :]).sum(axis=2)
    if isinstance(kernel, Polynomial):
        return np.asarray((products + kernel.offset) ** kernel.degree)
    if isinstance(kernel, Sigmoid):
        return np.tanh(kernel.kappa * products + kernel.theta)
    return np.asarray(products)


def tolerance(kernel: Kernel, X: Array, C: Array) -> float:
    """Bound the rounding error of the definition computed through x.c in the dtype of X."""
    norms = float(max(np.square(X, dtype=np.float64).sum(axis=1).max(), np.square(C).sum(axis=1).max()))
    eps = float(np.finfo(X.dtype).eps) * (X.shape[1] + 4)
    if isinstance(kernel, Gaussian):
        return eps * (1.0 + norms / kernel.sigma**2)
    if isinstance(kernel, (Laplacian, Matern, Wendland)):
        # A distance is wrong by some roundings of |x|; the steepest profile falls by about l times r. The
        # reference evaluates Wendland's polynomial by powers, with alternating signs.
        steep = 2 * kernel.smoothness + X.shape[1] / 2 + 1 if isinstance(kernel, Wendland) else 1
        terms = 1e-16 * 4.0 ** (steep + 2) if isinstance(kernel, Wendland) else 0.0
        return eps * steep * (1.0 + 20 * norms**0.5 / kernel.width) + terms
    if isinstance(kernel, Polynomial):
        return eps * kernel.degree * (norms + abs(kernel.offset) + 1.0) ** kernel.degree
    if isinstance(kernel, Sigmoid):
        return eps * (1.0 + abs(kernel.kappa) * norms + abs(kernel.theta))
    return eps * (1.0 + norms)


def data(seed: int, n: int, m: int, d: int, dtype: Any, spread: float = 1.0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = spread * rng.standard_normal((n, d))
    X[:, 0] = 0.5
    X[n // 2] = X[0]
    C = X[rng.integers(0, n, m)]
    C[::2] += spread * rng.standard_normal((len(C[::2]), d))
    return X.astype(dtype), C.astype(dtype)


@settings(deadline=None)
@given(kernels, seeds, sizes, sizes, st.integers(1, 12), dtypes, st.sampled_from([1e-3, 1.0]))
def test_block_and_diagonal_equal_the_definition(
    kernel: Kernel, seed: int, n: int, m: int, d: int, dtype: Any, spread: float
) -> None:
    X, C = data(seed, n, m, d, dtype, spread)
    K = kernel.block(X, C)
    assert K.dtype == dtype
    np.testing.assert_allclose(K, reference(kernel, X, C), rtol=0, atol=tolerance(kernel, X, C))
    diagonal = kernel.diagonal(X)
    assert diagonal.dtype == dtype
    assert diagonal.shape == (n,)
    expected = np.array([reference(kernel, x[None], x[None])[0, 0] for x in X])
    np.testing.assert_allclose(diagonal, expected, rtol=0, atol=tolerance(kernel, X, X))


@settings(deadline=None)
@given(seeds, dtypes, st.floats(1e-6, 1e3), st.sampled_from([1e-30, 1e-8, 1e-4, 1.0]))
def test_gaussian_survives_cancellation(seed: int, dtype: Any, sigma: float, gap: float) -> None:
    rng = np.random.default_rng(seed)
    C = rng.standard_normal((20, 5)).astype(dtype)
    X = np.repeat(C, 3, axis=0) + (gap * rng.standard_normal((60, 5))).astype(dtype)
    K = Gaussian(sigma).block(X, C)
    assert (K <= 1.0).all()
    assert (K >= 0.0).all()
    np.testing.assert_allclose(K, reference(Gaussian(sigma), X, C), rtol=0, atol=tolerance(Gaussian(sigma), X, C))


@settings(deadline=None)
@given(dtypes, st.sampled_from([5e-324, 1e-200, 1e-25, 1e25, 1e200, 1.7e308]))
def test_gaussian_takes_any_width(dtype: Any, sigma: float) -> None:
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [-2.0, 1.0]], dtype=dtype)
    K = Gaussian(sigma).block(X, X)
    np.testing.assert_array_equal(K, np.ones((4, 4)) if sigma > 1.0 else cdist(X, X) == 0.0)


@pytest.mark.parametrize("kernel", RADIAL, ids=repr)
@given(
    seed=seeds,
    d=st.integers(1, 9),
    dtype=dtypes,
    gap=st.sampled_from([0.0, 1e-30, 1e-9, 1e-4, 0.1]),
    offset=st.sampled_from([0, 9]),
)
def test_close_rows_have_an_accurate_distance_and_equal_ones_none(
    kernel: Kernel, seed: int, d: int, dtype: Any, gap: float, offset: int
) -> None:
    rng = np.random.default_rng(seed)
    C = (offset + rng.standard_normal((20, d))).astype(dtype)
    X = np.repeat(C, 3, axis=0) + (gap * rng.standard_normal((60, d))).astype(dtype)
    K = kernel.block(X, C)
    assert (K <= 1.0).all()
    assert (K >= 0.0).all()
    np.testing.assert_allclose(K, reference(kernel, X, C), rtol=0, atol=tolerance(kernel, X, C))
    own = K[np.arange(60), np.arange(60) // 3]
    expected = np.array([reference(kernel, X[i : i + 1], C[i // 3, None])[0, 0] for i in range(60)])
    np.testing.assert_allclose(own, expected, rtol=0, atol=200 * np.finfo(dtype).eps + 1e-16 * 4.0 ** (d / 2 + 9))
    np.testing.assert_array_equal(np.diag(kernel.block(C, C)), kernel.diagonal(C))


@given(dtypes, st.sampled_from([5e-324, 1e-200, 1e-25, 1e25, 1e200, 1.7e308]))
@pytest.mark.parametrize(
    "make",
    [
        Laplacian,
        partial(Laplacian, norm="l1"),
        Matern,
        lambda s: Matern(s, 2.5),
        *(partial(Wendland, smoothness=k) for k in range(4)),
    ],
)
def test_radial_kernels_take_any_width(make: Callable[[float], Kernel], dtype: Any, width: float) -> None:
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [-2.0, 1.0]], dtype=dtype)
    K = make(width).block(X, X)
    np.testing.assert_array_equal(K, np.ones((4, 4)) if width > 1.0 else cdist(X, X) == 0.0)


@pytest.mark.parametrize("kernel", [k for k in RADIAL if getattr(k, "norm", "l2") == "l2"], ids=repr)
def test_rows_whose_square_overflows_have_kernel_values_of_zero(kernel: Kernel) -> None:
    X = np.array([[0.0, 0.0], [1e160, 0.0], [-1.2e154, 0.6e154], [1e308, 1e308]])
    K = kernel.block(X, X[:2])
    np.testing.assert_array_equal(K, [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize(("d", "k"), every_value([1, 2, 3, 4, 5, 8, 13], [0, 1, 2, 3]))
def test_wendland_is_positive_definite_for_the_features_at_hand(d: int, k: int) -> None:
    rng = np.random.default_rng(d)
    for spread in (0.2, 0.6, 1.5):
        X = spread / d**0.5 * rng.standard_normal((120, d))
        K = Wendland(1.0, k).block(X, X)
        values = np.linalg.eigvalsh((K + K.T) / 2)
        assert values[0] > -1e-13 * values[-1]


def test_the_degree_must_follow_the_dimension() -> None:
    """The polynomial for one feature, 1 - r, is indefinite on a grid of the plane."""
    X = np.stack(np.meshgrid(np.arange(14.0), np.arange(14.0)), axis=-1).reshape(-1, 2)
    assert np.linalg.eigvalsh(np.maximum(1 - cdist(X, X) / 1.5, 0.0))[0] < -0.01
    assert np.linalg.eigvalsh(Wendland(1.5, 0).block(X, X))[0] > 0.0


def test_laplacian_of_version_0_1_keeps_its_parameters_and_bits() -> None:
    """Hashes of runs cover the parameters, and a pickle holds the fields of its version."""
    assert Laplacian(1.5).parameters() == {"sigma": 1.5}
    assert Laplacian(1.5, "l1", 0.5).parameters() == {"sigma": 1.5, "norm": "l1", "exponent": 0.5}
    former = pickle.loads(pickle.dumps(Laplacian(1.5)))
    former.__dict__.pop("norm"), former.__dict__.pop("exponent")
    assert former == Laplacian(1.5)
    X, C = data(0, 50, 20, 4, np.float64)
    products = X @ C.T
    norms = np.einsum("ij,ij->i", X, X)[:, None] + np.einsum("ij,ij->i", C, C)
    apart = -2.0 * products + norms >= 2.0**-10 * norms
    values = np.exp(-(np.sqrt(np.maximum(-2.0 * products + norms, 0.0)) * (1.0 / 1.5)))
    assert Laplacian(1.5).block(X, C)[apart].tobytes() == values[apart].tobytes()


@pytest.mark.parametrize(("m", "n"), [(5, 9), (48, 2000), (2000, 48)])
@given(seed=seeds, d=st.integers(1, 40), dtype=dtypes, exponent=st.sampled_from([1.0, 0.5]))
@settings(max_examples=10, deadline=None)
def test_l1_values_depend_on_their_row_and_centre_only(
    m: int, n: int, seed: int, d: int, dtype: Any, exponent: float
) -> None:
    X, C = data(seed, n, m, d, dtype)
    kernel = Laplacian(0.5 * d, "l1", exponent)
    K = kernel.block(X, C)
    np.testing.assert_array_equal(K, kernel.columns(C, X).T)
    for i, j in np.random.default_rng(seed).integers(0, [n, m], (5, 2)):
        assert K[i, j] == kernel.block(X[i : i + 1], C[j : j + 1])[0, 0]
        assert K[i, j] == kernel.block(C[j : j + 1], X[i : i + 1])[0, 0]
    np.testing.assert_array_equal(np.diag(kernel.block(C, C.copy())), np.ones(m))


def test_l1_is_the_kernel_of_scikit_learn() -> None:
    X, C = data(0, 50, 20, 4, np.float64)
    np.testing.assert_allclose(Laplacian(4.0, "l1").block(X, C), laplacian_kernel(X, C, gamma=0.25), rtol=1e-13)


@pytest.mark.parametrize("k", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wendland_is_exactly_zero_from_its_radius_on(k: int, dtype: Any) -> None:
    C = np.zeros((1, 3), dtype=dtype)
    X = np.zeros((5, 3), dtype=dtype)
    X[:, 1] = [0.0, 0.5, 0.75, 2.0, 2.5]
    K = Wendland(2.0, k).block(X, C)[:, 0]
    np.testing.assert_array_equal(K[[0, 3, 4]], [1.0, 0.0, 0.0])
    assert (K[1:3] > 0.0).all()


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_kernels_are_symmetric(kernel: Kernel) -> None:
    X, C = data(3, 30, 20, 4, np.float64)
    np.testing.assert_allclose(kernel.block(X, C), kernel.block(C, X).T, rtol=0, atol=tolerance(kernel, X, C))


@settings(deadline=None)
@given(kernels, seeds, st.integers(2, 40), st.integers(1, 40), st.integers(1, 8), dtypes)
def test_a_row_does_not_depend_on_other_rows(kernel: Kernel, seed: int, n: int, m: int, d: int, dtype: Any) -> None:
    X, C = data(seed, n, m, d, dtype)
    row = seed % n
    others = np.zeros_like(X)
    others[row] = X[row]
    assert kernel.block(X, C)[row].tobytes() == kernel.block(others, C)[row].tobytes()
    assert kernel.diagonal(X)[row] == kernel.diagonal(others)[row]


@settings(deadline=None)
@given(kernels, seeds, sizes, dtypes)
def test_bits_do_not_depend_on_who_owns_the_memory(kernel: Kernel, seed: int, n: int, dtype: Any) -> None:
    X, _ = data(seed, n, 1, 7, dtype)
    K = kernel.block(X, X)
    assert K.tobytes() == kernel.block(X, X.copy()).tobytes()
    m = max(1, n // 2)
    assert kernel.block(X, X[:m]).tobytes() == kernel.block(X, X[:m].copy()).tobytes()
    wide = np.full((n, 2 * m + 3), 7.0, dtype=dtype)
    part = wide[:, 2 : m + 2]
    assert kernel.block(X, X[:m], out=part) is part
    np.testing.assert_array_equal(part, kernel.block(X, X[:m]))
    assert (wide[:, :2] == 7.0).all()
    assert (wide[:, m + 2 :] == 7.0).all()


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_block_writes_into_out_and_makes_no_temporary_of_its_size(kernel: Kernel) -> None:
    X, C = data(0, 4000, 300, 4, np.float64)
    out = np.empty((4000, 300))
    kernel.block(X, C, out=out)
    tracemalloc.start()
    try:
        assert kernel.block(X, C, out=out) is out
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < out.nbytes / 8


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_empty_blocks(kernel: Kernel) -> None:
    assert kernel.block(np.zeros((0, 3)), np.ones((2, 3))).shape == (0, 2)
    assert kernel.block(np.ones((2, 3)), np.zeros((0, 3))).shape == (2, 0)
    assert kernel.diagonal(np.zeros((0, 3))).shape == (0,)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_a_kernel_is_a_value_that_travels(kernel: Kernel) -> None:
    assert kernel_from_parameters(kernel.name, kernel.parameters()) == kernel
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert hash(kernel) == hash(kernel_from_parameters(kernel.name, kernel.parameters()))
    assert kernel.stationary == isinstance(kernel, (Gaussian, *{type(radial) for radial in RADIAL}))
    assert all(type(value) in (int, float, str) for value in kernel.parameters().values())


def test_numbers_become_plain() -> None:
    assert type(Gaussian(np.float32(2)).sigma) is float
    assert type(Gaussian(2).sigma) is float
    assert type(Polynomial(np.int64(2)).degree) is int  # type: ignore[arg-type]


def test_make_kernel() -> None:
    assert make_kernel("gaussian", 2.0) == Gaussian(2.0)
    assert make_kernel("polynomial", None) == Polynomial(3, 1.0)
    assert make_kernel("sigmoid", 2.0) == Sigmoid(1.0, 0.0)
    assert make_kernel("linear", None) == Linear()
    assert make_kernel("laplacian", 2.0) == Laplacian(2.0)
    assert make_kernel("laplacian-l1", 2.0) == Laplacian(2.0, norm="l1")
    assert make_kernel("matern", 2.0) == Matern(2.0, 1.5)
    assert make_kernel(Polynomial(2), 4.0) == Polynomial(2)


def test_a_kernel_of_the_user_takes_part() -> None:
    @dataclass(frozen=True)
    class Cosine(Kernel):
        name: ClassVar[str] = "cosine"
        period: float = 1.0

        def block(self, X: Array, C: Array, out: Array | None = None) -> Array:
            K: Array = np.matmul(X, C.T, out=out)
            return np.cos(K, out=K)

        def diagonal(self, X: Array) -> Array:
            return np.cos(np.square(X).sum(axis=1))

    kernel = Cosine(2.0)
    assert make_kernel(kernel, None) is kernel
    assert kernel.parameters() == {"period": 2.0}
    assert not kernel.stationary

    class Plain(Cosine):
        pass

    assert Plain().parameters() == {"period": 1.0}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Gaussian(0.0), "sigma of the gaussian kernel is 0.0, but must be a finite number above 0"),
        (lambda: Gaussian(-1.0), "sigma"),
        (lambda: Gaussian(float("nan")), "sigma"),
        (lambda: Gaussian(float("inf")), "sigma"),
        (lambda: Gaussian(10**400), "sigma"),
        (lambda: Gaussian(True), "sigma"),
        (lambda: Gaussian("median"), "sigma of the gaussian kernel is 'median'"),  # type: ignore[arg-type]
        (lambda: Polynomial(0), "degree of the polynomial kernel is 0, but must be a whole number"),
        (lambda: Polynomial(2.5), "degree"),  # type: ignore[arg-type]
        (lambda: Polynomial(True), "degree"),
        (lambda: Polynomial(2, float("inf")), "offset"),
        (lambda: Sigmoid(0.0), "kappa of the sigmoid kernel is 0.0"),
        (lambda: Sigmoid(float("nan")), "kappa"),
        (lambda: Sigmoid(1.0, float("nan")), "theta"),
        (lambda: Laplacian(0.0), "sigma of the laplacian kernel is 0.0"),
        (lambda: Laplacian(1.0, "l3"), "norm of the laplacian kernel is 'l3', but must be 'l2' or 'l1'"),
        (lambda: Laplacian(1.0, 1), "norm"),  # type: ignore[arg-type]
        (lambda: Laplacian(1.0, exponent=0.0), "exponent of the laplacian kernel is 0.0"),
        (lambda: Laplacian(1.0, exponent=2.5), "exponent of the laplacian kernel is 2.5, but must be at most 2 with"),
        (lambda: Laplacian(1.0, "l1", 1.5), "exponent of the laplacian kernel is 1.5, but must be at most 1 with"),
        (lambda: kernel_from_parameters("laplacian-l1", {"sigma": 1.0, "norm": "l2"}), "no parameter 'norm'"),
        (lambda: Matern(1.0, 0.5), "smoothness of the matern kernel is 0.5, but must be 1.5 or 2.5"),
        (lambda: Matern(-1.0), "sigma of the matern kernel is -1.0"),
        (lambda: Wendland(0.0), "radius of the wendland kernel is 0.0"),
        (lambda: Wendland(1.0, 4), "smoothness of the wendland kernel is 4, but must be 0, 1, 2 or 3"),
        (lambda: Wendland(1.0, True), "smoothness"),
        (lambda: Wendland(1.0, 1.0), "smoothness"),  # type: ignore[arg-type]
        (lambda: make_kernel("wendland", 1.0), "needs a value for radius"),
        (lambda: make_kernel("gaussian", None), "needs a value for sigma"),
        (lambda: make_kernel("gausian", 1.0), "did you mean 'gaussian'"),
        (lambda: make_kernel(3, 1.0), "set kernel"),  # type: ignore[arg-type]
        (lambda: kernel_from_parameters("gaussian", {"sgma": 1.0}), "did you mean 'sigma'"),
        (lambda: kernel_from_parameters("linear", {"sigma": 1.0}), "its parameters: none"),
    ],
)
def test_bad_parameters_are_refused(make: Callable[[], Kernel], words: str) -> None:
    with pytest.raises(JobError) as error:
        make()
    assert words in str(error.value)
    assert error.value.kind == "invalid-parameter"


@given(sizes, sizes, st.integers(1, 5), dtypes, seeds)
def test_a_width_a_centre_is_the_kernel_of_each_width(n: int, m: int, d: int, dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, C = rng.standard_normal((n, d)).astype(dtype), rng.standard_normal((m, d)).astype(dtype)
    sigma = rng.uniform(0.2, 4.0, m)
    kernel = Gaussians(sigma)
    expected = np.exp(-cdist(X.astype(np.float64), C.astype(np.float64), "sqeuclidean") / (2.0 * sigma**2))
    atol = 1e-12 if dtype == np.float64 else 2e-4
    for out in (None, np.empty((n, m), dtype=dtype)):
        found = kernel.block(X, C, out)
        assert found.dtype == dtype
        assert out is None or found is out
        np.testing.assert_allclose(found, expected, atol=atol)
    np.testing.assert_allclose(kernel.columns(C, X), expected.T, atol=atol)
    np.testing.assert_array_equal(kernel.diagonal(C), np.ones(m))


@given(kernels, sizes, sizes, seeds)
def test_columns_are_the_transpose_of_a_block(kernel: Kernel, n: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, C = rng.standard_normal((n, 3)), rng.standard_normal((m, 3))
    np.testing.assert_allclose(kernel.columns(C, X), kernel.block(X, C).T, rtol=1e-9, atol=1e-9)


def test_equal_widths_have_the_bits_of_one_width() -> None:
    rng = np.random.default_rng(0)
    X, C = rng.standard_normal((50, 3)), rng.standard_normal((7, 3))
    one, each = Gaussian(0.7), Gaussians(np.full(7, 0.7))
    assert each.block(X, C).tobytes() == one.block(X, C).tobytes()
    assert each.columns(C, X).tobytes() == one.columns(C, X).tobytes()


def test_distant_rows_have_values_of_zero_for_any_width() -> None:
    X = np.array([[0.0], [1e200], [-1e200]])
    kernel = Gaussians(np.array([1e-300, 1.0, 1e300]))
    K = kernel.block(X, np.zeros((3, 1)))
    np.testing.assert_array_equal(K, [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


def test_widths_are_a_value() -> None:
    kernel = Gaussians(np.array([0.5, 1.0, 2.0]))
    same = Gaussians([0.5, 1.0, 2.0])  # type: ignore[arg-type]
    assert kernel == same
    assert hash(kernel) == hash(same)
    assert kernel != Gaussians(np.array([0.5, 1.0]))
    assert kernel != Gaussian(0.5)
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert kernel_from_parameters(kernel.name, kernel.parameters()) == kernel
    assert kernel.of(np.array([2, 0, 2])) == Gaussians(np.array([2.0, 0.5, 2.0]))
    assert kernel_of_centers(kernel, np.array([1])) == Gaussians(np.array([1.0]))
    assert kernel_of_centers(Linear(), np.array([0, 0])) == Linear()
    assert (width_count(kernel), width_count(Gaussian(1.0))) == (3, 1)
    assert make_kernel("gaussian", (0.5, 1.0, 2.0)) == kernel
    with pytest.raises(ValueError, match="read-only"):
        kernel.sigma[0] = 1.0


@pytest.mark.parametrize("sigma", [1.0, [[1.0]], [0.0], [1.0, -1.0], [np.nan], [np.inf], ["a"], None])
def test_widths_that_are_none_are_refused(sigma: Any) -> None:
    with pytest.raises(JobError, match="sigma"):
        Gaussians(sigma)


@pytest.mark.parametrize("kernel", [Gaussians(np.array([1.0])), "gaussians"])
def test_the_kernel_of_centres_is_no_setting(kernel: Any) -> None:
    with pytest.raises(JobError, match="sigma to a list"):
        make_kernel(kernel, 1.0)
