"""One block of one run: its arrays, and the effects of messages on them.

A block loads its rows once and then applies the messages of the run; applying the same messages again rebuilds it.
Covers no workers, versions or logs, see `block_registry`; the arithmetic of tiles is in `pool_tiles` and
`lookahead_tiles`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.kernels import Kernel, width_count
from distkern.numerics.row_draws import row_uniforms
from distkern.storage import ReadReport
from distkern.storage.arrays.source import BlockSource

from ..protocol.answers import Answer, Labels, LoadAnswer, ProblemAnswer
from ..protocol.candidates import Candidates, rows_and_widths
from ..protocol.messages import Begin, Columns, FetchRows, Load, LookaheadStep, ProblemStep, Step
from ..protocol.problems import Folds, folds_of
from ..protocol.selected_rows import SelectedRows
from ..rows.block_reading import (
    HOLDOUT_STREAM,
    BlockRows,
    block_statistics,
    read_block,
    require_unchanged,
    row_statistics,
    selecting_rows,
)
from ..rows.label_encoding import LabelEncoding
from ..rows.problem_rows import ProblemRows, Strip, joined, rows_of_problem
from ..rows.tiles import Tile, TileData, positions
from ..runtime.read_ahead import ahead_of
from ..runtime.spillable_matrix import MemoryBudget, RowMatrix
from ..runtime.timings import DRAW, PROJECTION, UPDATE, busy
from . import lookahead_tiles
from . import pool_tiles as tiles
from .loo_rows import LooRows
from .pool_tiles import SLAB, ProblemState, Subtraction


@dataclass(frozen=True)
class PreparedStep:
    """A step with its arrays in the run's dtype and its candidates in kernel space, shared by all blocks."""

    problems: tuple[ProblemStep | LookaheadStep | None, ...]
    candidates: tuple[Candidates | None, ...]
    subtractions: tuple[Subtraction | None, ...]


def prepare_columns(columns: Columns | None, begin: Begin, kernel: Kernel, n_rows: int) -> Candidates | None:
    """Map candidates to kernel space, padded with zero rows to a multiple of the batch width."""
    if columns is None:
        return None
    return Candidates.prepare(
        columns.rows,
        columns.features,
        n_rows=n_rows,
        scaling=begin.scaling,
        kernel=kernel,
        dtype=begin.selecting_dtype,
        width=-(-len(columns.rows) // begin.batch) * begin.batch,
    )


def prepare_step(step: Step, begin: Begin, n_rows: int, *, with_candidates: bool = True) -> PreparedStep:
    """Cast the arrays of a step and scale its candidates, once for all tiles; the data has `n_rows` rows."""
    dtype = begin.selecting_dtype
    problems = tuple(None if p is None else _cast(p, dtype) for p in step.problems)
    candidates = tuple(
        None if p is None or not with_candidates else prepare_columns(p.columns, begin, problem.kernel, n_rows)
        for p, problem in zip(step.problems, begin.problems, strict=True)
    )
    subtractions = tuple(Subtraction.of(p.append, p.project) if isinstance(p, ProblemStep) else None for p in problems)
    return PreparedStep(problems, candidates, subtractions)


def _cast(step: ProblemStep | LookaheadStep, dtype: np.dtype[Any]) -> ProblemStep | LookaheadStep:
    if dtype == np.float64:
        return step
    changes: dict[str, Any] = {}
    for part in fields(step):
        message = getattr(step, part.name)
        # Raw features of new candidates keep their precision; they are scaled first.
        if message and not isinstance(message, (bool, Columns)):
            arrays = {
                f.name: value.astype(dtype)
                for f in fields(message)
                if isinstance(value := getattr(message, f.name), np.ndarray) and value.dtype == np.float64
            }
            changes[part.name] = replace(message, **arrays)
    return replace(step, **changes)


class Block:
    """State of one block.

    Parameters
    ----------
    source : BlockSource
        Source of the rows.
    number : int
        Block number.
    with_features : bool
        Whether this process computes kernel columns (default); otherwise they are handed in (`factors="driver"`).
    with_factors : bool
        Whether this process holds Q and E (default); otherwise it answers queries of kernel columns only.
    budget : MemoryBudget, optional
        Memory for the row matrices of a run in this process; unlimited by default.
    checksum : int, optional
        Checksum of an earlier read of the block, which this read must equal; any by default.
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
        self.with_features = with_features
        self._with_factors = with_factors
        self.data = TileData(np.empty(0, dtype=np.int64), None, None, None)
        self.begin: Begin | None = None
        self.views: list[ProblemRows] = []
        self.problems: list[ProblemState] = []
        self._features: RowMatrix | None = None
        self._targets: NDArray[Any] = np.empty(0)
        self._labels: Labels | None = None
        self._all_rows: LoadAnswer | None = None
        self._n_fit = 0
        self._keeps_targets = False
        self._bytes_read = 0
        self._report = ReadReport()

    def load(self, message: Load, take: Callable[[int], BlockRows] | None = None) -> None:
        """Read the block, keep the rows that select, training rows first and held-out rows after them.

        Parameters
        ----------
        message : Load
            Holdout, selection sample and folds.
        take : callable, optional
            Returns the rows of a block that were read ahead; by default the block is read here.
        """
        self._keeps_targets = message.folds is not None
        first = self.source.boundaries[self.number]
        if take is None:
            take = partial(
                read_block, self.source, classification=message.classification, with_features=self.with_features
            )
        read = take(self.number)
        rows, features, targets, weights, self._bytes_read, checksum, self._report = read
        require_unchanged(self.source, self.number, self.checksum, checksum)
        self.checksum = checksum
        present = np.ones(len(rows), dtype=bool) if weights is None else weights > 0
        held = np.zeros(len(rows), dtype=bool)
        if message.holdout > 0:
            held = row_uniforms(message.seed, HOLDOUT_STREAM, first, len(rows)) < message.holdout
        self._labels = self._all_rows = None
        if message.selection_rows:
            labels = targets if message.classification else None
            selecting = selecting_rows(message, present, first, self.source.n_rows, labels)
            self._all_rows = replace(block_statistics(read, message), n_held=int(np.count_nonzero(selecting & held)))
            present = selecting
        fit_rows, held_rows = np.flatnonzero(present & ~held), np.flatnonzero(present & held)
        self._n_fit = len(fit_rows)
        if message.classification:
            # A class whose rows are all held out is still a class, of weight 0.
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
        self._keep(rows, features, targets, weights)

    def _keep(
        self,
        rows: NDArray[np.int64],
        features: NDArray[Any] | None,
        targets: NDArray[Any],
        weights: NDArray[np.float64] | None,
    ) -> None:
        """Set the rows on which centres are selected, training rows first."""
        kept = None
        if features is not None:
            kept = self._matrix(len(rows), features.shape[1], features.dtype, "features")
            kept.fill(features)
        self.data = TileData(rows, weights, None if weights is None else np.sqrt(weights), kept)
        self._features = kept
        self._targets = targets

    def _selected(self) -> SelectedRows:
        """Return the rows of the block's share of a sample."""
        data, held = self.data, np.arange(len(self.data.rows)) >= self._n_fit
        features = None if self._features is None else self._features.whole()
        return SelectedRows(data.rows, features, self._targets, data.weights, held)

    def _exchange_rows(self, selected: SelectedRows) -> None:
        """Replace the block's share of a sample by its part of the whole sample, which may be empty."""
        self._features = self.data.features = None  # their memory is free for those of the part
        part = selected.part(self.number, len(self.source.boundaries) - 1)
        self._n_fit = int(np.count_nonzero(~part.held))
        self._keep(part.rows, part.features if self.with_features else None, part.targets, part.weights)

    def load_answer(self, message: Load) -> Answer:
        """Return the statistics of the rows."""
        fit = slice(0, self._n_fit)
        loaded = row_statistics(
            message if self._all_rows is None else replace(message, sample_rows=0),
            self.data.rows[fit],
            None if self._features is None else self._features.whole()[fit],
            self._targets[fit],
            None if self.data.weights is None else self.data.weights[fit],
            labels=self._labels,
            n_held=len(self.data.rows) - self._n_fit,
            bytes_read=self._bytes_read,
        )
        checksums = {} if self.checksum is None else {self.number: self.checksum}
        folds = [] if message.folds is None else self._fold_statistics(message, message.folds)
        selected = None if self._all_rows is None else self._selected()
        found = replace(loaded, all_rows=self._all_rows, checksums=checksums, folds=folds, selected=selected)
        return Answer(load=found, report=self._report)

    def _fold_statistics(self, message: Load, folds: Folds) -> list[LoadAnswer]:
        """Return the statistics of the training rows of every fold."""
        numbers = self.data.rows[: self._n_fit]
        weights = None if self.data.weights is None else self.data.weights[: self._n_fit]
        fold_of = folds_of(folds, numbers)
        found = []
        for fold in range(folds.count):
            rows = np.flatnonzero(fold_of == fold)
            own = None if weights is None else weights[rows]
            # Statistics of a fold have no moments of features: models of all folds share one scaling.
            nothing = np.empty((len(rows), 0))
            found.append(
                row_statistics(replace(message, sample_rows=0), numbers[rows], nothing, self._targets[rows], own)
            )
        return found

    def start(self, message: Begin) -> None:
        """Allocate the arrays of every problem and set E = Y, Q = 1 (both times the root weights)."""
        if message.selected is not None:
            self._exchange_rows(message.selected)
            message = replace(message, selected=None)
        self.begin = message
        self._all_rows = None
        if message.weight_scale != 1.0 and self.data.weights is not None and self.data.roots is not None:
            self.data.weights[: self._n_fit] *= message.weight_scale
            np.sqrt(self.data.weights, out=self.data.roots)
        encoding = LabelEncoding.of(self.source, message.classes)
        codes = encoding.codes(self._targets)
        self.views = [
            rows_of_problem(problem, self.data, self._features, self._n_fit, codes) for problem in message.problems
        ]
        if not self._with_factors:
            return
        encoded = encoding.columns(self._targets)
        if not self._keeps_targets:
            self._targets = np.empty(0)
        self.problems = [self._begin_problem(message, view, encoded) for view in self.views]

    def _begin_problem(self, message: Begin, view: ProblemRows, encoded: NDArray[np.float64]) -> ProblemState:
        dtype = message.selecting_dtype
        problem, data = view.problem, view.data
        n, n_targets, n_widths = len(data.rows), len(problem.columns), width_count(problem.kernel)
        residual = np.zeros((n, max(n_targets, 2)), dtype=dtype)
        targets = encoded[:, list(problem.columns)]
        targets = targets if view.positions is None else targets[view.positions]
        labels = targets[:, 0] > 0 if n_targets == 1 else targets.argmax(axis=1)
        targets = problem.centred(encoded if view.positions is None else encoded[view.positions], problem.target_means)
        if data.roots is not None:
            targets *= data.roots[:, None]
        residual[:, :n_targets] = targets
        state = ProblemState(
            work=self._matrix(n, message.panel + message.batch, dtype, "work"),
            pool=self._matrix(n, message.pool, dtype, "pool"),
            residual=residual,
            taken=np.zeros((n_widths, n), dtype=bool),
        )
        self._widen(state, 1)
        for tile in view.tiles if message.intercept else ():
            roots = np.ones(tile.stop - tile.start) if data.roots is None else data.roots[tile.rows]
            state.slabs[0].put_columns(tile.rows, 0, roots[None].astype(dtype))
        if message.judged:
            share = 1 / problem.weight_sum if message.intercept else 0.0
            state.loo = LooRows(labels, data.weights, data.roots, 1.0 - share)
        return state

    def _matrix(self, rows: int, width: int, dtype: np.dtype[Any], role: str) -> RowMatrix:
        return RowMatrix(rows, width, dtype, self._budget, self._scratch, role)

    def _widen(self, state: ProblemState, columns: int) -> None:
        """Allocate slabs of Q for that many columns."""
        assert self.begin is not None
        while len(state.slabs) * SLAB < columns:
            width = min(SLAB, self.begin.columns - len(state.slabs) * SLAB)
            state.slabs.append(self._matrix(len(state.residual), width, state.work.dtype, "slab"))

    @property
    def read_ahead(self) -> int:
        """Blocks that reads run ahead of the work."""
        planned = self._budget.read_ahead
        return ahead_of(self.source) if planned is None else planned

    def prefetch(self, problem: int, strip: Strip) -> None:
        """Let the system read the rows of a strip ahead where they are in scratch."""
        rows, features = joined(strip), self.views[problem].data.features
        if self.problems:
            self.problems[problem].prefetch(rows)
        if features is not None:
            features.prefetch(rows.rows)

    def start_answer(self, problem: int, strip: Strip) -> ProblemAnswer:
        """Return the target norms and the first draw of a strip."""
        tile = joined(strip)
        if not self._with_factors or tile.held_out:
            return ProblemAnswer()
        view, state = self.views[problem], self.problems[problem]
        residual = state.residual[tile.start : tile.stop, : len(view.problem.columns)]
        norms = np.square(residual, dtype=np.float64).sum(axis=0)
        draw = view.problem.draw
        drawn = None if draw is None else tiles.draw(view.data, state, tile, draw, self.source.n_rows)
        return ProblemAnswer({"target_norms": norms}, drawn)

    def prepare(self, step: PreparedStep) -> None:
        """Allocate columns of Q and mark drawn and released rows, before the tiles run."""
        for view, state, op in zip(self.views, self.problems, step.problems, strict=True):
            if op is None:
                continue
            if isinstance(op, LookaheadStep):
                if op.commit is not None:
                    self._grow(state, op.commit.start + len(op.commit.keep))
                    self._mark(view, state, op.commit.rows, True)
                continue
            if op.append is not None:
                self._grow(state, op.append.start + op.append.combine.shape[1])
            if op.columns is not None:
                self._mark(view, state, op.columns.rows, True)
                self._mark(view, state, op.columns.released, False)

    def _mark(self, view: ProblemRows, state: ProblemState, candidates: NDArray[np.int64], taken: bool) -> None:
        own = view.data.rows[: view.n_fit]
        rows, widths = rows_and_widths(candidates, self.source.n_rows)
        where, here = positions(own, rows)
        state.taken[widths[here], where] = taken

    def _grow(self, state: ProblemState, columns: int) -> None:
        state.validation = {}
        self._widen(state, columns)
        state.n_columns = columns

    def step(self, step: PreparedStep, problem: int, tile: Tile, handed_in: list[NDArray[Any] | None] | None) -> None:
        """Apply a problem's part of a prepared step to a tile; `handed_in` holds kernel columns computed elsewhere."""
        assert self.begin is not None
        op, state, data = step.problems[problem], self.problems[problem], self.views[problem].data
        candidates, columns = step.candidates[problem], None if handed_in is None else handed_in[problem]
        if isinstance(op, LookaheadStep):
            with busy(UPDATE):
                lookahead_tiles.apply(data, state, tile, op, self.begin, candidates, columns)
        elif op is not None:
            with busy(UPDATE):
                if op.append is not None or op.eliminate is not None or op.project is not None:
                    tiles.finish(state, tile, op, step.subtractions[problem], self.begin.panel)
                if op.form is not None or op.columns is not None:
                    tiles.compute(data, state, tile, op, self.begin, candidates, columns)

    def run_strip(
        self,
        step: PreparedStep,
        problem: int,
        strip: Strip,
        handed_in: list[NDArray[Any] | None] | None,
        *,
        fresh: bool,
    ) -> ProblemAnswer:
        """Apply a problem's part of a step to the tiles of a strip, if it is `fresh`, and answer for all of them."""
        answer = ProblemAnswer()
        for tile in strip:
            if fresh:
                self.step(step, problem, tile, handed_in)
            with busy(PROJECTION):
                answer = answer.merge(self._tile_answer(step, problem, tile))
        rows, op = joined(strip), step.problems[problem]
        if not rows.held_out and isinstance(op, ProblemStep) and op.draw is not None:
            data, state = self.views[problem].data, self.problems[problem]
            with busy(DRAW):
                answer.drawn = tiles.draw(data, state, rows, op.draw, self.source.n_rows)
        return answer

    def _tile_answer(self, step: PreparedStep, problem: int, tile: Tile) -> ProblemAnswer:
        assert self.begin is not None
        op, state, view = step.problems[problem], self.problems[problem], self.views[problem]
        assert op is not None
        n_targets = len(view.problem.columns)
        if isinstance(op, LookaheadStep):
            return lookahead_tiles.answer(view.data, state, tile, op, n_targets)
        return tiles.answer(state, tile, op, self.begin, n_targets)

    def kept_rows(self) -> tuple[TileData, NDArray[Any]]:
        """Return all rows of a block that was loaded with folds, and their targets."""
        assert self._keeps_targets
        return self.data, self._targets

    def columns(self, message: tuple[Columns | None, ...]) -> list[NDArray[Any] | None]:
        """Return the kernel columns of each problem over the whole block (`KernelColumns`)."""
        assert self.begin is not None
        result: list[NDArray[Any] | None] = []
        for view, columns in zip(self.views, message, strict=True):
            candidates = prepare_columns(columns, self.begin, view.problem.kernel, self.source.n_rows)
            if candidates is None:
                result.append(None)
                continue
            centers = candidates.features
            out = np.empty((len(view.data.rows), len(centers)), dtype=centers.dtype)
            for tile in view.tiles:
                out[tile.rows] = tiles.kernel_columns(view.data, tile, self.begin, candidates).T
            result.append(out)
        return result

    def fetch(self, message: FetchRows) -> dict[int, NDArray[Any]]:
        """Return the raw features of the rows that are training rows of this block (`FetchRows`)."""
        assert self._features is not None
        own = self.data.rows[: self._n_fit]
        where, _ = positions(own, message.rows)
        return {int(own[i]): self._features.borrow(slice(i, i + 1))[0].copy() for i in where.tolist()}
