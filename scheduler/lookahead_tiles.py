"""What a look-ahead does to one row tile, and what the tile answers.

The pool holds the kernel columns of the candidates as they are, and the work matrix the columns that were formed
or tried last. The rules of `distkern.scheduler.tiles` hold: shapes depend on the message and the tile only, and nothing
is ever one column wide.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler import tiles
from distkern.scheduler.answers import ProblemAnswer
from distkern.scheduler.lookahead_answers import CandidateRows, Leaders
from distkern.scheduler.lookahead_messages import Commit, Enter, FormAhead, Trial, padded_width
from distkern.scheduler.messages import Begin, LookaheadStep
from distkern.scheduler.threads import workspace
from distkern.scheduler.tiles import ProblemState, Tile, TileData


def apply(
    data: TileData,
    state: ProblemState,
    tile: Tile,
    step: LookaheadStep,
    begin: Begin,
    centers: NDArray[Any] | None,
    handed_in: NDArray[Any] | None,
) -> None:
    """Change a tile as `step` says; kernel columns as for `tiles.compute`."""
    if step.form is not None:
        _form(state, tile, step.form)
    if step.trial is not None:
        _finish(state, tile, step.trial)
    if step.commit is not None:
        _commit(state, tile, step.commit)
    if step.columns is not None:
        assert step.enter is not None
        if handed_in is not None:
            columns = handed_in[tile.rows]
        else:
            assert centers is not None
            columns = tiles.kernel_columns(data, tile, step.columns, begin, centers)
        pool = state.pool.borrow(tile.rows)
        pool[:, step.enter.slots] = columns[:, : len(step.enter.slots)]
        state.pool.give_back(tile.rows, pool)


def _form(state: ProblemState, tile: Tile, message: FormAhead) -> None:
    work = state.work.blank(tile.rows)
    formed = work[:, : message.combine.shape[1]]
    np.matmul(state.pool.borrow(tile.rows)[:, message.slots], message.combine, out=formed)
    np.subtract(formed, tiles.times_q(state, tile, message.coefficients), out=formed)
    state.work.give_back(tile.rows, work)


def _finish(state: ProblemState, tile: Tile, message: Trial) -> None:
    work = state.work.borrow(tile.rows)
    formed = work[:, : message.combine.shape[1]]
    new = workspace.array("new", formed.shape, work.dtype)
    np.matmul(formed, message.combine, out=new)
    if message.correct is not None:
        np.subtract(new, tiles.times_q(state, tile, message.correct), out=new)
    formed[...] = new
    state.work.give_back(tile.rows, work)


def _commit(state: ProblemState, tile: Tile, message: Commit) -> None:
    if len(message.keep):
        new = state.work.borrow(tile.rows)[:, message.keep]
        tiles.store_columns(state, tile, message.start, new)
        path = _residuals(state, tile, new, message.steps)
        state.residual[tile.rows, : path.shape[1]] = path[-1].T
        if tile.held_out:
            state.validation[tile.start] = np.square(path[1:], dtype=np.float64).sum(axis=(1, 2))
    elif tile.held_out:
        state.validation[tile.start] = np.empty(0)


def _residuals(state: ProblemState, tile: Tile, columns: NDArray[Any], steps: NDArray[Any]) -> NDArray[Any]:
    """E before and after each step, shape (k + 1, T, rows); the same additions for a trial and its commit."""
    n_steps, n_targets = steps.shape
    path = workspace.array("residuals", (n_steps + 1, n_targets, len(columns)), columns.dtype)
    path[0] = state.residual[tile.rows, :n_targets].T
    by_step = workspace.array("by-step", columns.shape[::-1], columns.dtype)
    by_step[...] = columns.T
    for j in range(n_steps):
        np.multiply(by_step[j], steps[j][:, None], out=path[j + 1])
        np.subtract(path[j], path[j + 1], out=path[j + 1])
    return path


def answer(
    data: TileData, state: ProblemState, tile: Tile, step: LookaheadStep, begin: Begin, n_targets: int
) -> ProblemAnswer:
    """Answer of one tile after the effect of `step`."""
    result = ProblemAnswer()
    if tile.held_out:
        if step.commit is not None:
            result.sums["validation"] = state.validation[tile.start].copy()
        return result
    if step.form is not None:
        formed = state.work.borrow(tile.rows)[:, : step.form.combine.shape[1]]
        result.sums["cross"] = _q_times(state, tile, formed)
        result.sums["gram"] = _float64(formed.T @ formed)
        result.sums["products"] = _float64((formed.T @ state.residual[tile.rows])[:, :n_targets])
    if step.trial is not None:
        result.leaders = _leaders(data, state, tile, step.trial)
    if step.enter is not None:
        _candidates(data, state, tile, step, step.enter, n_targets, result)
    return result


def _leaders(data: TileData, state: ProblemState, tile: Tile, message: Trial) -> Leaders:
    n_steps = len(message.rows)
    path = _residuals(state, tile, state.work.borrow(tile.rows)[:, :n_steps], message.steps)
    squares = np.square(path[1:], dtype=np.float64).sum(axis=1)
    if data.weights is not None:
        squares /= data.weights[tile.rows]
    norms = np.sqrt(squares)
    largest = norms.max(axis=1)
    norms[:, state.taken[tile.rows]] = -1.0
    rows = data.rows[tile.rows]
    where, own = _positions(rows, message.rows)
    for step, position in zip(own, where, strict=True):
        norms[step:, position] = -1.0
    # Only few rows are worth the work of `select`.
    few = norms.max(axis=0) >= message.floor
    few[norms.argmax(axis=1)] = True
    kept = np.flatnonzero(few)
    features = None if data.features is None else data.features.borrow(tile.rows)[kept]
    return Leaders.select(largest, rows[kept], norms[:, kept].T, features, message.floor, message.most)


def _candidates(
    data: TileData,
    state: ProblemState,
    tile: Tile,
    step: LookaheadStep,
    message: Enter,
    n_targets: int,
    result: ProblemAnswer,
) -> None:
    pool, sums = state.pool.borrow(tile.rows), result.sums
    residual = state.residual[tile.rows]
    if step.commit is not None and len(step.commit.keep):
        tried = state.work.borrow(tile.rows)[:, : step.commit.width]
        sums["tried_cross"] = _float64(tried.T @ pool)
    sums["products"] = _float64((pool.T @ residual)[:, :n_targets])
    n_new = len(message.slots)
    if n_new:
        new = workspace.array("entered", (len(pool), padded_width(n_new)), pool.dtype)
        new[:, :n_new] = pool[:, message.slots]
        new[:, n_new:] = 0.0
        sums["cross"] = _q_times(state, tile, new)
        sums["gram"] = _float64(pool.T @ new)
    where, own = _positions(data.rows[tile.rows], message.rows)
    values = np.empty((len(where), n_targets + pool.shape[1] + state.n_columns))
    values[:, :n_targets] = residual[where, :n_targets]
    values[:, n_targets : n_targets + pool.shape[1]] = pool[where]
    if len(where):
        for number, columns in enumerate(tiles.slab_slices(state.n_columns)):
            slab = state.slabs[number].borrow(tile.rows)
            first = n_targets + pool.shape[1] + columns.start
            values[:, first : first + columns.stop - columns.start] = slab[where, : columns.stop - columns.start]
    result.candidates = CandidateRows(message.rows[own], values)


def _positions(rows: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where ascending `rows` hold some of the wanted rows: (positions in `rows`, positions in `wanted`)."""
    where = np.searchsorted(rows, wanted)
    inside = where < len(rows)
    own = np.flatnonzero(inside & (rows[np.where(inside, where, 0)] == wanted))
    return where[own], own


def _q_times(state: ProblemState, tile: Tile, columns: NDArray[Any]) -> NDArray[np.float64]:
    """Q'columns of a tile."""
    cross = workspace.array("cross", (state.n_columns, columns.shape[1]), columns.dtype)
    for number, part in enumerate(tiles.slab_slices(state.n_columns)):
        q = state.slabs[number].borrow(tile.rows)[:, : part.stop - part.start]
        np.matmul(q.T, columns, out=cross[part])
    return cross.astype(np.float64)


def _float64(array: NDArray[Any]) -> NDArray[np.float64]:
    return np.ascontiguousarray(array, dtype=np.float64)
