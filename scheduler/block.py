"""One block of one run: what it holds, and how messages change it.

A block knows nothing of workers, versions or logs; `distkern.scheduler.memo` keeps those. It loads its rows once,
then follows the run's messages; all that it holds can be rebuilt by applying the same messages again.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.sampling import row_uniforms
from distkern.scheduler import lookahead_tiles, tiles
from distkern.scheduler.answers import Answer, Labels, LoadAnswer, ProblemAnswer
from distkern.scheduler.loading import HOLDOUT_STREAM, read_block, require_unchanged, row_statistics, selecting_rows
from distkern.scheduler.messages import Begin, Columns, FetchRows, Load, LookaheadStep, ProblemStep, Step
from distkern.scheduler.row_matrix import MemoryBudget, RowMatrix
from distkern.scheduler.tiles import (
    SLAB,
    ProblemState,
    Subtraction,
    Tile,
    TileData,
)
from distkern.storage import ReadReport
from distkern.storage.source import BlockSource

TILE_ROWS = 4096
"""Rows of a tile: its share of K, Q and E stays in cache, and float32 partial sums stay short."""


STRIP_TILES = 4
"""Tiles whose sums are added up in one thread before others see them."""


def cut_tiles(n_fit: int, n_held: int) -> list[Tile]:
    """Cut a block into tiles of nearly equal size, training rows first."""
    cut = []
    for first, count, held_out in ((0, n_fit, False), (n_fit, n_held, True)):
        parts = -(-count // TILE_ROWS)
        edges = [first + count * i // parts for i in range(parts + 1)] if parts else []
        cut += [Tile(a, b, held_out) for a, b in itertools.pairwise(edges)]
    return cut


def cut_strips(tiles_: list[Tile]) -> list[tuple[Tile, ...]]:
    """Group the tiles of a block into strips of one kind, the work of one thread at a time."""
    strips = []
    for _, kind in itertools.groupby(tiles_, key=lambda tile: tile.held_out):
        group = list(kind)
        parts = -(-len(group) // STRIP_TILES)
        edges = [len(group) * i // parts for i in range(parts + 1)]
        strips += [tuple(group[a:b]) for a, b in itertools.pairwise(edges)]
    return strips


@dataclass(frozen=True)
class PreparedStep:
    """A step with its arrays in the run's dtype and its candidates in kernel space, shared by all blocks."""

    problems: tuple[ProblemStep | LookaheadStep | None, ...]
    centers: tuple[NDArray[Any] | None, ...]
    subtractions: tuple[Subtraction | None, ...]


def prepare_columns(columns: Columns | None, begin: Begin) -> NDArray[Any] | None:
    """Map candidates to kernel space, padded with zero rows to a multiple of the batch width."""
    if columns is None:
        return None
    width = -(-len(columns.rows) // begin.batch) * begin.batch
    centers = np.zeros((width, columns.features.shape[1]), dtype=begin.dtype)
    begin.scaling.apply(columns.features, centers.dtype, out=centers[: len(columns.rows)])
    return centers


def prepare_step(step: Step, begin: Begin, *, with_centers: bool = True) -> PreparedStep:
    """Cast and scale once what every tile needs."""
    dtype = np.dtype(begin.dtype)
    problems = tuple(None if p is None else _cast(p, dtype) for p in step.problems)
    centers = tuple(
        prepare_columns(p.columns, begin) if p is not None and with_centers else None for p in step.problems
    )
    subtractions = tuple(Subtraction.of(p.append, p.project) if isinstance(p, ProblemStep) else None for p in problems)
    return PreparedStep(problems, centers, subtractions)


def _cast(step: ProblemStep | LookaheadStep, dtype: np.dtype[Any]) -> ProblemStep | LookaheadStep:
    if dtype == np.float64:
        return step
    changes: dict[str, Any] = {}
    for part in ("append", "eliminate", "project", "form", "trial", "commit"):
        message = getattr(step, part, None)
        if message is not None:
            arrays = {
                f.name: value.astype(dtype)
                for f in fields(message)
                if isinstance(value := getattr(message, f.name), np.ndarray) and value.dtype == np.float64
            }
            changes[part] = replace(message, **arrays)
    return replace(step, **changes)


class Block:
    """State of one block.

    Parameters
    ----------
    source : BlockSource
        Where the rows come from.
    number : int
        Block number.
    with_features : bool
        Whether this process computes kernel columns; without, they are handed in (`factors="driver"`).
    with_factors : bool
        Whether this process holds Q and E; without, it answers queries for kernel columns only.
    budget : MemoryBudget, optional
        What the blocks of a run may keep in memory here; everything if not given.
    checksum : int, optional
        Of what the block read when the run was young; it must read the same again.
    """

    def __init__(
        self,
        source: BlockSource,
        number: int,
        *,
        with_features: bool = True,
        with_factors: bool = True,
        budget: MemoryBudget | None = None,
        checksum: int | None = None,
    ) -> None:
        self.number = number
        self.checksum = checksum
        self._budget = MemoryBudget() if budget is None else budget
        self._scratch = self._budget.scratch()
        self.source = source
        self._with_features = with_features
        self._with_factors = with_factors
        self.data = TileData(np.empty(0, dtype=np.int64), None, None, None)
        self.tiles: list[Tile] = []
        self.strips: list[tuple[Tile, ...]] = []
        self.begin: Begin | None = None
        self.problems: list[ProblemState] = []
        self._targets: NDArray[Any] = np.empty(0)
        self._labels: Labels | None = None
        self._all_rows: LoadAnswer | None = None
        self._n_fit = 0
        self._bytes_read = 0
        self._report = ReadReport()

    def load(self, message: Load) -> None:
        """Read the block, keep the rows that select, and separate the held-out ones among them."""
        first = self.source.boundaries[self.number]
        rows, features, targets, weights, self._bytes_read, checksum, self._report = read_block(
            self.source, self.number, message.classification, with_features=self._with_features
        )
        require_unchanged(self.source, self.number, self.checksum, checksum)
        self.checksum = checksum
        present = np.ones(len(rows), dtype=bool) if weights is None else weights > 0
        held = np.zeros(len(rows), dtype=bool)
        if message.holdout > 0:
            held = row_uniforms(message.seed, HOLDOUT_STREAM, first, len(rows)) < message.holdout
        self._labels = self._all_rows = None
        if message.selection_rows:
            selecting = selecting_rows(message, present, first, self.source.n_rows)
            self._all_rows = row_statistics(
                message,
                rows,
                features,
                targets,
                weights,
                labels=Labels.of(targets, weights) if message.classification else None,
                n_fit=int(np.count_nonzero(present)),
                n_held=int(np.count_nonzero(selecting & held)),
                bytes_read=self._bytes_read,
            )
            present = selecting
        fit_rows, held_rows = np.flatnonzero(present & ~held), np.flatnonzero(present & held)
        self._n_fit = len(fit_rows)
        if message.classification:
            # A class whose rows are all held out still is a class.
            mass = np.where(held, 0.0, 1.0 if weights is None else weights)
            self._labels = Labels.count(targets[present], mass[present])
        order = np.concatenate([fit_rows, held_rows])
        if len(order) != len(rows) or len(held_rows):
            rows, targets = rows[order], targets[order]
            features = None if features is None else features[order]
            weights = None if weights is None else weights[order]
        if weights is not None:
            weights = weights.astype(np.float64)
            weights[self._n_fit :] = 1.0
        kept = None
        if features is not None:
            kept = self._matrix(len(rows), features.shape[1], features.dtype, "features")
            kept.fill(features)
        self.data = TileData(rows, weights, None if weights is None else np.sqrt(weights), kept)
        self._targets = targets
        self.tiles = cut_tiles(self._n_fit, len(held_rows))
        self.strips = cut_strips(self.tiles)

    def load_answer(self, message: Load) -> Answer:
        """Statistics of the rows that were read."""
        fit = slice(0, self._n_fit)
        loaded = row_statistics(
            message if self._all_rows is None else replace(message, sample_rows=0),
            self.data.rows[fit],
            None if self.data.features is None else self.data.features.whole()[fit],
            self._targets[fit],
            None if self.data.weights is None else self.data.weights[fit],
            labels=self._labels,
            n_fit=self._n_fit,
            n_held=len(self.data.rows) - self._n_fit,
            bytes_read=self._bytes_read,
        )
        checksums = {} if self.checksum is None else {self.number: self.checksum}
        return Answer(load=replace(loaded, all_rows=self._all_rows, checksums=checksums), report=self._report)

    def start(self, message: Begin) -> None:
        """Allocate the arrays of every problem and set E = Y, Q = 1 (both times the root weights)."""
        self.begin = message
        self._all_rows = None
        if not self._with_factors:
            return
        dtype = np.dtype(message.dtype)
        encoded = encode_targets(self._targets, message.classes, self.source.classes is not None)
        encoded -= message.target_means
        if self.data.roots is not None:
            encoded *= self.data.roots[:, None]
        self._targets = np.empty(0)
        n = len(encoded)
        self.problems = []
        for columns in message.problems:
            residual = np.zeros((n, max(len(columns), 2)), dtype=dtype)
            residual[:, : len(columns)] = encoded[:, list(columns)]
            state = ProblemState(
                work=self._matrix(n, message.panel + message.batch, dtype, "work"),
                pool=self._matrix(n, message.pool, dtype, "pool"),
                residual=residual,
                taken=np.zeros(n, dtype=bool),
            )
            self._widen(state, 1)
            for tile in self.tiles:
                roots = np.ones(tile.stop - tile.start) if self.data.roots is None else self.data.roots[tile.rows]
                state.slabs[0].put_columns(tile.rows, 0, roots[None].astype(dtype))
            self.problems.append(state)

    def _matrix(self, rows: int, width: int, dtype: np.dtype[Any], role: str) -> RowMatrix:
        return RowMatrix(rows, width, dtype, self._budget, self._scratch, role)

    def _widen(self, state: ProblemState, columns: int) -> None:
        """Make room in Q."""
        assert self.begin is not None
        while len(state.slabs) * SLAB < columns:
            width = min(SLAB, self.begin.columns - len(state.slabs) * SLAB)
            state.slabs.append(self._matrix(len(state.taken), width, state.work.dtype, "slab"))

    def prefetch(self, tile: Tile) -> None:
        """Have a tile's rows read ahead where they are in scratch."""
        for state in self.problems:
            state.prefetch(tile)
        if self.data.features is not None:
            self.data.features.prefetch(tile.rows)

    def start_answer(self, message: Begin, strip: tuple[Tile, ...]) -> Answer:
        """Target norms and first draw of a strip."""
        answer, tile = Answer(), joined(strip)
        if not self._with_factors or tile.held_out:
            return answer
        for columns, state in zip(message.problems, self.problems, strict=True):
            residual = state.residual[tile.start : tile.stop, : len(columns)]
            norms = np.square(residual, dtype=np.float64).sum(axis=0)
            drawn = None if message.draw is None else tiles.draw(self.data, state, tile, message.draw)
            answer.problems.append(ProblemAnswer({"target_norms": norms}, drawn))
        return answer

    def prepare(self, step: PreparedStep) -> None:
        """Make room in Q and mark drawn and released rows, before the tiles run."""
        for state, op in zip(self.problems, step.problems, strict=True):
            if op is None:
                continue
            if isinstance(op, LookaheadStep):
                if op.commit is not None:
                    self._grow(state, op.commit.start + len(op.commit.keep))
                    self._mark(state, op.commit.rows, True)
                continue
            if op.append is not None:
                self._grow(state, op.append.start + op.append.combine.shape[1])
            if op.columns is not None:
                self._mark(state, op.columns.rows, True)
                self._mark(state, op.columns.released, False)

    def _grow(self, state: ProblemState, columns: int) -> None:
        state.validation = {}
        self._widen(state, columns)
        state.n_columns = columns

    def _mark(self, state: ProblemState, rows: NDArray[np.int64], taken: bool) -> None:
        own = self.data.rows[: self._n_fit]
        if len(rows) and len(own):
            where = np.minimum(np.searchsorted(own, rows), len(own) - 1)
            state.taken[where[own[where] == rows]] = taken

    def step(self, step: PreparedStep, tile: Tile, handed_in: list[NDArray[Any] | None] | None) -> None:
        """Apply a prepared step to one tile; `handed_in` holds kernel columns computed elsewhere."""
        assert self.begin is not None
        parts = zip(self.problems, step.problems, step.centers, step.subtractions, strict=True)
        for number, (state, op, centers, subtraction) in enumerate(parts):
            if op is None:
                continue
            if isinstance(op, LookaheadStep):
                columns = None if handed_in is None else handed_in[number]
                lookahead_tiles.apply(self.data, state, tile, op, self.begin, centers, columns)
                continue
            if op.append is not None or op.eliminate is not None or op.project is not None:
                tiles.finish(state, tile, op, subtraction, self.begin.panel)
            if op.form is not None or op.columns is not None:
                columns = None if handed_in is None else handed_in[number]
                tiles.compute(self.data, state, tile, op, self.begin, centers, columns)

    def run_strip(
        self, step: PreparedStep, strip: tuple[Tile, ...], handed_in: list[NDArray[Any] | None] | None, *, fresh: bool
    ) -> Answer:
        """Apply a step to the tiles of a strip, if it is `fresh`, and answer for all of them."""
        answer = Answer()
        for tile in strip:
            if fresh:
                self.step(step, tile, handed_in)
            answer = answer.merge(self._tile_answer(step, tile))
        rows = joined(strip)
        if not rows.held_out:
            for state, op, problem in zip(self.problems, step.problems, answer.problems, strict=True):
                if isinstance(op, ProblemStep) and op.draw is not None:
                    problem.drawn = tiles.draw(self.data, state, rows, op.draw)
        return answer

    def _tile_answer(self, step: PreparedStep, tile: Tile) -> Answer:
        assert self.begin is not None
        answers = []
        for columns, state, op in zip(self.begin.problems, self.problems, step.problems, strict=True):
            if op is None:
                answers.append(ProblemAnswer())
            elif isinstance(op, LookaheadStep):
                answers.append(lookahead_tiles.answer(self.data, state, tile, op, len(columns)))
            else:
                answers.append(tiles.answer(state, tile, op, self.begin, len(columns)))
        return Answer(problems=answers)

    def columns(self, message: tuple[Columns | None, ...]) -> list[NDArray[Any] | None]:
        """Kernel columns of each problem over the whole block (`KernelColumns`)."""
        assert self.begin is not None
        result: list[NDArray[Any] | None] = []
        for columns in message:
            centers = prepare_columns(columns, self.begin)
            if columns is None or centers is None:
                result.append(None)
                continue
            out = np.empty((len(self.data.rows), len(centers)), dtype=centers.dtype)
            for tile in self.tiles:
                out[tile.rows] = tiles.kernel_columns(self.data, tile, columns, self.begin, centers).T
            result.append(out)
        return result

    def fetch(self, message: FetchRows) -> dict[int, NDArray[Any]]:
        """Raw features of those of the rows that this block trains on (`FetchRows`)."""
        assert self.data.features is not None
        own = self.data.rows[: self._n_fit]
        where = np.searchsorted(own, message.rows)
        return {
            int(row): self.data.features.borrow(slice(i, i + 1))[0].copy()
            for row, i in zip(message.rows, where.tolist(), strict=True)
            if i < len(own) and own[i] == row
        }


def joined(strip: tuple[Tile, ...]) -> Tile:
    """Return the rows of a strip as one tile."""
    return Tile(strip[0].start, strip[-1].stop, strip[0].held_out)


def encode_targets(targets: NDArray[Any], classes: NDArray[Any] | None, are_codes: bool) -> NDArray[np.float64]:
    """Targets as columns: values for regression, +-1 a class for classification (one column for two classes).

    Parameters
    ----------
    targets : array, shape (n,) or (n, T)
        Values, labels, or codes into `classes`.
    classes : array, shape (n_classes,), or None
        Sorted labels; None for regression.
    are_codes : bool
        Whether `targets` already are codes.
    """
    if classes is None:
        return (targets if targets.ndim == 2 else targets[:, None]).astype(np.float64)
    codes = targets if are_codes else np.searchsorted(classes, targets)
    if len(classes) == 2:
        return np.where(codes == 1, 1.0, -1.0)[:, None]
    encoded = np.full((len(codes), len(classes)), -1.0)
    encoded[np.arange(len(codes)), codes] = 1.0
    return encoded
