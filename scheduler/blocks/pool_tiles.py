"""Effects and answers of a step on one row tile.

Given the message, each row depends on no other row, so the tiles of a block run in any order on any thread. BLAS rounds
products of different shapes differently. So shapes depend on the message and the tile only, not on the number of
candidates: short batches are padded with zero columns, and no product is one column wide. The steps of
`criterion="residual"` are in `lookahead_tiles`; which columns are formed is decided in `..selectors.pool_selector`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.kernels.near_sums import near_centers
from distkern.numerics.row_draws import Shortlist, draw_keys, residual_keys, uniforms_for_rows

from ..protocol.answers import Drawn, ProblemAnswer
from ..protocol.candidates import Candidates, drawable
from ..protocol.messages import Append, Begin, ProblemStep, Project
from ..protocol.problems import Draw
from ..rows.tiles import Tile, TileData, positions
from ..runtime.spillable_matrix import RowMatrix
from ..runtime.threads import workspace
from ..runtime.timings import DRAW, KERNEL_COLUMNS, PROJECTION, busy
from .loo_rows import LooRows

SLAB = 256
"""Columns of Q that are stored and multiplied together."""

ELIMINATED = 32
"""Columns of the pool that are orthogonalised against the panel at a time, so that the products stay in cache."""


@dataclass
class ProblemState:
    """Arrays of one problem on one block; training rows come first, held-out rows after them."""

    work: RowMatrix
    """(rows, panel + batch): the formed panel, then the batch of candidates; see `borrow_columns`."""
    pool: RowMatrix
    """(rows, B): orthogonalised candidates; see `borrow_columns`."""
    residual: NDArray[Any]
    """(rows, max(T, 2)): E, zero-padded to two columns."""
    taken: NDArray[np.bool_]
    """(widths, rows): mask of candidates that must not be drawn."""
    slabs: list[RowMatrix] = field(default_factory=list)
    """Q in slabs of shape (rows, SLAB); the last one is as wide as the longest path needs."""
    n_columns: int = 1
    """Number of columns of Q."""
    loo: LooRows | None = None
    """Shares for counting leave-one-out errors, where the criterion needs them."""
    validation: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    """Tile start to squared held-out residual after each step of the last panel."""

    def prefetch(self, tile: Tile) -> None:
        """Let the system read the rows of a tile ahead."""
        for matrix in (self.work, self.pool):
            matrix.prefetch(tile.rows)
        for slab, columns in zip(self.slabs, slab_slices(self.n_columns), strict=False):
            slab.prefetch(tile.rows, columns.stop - columns.start)


@dataclass(frozen=True)
class Subtraction:
    """Coefficients of Q's old columns to subtract from the panel and from the batch, in one product."""

    coefficients: NDArray[Any]
    """(columns of Q before the step, w): those of the panel's second pass, then those of the batch."""
    n_panel: int
    """Number of columns of the panel."""

    @classmethod
    def of(cls, append: Append | None, project: Project | None) -> Subtraction | None:
        """Join the coefficients of both; None where there are none."""
        parts = []
        correct = None if append is None else append.correct
        if correct is not None:
            parts.append(correct)
        if project is not None:
            start = len(project.coefficients) if append is None else append.start
            parts.append(project.coefficients[:start])
        if not parts:
            return None
        return cls(np.concatenate(parts, axis=1), 0 if correct is None else correct.shape[1])


def slab_slices(n_columns: int) -> list[slice]:
    """Return the column ranges of Q's slabs."""
    return [slice(start, min(start + SLAB, n_columns)) for start in range(0, n_columns, SLAB)]


def borrow_columns(matrix: RowMatrix, tile: Tile) -> NDArray[Any]:
    """Borrow the rows of a tile from the work matrix or the pool, shape (width, rows).

    Within a tile both, and the slabs of Q, are stored column after column: steps read and write whole columns, and
    products of few columns with many are faster in this order.
    """
    return matrix.borrow_columns(tile.rows)


def keep_columns(matrix: RowMatrix, tile: Tile, columns: NDArray[Any]) -> None:
    """Give the columns of `borrow_columns` back."""
    matrix.give_back(tile.rows, columns.reshape(-1, matrix.shape[1]))


def borrow_q(state: ProblemState, tile: Tile, number: int, columns: slice) -> NDArray[Any]:
    """Borrow the columns of a slab of Q, as in `slab_slices`, shape (w, rows)."""
    return state.slabs[number].borrow_columns(tile.rows, 0, columns.stop - columns.start)


def times_q(state: ProblemState, tile: Tile, coefficients: NDArray[Any]) -> NDArray[Any]:
    """Return (Q[tile] @ coefficients)' for Q's first columns, shape (w, rows), in a buffer of this thread.

    Slabs are added in their order, so the rounding is the same in memory and in scratch.
    """
    shape = (coefficients.shape[1], tile.stop - tile.start)
    total = workspace.array("total", shape, coefficients.dtype)
    product = workspace.array("product", shape, coefficients.dtype)
    for number, columns in enumerate(slab_slices(len(coefficients))):
        q = borrow_q(state, tile, number, columns)
        np.matmul(coefficients[columns].T, q, out=product if number else total)
        if number:
            np.add(total, product, out=total)
    return total


def products_with_q(state: ProblemState, tile: Tile, columns: NDArray[Any]) -> NDArray[np.float64]:
    """Return the products of columns, shape (w, rows), with Q on a tile, shape (w, m + 1)."""
    products = workspace.array("cross", (len(columns), state.n_columns), columns.dtype)
    for number, part in enumerate(slab_slices(state.n_columns)):
        q = borrow_q(state, tile, number, part)
        np.matmul(columns, q.T, out=products[:, part])
    return products.astype(np.float64)


def finish(state: ProblemState, tile: Tile, step: ProblemStep, subtraction: Subtraction | None, panel: int) -> None:
    """Append the formed panel to Q, orthogonalise the pool against it, update E and project the batch into the pool."""
    append, project = step.append, step.project
    work = borrow_columns(state.work, tile)
    formed, batch = work[:panel], work[panel:]
    product = None
    if subtraction is not None:
        with busy(PROJECTION):
            product = times_q(state, tile, subtraction.coefficients)
    new = None
    if append is not None:
        new = workspace.array("new", (append.combine.shape[1], work.shape[1]), work.dtype)
        np.matmul(append.combine.T, formed, out=new)
        if append.correct is not None:
            assert product is not None
            np.subtract(new, product[: len(new)], out=new)
        store_columns(state, tile, append.start, new)
        _update_residual(state, tile, append, new)
    if step.eliminate is None and project is None:
        return
    pool = borrow_columns(state.pool, tile)
    if step.eliminate is not None:
        for start in range(0, len(pool), ELIMINATED):
            part = pool[start : start + ELIMINATED]
            lost = workspace.array("lost", part.shape, pool.dtype)
            np.matmul(step.eliminate.multipliers[:, start : start + ELIMINATED].T, formed, out=lost)
            np.subtract(part, lost, out=part)
    if project is not None:
        assert subtraction is not None
        assert product is not None
        np.subtract(batch, product[subtraction.n_panel :], out=batch)
        if new is not None:
            against_new = workspace.array("product", batch.shape, batch.dtype)
            np.matmul(project.coefficients[len(subtraction.coefficients) :].T, new, out=against_new)
            np.subtract(batch, against_new, out=batch)
        pool[project.slots] = batch[: len(project.slots)]
        keep_columns(state.work, tile, work)
    keep_columns(state.pool, tile, pool)


def store_columns(state: ProblemState, tile: Tile, start: int, new: NDArray[Any]) -> None:
    """Write columns, shape (k, rows), into Q from column `start` on."""
    done = 0
    while done < len(new):
        number, column = divmod(start + done, SLAB)
        count = min(state.slabs[number].shape[1] - column, len(new) - done)
        state.slabs[number].put_columns(tile.rows, column, new[done : done + count])
        done += count


def _update_residual(state: ProblemState, tile: Tile, message: Append, new: NDArray[Any]) -> None:
    residual = state.residual[tile.rows, : message.steps.shape[1]]
    if not tile.held_out:
        residual -= new.T @ message.steps
        if state.loo is not None and message.inverse is not None:
            state.loo.lower_shares(tile.rows, new, message.inverse)
        return
    squares = np.empty(len(new))
    for j in range(len(new)):
        residual -= np.outer(new[j], message.steps[j])
        squares[j] = np.square(residual, dtype=np.float64).sum()
    state.validation[tile.start] = squares


def compute(
    data: TileData,
    state: ProblemState,
    tile: Tile,
    step: ProblemStep,
    begin: Begin,
    candidates: Candidates | None,
    handed_in: NDArray[Any] | None,
) -> None:
    """Form a panel from the pool, and write it and the batch of kernel columns into the work matrix.

    Parameters
    ----------
    candidates : Candidates or None
        New candidates; None where `handed_in` holds their columns.
    handed_in : array, shape (rows of the block, batch), or None
        Kernel columns computed in another process.
    """
    panel = begin.panel
    work = state.work.blank(tile.rows).reshape(state.work.shape[1], -1)
    if step.form is not None:
        pool = borrow_columns(state.pool, tile)
        np.matmul(step.form.combine.T, pool[step.form.slots], out=work[:panel])
    else:
        work[:panel] = 0.0
    if step.columns is None:
        work[panel:] = 0.0
    elif handed_in is not None:
        work[panel:] = handed_in[tile.rows].T
    else:
        assert candidates is not None
        work[panel:] = kernel_columns(data, tile, begin, candidates)
    keep_columns(state.work, tile, work)


def kernel_columns(data: TileData, tile: Tile, begin: Begin, candidates: Candidates) -> NDArray[Any]:
    """Return the kernel columns of a batch on a tile, shape (batch, rows), in a buffer of this thread."""
    assert data.features is not None
    roots = None if data.roots is None else data.roots[tile.rows]
    features, rows = data.features.borrow(tile.rows), data.rows[tile.rows]
    return columns_of(features, rows, roots, begin, candidates)


def columns_of(
    raw: NDArray[Any],
    rows: NDArray[np.int64],
    roots: NDArray[np.float64] | None,
    begin: Begin,
    candidates: Candidates,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Return kernel columns on some rows, times the root weights, shape (w, n).

    The kernel is computed as (few centres, many rows), which is much faster than the transpose.

    Parameters
    ----------
    raw : array, shape (n, d)
        Raw features.
    rows : array, shape (n,)
        Ascending global row numbers.
    roots : array, shape (n,), or None
        Root weights.
    begin : Begin
        Scaling and epsilon.
    candidates : Candidates
        The centres.
    out : array, shape (w, n), optional
        Array for the columns, which may have another dtype than the candidates; a buffer of this thread by default.
    """
    with busy(KERNEL_COLUMNS):
        centers, dtype = candidates.features, candidates.features.dtype
        X = begin.scaling.apply(raw, dtype, out=workspace.array("features", (len(raw), begin.scaling.width), dtype))
        if out is not None and out.dtype == dtype:
            columns = out
        else:
            columns = workspace.array("kernel", (len(centers), len(X)), dtype)
        near = near_centers(candidates.kernel, X, centers)
        if near is None:
            candidates.kernel.columns(centers, X, out=columns)
        else:
            columns[:] = 0.0
            if len(near):
                columns[near] = candidates.kernel.columns(centers[near], X)
        where, own = positions(rows, candidates.rows)
        if len(own):
            columns[own, where] = candidates.kernel.diagonal(centers[own]) + begin.epsilon
        columns[len(candidates.rows) :] = 0.0
        if out is not None and out is not columns:
            out[:] = columns
            columns = out
        if roots is not None:
            columns *= roots
    return columns


def answer(state: ProblemState, tile: Tile, step: ProblemStep, begin: Begin, n_targets: int) -> ProblemAnswer:
    """Return the sums of one tile after the effect of `step`."""
    rows = tile.rows
    result = ProblemAnswer()
    sums = result.sums
    if tile.held_out:
        if step.append is not None:
            sums["validation"] = state.validation[tile.start].copy()
        return result
    residual = state.residual[rows]
    panel = begin.panel
    if step.form is not None or step.columns is not None:
        work = borrow_columns(state.work, tile)
        if step.columns is None:
            # Without new candidates the batch is empty, and its products would be zeros.
            work = work[:panel]
        formed, batch = work[:panel], work[panel:]
        sums["cross"] = products_with_q(state, tile, work)
        sums["gram"] = float64(formed @ work.T)
        sums["products"] = float64((formed @ residual)[:, :n_targets])
        sums["norms"] = np.einsum("ij,ij->i", batch, batch, dtype=np.float64)
    elif step.project is not None:
        batch = borrow_columns(state.work, tile)[panel:]
        sums["pool_gram"] = float64((batch @ borrow_columns(state.pool, tile).T).T)
        sums["pool_products"] = float64((batch @ residual)[:, :n_targets])
    if step.judge is not None and state.loo is not None:
        with busy(DRAW):
            pool = borrow_columns(state.pool, tile)
            sums["misclassified"] = state.loo.misclassified(rows, pool, residual, step.judge)
    if step.refresh:
        pool = borrow_columns(state.pool, tile)
        sums["all_gram"] = float64(pool @ pool.T)
        sums["all_products"] = float64((pool @ residual)[:, :n_targets])
    return result


def draw(data: TileData, state: ProblemState, tile: Tile, message: Draw, n_rows: int) -> Drawn:
    """Return the shortlists of the best candidates of a tile; the data has `n_rows` rows."""
    rows = tile.rows
    numbers = data.rows[rows]
    squares = np.square(state.residual[rows], dtype=np.float64).sum(axis=1)
    weights = np.ones(len(numbers)) if data.weights is None else data.weights[rows]
    norms = np.sqrt(squares / weights)
    largest = float(norms.max(initial=0.0))
    taken, names, where = state.taken[:, rows], numbers, None
    free = ~taken[0]
    if len(taken) > 1:
        names, where = drawable(taken, numbers, n_rows)
        norms, squares, weights = norms[where], squares[where], weights[where]
        free = np.ones(len(names), dtype=bool)
    top = Shortlist.top(np.where(free, residual_keys(norms), np.inf), names, norms, message.n_top)
    weighted = Shortlist.empty()
    if message.n_race:
        uniforms = uniforms_for_rows(message.seed, message.round, numbers)
        uniforms = uniforms if where is None else uniforms[where]
        keys = draw_keys(uniforms, np.where(free, squares if message.by_residual else weights, 0.0))
        weighted = Shortlist.top(keys, names, norms, message.n_race)
    named = np.union1d(top.rows, weighted.rows)
    features = None
    if data.features is not None:
        features = data.features.borrow(rows)[np.searchsorted(numbers, named % n_rows)]
    return Drawn(top, weighted, named, features, (message.n_top, message.n_race), largest)


def float64(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return an answer's array: C-ordered, in float64."""
    return np.ascontiguousarray(array, dtype=np.float64)
