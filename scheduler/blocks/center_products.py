"""Passes over all rows of one block for models with many centres: the draw of further centres, and products K'W K P.

The kernel columns of a few rows at a time are computed, multiplied twice and forgotten. The number of those rows
depends on the number of centres only, and the parts are added in their order, so the bits are the same everywhere.
Covers one block; the iterations are in `..training.large_models`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.numerics.row_draws import Shortlist, draw_keys, uniforms_for_rows

from ..protocol.answers import Answer, Drawn, ProblemAnswer
from ..protocol.candidates import rows_and_widths
from ..protocol.large_models import CenterDraw, CenterProducts, DrawCenters, Multiply
from ..protocol.messages import Begin
from ..protocol.problems import Problem
from ..rows.block_reading import HOLDOUT_STREAM, BlockRows
from ..rows.tiles import positions
from ..runtime.threads import workspace
from . import pool_tiles as tiles
from .all_rows_pass import columns_not_zero, pass_over, prepare_centers
from .block import Block

CENTER_STREAM = HOLDOUT_STREAM + 7
"""Stream of the row draws that decides which rows become centres."""

PRECONDITIONER_STREAM = HOLDOUT_STREAM + 8
"""Stream of the row draws that decides which rows make the preconditioner."""

PROBE_STREAM = HOLDOUT_STREAM + 9
"""First of the streams of the row draws that decide the signs of probes: one for each."""

STRIP_VALUES = 2_560_000
"""Kernel values that are in memory at a time: their columns are computed once and multiplied twice, which is fastest
where they stay in the cache of a core."""

PART_VALUES = 65536
"""Kernel values that are converted and multiplied together."""

MOST_STRIP_ROWS, LEAST_STRIP_ROWS = 1024, 32


def strip_rows(m: int) -> int:
    """Return the number of rows whose kernel columns of `m` centres are in memory at a time."""
    return max(LEAST_STRIP_ROWS, min(MOST_STRIP_ROWS, STRIP_VALUES // max(m, 1)))


def multiply(block: Block, message: Multiply, take: Callable[[int], BlockRows]) -> Answer:
    """Compute the products of one block, see `CenterProducts`: ``products`` (m, k).

    With right-hand sides also ``target_norms`` (T,) and ``target_sums`` (T,), the weighted squares and sums of what is
    left of the targets, and ``probe_sums`` (probes,).
    """
    return pass_over(block, message.problems, _Products, take)


def draw_centers(block: Block, message: DrawCenters, take: Callable[[int], BlockRows]) -> Answer:
    """Draw rows of one block, see `CenterDraw`."""
    return pass_over(block, message.problems, _Drawing, take)


def _in_parts(columns: NDArray[Any]) -> Iterator[tuple[slice, Array]]:
    """Yield the kernel columns of some centres after others, in float64.

    Sums of float32 products would be rounded by more than the penalty of small lambdas; the conversion costs little
    where a part stays in the cache.
    """
    step = max(1, PART_VALUES // max(columns.shape[1], 1))
    for start in range(0, len(columns), step):
        part = slice(start, min(start + step, len(columns)))
        values = columns[part]
        if values.dtype != np.float64:
            values = workspace.array("part", values.shape, np.dtype(np.float64))
            np.copyto(values, columns[part])
        yield part, values


class _Columns:
    """Kernel columns of given centres, a few rows at a time, and their products with weights."""

    def __init__(
        self, rows: NDArray[np.int64], features: NDArray[Any], vectors: Array, begin: Begin, problem: Problem, n: int
    ) -> None:
        self._begin = begin
        self._candidates = prepare_centers(rows, features, begin, problem, n)
        width, k = len(self._candidates.features), vectors.shape[1]
        self._vectors = np.zeros((width, max(k, 2)))
        self._vectors[: len(rows), :k] = vectors
        self.step = strip_rows(len(rows))

    def of(self, raw: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the kernel columns of some rows, (w, n), without row weights, in a buffer of this thread."""
        return tiles.columns_of(raw, rows, None, self._begin, self._candidates)

    def times_vectors(self, columns: NDArray[Any]) -> Array:
        """Return K P, (n, max(k, 2))."""
        total = np.zeros((columns.shape[1], self._vectors.shape[1]))
        for part, values in self.parts(columns):
            total += values.T @ self._vectors[part]
        return total

    def parts(self, columns: NDArray[Any]) -> Iterator[tuple[slice | NDArray[np.intp], Array]]:
        """Yield the kernel columns of some centres after others in float64, without those that are zero."""
        near = columns_not_zero(columns, self._candidates.kernel)
        if near is None:
            yield from _in_parts(columns)
            return
        for part, values in _in_parts(columns[near]):
            yield near[part], values


class _Products:
    """Products of one problem over the tiles of a block."""

    def __init__(self, asked: CenterProducts, begin: Begin, problem: Problem, n_rows: int) -> None:
        self._m, self._k = asked.vectors.shape
        self._problem = problem
        self._columns = _Columns(asked.rows, asked.features, asked.vectors, begin, problem, n_rows)
        self._right = asked.right_sides
        self._targets = list(problem.columns)
        if self._right is not None:
            self._k = len(self._targets) + 1 + self._right.probes
            self._norms, self._sums = np.zeros(len(self._targets)), np.zeros(len(self._targets))
            self._probe_sums = np.zeros(self._right.probes)
        self._products = np.zeros((max(self._m, 2), max(self._k, 2)))

    def add(self, raw: NDArray[Any], rows: NDArray[np.int64], roots: Array | None, encoded: Array) -> None:
        """Add one tile, see `all_rows_pass.Part`."""
        for start in range(0, len(rows), self._columns.step):
            part = slice(start, start + self._columns.step)
            columns = self._columns.of(raw[part], rows[part])
            values = self._columns.times_vectors(columns)
            own = None if roots is None else roots[part]
            if self._right is not None:
                values = self._right_sides(values, rows[part], own, encoded[part])
            elif own is not None:
                values *= np.square(own)[:, np.newaxis]
            for some, converted in self._columns.parts(columns):
                self._products[some] += converted @ values

    def _right_sides(self, fitted: Array, rows: NDArray[np.int64], roots: Array | None, encoded: Array) -> Array:
        """Return W times the residuals of the targets, ones, and the probes; add the sums of all of them."""
        assert self._right is not None
        T = len(self._targets)
        weights = np.ones(len(rows)) if roots is None else np.square(roots)
        left = self._problem.centred(encoded, self._right.target_means) - fitted[:, :T]
        values = np.zeros((len(rows), self._products.shape[1]))
        values[:, :T] = weights[:, np.newaxis] * left
        values[:, T] = weights
        for i in range(self._right.probes):
            uniforms = uniforms_for_rows(self._right.seed, PROBE_STREAM + i, rows)
            values[:, T + 1 + i] = np.where(uniforms < 0.5, -1.0, 1.0) * (1.0 if roots is None else roots)
        self._norms += (values[:, :T] * left).sum(axis=0)
        self._sums += values[:, :T].sum(axis=0)
        self._probe_sums += values[:, T + 1 : self._k].sum(axis=0)
        return values

    def answer(self) -> ProblemAnswer:
        """Return the sums by name."""
        sums = {"products": np.ascontiguousarray(self._products[: self._m, : self._k])}
        if self._right is not None:
            sums |= {"target_norms": self._norms, "target_sums": self._sums, "probe_sums": self._probe_sums}
        return ProblemAnswer(sums)


class _Drawing:
    """The draw of one problem over the tiles of a block."""

    def __init__(self, asked: CenterDraw, begin: Begin, problem: Problem, n_rows: int) -> None:
        self._asked, self._problem = asked, problem
        self._columns = None
        if (model := asked.model) is not None:
            self._columns = _Columns(asked.rows, model.features, model.weights[1:], begin, problem, n_rows)
        # A row that has been chosen with one width is not drawn with another.
        self._taken = np.unique(rows_and_widths(asked.rows, n_rows)[0])
        self._drawn: Drawn | None = None

    def add(self, raw: NDArray[Any], rows: NDArray[np.int64], roots: Array | None, encoded: Array) -> None:
        """Add one tile, see `all_rows_pass.Part`."""
        asked, squares = self._asked, self._squares(raw, rows, encoded)
        norms = np.sqrt(squares)
        if roots is not None:
            squares = squares * np.square(roots)
        squares[positions(rows, self._taken)[0]] = 0.0
        keys = draw_keys(uniforms_for_rows(asked.seed, asked.stream, rows), squares)
        best = Shortlist.top(keys, rows, norms, asked.count)
        named = np.sort(best.rows)
        features, largest = raw[np.searchsorted(rows, named)], float(norms.max(initial=0.0))
        found = Drawn(Shortlist.empty(), best, named, features, (0, asked.count), largest)
        self._drawn = found if self._drawn is None else self._drawn.merge(found)

    def _squares(self, raw: NDArray[Any], rows: NDArray[np.int64], encoded: Array) -> Array:
        """Return the squared residuals, or ones without a model."""
        model, squares = self._asked.model, np.ones(len(rows))
        if model is None or self._columns is None:
            return squares
        left = self._problem.centred(encoded, model.target_means) - model.weights[0]
        for start in range(0, len(rows), self._columns.step):
            part = slice(start, start + self._columns.step)
            fitted = self._columns.times_vectors(self._columns.of(raw[part], rows[part]))
            squares[part] = np.square(left[part] - fitted[:, : left.shape[1]]).sum(axis=1)
        return squares

    def answer(self) -> ProblemAnswer:
        """Return the rows that were drawn."""
        return ProblemAnswer(drawn=self._drawn)
