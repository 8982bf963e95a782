"""Sums over the centres that are near enough, for kernels that are zero beyond a radius.

Where few pairs of a row and a centre are within the radius, finding them with a tree and adding up a sparse block is
faster than computing all values. The result equals the dense one to rounding; a row's sum is taken in the order of the
centres.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from .base import Kernel
from .radial import Wendland

Array = NDArray[np.float64]

MAX_FEATURES = 8
"""Features up to which the tree was faster; with more of them it visits nearly every pair."""

MAX_DENSITY = 0.05
"""Share of pairs within the radius up to which a sparse block was faster, with 2 to 8 features."""

MIN_CENTERS = 64
"""With fewer centres there is nothing to gain."""

MIN_ROWS = 32
"""With fewer rows the estimate of the density costs as much as the block."""

SAMPLE_STEP = 32
"""One row of this many is looked at to estimate the density."""

SAMPLED_CENTERS = 32
"""Centres whose neighbours among the centres are counted, once a model."""

CENTER_DENSITY = 4 * MAX_DENSITY
"""Share of them up to which rows are looked at; centres lie closer together than rows where classes meet."""


@dataclass(frozen=True, eq=False)
class NearSums:
    """Centres in a tree, with their weights.

    Parameters
    ----------
    kernel : Wendland
        The kernel.
    centers : array, shape (m, d)
        In kernel space.
    coef : array, shape (m, T)
        Weights, float64.
    tree : cKDTree
        Of the centres.
    low, high : array, shape (d,)
        Corners of the box outside which no row has a centre within the radius.
    """

    kernel: Wendland
    centers: NDArray[Any]
    coef: Array
    tree: Any
    low: Array
    high: Array

    @classmethod
    def of(cls, kernel: Kernel, centers: NDArray[Any], coef: NDArray[Any]) -> Self | None:
        """Return the sums of a model, or None where they would not pay whatever the rows are.

        Parameters
        ----------
        kernel : Kernel
            Any kernel.
        centers : array, shape (m, d)
            In kernel space.
        coef : array, shape (m, T)
            Weights.
        """
        m, d = centers.shape
        if not isinstance(kernel, Wendland) or m < MIN_CENTERS or d > MAX_FEATURES or not np.isfinite(centers).all():
            return None
        if _density(kernel, centers[:: max(1, m // SAMPLED_CENTERS)], centers) > CENTER_DENSITY:
            return None
        points = centers.astype(np.float64)
        low, high = points.min(axis=0) - kernel.radius, points.max(axis=0) + kernel.radius
        return cls(kernel, centers, coef.astype(np.float64), cKDTree(points), low, high)

    def evaluate(self, rows: NDArray[Any]) -> Array | None:
        """Return sum_j a_j k(x, x_j) for every row.

        Parameters
        ----------
        rows : array, shape (n, d)
            In kernel space, in the dtype of the centres.

        Returns
        -------
        array, shape (n, T), or None
            None if too many pairs of a sample of the rows are within the radius, so that the dense block is faster.
        """
        if len(rows) < MIN_ROWS or _density(self.kernel, rows[::SAMPLE_STEP], self.centers) > MAX_DENSITY:
            return None
        sums = np.zeros((len(rows), self.coef.shape[1]))
        # Rows outside need no tree, and it takes no infinite ones.
        near = np.flatnonzero(((rows >= self.low) & (rows <= self.high)).all(axis=1))
        if len(near):
            sums[near] = self._block(rows[near].astype(np.float64)) @ self.coef
        return sums

    def _block(self, rows: Array) -> csr_array[Any]:
        pairs = cKDTree(rows).sparse_distance_matrix(self.tree, self.kernel.radius, output_type="ndarray")
        values = pairs["v"] / self.kernel.radius
        self.kernel.profile(values, rows.shape[1])
        block = csr_array((values, (pairs["i"], pairs["j"])), shape=(len(rows), len(self.coef)))
        # The order in which the tree found them depends on the other rows.
        block.sort_indices()
        return block


def _density(kernel: Kernel, rows: NDArray[Any], centers: NDArray[Any]) -> float:
    values = kernel.block(np.ascontiguousarray(rows), centers)
    return float(np.count_nonzero(values)) / values.size
