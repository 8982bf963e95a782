"""Bytes of the engine's buffers, from shapes alone: ints in, ints out, a term a buffer.

A process that holds blocks keeps some arrays in memory whatever the budget (marks, residuals, workspaces) and puts
row matrices (features, work, pool, Q) into what the budget leaves, in that order; the rest of them goes to scratch.
"""

from __future__ import annotations

from math import ceil, log2

from ..blocks.loo_rows import CANDIDATES_AT_ONCE
from ..blocks.pool_tiles import ELIMINATED, SLAB
from ..protocol.selection_settings import LOOKAHEAD_NEW, LOOKAHEAD_STEPS, LOOKAHEAD_WATCHED, SelectionSettings
from ..rows.data_checks import MEDIAN_SAMPLE
from ..rows.problem_rows import TILE_ROWS
from .plan import Memory
from .workload import Workload

ROW_DRAW = 12
"""Numbers a row that a draw computes: norms, random numbers, keys and their order."""

TERM_ADVICE = {
    "residual": "more workers, or selection_rows",
    "rows": "more workers, or selection_rows",
    "loading": "smaller chunks of X, or a number for sigma",
    "answers": "fewer max_centers, or fewer candidates",
    "columns": "factors='workers', or fewer candidates",
    "workspaces": "fewer max_centers, fewer candidates, or fewer threads a worker",
    "refit": "fewer max_centers, fewer threads a worker, or smaller chunks of X",
    "driver": "fewer max_centers, or fewer candidates",
}
"""What makes the largest term smaller."""


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
) -> Memory:
    """Compute the peak of a process that holds `n_rows` rows.

    Parameters
    ----------
    work : Workload
        Shapes of the whole training.
    n_rows : int
        Rows held here.
    settings : SelectionSettings
        Widths of pool, panel and batch.
    threads : int
        Width of the tile pool.
    is_driver : bool
        Whether the driver loop runs in the same process.
    limit : int
        Bytes the process may take beside the baseline.
    features, factors : bool
        Which row matrices are here; with `factors` in the driver they may be apart.
    columns_sent : bool
        Whether kernel columns go from blocks with features to blocks with factors.
    read_rows : int, optional
        Rows of the largest block as it is read, where only some of them are held.
    read_ahead : int
        Blocks that reads run ahead.
    refit : int
        Bytes of the final pass over all rows.
    """
    item = 4 if settings.single_precision else 8
    width = settings.panel + settings.batch
    answered = _answered(settings)
    columns = settings.max_centers + 1
    tile = max(1, min(TILE_ROWS, n_rows, work.block_rows))
    blocks = max(1, -(-n_rows // max(work.block_rows, 1)))
    problem_targets = max(2, work.targets_of_a_problem)
    levels = 2 + ceil(log2(max(2, work.block_rows / tile))) + ceil(log2(blocks + 1))
    # Partial sums that wait for their neighbour or their turn, and the merge of two.
    waiting = levels + 2 * threads + 3
    # Where a problem has some of the rows, they are picked from those that lie between.
    borrowed = item * (settings.pool + width + min(SLAB, columns)) + (3 if work.subsets else 1) * work.row_bytes
    drawn = ROW_DRAW * settings.n_widths
    made = item * (work.n_features + min(settings.pool, ELIMINATED) + 4 * width) + 8 * (3 * problem_targets + drawn)
    answers = answer_bytes(work, settings, n_rows, waiting) * factors
    sample = _rows_in_answers(MEDIAN_SAMPLE, n_rows, waiting) * work.row_bytes
    judged = 0
    if settings.criterion == "loo-error":
        # Shares and labels; candidates of two classes are judged together, others one by one.
        judged = 16
        made += 8 * (4 * CANDIDATES_AT_ONCE + 4 * problem_targets)
    if settings.criterion == "residual":
        # E after every step, its norms, and what is answered side by side.
        made += item * (settings.panel * problem_targets + answered) + 8 * settings.panel
    workspaces = threads * (tile * (borrowed + made) + columns * answered * item)
    copies = (
        min(threads, blocks)
        * (read_rows or work.block_rows)
        * (3 * work.row_bytes + 2 * 8 * work.n_features)
        * features
    )
    # Compressed and decoded.
    copies += read_ahead * (read_rows or work.block_rows) * (2 * work.row_bytes + 8 * work.target_columns) * features
    factor_rows = work.memberships * n_rows * item * factors
    terms = {
        # Row numbers, marks, row weights and raw targets.
        "rows": n_rows
        * (
            24 + work.memberships * (judged + (32 if work.subsets else 0) + settings.n_widths) + 8 * work.target_columns
        ),
        # E, and the encoded targets of the block that is being started.
        "residual": factor_rows * problem_targets + 3 * 8 * work.block_rows * work.n_targets * factors,
        # Copies while blocks are read; the sample for the median distance is gone before tiles run.
        "loading": copies + max(0, sample - workspaces - answers),
        # Tile buffers of all threads; partial sums on their way up the tree, and messages.
        "workspaces": workspaces,
        "answers": answers,
        # On their way to factors in the driver: as they are made or used, and as they are sent.
        "columns": 2 * work.memberships * n_rows * settings.batch * item * columns_sent,
        "refit": refit,
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
    """Bytes of `waiting` partial answers about `n_rows` rows, and of a message.

    Parameters
    ----------
    work : Workload
        Shapes of the whole training.
    settings : SelectionSettings
        Widths of pool, panel and batch.
    n_rows : int
        Rows that the answers are about.
    waiting : int
        Answers at the same time.
    """
    columns, width = settings.max_centers + 1, settings.panel + settings.batch
    answered = _answered(settings)
    targets = max(2, work.targets_of_a_problem)
    # S and R of the whole pool come along with every answer at worst.
    new = answered - settings.panel
    partial = 8 * (columns * answered + settings.pool * (new + targets + settings.pool + targets))
    message = 8 * (columns * width + settings.pool * settings.panel)
    drawn = _rows_in_answers(2 * settings.pool, n_rows, waiting) * work.row_bytes
    return work.n_problems * (waiting * partial + drawn + 4 * message)


def _answered(settings: SelectionSettings) -> int:
    """Columns whose products with Q are answered together."""
    return settings.panel + (LOOKAHEAD_NEW if settings.criterion == "residual" else settings.batch)


def _rows_in_answers(most: int, n_rows: int, waiting: int) -> int:
    """Rows with their features in partial answers, `most` in each; answers are of disjoint rows but for a merge."""
    return min(waiting * most, n_rows + 3 * min(most, n_rows))


def driver_bytes(settings: SelectionSettings, row_bytes: int) -> int:
    """Bytes of the driver loop for one problem.

    Parameters
    ----------
    settings : SelectionSettings
        Widths of pool, panel and batch.
    row_bytes : int
        Bytes of a row of X.

    Returns
    -------
    int
        U and the path's copy of it, the pool's coefficients and Gram matrices, the rows of all candidates, and the
        run log.
    """
    columns = settings.max_centers + 1
    looks_ahead = settings.criterion == "residual"
    rounds = -(-settings.max_centers // (LOOKAHEAD_STEPS if looks_ahead else max(1, settings.accept)))
    log = 8 * rounds * columns // 2 * (settings.batch + settings.panel) + 8 * rounds * settings.panel * settings.pool
    candidates = (settings.pool + (rounds + 1) * settings.batch + settings.max_centers) * row_bytes
    known = 8 * columns * (columns + settings.pool + LOOKAHEAD_WATCHED) if looks_ahead else 0
    return log + candidates + known + 8 * (2 * columns * columns + 2 * columns * settings.pool + 4 * settings.pool**2)


def refit_bytes(work: Workload, settings: SelectionSettings, threads: int, n_blocks: int) -> int:
    """Bytes of the final pass over all rows in a process of some blocks, beside what the selection holds."""
    m, T, block_rows, n_problems = settings.max_centers, work.n_targets, work.block_rows, work.n_problems
    # Packed triangles and products: of the blocks that run or wait to be summed, and one a level of the tree.
    sums = n_problems * 4 * (m + 1) * (m + 2) + 8 * max(T, 2 * n_problems) * (m + 2)
    in_flight = 2 * threads + 1 + ceil(log2(max(n_blocks, 1))) + 1
    # As read, as present rows only, and the raw targets, row numbers and weights likewise.
    rows = 2 * block_rows * (work.row_bytes + 8 * max(1, T if n_problems == 1 else 1) + 24)
    # Scaled features, kernel columns in the run's dtype, and [1 K] in float64; targets of a tile; the tile's product
    # as a square and packed.
    tile = TILE_ROWS * (2 * work.row_bytes + 8 * (2 * (m + 2) + 4 * T)) + 12 * (m + 2) ** 2
    preconditioners = n_problems * 8 * (m + 1) ** 2
    return sums * in_flight + threads * (rows + tile) + 2 * preconditioners


def refit_driver_bytes(work: Workload, settings: SelectionSettings) -> int:
    """Bytes of the driver while it factors the sums: those of all problems, and squares of the one at hand."""
    m, T, n_problems = settings.max_centers, work.n_targets, work.n_problems
    return n_problems * (4 * (m + 1) * (m + 2) + 2 * 8 * (m + 1) ** 2 + 8 * T * (m + 1)) + 6 * 8 * (m + 1) ** 2
