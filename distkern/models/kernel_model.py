"""A trained model: centres, kernel and weights, and its evaluation on rows.

f(x) = b + sum_j a_j k(x, x_j), for all targets at once: each centre of the union over targets is evaluated once. Rows
are evaluated in one piece here; `distkern.scheduler.prediction.local` cuts them into tiles and distributes the tiles
over threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..errors import DataError
from ..kernels import Kernel
from ..kernels.near_sums import NearSums
from ..numerics.scaling import FeatureScaling

Scratch = Callable[[str, tuple[int, ...], np.dtype[Any]], NDArray[Any]]
"""Function of name, shape and dtype that returns an uninitialised array, valid until the next call with that name."""


def fresh_array(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Allocate an array; the `Scratch` of a caller that evaluates once."""
    return np.empty(shape, dtype=dtype)


class ColumnOutputs(Protocol):
    """Further outputs of a row from its kernel values, such as the width of an interval."""

    @property
    def n_outputs(self) -> int:
        """Number of further outputs."""
        ...

    def aligned(self) -> Self:
        """Return the same with contiguous and aligned arrays."""
        ...

    def evaluate(self, columns: NDArray[Any]) -> Array:
        """Return the outputs, shape (n, n_outputs), from kernel values of all centres, shape (n, m)."""
        ...


@dataclass(frozen=True)
class PreparedModel:
    """A model whose centres and weights are scaled and cast, for many calls."""

    kernel: Kernel
    """The kernel."""
    scaling: FeatureScaling
    """From the caller's features to the kernel's."""
    centers: NDArray[Any]
    """(m, d): in kernel space, in the dtype of the kernel values."""
    coef: NDArray[Any]
    """(m, T): weights, in the same dtype."""
    intercept: Array
    """(T,): intercepts, float64."""
    near: NearSums | None = None
    """Sums that skip the centres beyond the radius, for kernels of compact support; default None for other kernels."""
    further: ColumnOutputs | None = None
    """Further outputs, in columns after the T fitted targets, which keep their bits; default None."""

    @property
    def n_outputs(self) -> int:
        """Columns of the result of `evaluate`."""
        return _count_outputs(self.intercept, self.further)

    def evaluate(self, X: NDArray[Any], out: Array | None = None, scratch: Scratch = fresh_array) -> Array:
        """Return f for rows of raw features, in one piece.

        Parameters
        ----------
        X : array, shape (n, d)
            Rows.
        out : array, shape (n, n_outputs), optional
            Array for the result; a new array by default.
        scratch : callable, default fresh_array
            Returns the arrays for the n x m kernel values and the scaled rows.
        """
        n, dtype = len(X), self.centers.dtype
        values = np.empty((n, self.n_outputs)) if out is None else out
        fitted = values[:, : len(self.intercept)]
        if not len(self.centers):
            fitted[...] = self.intercept
            if self.further is not None:
                values[:, len(self.intercept) :] = self.further.evaluate(np.empty((n, 0), dtype=dtype))
            return values
        shape = n, self.scaling.width
        rows = scratch("features", shape, dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            if dtype == np.float64:
                self.scaling.apply(X, dtype, out=rows)
            else:
                exact = np.dtype(np.float64)
                rows[...] = self.scaling.apply(X, exact, out=scratch("float64-features", shape, exact))
            sums: NDArray[Any] | None = None if self.near is None else self.near.evaluate(rows)
            if sums is None or self.further is not None:
                columns = self.kernel.block(rows, self.centers, out=scratch("kernel", (n, len(self.centers)), dtype))
                if sums is None:
                    sums = np.matmul(columns, self.coef, out=scratch("product", fitted.shape, dtype))
                if self.further is not None:
                    values[:, len(self.intercept) :] = self.further.evaluate(columns)
            np.add(sums, self.intercept, out=fitted)
        if not np.isfinite(values).all():
            raise self._overflow(X, values)
        return values

    def _overflow(self, X: NDArray[Any], values: Array) -> DataError:
        row = X[np.flatnonzero(~np.isfinite(values).all(axis=1))[0]]
        # Distances in spreads of the training rows name the outlying feature, not one of large numbers.
        column = int(np.argmax(self.scaling.deviations(row)))
        return DataError(
            f"the prediction of a row overflows: its value {row[column]:g} in column {column} (counted from 0) is too "
            f"far from the training rows for the {self.kernel.name} kernel; leave such rows out",
            kind="overflow",
        )


@dataclass(frozen=True)
class KernelModel:
    """Centres, with one weight for each target."""

    kernel: Kernel
    """The kernel."""
    scaling: FeatureScaling
    """From the caller's features to the kernel's."""
    centers: NDArray[Any]
    """(m, d): in the caller's feature space."""
    coef: Array
    """(m, T): weights."""
    intercept: Array
    """(T,): intercepts."""
    dtype: str
    """Precision of the kernel values: "float64" or "float32"."""
    further: ColumnOutputs | None = None
    """Further outputs, in columns after the T fitted targets, which keep their bits; default None."""

    @property
    def n_outputs(self) -> int:
        """Columns of the result of `evaluate`."""
        return _count_outputs(self.intercept, self.further)

    def prepare(self) -> PreparedModel:
        """Scale and cast the centres and the weights.

        The copies are C-contiguous and aligned, because memory order and alignment change the last bits of products,
        and dask delivers arrays that are neither.
        """
        dtype = np.dtype(self.dtype)
        centers = np.empty((len(self.centers), self.scaling.width), dtype=dtype)
        if len(centers):
            self.scaling.apply(self.centers, dtype, out=centers)
        with np.errstate(over="ignore"):
            coef = np.array(self.coef, dtype=dtype, order="C")
        near = NearSums.of(self.kernel, centers, coef)
        further = None if self.further is None else self.further.aligned()
        return PreparedModel(self.kernel, self.scaling, centers, coef, self.intercept, near, further)

    def evaluate(self, X: NDArray[Any]) -> Array:
        """Return f for rows of raw features, shape (n, d), as an array of shape (n, T), in one piece."""
        return self.prepare().evaluate(X)


def _count_outputs(intercept: Array, further: ColumnOutputs | None) -> int:
    return len(intercept) + (0 if further is None else further.n_outputs)
