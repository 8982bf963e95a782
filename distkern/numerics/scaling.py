"""The map from the caller's feature space to the space the kernel sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .moments import Moments

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FeatureScaling:
    """(x - shift) / scale, computed in float64 before any cast.

    Parameters
    ----------
    shift, scale : array, shape (d,)
        Subtracted, then divided by; float64.
    """

    shift: Array
    scale: Array

    @classmethod
    def fit(cls, moments: Moments, *, standardize: bool, shift_allowed: bool) -> FeatureScaling:
        """Choose the map from the training statistics.

        Parameters
        ----------
        moments : Moments
            Of the raw features.
        standardize : bool
            Zero mean and unit standard deviation; a constant column becomes zero.
        shift_allowed : bool
            Whether the kernel depends on differences only; the mean then goes even without
            standardising, which keeps squared distances accurate for data far from the origin.
        """
        d = len(moments.mean)
        if standardize:
            std = moments.std()
            return cls(moments.mean, np.where(std > 0, std, 1.0))
        return cls(moments.mean if shift_allowed else np.zeros(d), np.ones(d))

    def apply(self, X: NDArray[Any], dtype: np.dtype[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Map rows of raw features, shape (n, d), to an array of `dtype`."""
        target = np.empty(X.shape, dtype=dtype) if out is None else out
        # What overflows is infinitely far away; the kernel makes of it what it can, its caller checks the result.
        with np.errstate(over="ignore"):
            if dtype == np.float64:
                np.subtract(X, self.shift, out=target)
                np.divide(target, self.scale, out=target)
            else:
                target[...] = (X - self.shift) / self.scale
        return target
