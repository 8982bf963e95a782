"""Centres within the radius of rows, and sums over them, for kernels that are zero beyond a radius.

A training leaves out the centres beyond the radius of every row of a tile. In a prediction, where few pairs of a row
and a centre are within the radius, a tree finds them, and a product with a sparse block is faster than computing all
values. The result equals the dense one up to rounding; the terms of a row are added in the order of the centres.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from ..arrays import Array
from .base import Kernel
from .radial import Wendland

TREE_FEATURES = 8
"""Largest number of features with which the tree was faster; with more features it visits nearly every pair."""

MAX_DENSITY = 0.05
"""Largest share of pairs within the radius at which a sparse block was faster, with 2 to 8 features."""

MIN_CENTERS = 64
"""Smallest number of centres for which a tree is built; fewer give no gain."""

MIN_ROWS = 32
"""Smallest number of rows for which the tree is used; with fewer, estimating the density costs as much as the block."""

SAMPLE_STEP = 32
"""The density is estimated from one row of this many."""

SAMPLED_CENTERS = 32
"""Centres whose neighbours among the centres are counted, once for each model."""

CENTER_DENSITY = 4 * MAX_DENSITY
"""Largest share of neighbours among the centres at which the rows' density is estimated. Centres lie closer together
than rows where classes meet."""


ROUNDINGS = 64
"""Roundings of the size of a row by which a distance may be wrong; `Radial` needs about 16."""


def near_centers(kernel: Kernel, X: NDArray[Any], centers: NDArray[Any]) -> NDArray[np.intp] | None:
    """Return the centres that may have a kernel value other than zero at some of the rows.

    Parameters
    ----------
    kernel : Kernel
        Any kernel.
    X : array, shape (n, d)
        Rows in kernel space, finite.
    centers : array, shape (m, d)
        Centres in kernel space.

    Returns
    -------
    array or None
        Ascending positions, found by the distance to the smallest box around the rows; None for all centres.
    """
    if not len(X) or not np.isfinite(kernel.reach):
        return None
    low, high = X.min(axis=0), X.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        # In float64: the distance must not be too large by rounding.
        outside = np.maximum(np.maximum(low - centers.astype(np.float64), centers - high.astype(np.float64)), 0.0)
        distances = np.sqrt(np.square(outside).sum(axis=1))
        size = np.linalg.norm(np.maximum(np.abs(low), np.abs(high)).astype(np.float64))
        sizes = size + np.linalg.norm(centers.astype(np.float64), axis=1)
        near = ~(distances > kernel.reach + ROUNDINGS * float(np.finfo(X.dtype).eps) * sizes)
    return None if near.all() else np.flatnonzero(near)


@dataclass(frozen=True, eq=False)
class NearSums:
    """Centres in a tree, with their weights."""

    kernel: Wendland
    """The kernel."""
    centers: NDArray[Any]
    """(m, d): centres in kernel space."""
    coef: Array
    """(m, T): weights, float64."""
    tree: Any
    """Tree of the centres."""
    low: Array
    """(d,): corner of a box; a row outside has no centre within the radius."""
    high: Array
    """(d,): the opposite corner."""

    @classmethod
    def of(cls, kernel: Kernel, centers: NDArray[Any], coef: NDArray[Any]) -> Self | None:
        """Return the sums of a model, or None where the dense block is faster for any rows.

        Parameters
        ----------
        kernel : Kernel
            Any kernel.
        centers : array, shape (m, d)
            Centres in kernel space.
        coef : array, shape (m, T)
            Weights.
        """
        m, d = centers.shape
        if not isinstance(kernel, Wendland) or m < MIN_CENTERS or d > TREE_FEATURES or not np.isfinite(centers).all():
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
            Rows in kernel space, in the dtype of the centres.

        Returns
        -------
        array, shape (n, T), or None
            None if the dense block is faster: too many pairs of a sample of the rows are within the radius.
        """
        if len(rows) < MIN_ROWS or _density(self.kernel, rows[::SAMPLE_STEP], self.centers) > MAX_DENSITY:
            return None
        sums = np.zeros((len(rows), self.coef.shape[1]))
        # A row outside the box has the sum 0, and the tree accepts no infinite row.
        near = np.flatnonzero(((rows >= self.low) & (rows <= self.high)).all(axis=1))
        if len(near):
            sums[near] = self._block(rows[near].astype(np.float64)) @ self.coef
        return sums

    def _block(self, rows: Array) -> csr_array[Any]:
        pairs = cKDTree(rows).sparse_distance_matrix(self.tree, self.kernel.radius, output_type="ndarray")
        values = pairs["v"] / self.kernel.radius
        self.kernel.profile(values, rows.shape[1])
        block = csr_array((values, (pairs["i"], pairs["j"])), shape=(len(rows), len(self.coef)))
        # The tree returns the pairs in an order that depends on the other rows; sorting makes the sums independent.
        block.sort_indices()
        return block


def _density(kernel: Kernel, rows: NDArray[Any], centers: NDArray[Any]) -> float:
    values = kernel.block(np.ascontiguousarray(rows), centers)
    return float(np.count_nonzero(values)) / values.size
