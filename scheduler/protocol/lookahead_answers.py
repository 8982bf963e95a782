"""What tiles answer to a look-ahead, and how two answers become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array, Rows


@dataclass
class Leaders:
    """The rows with the largest residuals after each of n tried steps.

    The leader of every step is among them, and so are rows that may lead later.
    """

    largest: Array
    """(n,): largest residual of any row, taken or not."""
    rows: Rows
    """(k,): rows that are not taken."""
    norms: Array
    """(k, n): their residual after each step; -1 from the step that takes the row."""
    features: NDArray[Any] | None
    """(k, d): their raw features, where the block has them."""
    floor: float
    """Rows that never reach this are kept only if they lead,"""
    most: int
    """and this many of the others."""

    @classmethod
    def select(
        cls,
        largest: Array,
        rows: Rows,
        norms: Array,
        features: NDArray[Any] | None,
        floor: float,
        most: int,
    ) -> Leaders:
        """Keep the rows that lead or may lead; largest residual first, ties to the lowest row."""
        peaks = norms.max(axis=1, initial=-1.0)
        wanted = peaks >= floor
        if np.count_nonzero(wanted) > most:
            order = np.lexsort((rows, -peaks))
            wanted[:] = False
            wanted[order[:most]] = True
        if len(rows):
            # Rows ascend, so that the first of several maxima is the lowest row.
            wanted[norms.argmax(axis=0)] = True
        kept = np.flatnonzero(wanted & (peaks >= 0.0))
        return cls(largest, rows[kept], norms[kept], None if features is None else features[kept], floor, most)

    def leader(self, step: int) -> int:
        """The row with the largest residual after a step, the lowest of several; -1 if every row is taken."""
        if not len(self.rows):
            return -1
        best = int(self.norms[:, step].argmax())
        return int(self.rows[best]) if self.norms[best, step] >= 0.0 else -1

    def merge(self, other: Leaders) -> Leaders:
        """Merge the leaders of disjoint sets of rows."""
        rows = np.concatenate([self.rows, other.rows])
        order = np.argsort(rows)
        features = None
        if self.features is not None and other.features is not None:
            features = np.concatenate([self.features, other.features])[order]
        return Leaders.select(
            np.maximum(self.largest, other.largest),
            rows[order],
            np.concatenate([self.norms, other.norms])[order],
            features,
            self.floor,
            self.most,
        )


@dataclass
class CandidateRows:
    """Values of E, K and Q at candidates' rows."""

    rows: Rows
    """(k,): global rows."""
    values: Array
    """(k, T + B + m + 1): E, the kernel columns of all slots, and Q."""

    def merge(self, other: CandidateRows) -> CandidateRows:
        """Merge the values of disjoint sets of rows."""
        if not len(other.rows):
            return self
        if not len(self.rows):
            return other
        return CandidateRows(np.concatenate([self.rows, other.rows]), np.concatenate([self.values, other.values]))
