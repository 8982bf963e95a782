"""Classical orthogonal least squares with every row as a candidate (Chen, Cowan and Grant, 1991).

Modified Gram-Schmidt runs over the whole Gram matrix: at every step the column with the largest error reduction ratio
is taken, and all others lose their part along it. O(n^2) memory, O(n^2 m) work, nothing is sampled.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dger

from .candidate_pool import TIE
from .forward_path import CONDITION_LIMIT, DEPENDENT, HISTORY_DTYPE, Columns, ForwardPath, centred_targets
from .stopping import StopReason

__all__ = ["ols_forward"]

Array = NDArray[np.float64]

_UNRELIABLE = 1e-6
"""A squared norm that fell below this part of the value last computed from its column is computed anew."""


def ols_forward(
    K: Array, columns: Columns, Y: Array, weights: Array, max_centers: int, tolerance: float
) -> ForwardPath:
    """Select rows by error reduction and solve for the weights.

    Parameters
    ----------
    K : array, shape (n, n)
        Gram matrix, C-contiguous; overwritten.
    columns : callable
        Kernel columns of rows, for the weights at the end.
    Y : array, shape (n, T)
        Targets. Reductions of all targets are added up before they are divided by the sum of squares of all.
    weights : array, shape (n,)
        Row weights above zero.
    max_centers : int
        Most rows to select.
    tolerance : float
        End when 1 - (sum of error reduction ratios) is below this; squares are about the targets' means.

    Returns
    -------
    ForwardPath
        Ties go to the lowest row.
    """
    candidates = _Candidates(K, weights)
    roots = np.sqrt(weights)
    target, means = centred_targets(Y, weights)
    residual = target.copy()
    total = float(np.square(target).sum())
    positions: list[int] = []
    history: list[tuple[int, float, float, float]] = []
    shortest = longest = float(weights.sum())
    while True:
        left = float(np.square(residual).sum())
        if not total or left < tolerance * total:
            reason = StopReason.UNEXPLAINED_BELOW
            break
        if len(positions) == max_centers:
            reason = StopReason.MAX_CENTERS
            break
        row = candidates.best(residual)
        if row is None:
            reason = StopReason.CANDIDATES_EXHAUSTED
            break
        q = candidates.take(row)
        s = float(q @ q)
        shortest, longest = min(shortest, s), max(longest, s)
        if longest > CONDITION_LIMIT**2 * shortest:
            reason = StopReason.ILL_CONDITIONED
            break
        largest = float((np.sqrt(np.square(residual).sum(axis=1)) / roots).max())
        z = q @ residual
        residual -= q[:, None] * (z / s)
        candidates.remove(q, s)
        positions.append(row)
        history.append((row, largest, float(np.sqrt(s)), float(z @ z) / s / total))
    chosen = np.array(positions, dtype=np.int64)
    coef, intercept = _weights(columns, chosen, target, roots)
    return ForwardPath(
        positions=chosen,
        coef=coef,
        intercept=intercept + means,
        history=np.array(history, dtype=HISTORY_DTYPE),
        reason=reason,
    )


class _Candidates:
    """Columns of the Gram matrix, orthogonal to the constant and to what was selected."""

    def __init__(self, K: Array, weights: Array) -> None:
        roots = np.sqrt(weights)
        K *= roots[:, None]
        self._columns = K
        self._limits = DEPENDENT * np.einsum("ij,ij->j", K, K)
        self._free = np.ones(len(K), dtype=bool)
        self._subtract(roots, float(weights.sum()))
        self._norms = np.einsum("ij,ij->j", K, K)
        self._anchors = self._norms.copy()

    def best(self, residual: Array) -> int | None:
        """Column with the largest error reduction, None if all depend on what was selected."""
        usable = self._free & (self._norms > self._limits)
        if not usable.any():
            return None
        products = self._columns.T @ residual
        reductions = np.square(products).sum(axis=1)
        reductions = np.where(usable, reductions / np.where(usable, self._norms, 1.0), -np.inf)
        # Equal up to rounding is equal: the lowest row wins.
        return int(np.argmax(reductions >= (1.0 - TIE) * reductions.max()))

    def take(self, row: int) -> Array:
        """Return a column, which is no candidate any more."""
        self._free[row] = False
        return self._columns[:, row].copy()

    def remove(self, q: Array, s: float) -> None:
        """Make all candidates orthogonal to q."""
        coefficients = self._subtract(q, s)
        self._norms -= s * np.square(coefficients)
        doubtful = np.flatnonzero(self._free & (self._norms < _UNRELIABLE * self._anchors))
        if len(doubtful):
            part = self._columns[:, doubtful]
            self._norms[doubtful] = np.einsum("ij,ij->j", part, part)
            self._anchors[doubtful] = self._norms[doubtful]

    def _subtract(self, q: Array, s: float) -> Array:
        coefficients = (q @ self._columns) / s
        dger(-1.0, coefficients, q, a=self._columns.T, overwrite_a=1)
        return coefficients


def _weights(columns: Columns, chosen: NDArray[np.int64], target: Array, roots: Array) -> tuple[Array, Array]:
    # From the kernel columns themselves: the rounding of many rank-one updates stays out of the weights.
    matrix = np.column_stack([roots, columns(chosen) * roots[:, None]])
    Q, R = np.linalg.qr(matrix)
    solution = solve_triangular(R, Q.T @ target, check_finite=False)
    return solution[1:], solution[0]
