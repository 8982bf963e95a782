"""Bytes of a training, from shapes alone: ints in, ints out, a term a buffer.

A process that holds blocks keeps some arrays in memory whatever the budget (marks, residuals, workspaces) and puts
row matrices (features, work, pool, Q) into what the budget leaves, in that order; the rest of them goes to scratch.
"""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import psutil

from distkern.errors import BudgetError
from distkern.storage import block_boundaries, chunk_rows_for
from distkern.storage.arrays.source import BlockSource

from ..blocks.loo_rows import CANDIDATES_AT_ONCE
from ..blocks.pool_tiles import ELIMINATED, SLAB
from ..protocol.selection_settings import LOOKAHEAD_NEW, LOOKAHEAD_STEPS, LOOKAHEAD_WATCHED, SelectionSettings
from ..rows.data_checks import MEDIAN_SAMPLE
from ..rows.problem_rows import TILE_ROWS
from ..runtime.read_ahead import blocks_ahead, is_far

MIB = 1 << 20

BASELINE = 250 * MIB
"""Bytes of an interpreter with numpy, scipy, zarr and dask loaded."""

ROW_DRAW = 12
"""Numbers a row that a draw computes: norms, random numbers, keys and their order."""

SHARE_OF_AVAILABLE = 0.7
"""What a training without a stated limit takes at most of the memory that it finds."""


@dataclass(frozen=True)
class Workload:
    """The shapes that decide how much a training needs."""

    n_rows: int
    """Rows of X."""
    n_features: int
    """Columns of X."""
    feature_itemsize: int
    """Bytes of a number of X as stored."""
    block_rows: int
    """Rows of the largest block."""
    n_blocks: int
    """Blocks."""
    target_columns: int
    """Columns of y as stored."""
    n_targets: int
    """Encoded target columns."""
    n_problems: int
    """Factor sets: one, one a class with one-vs-rest, one a pair of classes with one-vs-one."""
    memberships: int
    """Factor sets that each row takes part in."""
    far: bool = False
    """Whether reads wait on a network, and run ahead of the work."""
    inline: bool = False
    """Whether the rows are arrays in memory, and a pass over them reads nothing."""

    @classmethod
    def of(cls, source: BlockSource, n_targets: int, n_problems: int, memberships: int | None = None) -> Workload:
        """Take the shapes from a source; every row takes part in all problems unless said otherwise."""
        return cls(
            n_rows=source.n_rows,
            n_features=source.n_features,
            feature_itemsize=source.feature_dtype.itemsize,
            block_rows=max(b - a for a, b in itertools.pairwise(source.boundaries)),
            n_blocks=len(source.boundaries) - 1,
            target_columns=source.target_shape[0] if source.target_shape else 1,
            n_targets=n_targets,
            n_problems=n_problems,
            memberships=n_problems if memberships is None else memberships,
            far=is_far(source),
            inline=source.inline,
        )

    @classmethod
    def imagined(
        cls,
        n_rows: int,
        n_features: int,
        itemsize: int,
        n_targets: int,
        n_problems: int = 1,
        memberships: int | None = None,
        chunk_rows: int | None = None,
        target_columns: int = 1,
    ) -> Workload:
        """Shapes of data that does not exist, in chunks as distkern would write them."""
        row_bytes = n_features * itemsize
        boundaries = block_boundaries(n_rows, row_bytes, chunk_rows or chunk_rows_for(row_bytes, n_rows))
        return cls(
            n_rows=n_rows,
            n_features=n_features,
            feature_itemsize=itemsize,
            block_rows=boundaries[1],
            n_blocks=len(boundaries) - 1,
            target_columns=target_columns,
            n_targets=n_targets,
            n_problems=n_problems,
            memberships=n_problems if memberships is None else memberships,
        )

    @property
    def subsets(self) -> bool:
        """Whether a problem has some of the rows only."""
        return self.memberships < self.n_problems

    @property
    def targets_of_a_problem(self) -> int:
        """Most target columns of a problem."""
        return max(1, -(-self.n_targets // self.n_problems))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of X."""
        return self.n_features * self.feature_itemsize

    def record(self) -> dict[str, int]:
        """Return the shapes as plain numbers."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("far", "inline")}

    def read_ahead(self, limit: int | None) -> int:
        """Blocks that reads run ahead in a process that may take `limit` bytes."""
        return blocks_ahead(self.far, self.block_rows * self.row_bytes, limit)

    def rows_of_a_worker(self, n_workers: int) -> int:
        """Most rows that one of `n_workers` looks after."""
        return min(self.n_rows, -(-self.n_blocks // max(1, n_workers)) * self.block_rows)


@dataclass(frozen=True)
class RowMatrices:
    """Bytes of the matrices with a row for each row of the data."""

    features: int
    """Raw features of the blocks."""
    work: int
    """The formed panel and the batch of kernel columns."""
    pool: int
    """Orthogonalised candidates."""
    factors: int
    """Q, in slabs."""

    @property
    def total(self) -> int:
        """Sum of the terms."""
        return self.features + self.work + self.pool + self.factors

    def split(self, room: int | None) -> tuple[RowMatrices, RowMatrices]:
        """Fill `room` bytes in the order of the fields; return what is inside and what is not."""
        inside, left = [], self.total if room is None else max(room, 0)
        for field in fields(self):
            inside.append(min(left, getattr(self, field.name)))
            left -= inside[-1]
        taken = RowMatrices(*inside)
        return taken, RowMatrices(*(getattr(self, f.name) - getattr(taken, f.name) for f in fields(self)))


@dataclass(frozen=True)
class MemoryPlan:
    """Peak bytes of one process that holds blocks, a term a buffer."""

    baseline: int
    """The interpreter and its libraries."""
    rows: int
    """Row numbers, marks, row weights and raw targets."""
    residual: int
    """E, and the encoded targets of the block that is being started."""
    loading: int
    """Copies while blocks are read and their moments taken."""
    workspaces: int
    """Tile buffers of all threads."""
    answers: int
    """Partial sums on their way up the tree, and the messages."""
    columns: int
    """Kernel columns on their way from workers to factors in the driver."""
    refit: int
    """Sums and buffers of the final pass over all rows, with `selection_rows`."""
    driver: int
    """Coefficients, Gram matrices and the run log, where the driver is this process."""
    resident: RowMatrices
    """Row matrices in memory."""
    scratch: RowMatrices
    """Row matrices in scratch; no part of the peak."""
    limit: int | None
    """What the process may take beside the baseline; None for no limit."""

    @property
    def fixed(self) -> int:
        """Bytes that no budget can move to scratch, beside the baseline."""
        held = self.rows + self.residual + self.loading + self.workspaces + self.answers
        return held + self.columns + self.refit + self.driver

    @property
    def total(self) -> int:
        """Peak of the process."""
        return self.baseline + self.fixed + self.resident.total

    @property
    def room(self) -> int | None:
        """Bytes the limit leaves for row matrices."""
        return None if self.limit is None else max(0, self.limit - self.fixed)

    def terms(self) -> dict[str, int]:
        """Return the terms by name, ``resident_`` and ``scratch_`` before those of row matrices."""
        named = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("resident", "scratch", "limit")}
        for place in ("resident", "scratch"):
            matrices: RowMatrices = getattr(self, place)
            named |= {f"{place}_{f.name}": getattr(matrices, f.name) for f in fields(matrices)}
        return named

    def require_fit(self) -> None:
        """Refuse a job that does not fit even with every row matrix in scratch.

        Raises
        ------
        BudgetError
            ``memory``: names the bytes, the limit and what to change.
        """
        if self.limit is None or self.fixed <= self.limit:
            return
        advice = {
            "residual": "more workers, or selection_rows",
            "rows": "more workers, or selection_rows",
            "loading": "smaller chunks of X, or a number for sigma",
            "answers": "fewer max_centers, or fewer candidates",
            "columns": "factors='workers', or fewer candidates",
            "workspaces": "fewer max_centers, fewer candidates, or fewer threads a worker",
            "refit": "fewer max_centers, fewer threads a worker, or smaller chunks of X",
            "driver": "fewer max_centers, or fewer candidates",
        }
        largest = max(advice, key=lambda name: getattr(self, name))
        limit, most = _mib(self.limit), _mib(getattr(self, largest))
        who = "this process" if self.driver else "a worker"
        raise BudgetError(
            f"{who} needs {_mib(self.fixed)} beside the interpreter's {_mib(self.baseline)} even with every row matrix "
            f"in scratch, and the limit is {limit}; most of it is {largest} ({most}): "
            f"raise memory_limit ([cluster] memory), or use {advice[largest]}",
            kind="memory",
        )


def plan_memory(
    work: Workload,
    n_rows: int,
    settings: SelectionSettings,
    *,
    threads: int,
    is_driver: bool,
    limit: int | None = None,
    features: bool = True,
    factors: bool = True,
    columns_sent: bool = False,
    read_rows: int | None = None,
    read_ahead: int = 0,
    refit: int = 0,
) -> MemoryPlan:
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
    limit : int, optional
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
    levels = 2 + int(np.ceil(np.log2(max(2, work.block_rows / tile)))) + int(np.ceil(np.log2(blocks + 1)))
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
    need = RowMatrices(
        features=n_rows * work.row_bytes * features,
        work=factor_rows * width,
        pool=factor_rows * settings.pool,
        factors=factor_rows * columns,
    )
    fixed = {
        "rows": n_rows
        * (
            24 + work.memberships * (judged + (32 if work.subsets else 0) + settings.n_widths) + 8 * work.target_columns
        ),
        "residual": factor_rows * problem_targets + 3 * 8 * work.block_rows * work.n_targets * factors,
        # The sample for the median distance is gone before tiles run.
        "loading": copies + max(0, sample - workspaces - answers),
        "workspaces": workspaces,
        "answers": answers,
        # As they are made or used, and as they are sent.
        "columns": 2 * work.memberships * n_rows * settings.batch * item * columns_sent,
        "refit": refit,
        "driver": work.n_problems * driver_bytes(settings, work.row_bytes) if is_driver else 0,
    }
    room = None if limit is None else limit - sum(fixed.values())
    resident, scratch = need.split(room)
    return MemoryPlan(baseline=BASELINE, **fixed, resident=resident, scratch=scratch, limit=limit)


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


def available_memory(control_group: str | Path = "/sys/fs/cgroup") -> int:
    """Bytes this process may take now: what the machine has left, and its control group (a container, a batch job).

    Parameters
    ----------
    control_group : path-like
        Where the system shows the group's limits.
    """
    available = [psutil.virtual_memory().available]
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        path = Path(control_group, limit)
        with contextlib.suppress(OSError, ValueError):
            most = int(path.read_text())
            taken = int(Path(control_group, used).read_text()) - _cached_files(path.with_name("memory.stat"))
            available.append(most - taken)
    return max(0, min(available))


def _cached_files(stat: Path) -> int:
    """Bytes of a control group's files in memory that the system gives up on demand."""
    try:
        counts = dict(line.split() for line in stat.read_text().splitlines())
        return int(counts.get("total_inactive_file", counts.get("inactive_file", 0)))
    except (OSError, ValueError):
        return 0


def _mib(count: int) -> str:
    return f"{count / MIB:.0f} MiB"
