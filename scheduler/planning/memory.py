"""Bytes of the engine's buffers from shapes alone: integers in, integers out, one term for each buffer.

A process that holds blocks keeps some arrays in memory with any budget (marks, residuals, workspaces). Row matrices
(features, work, pool, Q) fill the budget in that order; those beyond it are in scratch. Covers the engine; the plan of
a whole training is in `training_plan`.
"""

from __future__ import annotations

from math import ceil, log2

from ..blocks.loo_rows import CANDIDATES_AT_ONCE
from ..blocks.pool_tiles import ELIMINATED, SLAB
from ..protocol.selection_settings import (
    COMPARED_COLUMNS,
    COMPARED_PROBLEMS,
    LOOKAHEAD_NEW,
    LOOKAHEAD_STEPS,
    LOOKAHEAD_WATCHED,
    SelectionSettings,
    compared_rows,
)
from ..rows.data_checks import MEDIAN_SAMPLE
from ..rows.problem_rows import TILE_ROWS
from .plan import Memory
from .workload import Workload

ROW_DRAW = 12
"""Numbers that a draw computes for each row: norms, random numbers, keys and their order."""

TERM_ADVICE = {
    "residual": "more workers, or selection_rows",
    "rows": "more workers, or selection_rows",
    "loading": "smaller chunks of X, or a number for sigma",
    "answers": "fewer max_centers, or fewer candidates",
    "columns": "factors='workers', or fewer candidates",
    "workspaces": "fewer max_centers, fewer candidates, or fewer threads a worker",
    "refit": "fewer max_centers, fewer threads a worker, or smaller chunks of X",
    "lazy_results": "dask arrays that are persisted, or rows written to zarr",
    "sample": "a smaller selection_rows, or fewer max_centers",
    "driver": "fewer max_centers, or fewer candidates",
}
"""Settings to change, by the largest term."""


def plan_memory(
    work: Workload,
    n_rows: int,
    settings: SelectionSettings,
    *,
    threads: int,
    is_driver: bool,
    limit: int,
    features: bool = True,
    factors: bool = True,
    columns_sent: bool = False,
    read_rows: int | None = None,
    read_ahead: int = 0,
    refit: int = 0,
    sample: int = 0,
) -> Memory:
    """Compute the peak of a process that holds `n_rows` rows.

    Parameters
    ----------
    work : Workload
        Shapes of the whole training.
    n_rows : int
        Rows of this process.
    settings : SelectionSettings
        Widths of pool, panel and batch.
    threads : int
        Width of the tile pool.
    is_driver : bool
        Whether the driver loop runs in the same process.
    limit : int
        Bytes that the process may take beside the baseline.
    features, factors : bool
        Whether the process holds features, and factors; both by default. With factors in the driver they are apart.
    columns_sent : bool
        Whether kernel columns are sent from blocks with features to blocks with factors; False by default.
    read_rows : int, optional
        Rows of the largest block as read, where only some of them are kept; all by default.
    read_ahead : int
        Blocks that reads run ahead; 0 by default.
    refit : int
        Bytes of the final pass over all rows; 0 by default.
    sample : int
        Bytes of the rows of a selection sample as they are collected; 0 by default.
    """
    item = 4 if settings.single_precision else 8
    width = settings.panel + settings.batch
    answered = _answered(settings)
    columns = settings.max_centers + 1
    tile = max(1, min(TILE_ROWS, n_rows, work.block_rows))
    blocks = max(1, -(-n_rows // max(work.block_rows, 1)))
    problem_targets = max(2, work.targets_of_a_problem)
    levels = 2 + ceil(log2(max(2, work.block_rows / tile))) + ceil(log2(blocks + 1))
    # Partial sums that wait in the tree or in flight, and the merge of two.
    waiting = levels + 2 * threads + 3
    # A problem with some of the rows selects them from all rows between the first and the last.
    borrowed = item * (settings.pool + width + min(SLAB, columns)) + (3 if work.subsets else 1) * work.row_bytes
    drawn = ROW_DRAW * settings.n_widths
    # Scaled features twice: the Gaussian's product takes a copy with two more columns.
    made = item * (2 * work.n_features + 2 + min(settings.pool, ELIMINATED) + 4 * width)
    made += 8 * (3 * problem_targets + drawn)
    answers = answer_bytes(work, settings, n_rows, waiting) * factors
    drawn_rows = _rows_in_answers(MEDIAN_SAMPLE, n_rows, waiting) * work.row_bytes
    loo_bytes = 0
    if settings.criterion == "loo-error":
        # Shares and labels; with two classes several candidates are scored together, otherwise one by one.
        loo_bytes = 16
        made += 8 * (4 * CANDIDATES_AT_ONCE + 4 * problem_targets)
    if settings.criterion == "residual":
        # E after every step, its norms, and the columns of an answer.
        made += item * (settings.panel * problem_targets + answered) + 8 * settings.panel
    workspaces = threads * (tile * (borrowed + made) + columns * answered * item)
    copies = (
        min(threads, blocks)
        * (read_rows or work.block_rows)
        * (3 * work.row_bytes + 2 * 8 * work.n_features)
        * features
    )
    # Blocks that are read ahead, compressed and decoded.
    copies += read_ahead * (read_rows or work.block_rows) * (2 * work.row_bytes + 8 * work.target_columns) * features
    factor_rows = work.memberships * n_rows * item * factors
    terms = {
        # Row numbers, marks, row weights and raw targets.
        "rows": n_rows
        * (
            24
            + work.memberships * (loo_bytes + (32 if work.subsets else 0) + settings.n_widths)
            + 8 * work.target_columns
        ),
        # E, and the encoded targets of the block that starts.
        "residual": factor_rows * problem_targets + 3 * 8 * work.block_rows * work.n_targets * factors,
        # Copies while blocks are read; the sample for the median distance is freed before tiles run.
        "loading": copies + max(0, drawn_rows - workspaces - answers),
        # Tile buffers of all threads; partial sums in the tree, and messages.
        "workspaces": workspaces,
        "answers": answers,
        # Kernel columns for factors in the driver: as computed or used, and as sent.
        "columns": 2 * work.memberships * n_rows * settings.batch * item * columns_sent,
        "refit": refit,
        # The shares of blocks, their merge, and the message with all of them.
        "sample": sample,
        # dask keeps them in the driver's process, or on the workers of its current client.
        "lazy_results": work.lazy_results,
        "driver": work.n_problems * driver_bytes(settings, work.row_bytes) if is_driver else 0,
    }
    matrices = {
        # Raw features of the blocks; the formed panel and the batch of kernel columns; orthogonalised candidates; Q.
        "features": n_rows * work.row_bytes * features,
        "work": factor_rows * width,
        "pool": factor_rows * settings.pool,
        "factors": factor_rows * columns,
    }
    advice = "use " + TERM_ADVICE[max(terms, key=terms.__getitem__)]
    return Memory(terms, limit, advice, "this process" if is_driver else "a worker", matrices)


def answer_bytes(work: Workload, settings: SelectionSettings, n_rows: int, waiting: int) -> int:
    """Return the bytes of `waiting` partial answers about `n_rows` rows, and of a message.

    Parameters
    ----------
    work : Workload
        Shapes of the whole training.
    settings : SelectionSettings
        Widths of pool, panel and batch.
    n_rows : int
        Rows of the answers.
    waiting : int
        Number of answers at the same time.
    """
    columns, width = settings.max_centers + 1, settings.panel + settings.batch
    answered = _answered(settings)
    targets = max(2, work.targets_of_a_problem)
    # At worst every answer includes S and R of the whole pool.
    new = answered - settings.panel
    partial = 8 * (columns * answered + settings.pool * (new + targets + settings.pool + targets))
    message = 8 * (columns * width + settings.pool * settings.panel)
    drawn = _rows_in_answers(2 * settings.pool, n_rows, waiting) * work.row_bytes
    # The check of the model by itself: values at rows, also as they are joined, and weights of prefixes.
    compared = max(COMPARED_COLUMNS, 2 * targets)
    rows = 2 * min(n_rows, compared_rows(targets)) * (2 * compared + targets + 1)
    check = 8 * (rows + 4 * columns * (2 * compared + targets))
    compared_together = min(work.n_problems, COMPARED_PROBLEMS)
    return max(work.n_problems * (waiting * partial + drawn + 4 * message), compared_together * check)


def _answered(settings: SelectionSettings) -> int:
    """Return the number of columns in an answer with products with Q."""
    return settings.panel + (LOOKAHEAD_NEW if settings.criterion == "residual" else settings.batch)


def _rows_in_answers(most: int, n_rows: int, waiting: int) -> int:
    """Return the rows with features in partial answers, `most` in each; rows are disjoint except during a merge."""
    return min(waiting * most, n_rows + 3 * min(most, n_rows))


def driver_bytes(settings: SelectionSettings, row_bytes: int) -> int:
    """Return the bytes of the driver loop for one problem.

    Parameters
    ----------
    settings : SelectionSettings
        Widths of pool, panel and batch.
    row_bytes : int
        Bytes of a row of X.

    Returns
    -------
    int
        Bytes of U and the path's copy of it, the pool's coefficients and Gram matrices, the rows of all candidates, and
        the log.
    """
    columns = settings.max_centers + 1
    looks_ahead = settings.criterion == "residual"
    rounds = -(-settings.max_centers // (LOOKAHEAD_STEPS if looks_ahead else max(1, settings.accept)))
    log = 8 * rounds * columns // 2 * (settings.batch + settings.panel) + 8 * rounds * settings.panel * settings.pool
    candidates = (settings.pool + (rounds + 1) * settings.batch + settings.max_centers) * row_bytes
    known = 8 * columns * (columns + settings.pool + LOOKAHEAD_WATCHED) if looks_ahead else 0
    return log + candidates + known + 8 * (2 * columns * columns + 2 * columns * settings.pool + 4 * settings.pool**2)


def refit_bytes(work: Workload, settings: SelectionSettings, threads: int, n_blocks: int) -> int:
    """Return the bytes of the final pass over all rows in a process, beside those of the selection."""
    m, T, block_rows, n_problems = settings.max_centers, work.n_targets, work.block_rows, work.n_problems
    # Packed triangles and products: of the blocks that run or wait, and one for each level of the tree.
    sums = n_problems * 4 * (m + 1) * (m + 2) + 8 * max(T, 2 * n_problems) * (m + 2)
    in_flight = 2 * threads + 1 + ceil(log2(max(n_blocks, 1))) + 1
    # Rows as read, and those of positive weight; the same for raw targets, row numbers and weights.
    rows = 2 * block_rows * (work.row_bytes + 8 * max(1, T if n_problems == 1 else 1) + 24)
    # Scaled features twice, [1 K] in float64, and half of it again for preconditioned or float32 columns; the product
    # of a tile as a square and packed; its targets.
    tile_rows = min(TILE_ROWS, block_rows)
    tile = tile_rows * (work.row_bytes + 16 * (work.n_features + 1) + 12 * (m + 2) + 32 * T) + 12 * (m + 2) ** 2
    preconditioners = n_problems * 8 * (m + 1) ** 2
    return sums * in_flight + threads * (rows + tile + preconditioners) + 2 * preconditioners


def sample_bytes(work: Workload, n_rows: int) -> int:
    """Return the bytes of `n_rows` rows of a selection sample as they are collected and sent, at most three times."""
    return 3 * n_rows * (work.row_bytes + 8 * work.target_columns + 17)


def refit_driver_bytes(work: Workload, settings: SelectionSettings) -> int:
    """Return the bytes of the driver while it factors the sums: all sums, and square matrices of one problem."""
    m, T, n_problems = settings.max_centers, work.n_targets, work.n_problems
    return n_problems * (4 * (m + 1) * (m + 2) + 2 * 8 * (m + 1) ** 2 + 8 * T * (m + 1)) + 6 * 8 * (m + 1) ** 2
