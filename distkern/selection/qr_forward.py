"""Forward selection by updates of a QR decomposition (Nair, Choudhury and Keane, 2002).

The row with the largest residual is next, its kernel column is inserted into the thin QR decomposition of
[1 k_1 ... k_m], and the residual loses its part along the new column of Q. Only selected columns are ever computed:
O(n m) memory, O(n m^2) work.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from .candidate_pool import TIE
from .forward_path import CONDITION_LIMIT, DEPENDENT, HISTORY_DTYPE, Columns, ForwardPath, centred_targets
from .stopping import StopReason

__all__ = ["ThinQR", "qr_forward"]

Array = NDArray[np.float64]


def qr_forward(columns: Columns, Y: Array, weights: Array, max_centers: int, tol: float | None) -> ForwardPath:
    """Select rows by their residuals and solve for the weights.

    Parameters
    ----------
    columns : callable
        Kernel columns of rows.
    Y : array, shape (n, T)
        Targets.
    weights : array, shape (n,)
        Row weights above zero.
    max_centers : int
        Most rows to select.
    tol : float or None
        End when the largest residual, over the targets' norm in each row, is at most this.

    Returns
    -------
    ForwardPath
        Ties go to the lowest row.
    """
    roots = np.sqrt(weights)
    target, means = centred_targets(Y, weights)
    residual = target.copy()
    total = float(np.square(target).sum())
    factors = ThinQR(roots, max_centers)
    free = np.ones(len(Y), dtype=bool)
    positions: list[int] = []
    history: list[tuple[int, float, float, float]] = []
    while True:
        sizes = np.sqrt(np.square(residual).sum(axis=1)) / roots
        largest = float(sizes.max())
        reason = _ending(len(positions), max_centers, largest, 0.0 if not total else tol, free)
        if reason is not None:
            break
        # Equal up to rounding is equal: the rows of a class often are, and the lowest wins.
        row = int(np.argmax(free & (sizes >= (1.0 - TIE) * sizes[free].max())))
        free[row] = False
        norm = factors.append(columns(np.array([row]))[:, 0] * roots)
        if norm is None:
            continue
        if factors.condition() > CONDITION_LIMIT:
            factors.n_columns -= 1
            reason = StopReason.ILL_CONDITIONED
            break
        q = factors.Q[:, -1]
        step = q @ residual
        residual -= q[:, None] * step
        positions.append(row)
        history.append((row, largest, norm, float(step @ step) / total))
    solution = solve_triangular(factors.R, factors.Q.T @ target, check_finite=False)
    return ForwardPath(
        positions=np.array(positions, dtype=np.int64),
        coef=solution[1:],
        intercept=solution[0] + means,
        history=np.array(history, dtype=HISTORY_DTYPE),
        reason=reason,
    )


class ThinQR:
    """Thin QR decomposition that takes one more column at the end, in arrays that are allocated once.

    Inserting a last column is the update of `scipy.linalg.qr_insert` in economic mode, which needs no rotations but
    copies Q every time; here only the new column of Q is written.

    Parameters
    ----------
    first : array, shape (n,)
        The first column, not zero.
    capacity : int
        Most columns to append; more than n are never independent.
    """

    def __init__(self, first: Array, capacity: int) -> None:
        n = len(first)
        columns = min(capacity + 1, n)
        self.n_columns = 1
        self._Q = np.empty((n, columns), order="F")
        self._R = np.zeros((columns, columns))
        self._R[0, 0] = np.sqrt(first @ first)
        self._Q[:, 0] = first / self._R[0, 0]

    @property
    def Q(self) -> Array:
        """Orthonormal columns, shape (n, m + 1)."""
        return self._Q[:, : self.n_columns]

    @property
    def R(self) -> Array:
        """Upper triangle with a positive diagonal, shape (m + 1, m + 1)."""
        return self._R[: self.n_columns, : self.n_columns]

    def append(self, k: Array) -> float | None:
        """Append a column, shape (n,), unless it depends on the others; return the norm of its new part, or None."""
        m = self.n_columns
        if m == self._Q.shape[1]:
            return None
        # Orthogonalised twice, as one pass loses orthogonality with the square of the condition.
        c = self.Q.T @ k
        q = k - self.Q @ c
        second = self.Q.T @ q
        q -= self.Q @ second
        norm = float(np.sqrt(q @ q))
        if norm * norm <= DEPENDENT * float(k @ k):
            return None
        self._Q[:, m] = q / norm
        self._R[:m, m] = c + second
        self._R[m, m] = norm
        self.n_columns = m + 1
        return norm

    def condition(self) -> float:
        """Largest length of an orthogonal column over the smallest."""
        lengths = self.R.diagonal()
        return float(lengths.max() / lengths.min())


def _ending(
    n_centers: int, max_centers: int, largest: float, tol: float | None, free: NDArray[np.bool_]
) -> StopReason | None:
    if tol is not None and largest <= tol:
        return StopReason.RESIDUAL_BELOW
    if n_centers == max_centers:
        return StopReason.MAX_CENTERS
    if not free.any():
        return StopReason.CANDIDATES_EXHAUSTED
    return None
