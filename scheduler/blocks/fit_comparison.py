"""Predictions of prefixes of a path for some training rows, beside their fit by Q.

K = Q U holds up to rounding, which large weights magnify: the predictions come from kernel values, the fit that a
training reports from Q. A block evaluates both on a sample of its rows; `..training.path_check` compares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.kernels import kernel_of_centers
from distkern.models.kernel_model import KernelModel, PreparedModel
from distkern.numerics.row_draws import uniforms_for_rows

from ..protocol.answers import Answer, CandidateRows, ProblemAnswer
from ..protocol.candidates import rows_and_widths
from ..protocol.messages import Begin, Compare, Prefixes
from ..rows.block_reading import HOLDOUT_STREAM
from ..rows.problem_rows import TILE_ROWS, ProblemRows
from ..rows.tiles import Tile, positions
from ..runtime.threads import workspace
from . import pool_tiles as tiles
from .block import Block
from .pool_tiles import ProblemState

COMPARED_STREAM = HOLDOUT_STREAM + 5
"""Stream of the row draws that decides which rows are compared."""

LEAST_PREDICTED = 16
"""Least rows that are predicted together."""

FITTED_ROWS = 512
"""Rows of Q that are multiplied together."""


def prefix_models(block: Block, message: Compare) -> list[PreparedModel | None]:
    """Return the models of all prefixes of each problem, which all blocks share; none without features."""
    begin = block.begin
    assert begin is not None
    models: list[PreparedModel | None] = []
    for prefixes, view in zip(message.problems, block.views, strict=True):
        if prefixes is None or not block.with_features:
            models.append(None)
            continue
        widths = rows_and_widths(prefixes.rows, block.source.n_rows)[1]
        kernel = kernel_of_centers(view.problem.kernel, widths)
        weights = prefixes.weights
        models.append(
            KernelModel(kernel, begin.scaling, prefixes.features, weights[1:], weights[0], begin.dtype).prepare()
        )
    return models


def compare(block: Block, message: Compare, models: Sequence[PreparedModel | None]) -> Answer:
    """Evaluate prefixes on the sampled training rows of one block.

    Parameters
    ----------
    block : Block
        A block after `Begin`; its state does not change.
    message : Compare
        The prefixes.
    models : sequence of PreparedModel or None
        From `prefix_models`.

    Returns
    -------
    Answer
        Predictions where the block has features, fits where it has factors.
    """
    begin, problems = block.begin, []
    assert begin is not None
    for number, (prefixes, view, model) in enumerate(zip(message.problems, block.views, models, strict=True)):
        if prefixes is None:
            problems.append(ProblemAnswer())
            continue
        state = block.problems[number] if block.problems else None
        rows, parts = [], []
        for tile, where in _sampled(view, prefixes.share, begin.selecting_dtype):
            values = []
            if model is not None:
                values.append(_predicted(block, view, tile, where, prefixes, model))
            if state is not None:
                values.append(_fitted(state, view, tile, where, prefixes))
            rows.append(view.data.rows[tile.rows][where])
            parts.append(np.concatenate(values, axis=1))
        found = CandidateRows(np.concatenate(rows), np.concatenate(parts)) if rows else None
        problems.append(ProblemAnswer(candidates=found))
    return Answer(problems)


def _sampled(view: ProblemRows, share: float, dtype: np.dtype[Any]) -> Iterator[tuple[Tile, NDArray[np.intp]]]:
    """Yield the tiles that have training rows in the sample, and the positions of these rows."""
    numbers = view.data.rows[: view.n_fit]
    chosen = np.ones(len(numbers), dtype=bool)
    if share < 1.0 and len(numbers):
        chosen = uniforms_for_rows(0, COMPARED_STREAM, numbers) < share
    if view.data.roots is not None:
        # Rows of Q whose root weight underflows hold nothing.
        chosen &= view.data.roots[: view.n_fit] >= np.finfo(dtype).tiny
    for tile in view.tiles:
        if not tile.held_out and len(where := np.flatnonzero(chosen[tile.rows])):
            yield tile, where


def _pieces(count: int, width: int, begin: Begin) -> Iterator[slice]:
    """Cut rows so that an array of them with `width` columns is not larger than the kernel columns of a step."""
    most = max(LEAST_PREDICTED, TILE_ROWS * begin.batch // width)
    return (slice(start, start + most) for start in range(0, count, most))


def _predicted(
    block: Block,
    view: ProblemRows,
    tile: Tile,
    where: NDArray[np.intp],
    prefixes: Prefixes,
    model: PreparedModel,
) -> NDArray[np.float64]:
    """Return what the models predict, plus what the training adds to the kernel at a centre's own row."""
    data, begin, weights = view.data, block.begin, prefixes.weights
    assert data.features is not None
    assert begin is not None
    values = np.empty((len(where), weights.shape[1]))
    features = data.features.borrow(tile.rows)[where]
    for piece in _pieces(len(where), sum(weights.shape), begin):
        try:
            model.evaluate(features[piece], out=values[piece], scratch=workspace.array)
        except DataError:  # they overflow
            values[piece] = np.inf
    if begin.epsilon:
        centers = rows_and_widths(prefixes.rows, block.source.n_rows)[0]
        at, own = positions(data.rows[tile.rows][where], centers)
        np.add.at(values, at, begin.epsilon * weights[1 + own])
    return values


def _fitted(
    state: ProblemState, view: ProblemRows, tile: Tile, where: NDArray[np.intp], prefixes: Prefixes
) -> NDArray[np.float64]:
    """Return the fits by Q and the targets, both without the root weights, and the row weights."""
    coefficients = np.concatenate([prefixes.fitted, prefixes.steps], axis=1)
    n_fits, n_targets = prefixes.fitted.shape[1], prefixes.steps.shape[1]
    total = np.zeros((coefficients.shape[1] + 1, len(where)))
    fits = total[:n_fits]
    total[n_fits:-1] = state.residual[tile.rows, :n_targets][where].T
    pieces = [slice(start, start + FITTED_ROWS) for start in range(0, len(where), FITTED_ROWS)]
    for number, columns in enumerate(tiles.slab_slices(len(coefficients))):
        q: NDArray[Any] = tiles.borrow_q(state, tile, number, columns)
        for piece in pieces:
            total[:-1, piece] += coefficients[columns].T @ q[:, where[piece]].astype(np.float64)
    if prefixes.formed is not None:
        formed = tiles.borrow_columns(state.work, tile)[: len(prefixes.formed)]
        fits += prefixes.formed.T @ formed[:, where].astype(np.float64)
    if view.data.roots is not None:
        total /= view.data.roots[tile.rows][where]
    total[-1] = 1.0 if view.data.weights is None else view.data.weights[tile.rows][where]
    return np.ascontiguousarray(total.T)
