"""Row tiles of a block, and the arrays that all tiles of a problem read. `problem_rows` cuts blocks into tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Rows


def positions(rows: Rows, wanted: Rows) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where ascending `rows` hold some of the wanted rows: (positions in `rows`, positions in `wanted`)."""
    where = np.searchsorted(rows, wanted)
    own = np.flatnonzero(where < len(rows))
    own = own[rows[where[own]] == wanted[own]]
    return where[own], own


@dataclass(frozen=True)
class Tile:
    """Rows ``start:stop`` of a block, all of one kind."""

    start: int
    stop: int
    held_out: bool
    """Whether the rows enter no sum but the validation error."""

    @property
    def rows(self) -> slice:
        """Rows of the block."""
        return slice(self.start, self.stop)


class Features(Protocol):
    """Raw features of the rows of a problem, tile by tile."""

    def borrow(self, rows: slice) -> NDArray[Any]:
        """Return some of the rows, shape (n, d); valid until this thread borrows again."""
        ...

    def prefetch(self, rows: slice) -> None:
        """Let the system read some of the rows ahead."""
        ...


@dataclass
class TileData:
    """Arrays of a problem on a block that tiles read and do not change."""

    rows: NDArray[np.int64]
    """(rows,): global row numbers, ascending within the training and the held-out part."""
    weights: NDArray[np.float64] | None
    """(rows,): row weights, None where all are 1; 1 on held-out rows."""
    roots: NDArray[np.float64] | None
    """(rows,): square roots of the weights."""
    features: Features | None
    """(rows, d): raw features; None where another process computes kernel columns."""
