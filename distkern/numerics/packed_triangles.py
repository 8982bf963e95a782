"""Upper triangular matrices stored by block rows: half the memory of a square, factored in place with BLAS-3 products.

LAPACK's packed formats have no product of a triangle with its transpose, and pairs of triangles in one square cannot be
passed to it without a copy. Here every block row is an array of its own. The shapes of all products depend on the
order of the matrix alone, so the bits do not depend on the number of threads. Covers the arithmetic; its use as a
preconditioner is in `distkern.selection.penalised_fit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from scipy.linalg import lapack, solve_triangular

from ..arrays import Array

__all__ = ["PackedTriangle", "Spread", "triangle_bytes"]

Spread = Callable[[Callable[[int], None], Iterable[int]], Iterator[None]]
"""Function like `map` that may run the calls on several threads."""

BLOCK = 1024
"""Rows of a block; the products of smaller blocks are slower, and larger ones leave fewer of them to the threads."""


def triangle_bytes(n: int, itemsize: int) -> int:
    """Return the bytes of a triangle of order `n`."""
    return sum((stop - start) * (n - start) * itemsize for start, stop in _blocks(n))


class PackedTriangle:
    """The upper triangle of a matrix of order `n`, diagonal blocks in full.

    Parameters
    ----------
    n : int
        Order of the matrix.
    dtype : dtype
        float32 or float64.
    spread : callable, optional
        Runs the work on block rows; one after another by default.

    Attributes
    ----------
    rows : list of array
        Block row i has the shape (rows of the block, n - first row of the block).
    """

    def __init__(self, n: int, dtype: np.dtype[Any], spread: Spread | None = None) -> None:
        self.n = n
        self.blocks = _blocks(n)
        self.rows = [np.empty((stop - start, n - start), dtype=dtype) for start, stop in self.blocks]
        self._spread = spread or map

    def _each(self, function: Callable[[int], None], numbers: Iterable[int]) -> None:
        for _ in self._spread(function, numbers):
            pass

    def fill(self, values: Callable[[slice, slice, Array], None]) -> None:
        """Compute the block rows: `values` takes the rows, the columns, and the array to write to."""

        def compute(i: int) -> None:
            start, stop = self.blocks[i]
            values(slice(start, stop), slice(start, self.n), self.rows[i])

        self._each(compute, range(len(self.rows)))

    def add_diagonal(self, value: float) -> None:
        """Add a number to the diagonal."""
        for row in self.rows:
            where = np.arange(len(row))
            row[where, where] += row.dtype.type(value)

    def copy(self) -> PackedTriangle:
        """Return a copy."""
        new = PackedTriangle.__new__(PackedTriangle)
        new.n, new.blocks, new._spread = self.n, self.blocks, self._spread
        new.rows = [row.copy() for row in self.rows]
        return new

    def factor(self) -> bool:
        """Replace a symmetric matrix by T of T'T, in place; return False where it is not positive definite.

        Diagonal blocks are factored in float64.
        """
        for i, row in enumerate(self.rows):
            width = len(row)
            root, info = lapack.dpotrf(row[:, :width].astype(np.float64), lower=0, clean=1)
            if info or not np.isfinite(root).all():
                return False
            row[:, :width] = root
            if row.shape[1] == width:
                break
            diagonal = np.ascontiguousarray(row[:, :width])

            def finish(j: int, row: Array = row, diagonal: Array = diagonal, start: int = self.blocks[i][0]) -> None:
                columns = slice(self.blocks[j][0] - start, self.blocks[j][1] - start)
                row[:, columns] = solve_triangular(diagonal, row[:, columns], trans="T", check_finite=False)

            def update(j: int, row: Array = row, start: int = self.blocks[i][0]) -> None:
                first = self.blocks[j][0] - start
                _add_product(self.rows[j], row[:, first : first + len(self.rows[j])].T, row[:, first:], np.subtract)

            later = range(i + 1, len(self.rows))
            self._each(finish, later)
            self._each(update, later)
        return True

    def square(self) -> PackedTriangle:
        """Return the upper triangle of T T', where this is T."""
        product = PackedTriangle(self.n, self.rows[0].dtype, self._spread)

        def compute(i: int) -> None:
            start = self.blocks[i][0]
            for j in range(i, len(self.rows)):
                first, last = self.blocks[j]
                columns = slice(first - start, last - start)
                product.rows[i][:, columns] = self.rows[i][:, first - start :] @ self.rows[j].T

        self._each(compute, range(len(self.rows)))
        return product

    def add_square(self, parts: list[Array]) -> None:
        """Add V V' for each V, shape (n, k), of `parts`."""

        def add(i: int) -> None:
            start, stop = self.blocks[i]
            for V in parts:
                _add_product(self.rows[i], V[start:stop], V[start:].T, np.add)

        self._each(add, range(len(self.rows)))

    def scale(self, factor: float) -> None:
        """Multiply by a number."""
        for row in self.rows:
            row *= row.dtype.type(factor)

    def solve(self, B: Array) -> Array:
        """Return X of T X = B, shape (n, k), in the dtype of B."""
        X = B.astype(self.rows[0].dtype)
        for (start, stop), row in zip(reversed(self.blocks), reversed(self.rows), strict=True):
            width = stop - start
            if stop < self.n:
                X[start:stop] -= row[:, width:] @ X[stop:]
            X[start:stop] = solve_triangular(row[:, :width], X[start:stop], check_finite=False)
        return X.astype(B.dtype, copy=False)

    def solve_transposed(self, B: Array) -> Array:
        """Return X of T'X = B, shape (n, k), in the dtype of B."""
        X = B.astype(self.rows[0].dtype)
        for (start, stop), row in zip(self.blocks, self.rows, strict=True):
            width = stop - start
            X[start:stop] = solve_triangular(row[:, :width], X[start:stop], trans="T", check_finite=False)
            if stop < self.n:
                X[stop:] -= row[:, width:].T @ X[start:stop]
        return X.astype(B.dtype, copy=False)


def _add_product(total: Array, left: Array, right: Array, add: np.ufunc) -> None:
    """Add or subtract a product, a few columns at a time: large temporary arrays are slow."""
    buffer = np.empty((len(total), min(BLOCK, total.shape[1])), dtype=total.dtype)
    for start in range(0, total.shape[1], BLOCK):
        columns = slice(start, min(start + BLOCK, total.shape[1]))
        product = buffer[:, : columns.stop - start]
        np.matmul(left, right[:, columns], out=product)
        add(total[:, columns], product, out=total[:, columns])


def _blocks(n: int) -> list[tuple[int, int]]:
    """Return first row and end of every block."""
    return [(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)]
