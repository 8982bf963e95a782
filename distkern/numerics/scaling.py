"""The map from the caller's features to kernel space: a shift and a scale for each feature, and learnt directions.

Some columns may be mapped by arcsinh before that, see `arcsinh_columns`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from .arcsinh_columns import ArcsinhColumns
from .moments import Moments

STANDARDIZED_PART = 1 << 16
"""Standardised features that are mapped to learnt directions at a time, so that they stay in cache."""

MIN_PART_ROWS = 64
"""Least rows that are mapped at a time."""


@dataclass(frozen=True)
class FeatureScaling:
    """(x - shift) / scale, computed in float64 before any cast, where some columns of x may be mapped by arcsinh."""

    shift: Array
    """(d,): subtracted, float64."""
    scale: Array
    """(d,): divides the difference, float64."""
    arcsinh: ArcsinhColumns | None = field(default=None, kw_only=True, metadata={"hashed_unless": None})
    """Columns that arcsinh maps before they are shifted and scaled; default None for no column."""

    @property
    def width(self) -> int:
        """Number of columns of the mapped rows."""
        return len(self.shift)

    @classmethod
    def fit(
        cls, moments: Moments, *, standardize: bool, shift_allowed: bool, scales: Array | None = None
    ) -> FeatureScaling:
        """Choose the map from the training statistics.

        Parameters
        ----------
        moments : Moments
            Moments of the raw features.
        standardize : bool
            Whether features get zero mean and unit standard deviation; a constant column becomes zero.
        shift_allowed : bool
            Whether the kernel depends on differences only. The mean is then subtracted even without standardising,
            which keeps squared distances accurate for data far from the origin.
        scales : array, shape (d,), optional
            Scales in place of the standard deviations; NaN keeps the latter. Columns that belong together, as those of
            the levels of one category, have one scale.
        """
        d = len(moments.mean)
        if standardize:
            std = moments.std()
            own = np.where(std > 0, std, 1.0)
            return cls(moments.mean, own if scales is None else np.where(np.isnan(scales), own, scales))
        return cls(moments.mean if shift_allowed else np.zeros(d), np.ones(d))

    def apply(self, X: NDArray[Any], dtype: np.dtype[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Map rows of raw features.

        Parameters
        ----------
        X : array, shape (n, d)
            Rows of raw features.
        dtype : dtype
            Type of the result.
        out : array, shape (n, d), optional
            Array for the result; a new array by default.
        """
        target = np.empty(X.shape, dtype=dtype) if out is None else out
        # An overflow gives an infinite feature; the caller of the kernel checks the result.
        with np.errstate(over="ignore"):
            if dtype == np.float64:
                self._standardize(X, target)
            else:
                target[...] = self._standardize(X, np.empty(X.shape))
        return target

    def deviations(self, row: Array) -> Array:
        """Return how far the features of a row, shape (d,), are from those of the training rows, in half spreads."""
        # Both terms are halved because their difference may overflow.
        own = row / 2
        if self.arcsinh is not None:
            own[self.arcsinh.columns] = self.arcsinh.apply(row[None])[0] / 2
        return np.asarray(np.abs((own - self.shift / 2) / self.scale))

    def spread(self, moments: Moments) -> Array:
        """Return the standard deviations of the scaled features, shape (d,), or a bound where arcsinh maps them."""
        spread = moments.std()
        if self.arcsinh is not None:
            spread[self.arcsinh.columns] = self.arcsinh.spread(moments.mean, moments.variance())
        return np.asarray(spread / self.scale)

    def _standardize(self, X: NDArray[Any], out: Array) -> Array:
        np.subtract(X, self.shift, out=out)
        if self.arcsinh is not None:
            columns = self.arcsinh.columns
            out[:, columns] = self.arcsinh.apply(X) - self.shift[columns]
        return np.divide(out, self.scale, out=out)


@dataclass(frozen=True)
class DirectionScaling(FeatureScaling):
    """P times the scaled features, where the rows of P are learnt directions.

    Parameters
    ----------
    shift, scale : array, shape (d,)
        As for `FeatureScaling`.
    directions : array, shape (k, d)
        P.
    arcsinh : ArcsinhColumns, optional
        As for `FeatureScaling`, default None.
    """

    directions: Array
    """(k, d): P, float64."""

    @property
    def width(self) -> int:
        """Number of columns of the mapped rows."""
        return len(self.directions)

    def apply(self, X: NDArray[Any], dtype: np.dtype[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Map rows of raw features, shape (n, d), to shape (n, k); see `FeatureScaling.apply`."""
        target = np.empty((len(X), self.width), dtype=dtype) if out is None else out
        step = max(MIN_PART_ROWS, STANDARDIZED_PART // len(self.shift))
        scaled = np.empty((min(step, len(X)), len(self.shift)))
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(X), step):
                part = self._standardize(X[start : start + step], scaled[: len(X) - start])
                # The sums are in float64 before the cast, as the shift is.
                target[start : start + step] = part @ self.directions.T
        return target
