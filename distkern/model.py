"""A trained model: centres, kernel and weights, and how it is evaluated.

f(x) = b + sum_j a_j k(x, x_j), for all targets at once: the union of the centres is evaluated once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.kernels import Kernel
from distkern.scaling import FeatureScaling

Array = NDArray[np.float64]

TILE_VALUES = 1 << 20
"""Kernel values computed at a time: 8 MB in float64."""


@dataclass(frozen=True)
class KernelModel:
    """Centres with one weight a target.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    scaling : FeatureScaling
        From the caller's features to the kernel's.
    centers : array, shape (m, d)
        In the caller's feature space.
    coef : array, shape (m, T)
        Weights.
    intercept : array, shape (T,)
        Intercepts.
    dtype : str
        "float64" or "float32": precision of the kernel values.
    """

    kernel: Kernel
    scaling: FeatureScaling
    centers: NDArray[Any]
    coef: Array
    intercept: Array
    dtype: str

    def evaluate(self, X: NDArray[Any]) -> Array:
        """Return f for rows of raw features, shape (n, d), as an array of shape (n, T), in tiles."""
        dtype = np.dtype(self.dtype)
        m = len(self.centers)
        out = np.empty((len(X), len(self.intercept)))
        out[...] = self.intercept
        if not m:
            return out
        centers = self.scaling.apply(self.centers, dtype)
        coef = self.coef.astype(dtype)
        rows = max(1, min(len(X), TILE_VALUES // m))
        values = np.empty((rows, m), dtype=dtype)
        scaled = np.empty((rows, X.shape[1]), dtype=dtype)
        for start in range(0, len(X), rows):
            part = X[start : start + rows]
            k = len(part)
            self.scaling.apply(part, dtype, out=scaled[:k])
            self.kernel.block(scaled[:k], centers, out=values[:k])
            out[start : start + k] += values[:k] @ coef
        return out
