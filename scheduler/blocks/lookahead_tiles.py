"""Effects and answers of a look-ahead step on one row tile.

The pool holds the kernel columns of the candidates, the work matrix the columns that were formed or tried last; within
a tile both are stored column after column. As in `pool_tiles`, shapes depend on the message and the tile only, and no
product is one column wide. `..selectors.lookahead_selector` is the counterpart in the driver.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocol.answers import CandidateRows, Leaders, ProblemAnswer
from ..protocol.candidates import Candidates
from ..protocol.messages import Begin, Commit, Enter, FormAhead, LookaheadStep, Trial, padded_width
from ..rows.tiles import Tile, TileData, positions
from ..runtime.threads import workspace
from ..runtime.timings import DRAW, PROJECTION, busy
from . import pool_tiles as tiles
from .pool_tiles import ProblemState


def apply(
    data: TileData,
    state: ProblemState,
    tile: Tile,
    step: LookaheadStep,
    begin: Begin,
    candidates: Candidates | None,
    handed_in: NDArray[Any] | None,
) -> None:
    """Apply the effect of `step` to a tile; kernel columns as in `tiles.compute`."""
    with busy(PROJECTION):
        if step.form is not None:
            _form(state, tile, step.form)
        if step.trial is not None:
            _finish(state, tile, step.trial)
    if step.commit is not None:
        _commit(state, tile, step.commit)
    if step.columns is not None:
        assert step.enter is not None
        if handed_in is not None:
            columns = handed_in[tile.rows].T
        else:
            assert candidates is not None
            columns = tiles.kernel_columns(data, tile, begin, candidates)
        pool = tiles.borrow_columns(state.pool, tile)
        pool[step.enter.slots] = columns[: len(step.enter.slots)]
        tiles.keep_columns(state.pool, tile, pool)


def _form(state: ProblemState, tile: Tile, message: FormAhead) -> None:
    work = tiles.borrow_columns(state.work, tile)
    formed = work[: message.combine.shape[1]]
    np.matmul(message.combine.T, tiles.borrow_columns(state.pool, tile)[message.slots], out=formed)
    np.subtract(formed, tiles.times_q(state, tile, message.coefficients), out=formed)
    tiles.keep_columns(state.work, tile, work)


def _finish(state: ProblemState, tile: Tile, message: Trial) -> None:
    work = tiles.borrow_columns(state.work, tile)
    formed = work[: message.combine.shape[1]]
    new = workspace.array("new", formed.shape, work.dtype)
    np.matmul(message.combine.T, formed, out=new)
    if message.correct is not None:
        np.subtract(new, tiles.times_q(state, tile, message.correct), out=new)
    formed[...] = new
    tiles.keep_columns(state.work, tile, work)


def _commit(state: ProblemState, tile: Tile, message: Commit) -> None:
    new = _some(tiles.borrow_columns(state.work, tile), message.keep)
    if len(new):
        tiles.store_columns(state, tile, message.start, new)
    path = _residuals(state, tile, new, message.steps)
    state.residual[tile.rows, : path.shape[1]] = path[-1].T
    if tile.held_out:
        state.validation[tile.start] = np.square(path[1:], dtype=np.float64).sum(axis=(1, 2))


def _residuals(state: ProblemState, tile: Tile, columns: NDArray[Any], steps: NDArray[Any]) -> NDArray[Any]:
    """Return E before and after each step, shape (k + 1, T, rows).

    A trial and its commit subtract in the same order, so that they have the same bits.
    """
    n_steps, n_targets = steps.shape
    path = workspace.array("residuals", (n_steps + 1, n_targets, columns.shape[1]), columns.dtype)
    path[0] = state.residual[tile.rows, :n_targets].T
    np.multiply(columns[:n_steps, None], steps[:, :, None], out=path[1:])
    for before, after in itertools.pairwise(path):
        np.subtract(before, after, out=after)
    return path


def answer(data: TileData, state: ProblemState, tile: Tile, step: LookaheadStep, n_targets: int) -> ProblemAnswer:
    """Return the answer of one tile after the effect of `step`."""
    result = ProblemAnswer()
    if tile.held_out:
        if step.commit is not None:
            result.sums["validation"] = state.validation[tile.start].copy()
        return result
    if step.form is not None:
        formed = tiles.borrow_columns(state.work, tile)[: step.form.combine.shape[1]]
        if step.form.check:
            result.sums["cross"] = tiles.products_with_q(state, tile, formed)
        result.sums["gram"] = tiles.float64(formed @ formed.T)
        result.sums["products"] = tiles.float64((formed @ state.residual[tile.rows])[:, :n_targets])
    if step.trial is not None:
        with busy(DRAW):
            result.leaders = _leaders(data, state, tile, step.trial)
    if step.enter is not None:
        _enter(data, state, tile, step.commit, step.enter, n_targets, result)
    return result


def _leaders(data: TileData, state: ProblemState, tile: Tile, message: Trial) -> Leaders:
    path = _residuals(state, tile, tiles.borrow_columns(state.work, tile), message.steps)[1:]
    if path.shape[1] == 1 and data.weights is None:
        norms = np.abs(path[:, 0], dtype=np.float64)  # exactly the root of the square, and faster
    else:
        norms = np.square(path, dtype=np.float64).sum(axis=1)
        if data.weights is not None:
            norms /= data.weights[tile.rows]
        np.sqrt(norms, out=norms)
    largest = norms.max(axis=1)
    norms[:, state.taken[0, tile.rows]] = -1.0
    rows = data.rows[tile.rows]
    where, own = positions(rows, message.rows)
    for step, position in zip(own, where, strict=True):
        norms[step:, position] = -1.0
    # `select` sorts; most rows cannot lead and are left out first.
    few = norms.max(axis=0) >= message.floor
    few[norms.argmax(axis=1)] = True
    kept = np.flatnonzero(few)
    features = None if data.features is None else data.features.borrow(tile.rows)[kept]
    return Leaders.select(largest, rows[kept], norms[:, kept].T, features, message.floor, message.most)


def _enter(
    data: TileData,
    state: ProblemState,
    tile: Tile,
    commit: Commit | None,
    message: Enter,
    n_targets: int,
    result: ProblemAnswer,
) -> None:
    """Add the products of the appended columns, new candidates and E with Q and the pool, and values at rows."""
    pool, residual = tiles.borrow_columns(state.pool, tile), state.residual[tile.rows]
    keep = np.empty(0, dtype=np.int64) if commit is None else commit.keep
    n_old, n_new = len(keep), len(message.slots)
    width = padded_width(n_old + n_new)
    fresh = workspace.array("fresh", (width + padded_width(n_targets), pool.shape[1]), pool.dtype)
    fresh[:n_old] = _some(tiles.borrow_columns(state.work, tile), keep)
    fresh[n_old : n_old + n_new] = pool[message.slots]
    fresh[n_old + n_new : width] = 0.0
    fresh[width : width + n_targets] = residual[:, :n_targets].T
    fresh[width + n_targets :] = 0.0
    result.sums["cross"] = tiles.products_with_q(state, tile, fresh[:width])
    result.sums["gram"] = tiles.float64(pool @ fresh.T)
    where, own = positions(data.rows[tile.rows], message.rows)
    values = np.empty((len(where), n_targets + len(pool) + state.n_columns))
    values[:, :n_targets] = residual[where, :n_targets]
    values[:, n_targets : n_targets + len(pool)] = pool[:, where].T
    if len(where):
        for number, columns in enumerate(tiles.slab_slices(state.n_columns)):
            slab = tiles.borrow_q(state, tile, number, columns)
            first = n_targets + len(pool) + columns.start
            values[:, first : first + len(slab)] = slab[:, where].T
    result.candidates = CandidateRows(message.rows[own], values)


def _some(columns: NDArray[Any], which: NDArray[np.int64]) -> NDArray[Any]:
    """Return rows of an array, as a view where they are consecutive."""
    if len(which) and which[-1] - which[0] + 1 == len(which):
        return columns[which[0] : which[-1] + 1]
    return columns[which]
