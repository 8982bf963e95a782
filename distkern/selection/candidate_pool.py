"""The choice of a panel of centres from a pool of orthogonalised candidates.

The driver has the Gram matrix S = P'P of the candidates P, which are orthogonal to Q, and their products R = P'E with
the residual. It picks the candidate with the largest error reduction sum_t R_jt^2 / S_jj, eliminates it from the other
candidates and repeats (classical orthogonal least squares, Chen, Cowan and Grant 1991). No row of the data is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dger

from ..arrays import Array

TIE = 1e-10
"""Scores with a smaller relative difference are equal: rounding must not decide between them."""


@dataclass(frozen=True)
class Panel:
    """Candidates picked from the pool, in order.

    The formed columns are F = P[:, slots] @ inverse(lower); the surviving pool columns lose F @ multipliers.
    """

    slots: NDArray[np.int64]
    """(p,): pool slots of the picked candidates."""
    lower: Array
    """(p, p): unit upper triangular, P[:, slots] = F @ lower."""
    multipliers: Array
    """(p, B): multiple of each formed column in each pool column; zero for the panel's own slots."""
    pivots: Array
    """(p,): S_jj of each pick when it was picked."""
    products: Array
    """(p, T): R_j of each pick when it was picked."""


class Pool:
    """Candidates, orthogonal to Q, that stay available for later rounds.

    Parameters
    ----------
    capacity : int
        Number of slots B.
    n_columns : int
        Largest number of columns of Q, for the coefficients.
    n_targets : int
        Number of targets T.
    dependent : float
        A candidate with |P_j|^2 <= dependent * |k_j|^2 depends on Q's columns and is dropped for good.
    reliable : float, default 1e-8
        A candidate whose S_jj fell below `reliable` times its last value from the rows is not picked until S is
        computed from the rows again: elimination leaves noise of that order, and dividing by it would spoil the pool.
    """

    def __init__(self, capacity: int, n_columns: int, n_targets: int, dependent: float, reliable: float = 1e-8) -> None:
        self.capacity = capacity
        self.dependent = dependent
        self.reliable = reliable
        self.anchors = np.zeros(capacity)
        self.rows = np.full(capacity, -1, dtype=np.int64)
        self.features: list[NDArray[np.generic] | None] = [None] * capacity
        self.norms = np.ones(capacity)
        self.coefficients = np.zeros((n_columns, capacity))
        self.gram = np.zeros((capacity, capacity))
        self.products = np.zeros((capacity, n_targets))

    @property
    def active(self) -> NDArray[np.bool_]:
        """Which slots hold a candidate, shape (B,)."""
        return self.rows >= 0

    def scores(self) -> Array:
        """Error reduction of each candidate, -inf for empty slots, shape (B,)."""
        scores = np.full(self.capacity, -np.inf)
        active = self.active
        diagonal = self.gram.diagonal()[active]
        positive = diagonal > 0
        reduction = _reductions(self.products[active], np.where(positive, diagonal, 1.0))
        scores[active] = np.where(positive, reduction, -np.inf)
        return scores

    def drop_dependent(self) -> int:
        """Empty the slots whose candidate depends on Q; return how many."""
        dependent = self.active & ~(self.gram.diagonal() > self.dependent * self.norms)
        slots = np.flatnonzero(dependent)
        self.clear(slots)
        return len(slots)

    def clear(self, slots: NDArray[np.int64]) -> None:
        """Empty `slots`."""
        self.rows[slots] = -1
        self.gram[slots, :] = 0.0
        self.gram[:, slots] = 0.0
        self.products[slots] = 0.0
        for slot in slots:
            self.features[slot] = None

    def free_slots(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return `count` slots for new candidates, and the rows of the lowest scores that were evicted for them."""
        free = np.flatnonzero(~self.active)[:count]
        missing = count - len(free)
        if missing <= 0:
            return free, np.empty(0, dtype=np.int64)
        occupied = np.flatnonzero(self.active)
        order = np.lexsort((self.rows[occupied], self.scores()[occupied]))
        evicted = np.sort(occupied[order[:missing]])
        rows = self.rows[evicted]
        self.clear(evicted)
        return np.concatenate([free, evicted]), rows

    def insert(
        self,
        slots: NDArray[np.int64],
        rows: NDArray[np.int64],
        features: NDArray[np.generic],
        norms: Array,
        coefficients: Array,
    ) -> None:
        """Put projected candidates into `slots`; `merge_gram` adds their products."""
        self.rows[slots] = rows
        self.norms[slots] = norms
        self.coefficients[: len(coefficients), slots] = coefficients
        self.coefficients[len(coefficients) :, slots] = 0.0
        for slot, row in zip(slots, features, strict=True):
            self.features[slot] = row

    def merge_gram(self, slots: NDArray[np.int64], gram: Array, products: Array) -> None:
        """Set S and R of new candidates from gram (B, n) = P'P[:, slots] and products (n, T)."""
        # Two sums over rows round (i, j) and (j, i) differently; elimination needs a symmetric matrix.
        inactive = ~self.active
        self.gram[:, slots] = gram
        self.gram[slots, :] = gram.T
        self.gram[np.ix_(slots, slots)] = (gram[slots] + gram[slots].T) / 2
        self.gram[inactive, :] = 0.0
        self.gram[:, inactive] = 0.0
        self.products[slots] = products
        self.anchors[slots] = self.gram[slots, slots]

    def replace_gram(self, gram: Array, products: Array) -> None:
        """Set S and R of all candidates from products recomputed over the rows."""
        active = self.active
        both = active[:, None] & active[None, :]
        self.gram[...] = np.where(both, (gram + gram.T) / 2, 0.0)
        self.products[...] = np.where(active[:, None], products, 0.0)
        self.anchors[...] = self.gram.diagonal()

    @property
    def needs_refresh(self) -> bool:
        """Whether a candidate cannot be picked until S is computed from the rows again."""
        diagonal = self.gram.diagonal()
        independent = self.active & (diagonal > self.dependent * self.norms)
        return bool((independent & (diagonal <= self.reliable * self.anchors)).any())

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Which candidates can be picked, shape (B,)."""
        return np.asarray(self.active & (self.gram.diagonal() > self._limits()))

    def _limits(self) -> Array:
        return np.maximum(self.dependent * self.norms, self.reliable * self.anchors)

    def pick(self, count: int, among: NDArray[np.bool_] | None = None) -> Panel:
        """Pick up to `count` candidates by error reduction and eliminate them from the other candidates.

        S and R of the survivors are updated in place; the picked slots stay filled until `clear`.

        Parameters
        ----------
        count : int
            Largest number of candidates to pick.
        among : array of bool, shape (B,), optional
            Slots to pick from; all by default.
        """
        picked: list[int] = []
        multipliers: list[Array] = []
        pivots: list[float] = []
        picked_products: list[Array] = []
        gram, products = self.gram, self.products
        available = self.active
        limits = self._limits()
        for _ in range(count):
            diagonal = gram.diagonal()
            usable = available & (diagonal > limits)
            if among is not None:
                usable &= among
            if not usable.any():
                break
            scores = np.full(self.capacity, -np.inf)
            scores[usable] = _reductions(products[usable], diagonal[usable])
            j = self._best(scores)
            pivots.append(gram[j, j])
            picked_products.append(products[j].copy())
            factor = gram[j] / gram[j, j]
            factor[~available] = 0.0
            _subtract_outer(products, factor, products[j])
            _subtract_outer(gram, factor, gram[j])
            available[j] = False
            picked.append(j)
            multipliers.append(factor)
        slots = np.array(picked, dtype=np.int64)
        table = np.array(multipliers).reshape(len(picked), self.capacity)
        lower = np.triu(table[:, slots], k=1) + np.eye(len(picked))
        table[:, slots] = 0.0
        return Panel(
            slots,
            lower,
            table,
            np.array(pivots),
            np.array(picked_products).reshape(len(picked), products.shape[1]),
        )

    def _best(self, scores: Array) -> int:
        """Return the slot of the highest score.

        Scores that agree up to rounding are ordered by features, then by row: the last centres of a saturated fit have
        equal error reductions, and the choice must not depend on the order of the rows.
        """
        ties = np.flatnonzero(scores >= scores.max() * (1 - TIE))
        if len(ties) == 1:
            return int(ties[0])
        features = np.array([self.features[slot] for slot in ties])
        order = np.lexsort((self.rows[ties], *features.T[::-1]))
        return int(ties[order[0]])

    def absorb(self, multipliers: Array, correct: Array, survivors: Array) -> None:
        """Express the survivors' kernel columns in the basis extended by a finished panel.

        Parameters
        ----------
        multipliers : array, shape (p, B)
            Elimination multipliers of the panel.
        correct : array, shape (m + 1, k)
            Second orthogonalisation pass of the panel, from `PanelUpdate`.
        survivors : array, shape (k, p)
            From `PanelUpdate`.
        """
        held = survivors @ multipliers
        m, k = correct.shape
        self.coefficients[:m] += correct @ held
        self.coefficients[m : m + k] = held

    def restore(self, restored: Array, panel: Panel) -> None:
        """Undo the elimination of formed columns that were not kept.

        Parameters
        ----------
        restored : array, shape (p, B)
            Multiples of F that are added to each pool column again.
        panel : Panel
            The eliminated panel. Its own pivots are used, not the later F'F over the rows: large multipliers would
            magnify the difference.
        """
        self.gram += restored.T @ (panel.pivots[:, None] * restored)
        self.products += restored.T @ panel.products


def _subtract_outer(matrix: Array, column: Array, row: Array) -> None:
    """Subtract an outer product from a C-ordered matrix in place; `row` may be one of its rows."""
    dger(-1.0, row.copy(), column, a=matrix.T, overwrite_a=True)


def _reductions(products: Array, diagonal: Array) -> Array:
    """Return the error reductions sum_t R_jt^2 / S_jj; R_jt is divided by the root of S_jj first: squares overflow."""
    reductions: Array = np.square(products / np.sqrt(diagonal)[:, None]).sum(axis=1)
    return reductions
