"""The map from the caller's features to kernel space: a shift and a scale for each feature, and learnt directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from .moments import Moments

STANDARDIZED_PART = 1 << 16
"""Standardised features that are mapped to learnt directions at a time, so that they stay in cache."""

MIN_PART_ROWS = 64
"""Least rows that are mapped at a time."""


@dataclass(frozen=True)
class FeatureScaling:
    """(x - shift) / scale, computed in float64 before any cast."""

    shift: Array
    """(d,): subtracted, float64."""
    scale: Array
    """(d,): divides the difference, float64."""

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
                np.subtract(X, self.shift, out=target)
                np.divide(target, self.scale, out=target)
            else:
                target[...] = (X - self.shift) / self.scale
        return target


@dataclass(frozen=True)
class DirectionScaling(FeatureScaling):
    """P (x - shift) / scale, where the rows of P are learnt directions."""

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
                part = scaled[: len(X) - start]
                np.subtract(X[start : start + step], self.shift, out=part)
                np.divide(part, self.scale, out=part)
                # The sums are in float64 before the cast, as the shift is.
                target[start : start + step] = part @ self.directions.T
        return target
