"""Row tiles of a block, and what all tiles of a problem read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Tile:
    """Rows ``start:stop`` of a block, all of one kind."""

    start: int
    stop: int
    held_out: bool
    """Rows that only follow the path; they enter no sum but the validation error."""

    @property
    def rows(self) -> slice:
        """Rows of the block."""
        return slice(self.start, self.stop)


class Features(Protocol):
    """Raw features of the rows of a problem, a tile at a time."""

    def borrow(self, rows: slice) -> NDArray[Any]:
        """Return some of the rows, shape (n, d), until this thread borrows again."""
        ...

    def prefetch(self, rows: slice) -> None:
        """Have some of the rows read ahead."""
        ...


@dataclass
class TileData:
    """What all tiles of a problem on a block read."""

    rows: NDArray[np.int64]
    """(rows,): global row numbers, ascending within the training and the held-out part."""
    weights: NDArray[np.float64] | None
    """(rows,): row weights, None where all are one; one on held-out rows."""
    roots: NDArray[np.float64] | None
    """(rows,): their square roots."""
    features: Features | None
    """(rows, d): raw features; None where another process computes kernel columns."""
