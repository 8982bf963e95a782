"""What a step does to one row tile, and what the tile answers.

Everything is row-local given the message, so tiles of a block run in any order on any thread. Shapes of the
products depend on the message and the tile only, never on which candidates are real: short batches are padded
with zero columns, and nothing is ever one column wide.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.sampling import Shortlist, race_keys, residual_keys, uniforms_for_rows
from distkern.scheduler.answers import Drawn, ProblemAnswer
from distkern.scheduler.messages import Append, Begin, Columns, Draw, Form, ProblemStep, Project
from distkern.scheduler.threads import workspace

SLAB = 128
"""Columns of Q that are stored, and multiplied, together."""


@dataclass(frozen=True)
class Tile:
    """Rows ``start:stop`` of a block, all of one kind."""

    start: int
    stop: int
    held_out: bool
    """Rows that only follow the path; they enter no sum but the validation error."""


@dataclass
class ProblemState:
    """Arrays of one problem on one block; rows that train come first, held-out rows after them."""

    work: NDArray[Any]
    """(rows, panel + batch): the formed panel, then the batch of candidates."""
    pool: NDArray[Any]
    """(rows, B): orthogonalised candidates."""
    residual: NDArray[Any]
    """(rows, max(T, 2)): E, zero-padded to two columns."""
    taken: NDArray[np.bool_]
    """(rows,): rows that must not be drawn."""
    slabs: list[NDArray[Any]] = field(default_factory=list)
    """Q in slabs of (rows, SLAB) columns."""
    n_columns: int = 1
    """Columns of Q."""
    validation: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    """Tile start to squared held-out residual after each step of the last panel."""


@dataclass
class TileData:
    """What all tiles of a block read."""

    rows: NDArray[np.int64]
    """(rows,): global row numbers, ascending within the training and the held-out part."""
    weights: NDArray[np.float64] | None
    """(rows,): row weights, None where all are one; one on held-out rows."""
    roots: NDArray[np.float64] | None
    """(rows,): their square roots."""
    features: NDArray[Any] | None
    """(rows, d): raw features; None where another process computes kernel columns."""


def slab_slices(n_columns: int) -> list[slice]:
    """Column ranges of Q's slabs."""
    return [slice(start, min(start + SLAB, n_columns)) for start in range(0, n_columns, SLAB)]


def _subtract_product(target: NDArray[Any], slabs: list[NDArray[Any]], rows: slice, coefficients: NDArray[Any]) -> None:
    """Subtract Q[rows] @ coefficients from `target` in place."""
    product = workspace.array("product", target.shape, target.dtype)
    for number, columns in enumerate(slab_slices(len(coefficients))):
        width = columns.stop - columns.start
        np.matmul(slabs[number][rows, :width], coefficients[columns], out=product)
        np.subtract(target, product, out=target)


def append(state: ProblemState, tile: Tile, message: Append, panel: int) -> None:
    """Finish the formed panel, write it into Q and update the residual."""
    rows = slice(tile.start, tile.stop)
    formed = state.work[rows, :panel]
    kept = message.combine.shape[1]
    first = len(message.correct)
    new = workspace.array("new", (len(formed), kept), formed.dtype)
    np.matmul(formed, message.combine, out=new)
    _subtract_product(new, state.slabs, rows, message.correct)
    for j in range(kept):
        slab, column = divmod(first + j, SLAB)
        state.slabs[slab][rows, column] = new[:, j]
    residual = state.residual[rows, : message.steps.shape[1]]
    if tile.held_out:
        squares = np.empty(kept)
        for j in range(kept):
            residual -= np.outer(new[:, j], message.steps[j])
            squares[j] = np.square(residual, dtype=np.float64).sum()
        state.validation[tile.start] = squares
    else:
        residual -= new @ message.steps
    if message.restore is not None:
        state.pool[rows] += formed @ message.restore


def project(state: ProblemState, tile: Tile, message: Project, panel: int) -> None:
    """Orthogonalise the batch against Q and copy it into its pool slots."""
    rows = slice(tile.start, tile.stop)
    batch = state.work[rows, panel:]
    projected = workspace.array("projected", batch.shape, batch.dtype)
    projected[...] = batch
    _subtract_product(projected, state.slabs, rows, message.coefficients)
    batch[...] = projected
    state.pool[rows, message.slots] = projected[:, : len(message.slots)]


def form(state: ProblemState, tile: Tile, message: Form, panel: int) -> None:
    """Form the panel's columns and eliminate them from the pool."""
    rows = slice(tile.start, tile.stop)
    pool = state.pool[rows]
    formed = workspace.array("formed", (len(pool), panel), pool.dtype)
    np.matmul(pool[:, message.slots], message.combine, out=formed)
    product = workspace.array("product", pool.shape, pool.dtype)
    np.matmul(formed, message.multipliers, out=product)
    np.subtract(pool, product, out=pool)
    state.work[rows, :panel] = formed


def kernel_columns(data: TileData, tile: Tile, message: Columns, begin: Begin, centers: NDArray[Any]) -> NDArray[Any]:
    """Kernel columns of a batch on a tile, shape (rows, batch), in a buffer of this thread.

    Parameters
    ----------
    centers : array, shape (batch, d)
        Candidates in kernel space, zero-padded to the batch width.
    """
    assert data.features is not None
    dtype = centers.dtype
    raw = data.features[tile.start : tile.stop]
    X = begin.scaling.apply(raw, dtype, out=workspace.array("features", raw.shape, dtype))
    columns = workspace.array("kernel", (len(X), len(centers)), dtype)
    begin.kernel.block(X, centers, out=columns)
    n = len(message.rows)
    rows = data.rows[tile.start : tile.stop]
    where = np.searchsorted(rows, message.rows)
    inside = where < len(rows)
    own = inside & (rows[np.where(inside, where, 0)] == message.rows)
    if own.any():
        columns[where[own], np.flatnonzero(own)] = begin.kernel.diagonal(centers[:n][own]) + begin.epsilon
    columns[:, n:] = 0.0
    if data.roots is not None:
        columns *= data.roots[tile.start : tile.stop, None]
    return columns


def answer(
    data: TileData, state: ProblemState, tile: Tile, step: ProblemStep, begin: Begin, n_targets: int
) -> ProblemAnswer:
    """Sums and draw of one tile after the effect of `step`."""
    rows = slice(tile.start, tile.stop)
    result = ProblemAnswer()
    sums = result.sums
    if tile.held_out:
        if step.append is not None:
            sums["validation"] = state.validation[tile.start].copy()
        return result
    residual = state.residual[rows]
    work = state.work[rows]
    panel = begin.panel
    if step.form is not None or step.columns is not None:
        n_columns = state.n_columns
        cross = np.empty((n_columns, work.shape[1]), dtype=work.dtype)
        for number, columns in enumerate(slab_slices(n_columns)):
            np.matmul(state.slabs[number][rows, : columns.stop - columns.start].T, work, out=cross[columns])
        formed = work[:, :panel]
        sums["cross"] = _float64(cross)
        sums["gram"] = _float64(formed.T @ work)
        sums["products"] = _float64((formed.T @ residual)[:, :n_targets])
        sums["norms"] = np.square(work[:, panel:], dtype=np.float64).sum(axis=0)
    elif step.project is not None:
        batch = work[:, panel:]
        sums["pool_gram"] = _float64(state.pool[rows].T @ batch)
        sums["pool_products"] = _float64((batch.T @ residual)[:, :n_targets])
    if step.refresh:
        pool = state.pool[rows]
        sums["all_gram"] = _float64(pool.T @ pool)
        sums["all_products"] = _float64((pool.T @ residual)[:, :n_targets])
    if step.draw is not None:
        result.drawn = draw(data, state, tile, step.draw)
    return result


def draw(data: TileData, state: ProblemState, tile: Tile, message: Draw) -> Drawn:
    """Shortlists of the tile's rows that are worth being candidates."""
    rows = slice(tile.start, tile.stop)
    numbers = data.rows[rows]
    squares = np.square(state.residual[rows], dtype=np.float64).sum(axis=1)
    weights = np.ones(len(numbers)) if data.weights is None else data.weights[rows]
    norms = np.sqrt(squares / weights)
    free = ~state.taken[rows]
    top = Shortlist.top(np.where(free, residual_keys(norms), np.inf), numbers, norms, message.n_top)
    if message.n_race:
        uniforms = uniforms_for_rows(message.seed, message.round, numbers)
        keys = race_keys(uniforms, np.where(free, squares if message.by_residual else weights, 0.0))
        race = Shortlist.top(keys, numbers, norms, message.n_race)
    else:
        race = Shortlist.top(np.empty(0), np.empty(0, dtype=np.int64), np.empty(0), 0)
    features = None if data.features is None else data.features[rows]
    largest = float(norms.max(initial=0.0))
    return Drawn.select(top, race, numbers, features, (message.n_top, message.n_race), largest)


def _float64(array: NDArray[Any]) -> NDArray[np.float64]:
    return np.ascontiguousarray(array, dtype=np.float64)
