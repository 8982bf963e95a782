"""The rows of a selection sample, as blocks send them and receive them again in full tiles.

Every block draws its share of the sample, which is small where there are many blocks. The driver collects the rows and
returns them in parts of about `PART_ROWS`, so that the products of a tile are large and few. The cut depends on numbers
of rows and blocks only, so the model has the same bits on any number of workers. Covers no draw, see
`..rows.block_reading`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array, Rows

PART_ROWS = 2560
"""Most training rows of a part; each part is one tile."""


def part_count(n_rows: int, n_blocks: int) -> int:
    """Return the number of parts of a sample of `n_rows` rows: one for `PART_ROWS`, but not more than blocks."""
    return max(1, min(-(-n_rows // PART_ROWS), n_blocks))


def _part_of(block: int, n_blocks: int, count: int) -> int:
    """Return the number of the part of a block, `count` where it has none."""
    first = -(-block * count // n_blocks)
    return first if first < count and first * n_blocks // count == block else count


@dataclass
class SelectedRows:
    """Rows of a sample with all that a block needs of them, in ascending order within training and held-out rows."""

    rows: Rows
    """(n,): global row numbers."""
    features: NDArray[Any] | None
    """(n, d): raw features; None from a process without them."""
    targets: NDArray[Any]
    """(n,) or (n, T): numbers, or labels."""
    weights: Array | None
    """(n,): row weights, 1 on held-out rows; None where all are 1."""
    held: NDArray[np.bool_]
    """(n,): mask of the rows that are held out."""

    def merge(self, other: SelectedRows) -> SelectedRows:
        """Append the rows of later blocks."""
        return SelectedRows(
            np.concatenate([self.rows, other.rows]),
            None
            if self.features is None or other.features is None
            else np.concatenate([self.features, other.features]),
            np.concatenate([self.targets, other.targets]),
            None if self.weights is None or other.weights is None else np.concatenate([self.weights, other.weights]),
            np.concatenate([self.held, other.held]),
        )

    def part(self, block: int, n_blocks: int) -> SelectedRows:
        """Return the rows that a block receives, training rows first; most blocks receive none.

        Parameters
        ----------
        block : int
            Block number.
        n_blocks : int
            Blocks of the run; the parts are spread evenly over them.
        """
        fit, held = np.flatnonzero(~self.held), np.flatnonzero(self.held)
        count = part_count(len(fit), n_blocks)
        own = _part_of(block, n_blocks, count)
        # Part `count` is empty.
        chosen = np.concatenate(
            [rows[len(rows) * own // count : len(rows) * min(own + 1, count) // count] for rows in (fit, held)]
        )
        return SelectedRows(
            self.rows[chosen],
            None if self.features is None else self.features[chosen],
            self.targets[chosen],
            None if self.weights is None else self.weights[chosen],
            self.held[chosen],
        )

    def has_part(self, block: int, n_blocks: int) -> bool:
        """Return whether a block receives training rows, by the same parameters as `part`."""
        count = part_count(len(self.rows) - int(np.count_nonzero(self.held)), n_blocks)
        return _part_of(block, n_blocks, count) < count
