"""A learnt metric: a linear map of the standardised features, and its update from the gradients of a model.

A recursive feature machine fits a model, averages the outer products of its gradients over the rows, takes that matrix
as the metric, and fits again (Radhakrishnan, Beaglehole, Pandit, Belkin, Science 383, 2024). Here the map P takes the
place of the metric P'P, the outer products are those of the gradients with respect to P x, and each round multiplies P
by a damped power of them: a direction that the first fit does not see is not scaled to nothing at once, from where it
never returns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Array
from .scaling import DirectionScaling, FeatureScaling

DAMPING = 0.25
"""Power of the outer products that multiplies the map in a round."""

LEAST = 1e-12
"""Smallest eigenvalue of the outer products, as a share of the largest: no direction gets an exact zero."""


@dataclass(frozen=True)
class LinearMap:
    """P, a factor for each feature or a matrix."""

    factors: Array
    """(d,): the diagonal of P; or (k, d): P."""

    @classmethod
    def identity(cls, n_features: int, *, diagonal: bool) -> LinearMap:
        """Return the map that changes nothing."""
        return cls(np.ones(n_features) if diagonal else np.eye(n_features))

    @property
    def diagonal(self) -> bool:
        """Whether P is diagonal."""
        return self.factors.ndim == 1

    @property
    def width(self) -> int:
        """Number of columns of the mapped rows."""
        return len(self.factors)

    @property
    def changes(self) -> bool:
        """Whether the map does more than scale all features by one number."""
        own = self.simplest
        return not own.diagonal or bool((own.factors != own.factors[0]).any())

    @property
    def simplest(self) -> LinearMap:
        """The same map, as factors where the matrix is diagonal."""
        if self.diagonal or self.factors.shape[0] != self.factors.shape[1]:
            return self
        diagonal = np.diag(self.factors).copy()
        return LinearMap(diagonal) if np.array_equal(np.diag(diagonal), self.factors) else self

    def apply(self, rows: Array) -> Array:
        """Map standardised rows, shape (n, d)."""
        return np.asarray(rows * self.factors if self.diagonal else rows @ self.factors.T)

    def scaled(self, factor: float) -> LinearMap:
        """Return the map times a number."""
        return LinearMap(self.factors * factor)

    def updated(self, outer: Array, power: float = DAMPING) -> LinearMap:
        """Return the map of the next round.

        Parameters
        ----------
        outer : array, shape (k,) or (k, k)
            Mean outer products of the gradients with respect to the mapped rows; where P is diagonal, their diagonal
            counts.
        power : float, default 0.25
            Damping.
        """
        if self.diagonal:
            return LinearMap(self.factors * _damped(_diagonal(outer), power))
        values, vectors = np.linalg.eigh(outer)
        return LinearMap((vectors * _damped(values, power)) @ (vectors.T @ self.factors))

    def leading(self, rank: int) -> LinearMap:
        """Return the map onto its `rank` longest directions; a diagonal map becomes a matrix."""
        matrix = np.diag(self.factors) if self.diagonal else self.factors
        _, lengths, directions = np.linalg.svd(matrix, full_matrices=False)
        kept = directions[:rank]
        # The sign of a singular vector is arbitrary: its largest entry is positive.
        signs = np.sign(kept[np.arange(len(kept)), np.abs(kept).argmax(axis=1)])
        return LinearMap(kept * (lengths[:rank] * signs)[:, None])

    def metric(self) -> Array:
        """Return the diagonal of P'P, shape (d,), or P'P, shape (d, d)."""
        return np.square(self.factors) if self.diagonal else np.asarray(self.factors.T @ self.factors)

    def importances(self, outer: Array, variances: Array | None = None) -> Array:
        """Return the share of each standardised feature in the mean squared gradient, shape (d,).

        Parameters
        ----------
        outer : array
            As for `updated`, of a model in the space of this map.
        variances : array, shape (d,), optional
            Variances of the features, ones by default, which multiply the squares. The columns of a category with L
            levels have one scale, and variances that sum to one: without them the category would count L times.
        """
        if self.diagonal:
            squares = np.square(self.factors) * _diagonal(outer)
        else:
            squares = np.einsum("ji,jk,ki->i", self.factors, outer, self.factors, optimize=True)
        squares = np.maximum(squares, 0.0) if variances is None else np.maximum(squares * variances, 0.0)
        total = squares.sum()
        return np.asarray(squares / total if total > 0 else np.full(len(squares), 1 / len(squares)))

    def onto(self, scaling: FeatureScaling) -> FeatureScaling:
        """Return the map from raw features, which standardises them first."""
        if not self.diagonal:
            return DirectionScaling(scaling.shift, scaling.scale, self.factors, arcsinh=scaling.arcsinh)
        # A factor in the scale costs nothing; it is above zero, see `LEAST`.
        return replace(scaling, scale=scaling.scale / self.factors)


def _diagonal(outer: Array) -> Array:
    return outer if outer.ndim == 1 else outer.diagonal()


def _damped(squares: Array, power: float) -> Array:
    """Return a power of the shares of the largest of some squares; ones where all are zero."""
    largest = squares.max()
    if not largest > 0:
        return np.ones(len(squares))
    return np.asarray(np.maximum(squares / largest, LEAST) ** power)
