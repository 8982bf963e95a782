"""Kernel recursive least squares: a dictionary by approximate linear dependence, and sums over reduced rows.

Thesis 3.4.3 after Engel, Mannor and Meir (2004). The kernel is k + 1, which includes the bias. A row is added to the
dictionary when its distance delta from the span of the dictionary exceeds nu (3.94-3.96). Every row is then
replaced by its combination r of the dictionary at its time, and the weights are a = inv(K~) inv(R'R) R'y (3.105).

With K~ = U'U, v = inv(U') k~ gives delta = k~_nn - v'v and r = inv(U) v. The paper updates inv(K~) row by row, which
loses digits with every update; here U is extended by one column for each centre. The first p entries of v are those
for the dictionary of p centres: a whole block is solved at once, and each row's v is cut off at its own length.

One computation on a row alone, in float64, from the dictionary before it, decides whether the row is added. Products
over many rows only exclude rows whose delta is below the limit by more than rounding. The dictionary therefore does
not depend, not even in its last bit, on how rows were cut into blocks or when they were considered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack, lstsq

from ..arrays import Array
from ..kernels import Kernel
from ..numerics.scaling import FeatureScaling

RESOLUTION = 1e-10
"""A delta below this fraction of k~_nn is rounding; it is the smallest limit for any nu."""

GROUP_ROWS = 128
"""Rows whose dependence on each other is computed together where rows are added to the dictionary."""

SOLVE_ROWS = 1024
"""Rows of kernel values that are solved together."""

_FIRST_CAPACITY = 64


def packed_size(m: int) -> int:
    """Return how many numbers a packed triangle of `m` columns has."""
    return m * (m + 1) // 2


def unpacked(packed: Array, m: int) -> Array:
    """Return the leading upper triangle of `m` columns, shape (m, m), Fortran-ordered, with zeros below it."""
    if not m:
        return np.empty((0, 0), order="F")
    triangle, _ = lapack.dtpttr(m, packed[: packed_size(m)], uplo="U")
    return np.asarray(triangle)


def _kernel_plus_one(kernel: Kernel, rows: NDArray[Any], centers: NDArray[Any]) -> Array:
    """Return k + 1 as a new C-contiguous array of float64, shape (n, m)."""
    values = np.ascontiguousarray(kernel.block(rows, centers), dtype=np.float64)
    values += 1.0
    return values


def _solve_forward(values: Array, factor: Array) -> None:
    """Replace the rows of kernel values, shape (n, m) and C-contiguous, by v = inv(U') k~."""
    solved = blas.dtrsm(1.0, factor, values.T, lower=0, trans_a=1, overwrite_b=1)
    assert np.shares_memory(solved, values), "a copy was made of the rows"


def _solve_backward(values: Array, factor: Array) -> None:
    """Replace rows v by r = inv(U) v; zeros at the end of a row stay zeros."""
    solved = blas.dtrsm(1.0, factor, values.T, lower=0, trans_a=0, overwrite_b=1)
    assert np.shares_memory(solved, values), "a copy was made of the rows"


def _limits(nu: float, diagonal: NDArray[Any]) -> tuple[Array, Array]:
    """Return the limit that delta must exceed for rows with k~_nn = `diagonal`, and a lower limit with a safety margin.

    A row whose delta, computed in a group, is below the lower limit is certainly below the limit. The margin is much
    larger than the rounding of kernel values and of solves, except for dictionaries as ill-conditioned as
    nu = RESOLUTION allows.
    """
    least: Array = np.maximum(nu, RESOLUTION * diagonal)
    return least, least - np.minimum(1e-3 * least + 1e-8 * diagonal, 0.5 * least)


@dataclass(frozen=True)
class Snapshot:
    """A copy of a dictionary at one moment, for the blocks."""

    kernel: Kernel
    """The kernel k, without the added 1."""
    scaling: FeatureScaling
    """Raw features to kernel space."""
    nu: float
    """Smallest delta of a row that is added."""
    rows: NDArray[np.int64]
    """(m,): row number of each centre, ascending."""
    centers: Array
    """(m, d): centres in kernel space."""
    factor: Array
    """(m (m + 1) / 2,): U with K~ = U'U, packed by columns."""

    def prefix(self, n_centers: int) -> tuple[Array, Array]:
        """Return copies of the first centres and of their U, padded to at least two columns.

        BLAS computes a product of one column by another routine, with other last bits. The caller sets the values of
        the added columns to zero, and they stay zero in the solves.
        """
        width = max(n_centers, 2)
        centers = np.zeros((width, self.centers.shape[1]))
        centers[:n_centers] = self.centers[:n_centers]
        factor = np.eye(width, order="F")
        factor[:n_centers, :n_centers] = unpacked(self.factor, n_centers)
        return centers, factor

    def outside(self, features: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which rows may have to be added to this dictionary, now or later.

        Parameters
        ----------
        features : array, shape (n, d)
            Raw rows.

        Returns
        -------
        array, shape (n,)
            False where a row is certainly not added: its delta is below the limit, and falls as the dictionary grows.
        """
        found = np.ones(len(features), dtype=bool)
        m = len(self.rows)
        if not m:
            return found
        centers, factor = self.prefix(m)
        for start in range(0, len(features), SOLVE_ROWS):
            part = slice(start, start + SOLVE_ROWS)
            rows = self.scaling.apply(features[part], np.dtype(np.float64))
            values = _kernel_plus_one(self.kernel, rows, centers)
            values[:, m:] = 0.0
            _solve_forward(values, factor)
            diagonal = self.kernel.diagonal(rows) + 1.0
            delta = diagonal - np.einsum("ij,ij->i", values, values)
            found[part] = ~(delta <= _limits(self.nu, diagonal)[1])
        return found


class Dictionary:
    """Rows that are approximately independent of the rows before them, and the factor of their kernel matrix.

    Parameters
    ----------
    kernel : Kernel
        The kernel k, without the added 1.
    scaling : FeatureScaling
        Raw features to kernel space.
    nu : float
        Smallest delta of a row that is added (3.94).
    most : int, optional
        Largest number of centres; no limit by default.

    Attributes
    ----------
    refused : float
        Largest delta of a row that was refused because the dictionary was full; 0 if there was none.
    """

    def __init__(self, kernel: Kernel, scaling: FeatureScaling, nu: float, most: int | None = None) -> None:
        self.kernel = kernel
        self.scaling = scaling
        self.nu = nu
        self.most = most
        self.refused = 0.0
        self._m = 0
        d = len(scaling.shift)
        self._rows = np.empty(_FIRST_CAPACITY, dtype=np.int64)
        self._raw: NDArray[Any] = np.empty((_FIRST_CAPACITY, d))
        self._centers = np.empty((_FIRST_CAPACITY, d))
        self._factor = np.empty(packed_size(_FIRST_CAPACITY))
        self._square: Array | None = None

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        scaling: FeatureScaling,
        nu: float,
        rows: NDArray[np.int64],
        features: NDArray[Any],
    ) -> Dictionary:
        """Build the dictionary of given centres, in their order.

        Raises
        ------
        ValueError
            The rows depend on each other, so they are no dictionary.
        """
        made = cls(kernel, scaling, nu)
        for row, raw in zip(rows, features, strict=True):
            made._admit(int(row), raw, made.scaling.apply(raw[None], np.dtype(np.float64)), 0.0)
        if len(made) != len(rows):
            raise ValueError("the centres depend on each other")
        return made

    def __len__(self) -> int:
        return self._m

    @property
    def full(self) -> bool:
        """Whether a row was refused because the dictionary has its largest size; none is added any more."""
        return self.refused > 0.0

    @property
    def rows(self) -> NDArray[np.int64]:
        """Row number of each centre, shape (m,), ascending."""
        return self._rows[: self._m].copy()

    @property
    def features(self) -> NDArray[Any]:
        """Centres in the caller's feature space, shape (m, d)."""
        return self._raw[: self._m].copy()

    @property
    def factor(self) -> Array:
        """U with K~ = U'U, packed by columns, shape (m (m + 1) / 2,)."""
        return self._factor[: packed_size(self._m)].copy()

    def snapshot(self) -> Snapshot:
        """Return a copy of the present dictionary."""
        return Snapshot(self.kernel, self.scaling, self.nu, self.rows, self._centers[: self._m].copy(), self.factor)

    def copy(self, nu: float, most: int | None) -> Dictionary:
        """Return a copy with other limits; rows that are added to it do not change this one."""
        made = Dictionary(self.kernel, self.scaling, nu, most)
        made._m = self._m
        for name in ("_rows", "_raw", "_centers", "_factor"):
            setattr(made, name, getattr(self, name).copy())
        return made

    def consider(self, rows: NDArray[np.int64], features: NDArray[Any]) -> None:
        """Add rows that are independent of the dictionary, one after another.

        Parameters
        ----------
        rows : array, shape (n,)
            Row numbers, ascending and above those of the centres.
        features : array, shape (n, d)
            Raw rows.
        """
        for start in range(0, len(rows), GROUP_ROWS):
            if self.full:
                return
            part = slice(start, start + GROUP_ROWS)
            self._consider_together(rows[part], features[part])

    def _consider_together(self, rows: NDArray[np.int64], features: NDArray[Any]) -> None:
        scaled = self.scaling.apply(features, np.dtype(np.float64))
        gram = _kernel_plus_one(self.kernel, scaled, scaled)
        if self._m:
            if self._square is None or len(self._square) != self._m:
                self._square = unpacked(self._factor, self._m)
            values = _kernel_plus_one(self.kernel, scaled, self._centers[: self._m])
            _solve_forward(values, self._square)
            gram -= values @ values.T
        clear = _limits(self.nu, np.asarray(self.kernel.diagonal(scaled), dtype=np.float64) + 1.0)[1]
        for i in range(len(rows)):
            if gram[i, i] <= clear[i] or not self._admit(int(rows[i]), features[i], scaled[i : i + 1], self.nu):
                continue
            # The later rows are made orthogonal to the added one: their deltas are the diagonal.
            column = gram[i + 1 :, i] / np.sqrt(gram[i, i])
            gram[i + 1 :, i + 1 :] -= column[:, None] * column

    def _admit(self, row: int, raw: NDArray[Any], scaled: Array, nu: float) -> bool:
        """Add one row if it is independent; the same numbers in the same shapes for every caller, for the same bits."""
        m, x = self._m, np.array(scaled, order="C")
        own = float(self.kernel.diagonal(x)[0]) + 1.0
        solved = np.empty(0)
        if m:
            values = _kernel_plus_one(self.kernel, x, self._centers[:m])[0]
            solved = np.asarray(blas.dtpsv(m, self._factor[: packed_size(m)], values, trans=1))
        delta = own - float(solved @ solved)
        if not delta > max(nu, RESOLUTION * own):
            return False
        if self.most is not None and m >= self.most:
            self.refused = max(self.refused, delta)
            return False
        self._make_room(raw.dtype)
        self._rows[m], self._raw[m], self._centers[m] = row, raw, x[0]
        start = packed_size(m)
        self._factor[start : start + m] = solved
        self._factor[start + m] = np.sqrt(delta)
        self._m += 1
        return True

    def _make_room(self, dtype: np.dtype[Any]) -> None:
        if not self._m and self._raw.dtype != dtype:
            self._raw = self._raw.astype(dtype)
        m = self._m + 1
        for name, needed in (("_rows", m), ("_raw", m), ("_centers", m), ("_factor", packed_size(m))):
            old = getattr(self, name)
            if needed > len(old):
                new = np.empty((2 * len(old), *old.shape[1:]), dtype=old.dtype)
                new[: len(old)] = old
                setattr(self, name, new)


@dataclass(frozen=True)
class ReducedSums:
    """Sums over rows in terms of the dictionary; sums for fewer centres count as padded with zeros."""

    gram: Array
    """(m (m + 1) / 2,): R'R, the upper triangle packed by columns."""
    products: Array
    """(m, T): R'y."""
    largest: float
    """Largest delta of a row that is not a centre."""

    @classmethod
    def empty(cls, n_targets: int) -> ReducedSums:
        """Return the sums of no rows."""
        return cls(np.empty(0), np.empty((0, n_targets)), 0.0)

    @classmethod
    def of(
        cls,
        dictionary: Snapshot,
        rows: NDArray[np.int64],
        features: NDArray[Any],
        targets: Array,
        weights: Array | None,
        dtype: str = "float64",
    ) -> ReducedSums:
        """Sum over rows, each in terms of the dictionary at its time.

        Parameters
        ----------
        dictionary : Snapshot
            The dictionary after all of these rows were considered; centres that were added later are left out.
        rows : array, shape (n,)
            Row numbers, ascending.
        features : array, shape (n, d)
            Raw rows.
        targets : array, shape (n, T)
            Targets.
        weights : array, shape (n,), optional
            Row weights above 0; ones by default.
        dtype : {"float64", "float32"}, default "float64"
            Precision of the kernel values; everything else is float64.
        """
        n_targets = targets.shape[1]
        m = int(np.searchsorted(dictionary.rows, rows[-1], side="right")) if len(rows) else 0
        if not m:
            return cls.empty(n_targets)
        centers, factor = dictionary.prefix(m)
        width, precision = len(centers), np.dtype(dtype)
        kernel_centers = centers.astype(precision)
        gram, square = np.zeros((width, width)), np.empty((width, width))
        products, largest = np.zeros((width, max(n_targets, 2))), 0.0
        for start in range(0, len(rows), SOLVE_ROWS):
            part = slice(start, start + SOLVE_ROWS)
            scaled = dictionary.scaling.apply(features[part], precision)
            values = _kernel_plus_one(dictionary.kernel, scaled, kernel_centers)
            values[:, m:] = 0.0
            _solve_forward(values, factor)
            lengths = np.searchsorted(dictionary.rows[:m], rows[part], side="right")
            if lengths[0] < m:
                values[np.arange(width) >= lengths[:, None]] = 0.0
            delta = dictionary.kernel.diagonal(scaled) + 1.0 - np.einsum("ij,ij->i", values, values)
            largest = max(largest, float(np.max(delta, where=~np.isin(rows[part], dictionary.rows), initial=0.0)))
            _solve_backward(values, factor)
            padded = np.zeros((len(values), products.shape[1]))
            padded[:, :n_targets] = targets[part]
            if weights is not None:
                roots = np.sqrt(weights[part])[:, None]
                values *= roots
                padded *= roots
            gram += np.matmul(values.T, values, out=square)
            products += values.T @ padded
        packed, _ = lapack.dtrttp(gram[:m, :m].T, uplo="U")
        return cls(np.asarray(packed), np.ascontiguousarray(products[:m, :n_targets]), largest)

    def merge(self, other: ReducedSums) -> ReducedSums:
        """Return the sums over both sets of rows."""
        longer, shorter = (self, other) if len(self.products) >= len(other.products) else (other, self)
        gram, products = longer.gram.copy(), longer.products.copy()
        gram[: len(shorter.gram)] += shorter.gram
        products[: len(shorter.products)] += shorter.products
        return ReducedSums(gram, products, max(self.largest, other.largest))


def reduced_weights(factor: Array, sums: ReducedSums) -> Array:
    """Solve a = inv(K~) inv(R'R) R'y (3.105).

    Parameters
    ----------
    factor : array, shape (m (m + 1) / 2,)
        U with K~ = U'U, packed by columns.
    sums : ReducedSums
        Sums over all rows.

    Returns
    -------
    array, shape (m, T)
        Weights of k(x, x_j) + 1.
    """
    m = len(sums.products)
    upper = unpacked(sums.gram, m)
    # Scaled to a unit diagonal, which row weights may spread over many orders. The row of a centre itself makes its
    # diagonal at least its weight, so no division by zero.
    scale = 1.0 / np.sqrt(upper.diagonal())
    upper *= scale
    upper *= scale[:, None]
    right = np.asfortranarray(sums.products * scale[:, None])
    root, info = lapack.dpotrf(upper, lower=0)
    if info:
        symmetric = np.triu(upper) + np.triu(upper, 1).T
        solved = np.asfortranarray(lstsq(symmetric, right)[0])
    else:
        solved, _ = lapack.dpotrs(root, right, lower=0)
    combined = np.asfortranarray(solved * scale[:, None])
    square = unpacked(factor, m)
    half = blas.dtrsm(1.0, square, combined, lower=0, trans_a=1)
    return np.ascontiguousarray(blas.dtrsm(1.0, square, half, lower=0, trans_a=0))
