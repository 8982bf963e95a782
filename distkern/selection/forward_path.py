"""Forward selection in memory, without pool and regularisation: the two methods that the thesis compares with.

One loop serves both methods. Every step selects a row, appends its kernel column to the thin QR decomposition of
[1 k_1 ... k_m], and makes the residual orthogonal to the new column of Q. Selection by the largest residual (Nair,
Choudhury and Keane, 2002) computes the selected columns only: O(n m) memory, O(n m^2) work. Selection by the largest
error reduction of `Reductions` (Chen, Cowan and Grant, 1991) compares the columns of all rows in every step: O(n^2)
memory, O(n^2 m) work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ..arrays import Array
from .candidate_pool import TIE
from .rounding import AGREES, SAFETY, in_deviations, longest_prefix, magnified, warn_of_rounding
from .stopping import StopReason

__all__ = ["PATH_DTYPE", "ForwardPath", "Reductions", "ThinQR", "forward_path"]

DEPENDENT = 1e-14
"""A column with |q|^2 of at most this part of |k|^2 depends on the selected columns and is skipped for good."""

CONDITION_LIMIT = 1e10
"""Selection ends when the lengths of the orthogonal columns differ by more than this factor."""

_UNRELIABLE = 1e-4
"""A squared norm below this part of the last value from its column is computed from the column again."""

BATCH_COLUMNS = 64
"""Columns that are made orthogonal to Q together."""

COMPARED_TOGETHER = 8
"""Prefixes whose predictions are compared with their fits in one pass over the kernel columns."""

PATH_DTYPE = np.dtype(
    [
        ("center", np.int64),
        ("residual_max", np.float64),
        ("q_norm", np.float64),
        ("error_reduction", np.float64),
    ]
)
"""One entry a centre: its row, the largest absolute residual before it, |q|, and the share of y'y that it explains."""


@dataclass(frozen=True)
class ForwardPath:
    """A finished selection."""

    positions: NDArray[np.int64]
    """(m,): selected rows in order, as positions among the given rows."""
    coef: Array
    """(m, T)."""
    intercept: Array
    """(T,)."""
    history: NDArray[np.void]
    """(m,): of `PATH_DTYPE`, with positions as centres."""
    reason: StopReason
    """The reason for which the selection ended."""
    n_columns: int
    """Number of kernel columns that were computed, dependent columns included."""


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
    """Select rows, the lowest of equal ones, and solve for the weights.

    Targets are centred first: their sums of squares then do not cancel near an exact fit.

    Parameters
    ----------
    column : callable
        Function of the position of a row that returns its kernel column, shape (n,).
    Y : array, shape (n, T)
        Targets.
    weights : array, shape (n,)
        Row weights above zero.
    max_centers : int
        Largest number of rows to select.
    tol : float, optional
        Without `reductions`: selection ends when the largest residual, the norm over the targets of a row, is at most
        this; by default it does not end by the residual.
    reductions : Reductions, optional
        Selects the row with the largest error reduction; by default the row with the largest residual is selected.
    tolerance : float, default 0.0
        With `reductions`: selection ends when the unexplained part of the targets' squares about their means, summed
        over targets, is below this.
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
    length = _agreeing(column, positions, factors, target, roots)
    if length < len(positions):
        reason = StopReason.ROUNDING
    solution = factors.weights(target, length)
    return ForwardPath(
        positions=np.array(positions[:length], dtype=np.int64),
        coef=solution[1:],
        intercept=solution[0] + means,
        history=np.array(history[:length], dtype=PATH_DTYPE),
        reason=reason,
        n_columns=int(np.count_nonzero(~free)),
    )


def _agreeing(
    column: Callable[[int], Array], positions: list[int], factors: ThinQR, target: Array, roots: Array
) -> int:
    """Return the length of the longest prefix whose predictions agree with its fit; warn if the path is longer."""
    full, total = len(positions), float(np.sqrt(roots @ roots))
    norms = np.sqrt(np.square(factors.R).sum(axis=0)) / total
    deviations = np.sqrt(np.square(target).sum(axis=0)) / total
    weights = factors.weights(target, full)
    if not full or (SAFETY * magnified(norms, weights, "float64") <= AGREES * deviations).all():
        return full
    search = longest_prefix(full, full, COMPARED_TOGETHER)
    lengths, worst = next(search), 0.0
    while True:
        parts = [factors.weights(target, length) for length in lengths]
        predicted = np.stack([np.broadcast_to(part[0], target.shape) for part in parts])
        for i, row in enumerate(positions[: lengths[-1]], start=1):
            k = column(row)[:, None]
            for values, part, length in zip(predicted, parts, lengths, strict=True):
                if i <= length:
                    values += k * part[i]
        found = np.sqrt(np.square(target - roots[:, None] * predicted).sum(axis=1)) / total
        fits = [factors.Q[:, : n + 1] @ (factors.Q[:, : n + 1].T @ target) for n in lengths]
        expected = np.sqrt(np.square(target - np.stack(fits)).sum(axis=1)) / total
        apart = np.abs(found - expected)
        if lengths[-1] == full:
            worst = in_deviations(apart[-1], deviations)
        try:
            lengths = search.send((apart <= AGREES * deviations).all(axis=1).tolist())
        except StopIteration as end:
            if end.value < full:
                warn_of_rounding(full, worst, end.value, "float64")
            return int(end.value)


def _best(scores: Array, free: NDArray[np.bool_]) -> int | None:
    """Return the lowest of the free rows with the largest score, None if there are none."""
    free = free & (scores > -np.inf)
    if not free.any():
        return None
    # Scores that are equal up to rounding, as often within a class, count as equal.
    return int(np.argmax(free & (scores >= (1.0 - TIE) * scores[free].max())))


class Reductions:
    """Error reduction (q'r)^2 / q'q of every row's column.

    Chen, Cowan and Grant make all candidates orthogonal to each selected column (modified Gram-Schmidt). Here the
    columns do not change: k'r = q'r for a residual r that is orthogonal to Q, and |q|^2 = |k|^2 - |Q'k|^2. A step then
    costs one product with the Gram matrix, and no rounding of rank-one updates accumulates.

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
        """Return the error reductions after one more column of Q.

        Parameters
        ----------
        Q : array, shape (n, m)
            All columns so far, the new one last, times root weights.
        residual : array, shape (n, T)
            Residual of the targets, orthogonal to Q, times root weights.

        Returns
        -------
        array, shape (n,)
            Summed over targets; -inf where the column depends on Q.
        """
        products = self._K @ (np.column_stack([Q[:, -1], residual]) * self._roots[:, None])
        self._norms -= np.square(products[:, 0])
        doubtful = np.flatnonzero(self._independent & (self._norms < _UNRELIABLE * self._anchors))
        # |k|^2 - |Q'k|^2 cancels where little of a column remains: such norms are computed from the columns.
        for start in range(0, len(doubtful), BATCH_COLUMNS):
            batch = doubtful[start : start + BATCH_COLUMNS]
            part = self._K[batch] * self._roots
            for _ in range(2):  # as in `ThinQR.append`
                part -= (part @ Q) @ Q.T
            self._norms[batch] = self._anchors[batch] = np.einsum("ij,ij->i", part, part)
        self._independent &= self._norms > self._limits
        norms = np.where(self._independent, self._norms, 1.0)
        return np.where(self._independent, np.square(products[:, 1:]).sum(axis=1) / norms, -np.inf)


class ThinQR:
    """Thin QR decomposition that is extended by one column at a time, in arrays that are allocated once.

    `scipy.linalg.qr_insert` in economic mode gives the same update of a last column without rotations, but copies Q
    every time; here only the new column of Q is written.

    Parameters
    ----------
    first : array, shape (n,)
        The first column, not zero.
    capacity : int
        Largest number of columns to append; more than n are never independent.
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
        # Two passes: one pass loses orthogonality with the square of the condition number (Giraud et al., 2005).
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

    def weights(self, target: Array, length: int) -> Array:
        """Return the weights of the first column and the first `length` appended ones, shape (length + 1, T)."""
        k = length + 1
        return np.asarray(solve_triangular(self.R[:k, :k], self.Q[:, :k].T @ target, check_finite=False))

    def condition(self) -> float:
        """Largest length of an orthogonal column over the smallest."""
        lengths = self.R.diagonal()
        return float(lengths.max() / lengths.min())
