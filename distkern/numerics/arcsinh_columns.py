"""A monotone map of single columns before they are scaled: arcsinh of the distance from a centre, over a width.

Outliers take most of the standard deviation of a column with heavy tails, and its other values are then close together
for every kernel of one width. The inverse hyperbolic sine is linear within the width and logarithmic beyond it. It is
the form of Johnson's S_U distributions (Biometrika 36, 1949): with the centre in the middle it shortens both tails,
with the centre at one end it is nearly a logarithm. Centre and width are those under which the quantiles of the column
are most like those of a normal distribution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ..arrays import Array

_TAIL = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
_BOUNDS = np.array([*_TAIL, *np.linspace(0.02, 0.98, 97), *(1 - share for share in reversed(_TAIL))])

SHARES = np.diff(_BOUNDS)
"""Shares of the rows in each of the parts that stand for a column: hundredths, and finer ones at both ends."""

MIDDLES = (_BOUNDS[1:] + _BOUNDS[:-1]) / 2
"""Shares of the rows below the middle of each part."""

CENTERS = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 1.0)
"""Quantiles of a column that are tried as centre."""

SHARES_OF_DEVIATION = 2.0 ** -np.arange(-1.0, 15.0)
"""Multiples of the standard deviation of a column that are tried as width."""

LEAST_VALUES = 3
"""Least distinct quantiles of a column that is mapped: of two values every map is a linear one."""

LEAST_RISE = 0.05
"""Least rise of the squared correlation with normal scores by which a column is mapped; others stay as they are."""

NEARLY_BEST = 0.002
"""The widest of the maps is taken whose squared correlation is at most this far below the largest."""


@dataclass(frozen=True)
class ArcsinhColumns:
    """arcsinh((x - center) / width) for some columns; the others are not changed."""

    columns: NDArray[np.int64]
    """(k,): numbers of the columns, rising."""
    centers: Array
    """(k,): centre of each."""
    widths: Array
    """(k,): width of each, above 0."""

    @classmethod
    def fit(
        cls, rows: NDArray[Any], weights: Array | None = None, allowed: NDArray[np.bool_] | None = None
    ) -> ArcsinhColumns | None:
        """Choose the columns with heavy or uneven tails, and their centres and widths.

        Parameters
        ----------
        rows : array, shape (n, d)
            A sample of rows, as given.
        weights : array, shape (n,), optional
            Row weights above 0; ones by default.
        allowed : array of bool, shape (d,), optional
            Columns that may be mapped; all by default.

        Returns
        -------
        ArcsinhColumns or None
            None where no column is mapped.
        """
        found = [
            (column, *chosen)
            for column in range(rows.shape[1])
            if (allowed is None or allowed[column])
            and (chosen := _best_map(_quantiles(rows[:, column], weights))) is not None
        ]
        if not found:
            return None
        columns, centers, widths = zip(*found, strict=True)
        return cls(np.array(columns, dtype=np.int64), np.array(centers), np.array(widths))

    def require_features(self, n_features: int) -> None:
        """Check the arrays of a file; raise ValueError where they are no map of rows with `n_features` columns."""
        k = self.columns.shape
        if (
            len(k) != 1
            or not k[0]
            or self.centers.shape != k
            or self.widths.shape != k
            or self.columns.dtype.kind not in "iu"
            or not 0 <= self.columns[0] <= self.columns[-1] < n_features
            or not (np.diff(self.columns) > 0).all()
            or not np.isfinite(self.centers).all()
            or not ((self.widths > 0) & np.isfinite(self.widths)).all()
        ):
            raise ValueError("the columns under arcsinh do not fit the rest")

    def of_raw(self, shift: Array, scale: Array) -> ArcsinhColumns:
        """Return the same map of features x where this one is of (x - shift) / scale, each of shape (d,)."""
        own = scale[self.columns]
        return replace(self, centers=shift[self.columns] + own * self.centers, widths=own * self.widths)

    def apply(self, rows: NDArray[Any]) -> Array:
        """Return the mapped columns alone, shape (n, k), of rows of shape (n, d), in float64."""
        mapped = rows[:, self.columns] - self.centers
        mapped /= self.widths
        return np.asarray(np.arcsinh(mapped, out=mapped))

    def spread(self, mean: Array, variance: Array) -> Array:
        """Return bounds of the standard deviations of the mapped columns, shape (k,), from moments of all columns.

        The square of arcsinh is a concave function of the square of its argument, so that its mean is at most its value
        at the mean.
        """
        around = variance[self.columns] + np.square(mean[self.columns] - self.centers)
        return np.asarray(np.arcsinh(np.sqrt(around) / self.widths))


def _quantiles(column: NDArray[Any], weights: Array | None) -> Array:
    """Return the values at `MIDDLES`."""
    order = np.argsort(column, kind="stable")
    below = np.arange(1.0, len(order) + 1) if weights is None else np.cumsum(weights[order])
    at = np.searchsorted(below, MIDDLES * below[-1])
    return np.asarray(column[order[np.minimum(at, len(order) - 1)]], dtype=np.float64)


def _best_map(quantiles: Array) -> tuple[float, float] | None:
    """Return centre and width for a column; None where it stays as it is."""
    _, part, counts = np.unique(quantiles, return_inverse=True, return_counts=True)
    if len(counts) < LEAST_VALUES:
        return None
    # Equal values have the mean of their scores.
    mass = np.bincount(part, SHARES)
    scores = (np.bincount(part, SHARES * ndtri(MIDDLES)) / mass)[part]
    mean = float(SHARES @ quantiles)
    deviation = float(np.sqrt(SHARES @ np.square(quantiles - mean)))
    centers = quantiles[np.searchsorted(MIDDLES, CENTERS).clip(max=len(MIDDLES) - 1)]
    widths = deviation * SHARES_OF_DEVIATION
    if not widths.min() > 0 or not np.isfinite(widths.max()):
        return None
    arguments = (quantiles - centers[:, None])[:, None] / widths[:, None]
    squared = _squared_correlations(np.arcsinh(arguments), scores)
    if squared.max() < _squared_correlations(quantiles, scores) + LEAST_RISE:
        return None
    # Widths fall along the columns, so the first one that is good enough is the widest.
    column = int(np.argmax((squared >= squared.max() - NEARLY_BEST).any(axis=0)))
    return float(centers[np.argmax(squared[:, column])]), float(widths[column])


def _squared_correlations(values: Array, scores: Array) -> Array:
    """Return the squared correlations of some values of the parts, shape (..., n_parts), with their scores."""
    values = values - (values @ SHARES)[..., None]
    scores = scores - SHARES @ scores
    products = np.square(values @ (SHARES * scores))
    squares = np.square(values) @ SHARES * (SHARES @ np.square(scores))
    return np.asarray(np.divide(products, squares, out=np.zeros_like(products), where=squares > 0))
