"""Kernel functions, computed block by block with one matrix product each.

A kernel is a frozen value. Rows and centres arrive with one dtype, float32 or float64; the result keeps it.
Neither scaling nor centring happens here; a stationary kernel depends on differences only, so its caller
can subtract the mean of X from both, and should: ``|x|^2 - 2 x.c + |c|^2`` cancels far from the origin.
"""

from __future__ import annotations

import dataclasses
import difflib
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distkern.errors import JobError
from distkern.kernel_base import (
    SLAB,
    FloatArray,
    Kernel,
    inner_products,
    invalid,
    raise_to_power,
    set_float,
    squared_norms,
)
from distkern.radial_kernels import Laplacian, Matern, Wendland

__all__ = [
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Polynomial",
    "Sigmoid",
    "Wendland",
    "kernel_from_parameters",
    "make_kernel",
]

WITH_SIGMA = ("gaussian", "laplacian", "matern")
"""Names of kernels whose width an estimator's `sigma` gives, as a number or by a rule."""


@dataclass(frozen=True)
class Gaussian(Kernel):
    """The kernel exp(-|x - c|^2 / (2 sigma^2)).

    Raises
    ------
    JobError
        `sigma` is not a finite number above 0.
    """

    name: ClassVar[str] = "gaussian"
    stationary: ClassVar[bool] = True

    sigma: float
    """Width, in units of the features."""

    def __post_init__(self) -> None:
        set_float(self, "sigma", above_zero=True)

    def block(self, X: FloatArray, C: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the kernel between rows and centres; see `Kernel.block`."""
        limits = np.finfo(X.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            scale = min(max(float(np.float64(1.0) / self.sigma / self.sigma), float(limits.tiny)), float(limits.max))
            K = inner_products(X, C, out)
            # -|x - c|^2 / 2 = x.c - |x|^2 / 2 - |c|^2 / 2, which rounding can leave slightly above 0.
            row_norms, center_norms = 0.5 * squared_norms(X), 0.5 * squared_norms(C)
            K -= row_norms[:, np.newaxis]
            K -= center_norms
            np.minimum(K, 0.0, out=K)
            K *= K.dtype.type(scale)
            np.exp(K, out=K)
        # What is too far out for a square is far from everything else.
        for norms, part in ((row_norms, K), (center_norms, K.T)):
            if not np.isfinite(norms).all():
                part[~np.isfinite(norms)] = 0.0
        return K

    def diagonal(self, X: FloatArray) -> FloatArray:
        """Return ones: k(x, x) = 1."""
        return np.ones(len(X), dtype=X.dtype)


@dataclass(frozen=True)
class Polynomial(Kernel):
    """The kernel (x.c + offset)^degree.

    Raises
    ------
    JobError
        `degree` is not a whole number of at least 1, or `offset` is not finite.
    """

    name: ClassVar[str] = "polynomial"

    degree: int = 3
    """Power, at least 1."""

    offset: float = 1.0
    """Constant added to the inner product."""

    def __post_init__(self) -> None:
        degree: Any = self.degree
        if isinstance(degree, bool) or not isinstance(degree, numbers.Integral) or degree < 1:
            raise invalid(self.name, "degree", degree, "a whole number of at least 1")
        object.__setattr__(self, "degree", int(degree))
        set_float(self, "offset")

    def block(self, X: FloatArray, C: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the kernel between rows and centres; see `Kernel.block`."""
        K = inner_products(X, C, out)
        K += K.dtype.type(self.offset)
        step = max(1, SLAB // max(1, K.shape[1]))
        for start in range(0, len(K), step):
            raise_to_power(K[start : start + step], self.degree)
        return K

    def diagonal(self, X: FloatArray) -> FloatArray:
        """Compute k(x, x) for every row; see `Kernel.diagonal`."""
        values = squared_norms(X) + X.dtype.type(self.offset)
        raise_to_power(values, self.degree)
        return values


@dataclass(frozen=True)
class Sigmoid(Kernel):
    """The kernel tanh(kappa x.c + theta).

    Raises
    ------
    JobError
        `kappa` or `theta` is not finite, or `kappa` is 0, which makes every column constant.
    """

    name: ClassVar[str] = "sigmoid"

    kappa: float = 1.0
    """Factor of the inner product, not 0."""

    theta: float = 0.0
    """Constant added to the scaled inner product."""

    def __post_init__(self) -> None:
        set_float(self, "kappa")
        set_float(self, "theta")
        if self.kappa == 0.0:
            raise invalid(self.name, "kappa", self.kappa, "a finite number other than 0")

    def block(self, X: FloatArray, C: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the kernel between rows and centres; see `Kernel.block`."""
        return self._squash(inner_products(X, C, out))

    def diagonal(self, X: FloatArray) -> FloatArray:
        """Compute k(x, x) for every row; see `Kernel.diagonal`."""
        return self._squash(squared_norms(X))

    def _squash(self, values: FloatArray) -> FloatArray:
        values *= values.dtype.type(self.kappa)
        values += values.dtype.type(self.theta)
        return np.tanh(values, out=values)


@dataclass(frozen=True)
class Linear(Kernel):
    """The kernel x.c."""

    name: ClassVar[str] = "linear"

    def block(self, X: FloatArray, C: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the kernel between rows and centres; see `Kernel.block`."""
        return inner_products(X, C, out)

    def diagonal(self, X: FloatArray) -> FloatArray:
        """Compute k(x, x) for every row; see `Kernel.diagonal`."""
        return squared_norms(X)


_KINDS = (Gaussian, Laplacian, Matern, Wendland, Polynomial, Sigmoid, Linear)
_KERNELS: dict[str, Any] = {kind.name: kind for kind in _KINDS}


def kernel_from_parameters(name: str, params: Mapping[str, float | int]) -> Kernel:
    """Build a kernel from its name and parameters: the inverse of `Kernel.parameters`.

    Parameters
    ----------
    name : str
        "gaussian", "laplacian", "matern", "wendland", "polynomial", "sigmoid" or "linear".
    params : mapping
        Parameters by name; those with a default may be left out.

    Returns
    -------
    Kernel
        A new kernel, equal to the one the parameters were taken from.

    Raises
    ------
    JobError
        The name or a parameter is unknown, a parameter is missing or out of its range.
    """
    kind = _KERNELS.get(name)
    if kind is None:
        known = ", ".join(f'"{key}"' for key in _KERNELS)
        raise JobError(
            f"kernel {name!r} is unknown{_nearest(name, _KERNELS)}: the kernels are {known}; "
            "any other is given as a Kernel object",
            kind="invalid-parameter",
        )
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in params:
        if key not in fields:
            known = ", ".join(fields) or "none"
            raise JobError(
                f"kernel {name!r} has no parameter {key!r}{_nearest(key, fields)}: its parameters: {known}",
                kind="invalid-parameter",
            )
    for key, field in fields.items():
        if key not in params and field.default is dataclasses.MISSING:
            raise JobError(
                f"kernel {name!r} needs a value for {key}, and none is given: set {key}",
                kind="invalid-parameter",
            )
    made: Kernel = kind(**params)
    return made


def make_kernel(kernel: str | Kernel, sigma: float | None) -> Kernel:
    """Turn the `kernel` and `sigma` settings of an estimator into a kernel.

    Parameters
    ----------
    kernel : str or Kernel
        A name, "gaussian", "laplacian", "matern", "polynomial", "sigmoid" or "linear", or a kernel, which is returned
        as it is.
    sigma : float or None
        Width for "gaussian", "laplacian" and "matern"; the others do not use it.

    Returns
    -------
    Kernel
        The kernel, with default parameters except for `sigma`.

    Raises
    ------
    JobError
        The name is unknown; `sigma` is missing, or not a finite number above 0, for a kernel that has it; or the kernel
        has another parameter without a default, as the radius of "wendland" is.
    """
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str):
        raise JobError(
            f"kernel is {kernel!r}, but must be the name of a kernel or a Kernel object: set kernel",
            kind="invalid-parameter",
        )
    return kernel_from_parameters(kernel, {"sigma": sigma} if kernel in WITH_SIGMA and sigma is not None else {})


def _nearest(word: str, known: Mapping[str, object]) -> str:
    match = difflib.get_close_matches(str(word), known, n=1)
    return f" (did you mean {match[0]!r}?)" if match else ""
