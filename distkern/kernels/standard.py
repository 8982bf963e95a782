"""The Gaussian and the kernels of the inner product, and kernels by their names.

A kernel is a frozen value. Each block of values costs one matrix product. These functions neither scale nor centre the
rows. The caller should subtract the mean of X from rows and centres of a stationary kernel, which depends on
differences only: ``|x|^2 - 2 x.c + |c|^2`` cancels far from the origin.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import JobError
from ..text import did_you_mean
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
from .gradients import gradient_sums, target_arrays
from .radial import Laplacian, Matern, Wendland

_FOLDED = {4: (2.0**-80, 2.0**80), 8: (2.0**-800, 2.0**800)}
"""Precisions, by the size of the dtype, with which features may be divided by the width before they are multiplied."""

WITH_SIGMA = ("gaussian", "laplacian", "laplacian-l1", "matern")
"""Names of the kernels whose width is an estimator's `sigma`, a number or a rule."""


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
        return _gaussian_block(X, C, _precisions(self.sigma, X.dtype), out)

    def columns(self, C: FloatArray, X: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the kernel between centres and rows; see `Kernel.columns`."""
        return _gaussian_columns(C, X, _precisions(self.sigma, X.dtype), out)

    def gradients(self, X: FloatArray, C: FloatArray, A: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the gradients of weighted sums of kernels; see `Kernel.gradients`."""
        inverse = inverse_of(self.sigma, X.dtype)
        return _gaussian_gradients(X, C, A, _precisions(self.sigma, X.dtype), out, -inverse, inverse)

    def diagonal(self, X: FloatArray) -> FloatArray:
        """Return ones: k(x, x) = 1."""
        return np.ones(len(X), dtype=X.dtype)


@dataclass(frozen=True, eq=False)
class Gaussians(Kernel):
    """Gaussian kernels with one width for each centre: exp(-|x - c_j|^2 / (2 sigma_j^2)).

    Rows and centres cannot be exchanged here: `block` and `columns` take one centre for each width. A training holds
    the widths it may choose from in one such kernel, and `of` returns the kernel of the chosen centres.

    Raises
    ------
    JobError
        `sigma` is not a vector of finite numbers above 0.
    """

    name: ClassVar[str] = "gaussians"
    stationary: ClassVar[bool] = True

    sigma: npt.NDArray[np.float64]
    """Width of each centre, in units of the features, shape (n_centers,)."""

    def __post_init__(self) -> None:
        try:
            sigma = np.array(self.sigma, dtype=np.float64, order="C")
        except (TypeError, ValueError, OverflowError):
            sigma = np.array(np.nan)
        if sigma.ndim != 1 or not np.isfinite(sigma).all() or not (sigma > 0.0).all():
            raise invalid(self.name, "sigma", self.sigma, "a sequence of finite numbers above 0")
        sigma.flags.writeable = False
        object.__setattr__(self, "sigma", sigma)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Gaussians) and np.array_equal(self.sigma, other.sigma)

    def __hash__(self) -> int:
        return hash((self.name, self.sigma.tobytes()))

    def block(self, X: FloatArray, C: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the kernel between rows and centres; see `Kernel.block`."""
        assert len(C) == len(self.sigma), f"{len(C)} centres and {len(self.sigma)} widths"
        return _gaussian_block(X, C, _precisions(self.sigma, X.dtype), out)

    def columns(self, C: FloatArray, X: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the kernel between centres and rows; see `Kernel.columns`."""
        assert len(C) == len(self.sigma), f"{len(C)} centres and {len(self.sigma)} widths"
        return _gaussian_columns(C, X, _precisions(self.sigma, X.dtype), out)

    def gradients(self, X: FloatArray, C: FloatArray, A: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the gradients of weighted sums of kernels; see `Kernel.gradients`."""
        assert len(C) == len(self.sigma), f"{len(C)} centres and {len(self.sigma)} widths"
        precisions = _precisions(self.sigma, X.dtype)
        return _gaussian_gradients(X, C, -precisions[:, np.newaxis] * A.astype(X.dtype), precisions, out)

    def diagonal(self, X: FloatArray) -> FloatArray:
        """Return ones: k(x, x) = 1 for any width."""
        return np.ones(len(X), dtype=X.dtype)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name, for `kernel_from_parameters`: the widths as a list."""
        return {"sigma": self.sigma.tolist()}

    def of(self, chosen: npt.NDArray[np.integer[Any]]) -> Gaussians:
        """Return the kernel of centres with the widths ``sigma[chosen]``."""
        return Gaussians(self.sigma[chosen])


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
    """Power, at least 1, default 3."""

    offset: float = 1.0
    """Constant added to the inner product, default 1.0."""

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
        step = max(1, PART_SIZE // max(1, K.shape[1]))
        for start in range(0, len(K), step):
            raise_to_power(K[start : start + step], self.degree)
        return K

    def diagonal(self, X: FloatArray) -> FloatArray:
        """Compute k(x, x) for every row; see `Kernel.diagonal`."""
        values = squared_norms(X) + X.dtype.type(self.offset)
        raise_to_power(values, self.degree)
        return values

    def gradients(self, X: FloatArray, C: FloatArray, A: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the gradients of weighted sums of kernels; see `Kernel.gradients`."""
        if self.degree == 1:
            return Linear().gradients(X, C, A, out)

        def slopes(part: slice, S: FloatArray) -> None:
            inner_products(X[part], C, S)
            S += S.dtype.type(self.offset)
            raise_to_power(S, self.degree - 1)

        return gradient_sums(slopes, X, C, A, out, self.degree, differences=False)


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
    """Factor of the inner product, not 0, default 1.0."""

    theta: float = 0.0
    """Constant added to the scaled inner product, default 0.0."""

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

    def gradients(self, X: FloatArray, C: FloatArray, A: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the gradients of weighted sums of kernels; see `Kernel.gradients`."""

        def slopes(part: slice, S: FloatArray) -> None:
            self._squash(inner_products(X[part], C, S))
            S *= S
            np.subtract(1.0, S, out=S)

        return gradient_sums(slopes, X, C, A, out, self.kappa, differences=False)

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

    def gradients(self, X: FloatArray, C: FloatArray, A: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the gradients of weighted sums of kernels; see `Kernel.gradients`."""
        A, out = target_arrays(X, C, A, out)
        out[:] = (A.T @ C)[:, np.newaxis]
        return out


_KINDS = (Gaussian, Laplacian, Matern, Wendland, Polynomial, Sigmoid, Linear)
_KERNELS: dict[str, Any] = {kind.name: kind for kind in _KINDS}
_PRESETS: dict[str, tuple[str, dict[str, Any]]] = {"laplacian-l1": (Laplacian.name, {"norm": "l1"})}
"""Second names: a kernel, and parameters that the name fixes."""
_NAMES = (*_KERNELS, *_PRESETS)
_OF_CENTERS: dict[str, Any] = {Gaussians.name: Gaussians}
"""Kernels that only trained models have; a training does not accept them as a setting."""


def width_count(kernel: Kernel) -> int:
    """Return the number of widths that a training with `kernel` may choose from."""
    return len(kernel.sigma) if isinstance(kernel, Gaussians) else 1


def kernel_of_centers(kernel: Kernel, widths: npt.NDArray[np.integer[Any]]) -> Kernel:
    """Return the kernel of some centres of a training.

    Parameters
    ----------
    kernel : Kernel
        Kernel of the training.
    widths : array, shape (m,)
        Index of the width of each centre, among those that the training chooses from.

    Returns
    -------
    Kernel
        `kernel` itself unless it has several widths.
    """
    return kernel.of(widths) if isinstance(kernel, Gaussians) else kernel


def kernel_from_parameters(name: str, params: Mapping[str, Any]) -> Kernel:
    """Build a kernel from its name and parameters: the inverse of `Kernel.parameters`.

    Parameters
    ----------
    name : str
        "gaussian", "laplacian", "laplacian-l1" (``Laplacian(sigma, norm="l1")``), "matern", "wendland", "polynomial",
        "sigmoid", "linear", or "gaussians", which has one width for each centre.
    params : mapping
        Parameters by name; those with a default may be left out.

    Returns
    -------
    Kernel
        A new kernel, equal to the kernel that the parameters were taken from.

    Raises
    ------
    JobError
        The name or a parameter is unknown, a parameter is missing or out of its range.
    """
    own_name, fixed = _PRESETS.get(name, (name, {}))
    kind = _KERNELS.get(own_name) or _OF_CENTERS.get(own_name)
    if kind is None:
        known = ", ".join(f'"{key}"' for key in _NAMES)
        raise JobError(
            f"kernel {name!r} is unknown{did_you_mean(name, _NAMES)}: the kernels are {known}; "
            "give any other as a Kernel object",
            kind="invalid-parameter",
        )
    fields = {field.name: field for field in dataclasses.fields(kind) if field.name not in fixed}
    for key in params:
        if key not in fields:
            known = ", ".join(fields) or "none"
            raise JobError(
                f"kernel {name!r} has no parameter {key!r}{did_you_mean(key, fields)}: its parameters: {known}",
                kind="invalid-parameter",
            )
    for key, field in fields.items():
        if key not in params and field.default is dataclasses.MISSING:
            raise JobError(
                f"kernel {name!r} needs a value for {key}, and none is given: set {key}",
                kind="invalid-parameter",
            )
    made: Kernel = kind(**params, **fixed)
    return made


def make_kernel(kernel: str | Kernel, sigma: float | Sequence[float] | None) -> Kernel:
    """Turn the `kernel` and `sigma` settings of an estimator into a kernel.

    Parameters
    ----------
    kernel : str or Kernel
        A name, "gaussian", "laplacian", "laplacian-l1", "matern", "polynomial", "sigmoid" or "linear", or a kernel,
        which is returned as it is.
    sigma : float, sequence of float, or None
        Width of the first four, or for "gaussian" the widths to choose from. The other kernels do not use it.

    Returns
    -------
    Kernel
        The kernel, with default parameters except for `sigma`.

    Raises
    ------
    JobError
        The name is unknown; `sigma` is missing, or not a finite number above 0, for a kernel that has it; the kernel
        has another parameter without a default, such as the radius of "wendland"; or `kernel` has one width for each
        centre.
    """
    if isinstance(kernel, Gaussians) or kernel == Gaussians.name:
        raise JobError(
            "kernel 'gaussians' belongs to the centres of a trained model: for a training that chooses among widths, "
            "set kernel='gaussian' and sigma to a list of widths",
            kind="invalid-parameter",
        )
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str):
        raise JobError(
            f"kernel is {kernel!r}, but must be the name of a kernel or a Kernel object: set kernel",
            kind="invalid-parameter",
        )
    if kernel == Gaussian.name and isinstance(sigma, Sequence):
        return Gaussians(np.array(sigma))
    return kernel_from_parameters(kernel, {"sigma": sigma} if kernel in WITH_SIGMA and sigma is not None else {})


def _precisions(sigma: Any, dtype: np.dtype[Any]) -> Any:
    """Return 1 / sigma^2 within the range of a dtype, a number or an array."""
    limits = np.finfo(dtype)
    with np.errstate(over="ignore"):
        return np.clip(np.float64(1.0) / sigma / sigma, float(limits.tiny), float(limits.max)).astype(dtype)


def _gaussian_block(X: FloatArray, C: FloatArray, precisions: Any, out: FloatArray | None) -> FloatArray:
    """Return exp(-|x - c|^2 / 2 * precision), shape (n_rows, n_centers), with one precision, or one for each centre."""
    out = np.empty((len(X), len(C)), dtype=X.dtype) if out is None else out
    _write_gaussian(C, X, precisions, out.T)
    return out


def _gaussian_columns(C: FloatArray, X: FloatArray, precisions: Any, out: FloatArray | None) -> FloatArray:
    """Return the transpose of `_gaussian_block`."""
    out = np.empty((len(C), len(X)), dtype=X.dtype) if out is None else out
    _write_gaussian(C, X, precisions, out)
    return out


def _write_gaussian(C: FloatArray, X: FloatArray, precisions: Any, out: FloatArray) -> None:
    """Compute exp(-|x - c|^2 / 2 * precision), shape (n_centers, n_rows), into `out`.

    Parameters
    ----------
    C, X : arrays, shapes (n_centers, d) and (n_rows, d)
        Centres and rows.
    precisions : array
        A number, or one for each centre.
    out : array, shape (n_centers, n_rows)
        Array for the result, of any memory order.
    """
    lowest, highest = _FOLDED[X.dtype.itemsize]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if ((precisions >= lowest) & (precisions <= highest)).all():
            norms = _folded_exponents(C, X, precisions, out)
        else:
            norms = _exponents(C, X, precisions, out)
        # In parts that stay in the cache; rounding can leave an exponent slightly above 0.
        values = out if out.flags.c_contiguous else out.T
        step = max(1, PART_SIZE // max(1, values.shape[1]))
        for start in range(0, len(values), step):
            part = values[start : start + step]
            np.minimum(part, 0.0, out=part)
            np.exp(part, out=part)
    # A point whose squared norm overflows is far from all other points: its kernel values are 0.
    for squares, part in zip(norms, (out, out.T), strict=True):
        if not np.isfinite(squares).all():
            part[~np.isfinite(squares)] = 0.0


def _folded_exponents(C: FloatArray, X: FloatArray, precisions: Any, out: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Write -|x - c|^2 / 2 * precision, by one product of centres and rows with two more columns each.

    Returns
    -------
    tuple of array
        Squared norms of centres and rows, in units of a power of two near the widest centre's width: these units
        round nothing and leave the range of the dtype to the norms.
    """
    d = C.shape[1]
    half = int(np.frexp(np.min(precisions, initial=1.0) if np.ndim(precisions) else precisions)[1]) // 2
    unit = X.dtype.type(np.ldexp(1.0, half))
    scaled = np.ldexp(precisions, -2 * half)
    centers, rows = np.empty((len(C), d + 2), dtype=C.dtype), np.empty((len(X), d + 2), dtype=X.dtype)
    np.multiply(X, unit, out=rows[:, :d])
    np.multiply(C, unit, out=centers[:, :d])
    norms = squared_norms(centers[:, :d]), squared_norms(rows[:, :d])
    centers[:, :d].T[:] *= scaled
    centers[:, d] = -0.5 * scaled
    centers[:, d + 1] = norms[0] * centers[:, d]
    rows[:, d], rows[:, d + 1] = norms[1], 1.0
    np.matmul(centers, rows.T, out=out)
    return norms


def _exponents(C: FloatArray, X: FloatArray, precisions: Any, out: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Write the same in steps, for any width; return the squared norms."""
    norms = squared_norms(C), squared_norms(X)
    inner_products(C, X, out)
    out -= 0.5 * norms[0][:, np.newaxis]
    out -= 0.5 * norms[1]
    np.minimum(out, 0.0, out=out)
    out *= precisions[..., np.newaxis]
    return norms


def _gaussian_gradients(
    X: FloatArray, C: FloatArray, A: FloatArray, precisions: Any, out: FloatArray | None, *factors: float
) -> FloatArray:
    """Return the sums of A_jt k(x, c_j) (x - c_j) times the factors, with the kernel of `_gaussian_block`."""

    def slopes(part: slice, S: FloatArray) -> None:
        _gaussian_block(X[part], C, precisions, S)

    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return gradient_sums(slopes, X, C, A, out, *factors)
