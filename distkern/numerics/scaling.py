"""The map from the caller's features to kernel space: a shift and a scale for each feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from .moments import Moments


@dataclass(frozen=True)
class FeatureScaling:
    """(x - shift) / scale, computed in float64 before any cast."""

    shift: Array
    """(d,): subtracted, float64."""
    scale: Array
    """(d,): divides the difference, float64."""

    @classmethod
    def fit(cls, moments: Moments, *, standardize: bool, shift_allowed: bool) -> FeatureScaling:
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
        """
        d = len(moments.mean)
        if standardize:
            std = moments.std()
            return cls(moments.mean, np.where(std > 0, std, 1.0))
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
