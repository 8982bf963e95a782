"""The rows of a block that take part in one problem, cut into tiles and strips.

Covers rows and features; the other arrays of a problem are in `..blocks.pool_tiles`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocol.problems import Problem
from ..runtime.spillable_matrix import RowMatrix
from .tiles import Features, Tile, TileData

TILE_ROWS = 4096
"""Most rows of a tile: its share of K, Q and E stays in cache, and float32 partial sums stay short."""

STRIP_TILES = 4
"""Most tiles of a strip, whose sums one thread adds up in order."""

Strip = tuple[Tile, ...]


def cut_tiles(n_fit: int, n_held: int) -> list[Tile]:
    """Cut a block into tiles of nearly equal size, training rows first."""
    cut = []
    for first, count, held_out in ((0, n_fit, False), (n_fit, n_held, True)):
        parts = -(-count // TILE_ROWS)
        edges = [first + count * i // parts for i in range(parts + 1)] if parts else []
        cut += [Tile(a, b, held_out) for a, b in itertools.pairwise(edges)]
    return cut


def cut_strips(tiles_: list[Tile]) -> list[Strip]:
    """Group the tiles of a block into strips of one kind; a strip is the unit of work of a thread."""
    strips = []
    for _, kind in itertools.groupby(tiles_, key=lambda tile: tile.held_out):
        group = list(kind)
        parts = -(-len(group) // STRIP_TILES)
        edges = [len(group) * i // parts for i in range(parts + 1)]
        strips += [tuple(group[a:b]) for a, b in itertools.pairwise(edges)]
    return strips


def joined(strip: Strip) -> Tile:
    """Return the rows of a strip as one tile."""
    return Tile(strip[0].start, strip[-1].stop, strip[0].held_out)


class SelectedFeatures:
    """Features of some rows of a block, in ascending positions.

    Parameters
    ----------
    features : Features
        Features of the whole block.
    positions : array, shape (n,)
        Rows of the block.
    """

    def __init__(self, features: Features, positions: NDArray[np.intp]) -> None:
        self._features = features
        self._positions = positions

    def _span(self, rows: slice) -> slice:
        return slice(int(self._positions[rows.start]), int(self._positions[rows.stop - 1]) + 1)

    def borrow(self, rows: slice) -> NDArray[Any]:
        """Return some of the rows, shape (n, d), a copy."""
        span = self._span(rows)
        chosen: NDArray[Any] = self._features.borrow(span)[self._positions[rows] - span.start]
        return chosen

    def prefetch(self, rows: slice) -> None:
        """Let the system read some of the rows ahead."""
        self._features.prefetch(self._span(rows))


@dataclass(frozen=True)
class ProblemRows:
    """Rows of one block that take part in one problem; training rows come first, held-out rows after them."""

    problem: Problem
    data: TileData
    n_fit: int
    """Number of training rows."""
    positions: NDArray[np.intp] | None
    """(rows,): positions among the rows that the block keeps; None for all of them."""
    tiles: list[Tile]
    strips: list[Strip]


def rows_of_problem(
    problem: Problem, block: TileData, features: RowMatrix | None, n_fit: int, codes: NDArray[np.int64] | None
) -> ProblemRows:
    """Select a problem's rows.

    Parameters
    ----------
    problem : Problem
        Decides which rows take part.
    block : TileData
        All rows that the block keeps.
    features : RowMatrix or None
        Their features; None where another process holds them.
    n_fit : int
        Number of training rows, which come first.
    codes : array, shape (rows,), or None
        Class of each row.
    """
    n_rows = len(block.rows)
    taking = problem.takes(block.rows, codes)
    if taking is None:
        tiles = cut_tiles(n_fit, n_rows - n_fit)
        return ProblemRows(problem, block, n_fit, None, tiles, cut_strips(tiles))
    positions = np.flatnonzero(taking)
    chosen: Features | None = None if features is None else SelectedFeatures(features, positions)
    data = TileData(
        block.rows[positions],
        None if block.weights is None else block.weights[positions],
        None if block.roots is None else block.roots[positions],
        chosen,
    )
    n_taken = int(np.count_nonzero(taking[:n_fit]))
    tiles = cut_tiles(n_taken, len(positions) - n_taken)
    return ProblemRows(problem, data, n_taken, positions, tiles, cut_strips(tiles))
