"""Weighted means and variances of columns that can be merged, and the median-distance rule for kernel widths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import pdist

from ..arrays import Array
from ..errors import DataError

__all__ = ["Moments", "weighted_median_distance"]

_SMALLEST = float(np.finfo(np.float64).smallest_subnormal)


@dataclass(frozen=True, eq=False)
class Moments:
    """Weight, mean and centred sum of squares of every column of a set of rows.

    A weight counts as that many repeated rows, a row of weight zero as absent. A column that is constant
    over the rows has exactly that value as mean and exactly 0 as `m2`, and keeps both through `merge`. A column that
    varies has an `m2` above 0: the smallest float64 above 0 if the squares of its deviations underflow. Where they
    overflow, `m2` is not finite.
    """

    count: float
    """Sum of the row weights."""

    mean: Array
    """Weighted mean of each column, shape (n_features,); zeros when there are no rows."""

    m2: Array
    """Weighted sum of squared deviations from the mean, shape (n_features,)."""

    @classmethod
    def empty(cls, n_features: int) -> Moments:
        """Return the moments of no rows: the neutral element of `merge`."""
        return cls(0.0, np.zeros(n_features), np.zeros(n_features))

    @classmethod
    def from_rows(cls, X: npt.NDArray[Any], weights: npt.NDArray[Any] | None = None) -> Moments:
        """Compute the moments of one block of rows, in float64, by two passes over the block.

        Parameters
        ----------
        X : array, shape (n_rows, n_features)
            Rows of any real dtype and memory order; rows with a positive weight must be finite.
        weights : array, shape (n_rows,), optional
            Row weights, not negative; ones by default.

        Returns
        -------
        Moments
            The result depends on the values alone, not on dtype or memory order.

        Raises
        ------
        DataError
            `weights` has another length than `X` or an entry that is negative or not finite.
        """
        X, w = _present_rows(X, weights)
        if len(X) == 0:
            return cls.empty(X.shape[1])
        count = float(len(X)) if w is None else float(w.sum())
        # Deviations from the row of largest weight: a constant column becomes exactly zero, and a large common offset
        # is removed before any sum.
        origin = X[0 if w is None else np.argmax(w)].astype(np.float64)
        deviations = np.empty(X.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(X, origin, out=deviations, dtype=np.float64)
            shift = _column_sums(deviations, w) / count
            deviations -= shift
            # Second pass: the mean's rounding error is measured and taken from the sum of squares (Chan et al., 1983).
            remainder = _column_sums(deviations, w)
            np.square(deviations, out=deviations)
            squares = _column_sums(deviations, w)
            m2 = np.maximum(squares - remainder * (remainder / count), 0.0)
        still = np.flatnonzero(m2 == 0.0)
        if still.size:
            m2[still[(X[:, still] != origin[still]).any(axis=0)]] = _SMALLEST
        return cls(count, origin + (shift + remainder / count), m2)

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows together (Chan, Golub and LeVeque, 1983).

        Parameters
        ----------
        other : Moments
            Moments of other rows with the same columns.

        Returns
        -------
        Moments
            Equal to the moments of all rows up to rounding; the bits are fixed if the order of merging is fixed.
        """
        if other.count == 0.0:
            return self
        if self.count == 0.0:
            return other
        count = self.count + other.count
        share = other.count / count
        with np.errstate(over="ignore", invalid="ignore"):
            delta = other.mean - self.mean
            m2 = self.m2 + other.m2 + delta * (delta * (self.count * share))
            m2 = np.where((m2 == 0.0) & (delta != 0.0), _SMALLEST, m2)
            return Moments(count, self.mean + delta * share, m2)

    def scaled(self, factor: float) -> Moments:
        """Return the moments of the same rows with weights times `factor`, above 0."""
        return Moments(self.count * factor, self.mean, self.m2 * factor)

    def variance(self) -> Array:
        """Return the population variance of each column, shape (n_features,); zeros without rows."""
        if self.count == 0.0:
            return np.zeros_like(self.m2)
        return self.m2 / self.count

    def std(self) -> Array:
        """Return the population standard deviation of each column, shape (n_features,)."""
        return np.sqrt(self.variance())


def weighted_median_distance(X: npt.NDArray[Any], weights: npt.NDArray[Any] | None = None, norm: str = "l2") -> float:
    """Return the lower weighted median of the distances between distinct rows.

    Pairs i < j at a distance above 0 have the weight r_i r_j; the result is the smallest
    distance at which the cumulated weight reaches half the total. A weight thus equals repeated rows.

    Parameters
    ----------
    X : array, shape (n_rows, n_features)
        A sample of rows: all n_rows (n_rows - 1) / 2 distances are stored, 8 bytes each (with weights 32).
    weights : array, shape (n_rows,), optional
        Row weights, not negative; ones by default.
    norm : {"l2", "l1"}, default "l2"
        The Euclidean distance, or the sum of absolute differences.

    Returns
    -------
    float
        The median, or 0.0 when no two rows differ.

    Raises
    ------
    DataError
        `weights` has another length than `X` or an entry that is negative or not finite.
    """
    X, w = _present_rows(X, weights)
    if len(X) < 2:
        return 0.0
    metric: Any = "cityblock" if norm == "l1" else "euclidean"
    distances = np.asarray(pdist(np.ascontiguousarray(X, dtype=np.float64), metric), dtype=np.float64)
    distinct = distances > 0.0
    if w is None:
        distances = distances[distinct]
        if distances.size == 0:
            return 0.0
        middle = (distances.size - 1) // 2
        return float(np.partition(distances, middle)[middle])
    # Scaled by a power of two, which rounds nothing, so that no product of weights under- or overflows.
    w = np.ldexp(w, -np.frexp(w.max())[1])
    pair_weights = np.concatenate([w[i] * w[i + 1 :] for i in range(len(w) - 1)])
    distances, pair_weights = distances[distinct], pair_weights[distinct]
    if distances.size == 0:
        return 0.0
    order = np.argsort(distances, kind="stable")
    cumulated = np.cumsum(pair_weights[order])
    return float(distances[order[np.searchsorted(cumulated, 0.5 * cumulated[-1])]])


def _present_rows(X: npt.NDArray[Any], weights: npt.NDArray[Any] | None) -> tuple[npt.NDArray[Any], Array | None]:
    X = np.asarray(X)
    if weights is None:
        return X, None
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != X.shape[:1]:
        raise DataError(
            f"weights has shape {w.shape}, but X has {len(X)} rows: give one weight for each row",
            kind="shape-mismatch",
        )
    invalid = ~((w >= 0.0) & (w < np.inf))
    if invalid.any():
        row = int(np.argmax(invalid))
        raise DataError(
            f"weights[{row}] is {w[row]}: a row weight must be finite and at least 0",
            kind="invalid-weights",
        )
    present = w > 0.0
    return (X, w) if present.all() else (X[present], w[present])


def _column_sums(values: Array, weights: Array | None) -> Array:
    if weights is None:
        return np.asarray(values.sum(axis=0))
    return np.asarray(np.einsum("i,ij->j", weights, values))
