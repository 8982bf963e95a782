"""The base class of all kernels, and the arithmetic that several kernels share.

Rows and centres have one dtype, float32 or float64; the result keeps it. The kernels themselves are in `standard` and
`radial`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import JobError

FloatArray = npt.NDArray[np.floating[Any]]

PART_SIZE = 32768
"""Elements of a block that are computed at a time where a scratch copy is needed."""


class Kernel(ABC):
    """Base of all kernels; a subclass (a frozen dataclass) is a kernel of your own.

    A subclass defines `name`, `block` and `diagonal`. Value (i, j) of a block depends on row i and centre j only, and
    k(x, c) = k(c, x). `block` must be deterministic.
    """

    name: ClassVar[str]
    """Name in job files and stored models."""

    stationary: ClassVar[bool] = False
    """True when k(x + t, c + t) = k(x, c), so that the data may be shifted."""

    @property
    def reach(self) -> float:
        """Distance from which on the kernel is exactly zero; infinite where it is not known to be."""
        return np.inf

    @abstractmethod
    def block(self, X: FloatArray, C: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the kernel between rows and centres.

        Parameters
        ----------
        X : array, shape (n_rows, n_features)
            Rows, float32 or float64.
        C : array, shape (n_centers, n_features)
            Centres, of the same dtype as `X`.
        out : array, shape (n_rows, n_centers), optional
            Array for the result, of the same dtype; a new array by default.

        Returns
        -------
        array, shape (n_rows, n_centers)
            `out`, or the new array.
        """

    def columns(self, C: FloatArray, X: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the kernel between centres and rows, the transpose of `block`, in the same way.

        Parameters
        ----------
        C : array, shape (n_centers, n_features)
            Centres.
        X : array, shape (n_rows, n_features)
            Rows.
        out : array, shape (n_centers, n_rows), optional
            Array for the result; a new array by default.

        Returns
        -------
        array, shape (n_centers, n_rows)
            `out`, or the new array.
        """
        return self.block(C, X, out)

    @abstractmethod
    def diagonal(self, X: FloatArray) -> FloatArray:
        """Compute k(x, x) for every row of `X`, shape (n_rows, n_features); the result is (n_rows,)."""

    def gradients(self, X: FloatArray, C: FloatArray, A: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute the gradients of f_t(x) = sum_j A_jt k(x, c_j) with respect to x.

        Where k(x, c) has no gradient in x, as that of "laplacian" at x = c, the centre adds nothing.

        Parameters
        ----------
        X : array, shape (n_rows, n_features)
            Rows, float32 or float64.
        C : array, shape (n_centers, n_features)
            Centres, of the same dtype as `X`.
        A : array, shape (n_centers, n_targets)
            Weights; they are converted to the dtype of `X`.
        out : array, shape (n_targets, n_rows, n_features), optional
            Array for the result, of the dtype of `X`; a new array by default.

        Returns
        -------
        array, shape (n_targets, n_rows, n_features)
            `out`, or the new array.

        Raises
        ------
        JobError
            The kernel defines no gradients.
        """
        raise JobError(
            f"the kernel {self.name!r} has no gradients: define gradients in {type(self).__name__}, or use a kernel of "
            "distkern",
            kind="invalid-parameter",
        )

    def parameters(self) -> dict[str, float | int | str]:
        """Return the parameters by name, for `kernel_from_parameters`: the dataclass fields."""
        kernel: Any = self
        if not dataclasses.is_dataclass(kernel):
            return {}
        return {field.name: getattr(kernel, field.name) for field in dataclasses.fields(kernel)}


def inner_products(X: FloatArray, C: FloatArray, out: FloatArray | None) -> FloatArray:
    """Compute x.c for every row of `X` and of `C`, shape (n_rows, n_centers), into `out` if it is given."""
    assert X.dtype == C.dtype, f"X is {X.dtype} and C is {C.dtype}"
    # For a matrix and its own transpose numpy calls a symmetric product, whose last bits differ from the general
    # product's. A copy makes the result independent of whether X and C share memory.
    if np.may_share_memory(X, C):
        C = C.copy()
    return np.asarray(np.matmul(X, C.T, out=out))


def inverse_of(width: float, dtype: np.dtype[Any]) -> Any:
    """Return 1 / width within the range of a dtype, as a number of that dtype."""
    limits = np.finfo(dtype)
    with np.errstate(over="ignore"):
        return dtype.type(min(max(float(np.float64(1.0) / width), float(limits.tiny)), float(limits.max)))


def squared_norms(X: FloatArray) -> FloatArray:
    """Compute |x|^2 for every row, shape (n_rows,)."""
    return np.asarray(np.einsum("ij,ij->i", X, X))


def raise_to_power(values: FloatArray, degree: int) -> None:
    """Raise `values` to a whole power of at least 1, in place."""
    # Repeated squaring instead of np.power, which is many times slower and rounds differently on other machines.
    if degree == 1:
        return
    base = values.copy()
    for bit in bin(degree)[3:]:
        values *= values
        if bit == "1":
            values *= base


def set_float(kernel: Kernel, field: str, *, above_zero: bool = False) -> None:
    """Check a field of a frozen kernel and convert it to a plain float.

    Parameters
    ----------
    kernel : Kernel
        Kernel to change.
    field : str
        Name of the field.
    above_zero : bool, default False
        Whether the number must be above 0.

    Raises
    ------
    JobError
        The field is not a finite number (above 0).
    """
    value: Any = getattr(kernel, field)
    number = math.nan
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            number = float(value)
    if not math.isfinite(number) or (above_zero and number <= 0.0):
        raise invalid(kernel.name, field, value, f"a finite number{' above 0' if above_zero else ''}")
    object.__setattr__(kernel, field, number)


def invalid(kernel: str, field: str, value: object, limit: str) -> JobError:
    """Return the error for a parameter that is outside its limit."""
    return JobError(
        f"{field} of the {kernel} kernel is {value!r}, but must be {limit}: set {field}",
        kind="invalid-parameter",
    )
