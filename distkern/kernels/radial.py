"""Kernels that are functions of the distance: Laplacian, Matern, and Wendland's, which are zero beyond a radius.

``|x|^2 + |c|^2 - 2 x.c`` costs one matrix product, but where two points are close its root has an error of the root of
the rounding. The few pairs of close points are computed again from differences, so equal rows have a distance of
exactly zero. The Gaussian, a function of the squared distance, is in `standard`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .base import (
    PART_SIZE,
    FloatArray,
    Kernel,
    inner_products,
    invalid,
    inverse_of,
    raise_to_power,
    set_float,
    squared_norms,
)
from .city_block import city_block_gradients, city_block_values
from .gradients import Pairs, gradient_sums, target_arrays

CLOSE = 2.0**-10
"""Pairs with |x - c|^2 below this times |x|^2 + |c|^2 are computed from differences. The distance of any other pair has
an error of at most about 16 roundings of |x|."""


class Radial(Kernel):
    """Base of the kernels that depend on |x - c| / width and are one at zero."""

    stationary: ClassVar[bool] = True

    @property
    @abstractmethod
    def width(self) -> float:
        """The length by which distances are divided."""

    @abstractmethod
    def profile(self, ratios: FloatArray, n_features: int) -> None:
        """Replace distances over the width, of any shape, by kernel values; an infinite distance gives 0."""

    @abstractmethod
    def slope(self, ratios: FloatArray, n_features: int) -> None:
        """Replace distances a over the width, of any shape, by p'(a) / a, where p is the profile.

        It is 0 where it has no limit, as at a cusp, and at an infinite distance.
        """

    def block(self, X: FloatArray, C: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the kernel between rows and centres; see `Kernel.block`."""
        with np.errstate(over="ignore", invalid="ignore"):
            # Distances, not their squares, are scaled: the square of a width may overflow or underflow.
            scale = inverse_of(self.width, X.dtype)
            K = inner_products(X, C, out)
            row_norms, center_norms = squared_norms(X), squared_norms(C)
            step = max(1, PART_SIZE // max(1, K.shape[1]))
            for start in range(0, len(K), step):
                part = slice(start, start + step)
                distances = K[part]
                _to_distances(distances, X[part], C, row_norms[part], center_norms)
                distances *= scale
                self.profile(distances, X.shape[1])
                np.minimum(distances, 1.0, out=distances)
        _clear_overflowed(K, row_norms, center_norms)
        return K

    def gradients(self, X: FloatArray, C: FloatArray, A: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the gradients of weighted sums of kernels; see `Kernel.gradients`."""
        row_norms, center_norms, scale = squared_norms(X), squared_norms(C), inverse_of(self.width, X.dtype)
        if scale < np.finfo(X.dtype).tiny / np.finfo(X.dtype).eps:
            # Slopes have the inverse of a distance over the width: their sums overflow, and gradients nearly vanish.
            _, out = target_arrays(X, C, A, out)
            out.fill(0.0)
            return out

        def slopes(part: slice, S: FloatArray) -> Pairs:
            inner_products(X[part], C, S)
            close = _to_distances(S, X[part], C, row_norms[part], center_norms)
            S *= scale
            self.slope(S, X.shape[1])
            _clear_overflowed(S, row_norms[part], center_norms)
            return close

        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            return gradient_sums(slopes, X, C, A, out, scale, scale)

    def diagonal(self, X: FloatArray) -> FloatArray:
        """Return ones: k(x, x) = 1."""
        return np.ones(len(X), dtype=X.dtype)


@dataclass(frozen=True)
class Laplacian(Radial):
    """The kernel exp(-(|x - c| / sigma)^exponent) of the Euclidean distance, or of the sum of absolute differences.

    "laplacian" is the kernel of the Euclidean distance. scikit-learn's ``laplacian_kernel`` is that of the sum of
    absolute differences, a product of kernels of one feature each: here ``Laplacian(sigma, norm="l1")``, by name
    "laplacian-l1", with ``sigma = 1 / gamma``. The kernel is continuous and has a cusp at x = c, unless the exponent
    is above 1.

    Raises
    ------
    JobError
        `sigma` is not a finite number above 0, `norm` is neither "l2" nor "l1", or `exponent` is not above 0 and at
        most 2 ("l2") or 1 ("l1"): beyond that the kernel is not positive definite.
    """

    name: ClassVar[str] = "laplacian"

    sigma: float
    """Width, in units of the features."""

    norm: str = "l2"
    """The Euclidean distance, "l2", or the sum of absolute differences, "l1"; default "l2"."""

    exponent: float = 1.0
    """Power of the distance over the width, default 1.0. With "l2", 2 is the Gaussian of sigma / sqrt(2)."""

    def __post_init__(self) -> None:
        set_float(self, "sigma", above_zero=True)
        if not isinstance(self.norm, str) or self.norm not in ("l1", "l2"):
            raise invalid(self.name, "norm", self.norm, "'l2' or 'l1'")
        object.__setattr__(self, "norm", str(self.norm))
        set_float(self, "exponent", above_zero=True)
        limit = 1 if self.norm == "l1" else 2
        if self.exponent > limit:
            raise invalid(self.name, "exponent", self.exponent, f"at most {limit} with norm {self.norm!r}")

    @property
    def width(self) -> float:
        """`sigma`."""
        return self.sigma

    def block(self, X: FloatArray, C: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the kernel between rows and centres; see `Kernel.block`."""
        if self.norm == "l1":
            return city_block_values(self.profile, self.sigma, X, C, out)
        return super().block(X, C, out)

    def gradients(self, X: FloatArray, C: FloatArray, A: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the gradients of weighted sums of kernels; see `Kernel.gradients`."""
        if self.norm == "l1":
            return city_block_gradients(self._differentiate, self.sigma, X, C, A, out)
        return super().gradients(X, C, A, out)

    def parameters(self) -> dict[str, float | int | str]:
        """Return the parameters by name, for `kernel_from_parameters`: `norm` and `exponent` where they are set."""
        # Runs and models of version 0.1 know sigma only, and the hash of a run's messages covers these parameters.
        defaults = {"norm": "l2", "exponent": 1.0}
        return {name: value for name, value in super().parameters().items() if defaults.get(name) != value}

    def profile(self, ratios: FloatArray, n_features: int) -> None:
        """Compute exp(-a^exponent); see `Radial.profile`."""
        if self.exponent != 1.0:
            np.power(ratios, ratios.dtype.type(self.exponent), out=ratios)
        np.negative(ratios, out=ratios)
        np.exp(ratios, out=ratios)

    def slope(self, ratios: FloatArray, n_features: int) -> None:
        """Compute the derivative of the profile over a; see `Radial.slope`."""
        distances = ratios.copy()
        self._differentiate(ratios, n_features)
        ratios /= distances
        _keep_finite(ratios)

    def _differentiate(self, ratios: FloatArray, n_features: int) -> None:
        """Replace distances over the width by the derivative of the profile, or by 0 where it has no limit."""
        power = ratios.dtype.type(self.exponent)
        factor = ratios ** (power - 1) if power != 1.0 else 1.0
        self.profile(ratios, n_features)
        ratios *= -power * factor
        _keep_finite(ratios)


@dataclass(frozen=True)
class Matern(Radial):
    """Matern's kernel of smoothness 3/2 or 5/2; its functions have one or two derivatives.

    (1 + a) exp(-a) with a = sqrt(3) |x - c| / sigma, or (1 + a + a^2 / 3) exp(-a) with a = sqrt(5) |x - c| / sigma.

    Raises
    ------
    JobError
        `sigma` is not a finite number above 0, or `smoothness` is neither 1.5 nor 2.5.
    """

    name: ClassVar[str] = "matern"

    sigma: float
    """Width, in units of the features."""

    smoothness: float = 1.5
    """1.5 or 2.5, default 1.5. Smoothness 0.5 is the Laplacian kernel, and the limit for infinity is the Gaussian."""

    def __post_init__(self) -> None:
        set_float(self, "sigma", above_zero=True)
        set_float(self, "smoothness")
        if self.smoothness not in (1.5, 2.5):
            raise invalid(self.name, "smoothness", self.smoothness, "1.5 or 2.5 (0.5 is the Laplacian kernel)")

    @property
    def width(self) -> float:
        """`sigma`."""
        return self.sigma

    def profile(self, ratios: FloatArray, n_features: int) -> None:
        """Compute the polynomial times exp(-a); see `Radial.profile`."""
        kind = ratios.dtype.type
        ratios *= kind(np.sqrt(2.0 * self.smoothness))
        # Beyond this ratio the exponential is zero; the limit keeps the polynomial finite.
        np.minimum(ratios, kind(1000.0), out=ratios)
        decay = np.exp(-ratios)
        if self.smoothness == 2.5:
            square = np.square(ratios)
            square *= kind(1.0 / 3.0)
            ratios += square
        ratios += kind(1.0)
        ratios *= decay

    def slope(self, ratios: FloatArray, n_features: int) -> None:
        """Compute -3 exp(-a), or -5/3 (1 + a) exp(-a), where a is the scaled ratio; see `Radial.slope`."""
        kind = ratios.dtype.type
        ratios *= kind(np.sqrt(2.0 * self.smoothness))
        np.minimum(ratios, kind(1000.0), out=ratios)
        decay = np.exp(-ratios)
        if self.smoothness == 2.5:
            ratios += kind(1.0)
            decay *= ratios
        np.multiply(decay, kind(-3.0 if self.smoothness == 1.5 else -5.0 / 3.0), out=ratios)


@dataclass(frozen=True)
class Wendland(Radial):
    """Wendland's kernel: a polynomial of the distance up to the radius, and exactly zero beyond it.

    Of all such polynomials that are positive definite on R^d and have 2 `smoothness` derivatives, it is the one of the
    lowest degree, floor(d / 2) + 3 smoothness + 1, where d is the number of features. It falls faster with more
    features. Predictions skip the centres beyond the radius where most centres are.

    Raises
    ------
    JobError
        `radius` is not a finite number above 0, or `smoothness` is not 0, 1, 2 or 3.

    Notes
    -----
    With r = |x - c| / radius and l = floor(d / 2) + smoothness + 1: (1 - r)^l for smoothness 0,
    (1 - r)^(l + 1) ((l + 1) r + 1) for 1, and so on. H. Wendland, Piecewise polynomial, positive definite and compactly
    supported radial functions of minimal degree, Advances in Computational Mathematics 4, 1995.
    """

    name: ClassVar[str] = "wendland"

    radius: float
    """Distance beyond which the kernel is zero, in units of the features."""

    smoothness: int = 1
    """0 to 3, default 1: the kernel has twice as many continuous derivatives."""

    def __post_init__(self) -> None:
        set_float(self, "radius", above_zero=True)
        value: Any = self.smoothness
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or not 0 <= value <= 3:
            raise invalid(self.name, "smoothness", value, "0, 1, 2 or 3")
        object.__setattr__(self, "smoothness", int(value))

    @property
    def width(self) -> float:
        """`radius`."""
        return self.radius

    @property
    def reach(self) -> float:
        """`radius`."""
        return self.radius

    def profile(self, ratios: FloatArray, n_features: int) -> None:
        """Compute the polynomial of distances over the radius; see `Radial.profile`."""
        kind = ratios.dtype.type
        np.minimum(ratios, kind(1.0), out=ratios)
        highest, *others = wendland_factor(n_features, self.smoothness)
        factor = np.full_like(ratios, highest)
        for coefficient in others:
            factor *= ratios
            factor += kind(coefficient)
        np.subtract(kind(1.0), ratios, out=ratios)
        raise_to_power(ratios, n_features // 2 + 2 * self.smoothness + 1)
        ratios *= factor

    def slope(self, ratios: FloatArray, n_features: int) -> None:
        """Compute p'(r) / r; see `Radial.slope`."""
        kind = ratios.dtype.type
        if self.smoothness == 0:
            power = n_features // 2 + 1
            values = np.where(ratios < 1.0, kind(-power), kind(0.0))
            if power > 1:
                rest = np.maximum(kind(1.0) - ratios, kind(0.0))
                raise_to_power(rest, power - 1)
                values *= rest
            np.divide(values, ratios, out=ratios)
            _keep_finite(ratios)
            return
        # The derivative is -r times the profile of one smoothness less and two features more (Wendland 1995), times
        # what makes it equal at zero: the coefficient of r^2 in (1 - r)^power (1 + first r + second r^2 + ...).
        second, first = (0.0, *wendland_factor(n_features, self.smoothness))[-3:-1]
        power = n_features // 2 + 2 * self.smoothness + 1
        Wendland(self.radius, self.smoothness - 1).profile(ratios, n_features + 2)
        ratios *= kind(2.0 * (power * (power - 1) / 2 - power * first + second))


def wendland_factor(n_features: int, smoothness: int) -> tuple[float, ...]:
    """Return the coefficients, highest power first, of the factor of (1 - r)^(l + smoothness) that is 1 at r = 0."""
    l = n_features // 2 + smoothness + 1  # noqa: E741
    if smoothness == 0:
        return (1.0,)
    if smoothness == 1:
        return (l + 1.0, 1.0)
    if smoothness == 2:
        return ((l**2 + 4 * l + 3) / 3, l + 2.0, 1.0)
    return ((l**3 + 9 * l**2 + 23 * l + 15) / 15, (6 * l**2 + 36 * l + 45) / 15, l + 3.0, 1.0)


def _to_distances(
    products: FloatArray, X: FloatArray, C: FloatArray, row_norms: FloatArray, center_norms: FloatArray
) -> Pairs:
    """Turn inner products, shape (n, m), into distances, in place; return the pairs that are close."""
    kind = products.dtype.type
    sums = row_norms[:, np.newaxis] + center_norms
    products *= kind(-2.0)
    products += sums
    sums *= kind(CLOSE)
    rows, centers = np.nonzero(products < sums)
    del sums
    if len(rows):
        found = _squared_differences(X, C, rows, centers)
        products[rows, centers] = found
    np.sqrt(products, out=products)
    return rows, centers


def _clear_overflowed(values: FloatArray, row_norms: FloatArray, center_norms: FloatArray) -> None:
    """Set values to 0 where a squared norm overflows: such a point is far from all other points."""
    for norms, side in ((row_norms, values), (center_norms, values.T)):
        overflowed = norms > np.finfo(values.dtype).max / 2
        if overflowed.any():
            side[overflowed] = 0.0


def _keep_finite(values: FloatArray) -> None:
    """Replace values that are not finite by 0, in place."""
    np.copyto(values, 0.0, where=~np.isfinite(values))


def _squared_differences(X: FloatArray, C: FloatArray, rows: NDArray[np.intp], centers: NDArray[np.intp]) -> FloatArray:
    found = np.empty(len(rows), dtype=X.dtype)
    step = max(1, PART_SIZE // (2 * X.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        differences = X[rows[part]]
        differences -= C[centers[part]]
        found[part] = squared_norms(differences)
    return found
