"""Means of classes and the scatter within them, as a triangular factor that can be merged.

The within-class scatter S_W (thesis 3.7) is kept as R with S_W = R'R. Rows of a piece are centred on the means of
their classes within the piece. The factor of two pieces is the factor of both factors and, for each class in both
pieces, one more row: sqrt(n_1 n_2 / (n_1 + n_2)) times the difference of the class means (Chan, Golub and LeVeque,
1983, in factored form). A tree of such factors over blocks is as accurate as one QR decomposition of all centred
rows: S_W itself would square the condition number, and centring removes a large common offset of the features before
any sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from .scaling import FeatureScaling

__all__ = ["ClassScatter", "triangle"]


def triangle(rows: Array) -> Array:
    """Return R of the QR decomposition, shape (d, d), of rows of shape (n, d); its last rows are zero where n < d."""
    n, d = rows.shape
    if n < d:
        rows = np.concatenate([rows, np.zeros((d - n, d))])
    return np.asarray(np.linalg.qr(rows, mode="r"))


@dataclass(frozen=True, eq=False)
class ClassScatter:
    """Weights and means of classes, and a factor of the scatter within them.

    A weight counts as that many repeated rows. A feature that is constant within every class has a column of
    exact zeros in `factor`, and its value in the means.
    """

    labels: NDArray[Any]
    """(K,): sorted distinct labels, or codes."""
    weights: Array
    """(K,): sum of the row weights of each class, above 0."""
    means: Array
    """(K, d): weighted means (3.1)."""
    tails: Array
    """(K, d): rounding errors of `means`: means + tails has twice the digits."""
    factor: Array
    """(d, d): upper triangular R with R'R = S_W (3.7)."""

    @classmethod
    def empty(cls, labels: NDArray[Any], n_features: int) -> ClassScatter:
        """Return the scatter of no rows, the neutral element of `merge`; `labels` gives the dtype."""
        none = np.zeros((0, n_features))
        return cls(labels[:0], np.zeros(0), none, none, np.zeros((n_features, n_features)))

    @classmethod
    def of_rows(cls, X: NDArray[Any], labels: NDArray[Any], weights: Array | None = None) -> ClassScatter:
        """Compute the scatter of one piece of rows, in float64.

        Parameters
        ----------
        X : array, shape (n, d)
            Finite rows.
        labels : array, shape (n,)
            Class of each row.
        weights : array, shape (n,), optional
            Row weights above 0; ones by default.
        """
        if not len(X):
            return cls.empty(labels, X.shape[1])
        values, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        order = np.argsort(inverse.ravel(), kind="stable")
        sorted_inverse = inverse.ravel()[order]
        starts = np.searchsorted(sorted_inverse, np.arange(len(values)))
        mass = np.ones(len(X)) if weights is None else weights[order].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            # Deviations from one row of the class: a feature that is constant within the class becomes exactly zero.
            origins = X[first].astype(np.float64)
            deviations = X[order].astype(np.float64)
            deviations -= origins[sorted_inverse]
            totals = np.add.reduceat(mass, starts)
            shifts = np.zeros_like(origins)
            # Centred twice: the rounding error of the first mean would add to the scatter (thesis 3.7 centres once).
            for _ in range(2):
                shift = np.add.reduceat(mass[:, None] * deviations, starts, axis=0) / totals[:, None]
                deviations -= shift[sorted_inverse]
                shifts += shift
            deviations *= np.sqrt(mass)[:, None]
            return cls(values, totals, *_exact_sum(origins, shifts), _finite_triangle(deviations))

    def merge(self, other: ClassScatter) -> ClassScatter:
        """Return the scatter of both sets of rows together.

        Parameters
        ----------
        other : ClassScatter
            Scatter of other rows with the same features.

        Returns
        -------
        ClassScatter
            Equal to the scatter of all rows up to rounding; the bits are fixed if the order of merging is fixed.
        """
        if not len(other.labels):
            return self
        if not len(self.labels):
            return other
        shared, mine, theirs = np.intersect1d(self.labels, other.labels, return_indices=True)
        labels = np.union1d(self.labels, other.labels)
        weights = np.zeros(len(labels))
        means, tails = np.zeros((2, len(labels), self.means.shape[1]))
        for part in (self, other):
            where = np.searchsorted(labels, part.labels)
            weights[where] += part.weights
            means[where], tails[where] = part.means, part.tails
        with np.errstate(over="ignore", invalid="ignore"):
            differences = (other.means[theirs] - self.means[mine]) + (other.tails[theirs] - self.tails[mine])
            both = np.searchsorted(labels, shared)
            share = (other.weights[theirs] / weights[both])[:, None]
            means[both], tails[both] = _exact_sum(self.means[mine], self.tails[mine] + differences * share)
            differences *= np.sqrt(self.weights[mine][:, None] * share)
            factor = _finite_triangle(np.concatenate([self.factor, other.factor, differences]))
        return ClassScatter(labels, weights, means, tails, factor)

    @property
    def weight(self) -> float:
        """Sum of all row weights."""
        return float(self.weights.sum())

    @property
    def mean(self) -> Array:
        """Mean of all rows, shape (d,); for a constant feature exactly its value."""
        return np.asarray(self.means[0] + self._from_first().mean)

    def between(self) -> Array:
        """Return rows sqrt(M_k) (m_k - m), shape (K, d): B'B is the scatter between the classes."""
        first = self._from_first()
        return np.asarray(np.sqrt(self.weights)[:, None] * (first.means - first.mean))

    def scaled(self, scaling: FeatureScaling) -> ClassScatter:
        """Return the scatter of the rows mapped by `scaling`."""
        means = scaling.apply(self.means, np.dtype(np.float64)) + self.tails / scaling.scale
        return ClassScatter(self.labels, self.weights, means, np.zeros_like(means), self.factor / scaling.scale)

    def _from_first(self) -> _Differences:
        # Differences from the first class's mean stay exact for a common offset; the means themselves would cancel.
        means = (self.means - self.means[0]) + self.tails
        return _Differences(means, self.weights @ means / self.weight)


class _Differences(NamedTuple):
    """Class means and the mean of all rows, less the mean of the first class."""

    means: Array
    mean: Array


def _exact_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the rounded sum and its exact rounding error (two-sum; Knuth, The Art of Computer Programming, 4.2.2)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _finite_triangle(rows: Array) -> Array:
    """Factor rows; all entries are NaN where a number overflowed, and the caller's check of the moments refuses it."""
    if not np.isfinite(rows).all():
        return np.full((rows.shape[1], rows.shape[1]), np.nan)
    return triangle(rows)
