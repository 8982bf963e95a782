"""Forward selection of kernel columns, as the methods that the thesis compares with do it: no pool, no regularisation.

One loop serves both. The next row is chosen, its kernel column joins the thin QR decomposition of [1 k_1 ... k_m], and
the residual loses its part along the new column of Q. By the largest residual (Nair, Choudhury and Keane, 2002) only
selected columns are computed: O(n m) memory, O(n m^2) work. By the largest error reduction of `Reductions` (Chen, Cowan
and Grant, 1991) the columns of all rows are compared at every step: O(n^2) memory, O(n^2 m) work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from .candidate_pool import TIE
from .stopping import StopReason

__all__ = ["HISTORY_DTYPE", "ForwardPath", "Reductions", "ThinQR", "forward_path"]

Array = NDArray[np.float64]

DEPENDENT = 1e-14
"""A column with |q|^2 of at most this part of |k|^2 depends on the selected ones and is skipped for good."""

CONDITION_LIMIT = 1e10
"""Selection ends when the lengths of the orthogonal columns differ by more than this factor."""

_UNRELIABLE = 1e-4
"""A squared norm that fell below this part of the value last computed from its column is computed anew."""

SLAB = 64
"""Columns that are made orthogonal to Q at a time."""

HISTORY_DTYPE = np.dtype(
    [
        ("center", np.int64),
        ("residual_max", np.float64),
        ("q_norm", np.float64),
        ("error_reduction", np.float64),
    ]
)
"""A row per centre: its row, the largest absolute residual before it, |q|, and the part of y'y that it explained."""


@dataclass(frozen=True)
class ForwardPath:
    """A finished selection."""

    positions: NDArray[np.int64]
    """(m,): selected rows in order, as positions among the rows that were given."""
    coef: Array
    """(m, T)."""
    intercept: Array
    """(T,)."""
    history: NDArray[np.void]
    """(m,): of `HISTORY_DTYPE`, with positions as centres."""
    reason: StopReason
    """Why it ended."""
    n_columns: int
    """Kernel columns that were taken, those that depend on others too."""


def forward_path(
    column: Callable[[int], Array],
    Y: Array,
    weights: Array,
    max_centers: int,
    *,
    tol: float | None = None,
    reductions: Reductions | None = None,
    tolerance: float = 0.0,
) -> ForwardPath:
    """Select rows, of equal ones the lowest, and solve for the weights.

    Parameters
    ----------
    column : callable
        Takes the position of a row to its kernel column, shape (n,).
    Y : array, shape (n, T)
        Targets.
    weights : array, shape (n,)
        Row weights above zero.
    max_centers : int
        Most rows to select.
    tol : float, optional
        Without `reductions`: end when the largest residual, over the targets' norm in each row, is at most this.
    reductions : Reductions, optional
        The largest error reduction decides; the largest residual without.
    tolerance : float
        With `reductions`: end when less than this part of the targets' squares about their means is left; summed over
        targets.
    """
    roots = np.sqrt(weights)
    means = weights @ Y / weights.sum()
    target = (Y - means) * roots[:, None]
    residual = target.copy()
    total = float(np.square(target).sum())
    factors = ThinQR(roots, max_centers)
    free = np.ones(len(Y), dtype=bool)
    positions: list[int] = []
    history: list[tuple[int, float, float, float]] = []
    while True:
        squares = np.square(residual).sum(axis=1)
        scores = sizes = np.sqrt(squares) / roots
        largest = float(sizes.max())
        if reductions is None and (not total or (tol is not None and largest <= tol)):
            reason = StopReason.RESIDUAL_BELOW
            break
        if reductions is not None and (not total or squares.sum() < tolerance * total):
            reason = StopReason.UNEXPLAINED_BELOW
            break
        if len(positions) == max_centers:
            reason = StopReason.MAX_CENTERS
            break
        if reductions is not None:
            scores = reductions.update(factors.Q, residual)
        row = norm = None
        while norm is None and (row := _best(scores, free)) is not None:
            free[row] = False
            norm = factors.append(column(row) * roots)
        if row is None or norm is None:
            reason = StopReason.CANDIDATES_EXHAUSTED
            break
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
        n_columns=int(np.count_nonzero(~free)),
    )


def _best(scores: Array, free: NDArray[np.bool_]) -> int | None:
    """Lowest of the free rows with the largest score, None if there are none."""
    free = free & (scores > -np.inf)
    if not free.any():
        return None
    # Equal up to rounding is equal: the rows of a class often are.
    return int(np.argmax(free & (scores >= (1.0 - TIE) * scores[free].max())))


class Reductions:
    """Error reduction (q'r)^2 / q'q of every row's column.

    The textbook makes all candidates orthogonal to each selected column (modified Gram-Schmidt). Here they stay as they
    are: k'r = q'r for a residual r that is orthogonal to Q, and |q|^2 = |k|^2 - |Q'k|^2. One product with the Gram
    matrix a step is enough then, and the rounding of rank-one updates does not build up.

    Parameters
    ----------
    K : array, shape (n, n)
        Gram matrix, symmetric.
    weights : array, shape (n,)
        Row weights above zero.
    """

    def __init__(self, K: Array, weights: Array) -> None:
        self._K = K
        self._roots = np.sqrt(weights)
        self._norms = np.einsum("ij,ij,j->i", K, K, weights)
        self._anchors = self._norms.copy()
        self._limits = DEPENDENT * self._norms
        self._independent = self._norms > 0

    def update(self, Q: Array, residual: Array) -> Array:
        """Take the columns of Q after one more of them and the residual that they leave, both times root weights.

        Returns
        -------
        array, shape (n,)
            Summed over targets; -inf where the column depends on Q.
        """
        products = self._K @ (np.column_stack([Q[:, -1], residual]) * self._roots[:, None])
        self._norms -= np.square(products[:, 0])
        doubtful = np.flatnonzero(self._independent & (self._norms < _UNRELIABLE * self._anchors))
        for start in range(0, len(doubtful), SLAB):
            slab = doubtful[start : start + SLAB]
            part = self._K[slab] * self._roots
            for _ in range(2):  # as in `ThinQR.append`
                part -= (part @ Q) @ Q.T
            self._norms[slab] = self._anchors[slab] = np.einsum("ij,ij->i", part, part)
        self._independent &= self._norms > self._limits
        norms = np.where(self._independent, self._norms, 1.0)
        return np.where(self._independent, np.square(products[:, 1:]).sum(axis=1) / norms, -np.inf)


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
