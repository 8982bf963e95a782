"""What a training will take, before it starts: exchanges, bytes, products and memory, from shapes alone.

The plan assumes that the path runs to `max_centers`; a stop rule can only make it shorter.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from distkern.errors import BudgetError
from distkern.selection.rkhs_refit import norm_fit_bytes

from ..blocks.all_rows_pass import refit_bytes, refit_driver_bytes
from ..protocol.selection_settings import SelectionSettings
from .limits import FAN_IN
from .memory import BASELINE, MemoryPlan, Workload, answer_bytes, driver_bytes, plan_memory

STEPS_A_PANEL = 10
"""Exact steps of a panel with ``criterion="residual"`` that the plan counts on; 7 to 30 were seen."""


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of the matrix products over all rows, over the whole path."""

    kernel: int
    """Inner products of the kernel columns."""
    projection: int
    """Q'K and K - Qc for new candidates, both passes for accepted ones."""
    pool: int
    """Panels taken out of the pool, and the pool's products with new candidates."""
    update: int
    """Residuals and products with them."""
    refit: int
    """Kernel columns of all centres and their Gram matrix over all rows, with `selection_rows`."""

    @property
    def total(self) -> int:
        """Sum of the terms."""
        return self.kernel + self.projection + self.pool + self.update + self.refit


@dataclass(frozen=True)
class SearchPlan:
    """What a search over settings will take, at most."""

    models: int
    """Trainings, one a setting and fold; those that cannot win any more are left out."""
    at_a_time: int
    """Most models that are trained side by side."""
    largest: TrainingPlan
    """Training of so many."""


@dataclass(frozen=True)
class TrainingPlan:
    """What a training will take, at most."""

    work: Workload
    """Shapes."""
    selected_rows: int
    """Rows that selection looks at."""
    n_workers: int
    """Processes that hold blocks."""
    threads: int
    """Threads of each."""
    rounds: int
    """Draws of candidates, one before each panel."""
    exchanges: int
    """Driver-workers-driver exchanges."""
    kernel_columns: int
    """Kernel columns computed."""
    passes: int
    """Reads of X."""
    flops: Flops
    """Matrix products."""
    bytes_read: int
    """Of X and y from the store, by all workers."""
    scratch_written: int
    """To scratch, by all workers."""
    scratch_read: int
    """From scratch, by all workers."""
    bytes_sent: int
    """Messages to all workers and answers from them."""
    in_driver: bool
    """Whether the factors live in the driver's process."""
    together: bool
    """Whether that process also holds the features: there are no workers, or they are threads of it."""
    worker: MemoryPlan
    """Memory of the largest process that holds factors."""
    features: MemoryPlan | None
    """Memory of the largest process that holds features only, where there are such."""
    driver_peak: int
    """Peak of the driver's process."""
    read_ahead: int = 0
    """Blocks that reads run ahead of the work, where requests wait on a network."""
    norm_refit: int = 0
    """Bytes that the driver's process takes for ``refit="rkhs"``, after the rows are gone, beside its baseline."""
    search: SearchPlan | None = None
    """The search that the training begins with, where there is one; other fields but the peaks are without it."""

    @property
    def peak(self) -> int:
        """Peak of the largest process that holds blocks."""
        searching = 0 if self.search is None else self.search.largest.peak
        here = BASELINE + self.norm_refit if self.norm_refit and (self.in_driver or self.together) else 0
        return max(self.worker.total, 0 if self.features is None else self.features.total, here, searching)

    def require_fit(self) -> None:
        """Refuse a job that does not fit even with every row matrix in scratch.

        Raises
        ------
        BudgetError
            ``memory``: names the bytes, the limit and what to change.
        """
        if self.search is not None:
            self.search.largest.require_fit()
        self.worker.require_fit()
        if self.features is not None:
            self.features.require_fit()
        limit = self.worker.limit if self.in_driver or self.together else None
        if limit is not None and self.norm_refit > limit:
            raise BudgetError(
                f"refit='rkhs' needs {self.norm_refit >> 20} MiB in this process beside the interpreter's "
                f"{BASELINE >> 20} MiB, and the limit is {limit >> 20} MiB: raise memory_limit ([cluster] memory), or "
                "use fewer max_centers, or refit=None",
                kind="memory",
            )

    @property
    def worker_room(self) -> int | None:
        """Bytes of row matrices that each worker may keep in memory, None for no limit."""
        if self.features is not None:
            return self.features.room
        room = self.worker.room
        if room is None or not self.together or not self.worker.scratch.total:
            return room
        return (self.worker.resident.features if self.in_driver else room) // self.n_workers

    @property
    def driver_room(self) -> int | None:
        """Bytes of row matrices that the factors in the driver may keep in memory, None for no limit."""
        room = self.worker.room
        shared = room is not None and self.together and self.worker.scratch.total > 0
        return room - self.worker.resident.features if shared and room is not None else room

    def record(self) -> dict[str, Any]:
        """Return the plan as plain numbers, flat but for the terms of the memory and of the products."""
        plain = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in ("work", "flops", "worker", "features", "driver_peak", "search")
        }
        if self.search is not None:
            plain["search"] = {"models": self.search.models, "at_a_time": self.search.at_a_time}
        return {
            **self.work.record(),
            **plain,
            "flops": {f.name: getattr(self.flops, f.name) for f in fields(self.flops)} | {"total": self.flops.total},
            "planned_peak_bytes": self.peak,
            "planned_peak_driver": self.driver_peak,
            "memory_limit": self.worker.limit,
            "scratch_bytes": self.worker.scratch.total,
            "memory": self.worker.terms(),
        }


def plan_training(
    work: Workload,
    settings: SelectionSettings,
    *,
    n_workers: int,
    threads: int,
    limit: int | None,
    in_driver: bool = False,
    together: bool = False,
    feature_limit: int | None = None,
    feature_threads: int = 1,
    selected_rows: int | None = None,
    norm_refit: bool = False,
) -> TrainingPlan:
    """Plan a training.

    Parameters
    ----------
    work : Workload
        Shapes.
    settings : SelectionSettings
        Widths of pool, panel and batch.
    n_workers : int
        Processes that hold blocks, or threads that act as such.
    threads : int
        Tile threads of a process that holds factors.
    limit : int, optional
        Bytes a process that holds factors may take beside its baseline.
    in_driver : bool
        Whether the factors live in the driver's process.
    together : bool
        Whether the driver's process holds everything.
    feature_limit : int, optional
        Bytes a process that holds features only may take beside its baseline.
    feature_threads : int
        Tile threads of such a process.
    selected_rows : int, optional
        Rows that selection looks at, if not all.
    norm_refit : bool
        Whether the final weights are those of ``refit="rkhs"``.

    Returns
    -------
    TrainingPlan
    """
    rows = work.n_rows if selected_rows is None else min(selected_rows, work.n_rows)
    sampled = rows < work.n_rows
    chosen = (
        replace(work, n_rows=rows, block_rows=max(1, -(-rows * work.block_rows // work.n_rows))) if sampled else work
    )
    share = min(rows, -(-work.rows_of_a_worker(n_workers) * rows // work.n_rows))
    here = in_driver or together
    final_pass = final_driver = 0
    if sampled:
        blocks = work.n_blocks if together else -(-work.n_blocks // n_workers)
        shape = settings.max_centers, work.n_targets, work.n_problems
        final_driver = refit_driver_bytes(*shape)
        final_pass = refit_bytes(*shape, work.block_rows, work.row_bytes, threads, blocks)
    memory = plan_memory(
        chosen,
        rows if here else share,
        settings,
        threads=threads,
        is_driver=here,
        limit=limit,
        features=together or not in_driver,
        columns_sent=in_driver,
        read_rows=work.block_rows,
        read_ahead=work.read_ahead(limit),
        refit=(0 if in_driver and not together else final_pass) + (final_driver if here else 0),
    )
    features = None
    if in_driver and not together:
        features = plan_memory(
            chosen,
            share,
            settings,
            threads=feature_threads,
            is_driver=False,
            limit=feature_limit,
            factors=False,
            columns_sent=True,
            read_rows=work.block_rows,
            read_ahead=work.read_ahead(feature_limit),
            refit=final_pass,
        )
    course = _Course.of(settings)
    flops = _flops(rows, work, settings)
    message, answer = _message_bytes(settings, work)
    senders = min(n_workers, work.n_blocks)
    written, read = _scratch_traffic(memory, settings, 1 if here else senders)
    if features is not None:
        more_written, more_read = _scratch_traffic(features, settings, senders)
        written, read = written + more_written, read + more_read
    driver = work.n_problems * driver_bytes(settings, work.row_bytes) + final_driver
    refitted = norm_refit * _norm_refit_bytes(settings, work)
    # A worker's blocks are a few whole subtrees; their sums wait for those of the other workers.
    waiting = min(senders, FAN_IN) * min(2 * work.n_blocks.bit_length(), -(-work.n_blocks // senders)) + 3
    return TrainingPlan(
        work=work,
        selected_rows=rows,
        n_workers=n_workers,
        threads=threads,
        rounds=course.rounds,
        exchanges=course.exchanges + sampled,
        kernel_columns=course.columns * work.n_problems,
        passes=2 if sampled else 1,
        flops=flops,
        bytes_read=(2 if sampled else 1) * work.n_rows * (work.row_bytes + 8 * work.target_columns),
        scratch_written=written,
        scratch_read=read,
        bytes_sent=course.exchanges * (message + answer) * senders * work.n_problems,
        in_driver=in_driver,
        together=together,
        worker=memory,
        features=features,
        driver_peak=max(
            memory.total if here else BASELINE + driver + answer_bytes(work, settings, rows, waiting),
            BASELINE + refitted,
        ),
        read_ahead=work.read_ahead(limit if features is None else feature_limit),
        norm_refit=refitted,
    )


@dataclass(frozen=True)
class _Course:
    """A full path, from the settings alone."""

    steps: int
    """Pairs of exchanges: a batch of kernel columns or a panel is formed, then finished."""
    panels: int
    """Panels appended."""
    rounds: int
    """Draws of candidates."""
    exchanges: int
    """Driver-workers-driver exchanges."""
    columns: int
    """Kernel columns of one problem."""

    @classmethod
    def of(cls, settings: SelectionSettings) -> _Course:
        m = settings.max_centers
        if settings.criterion == "residual":
            panels = -(-m // STEPS_A_PANEL)
            return cls(panels, panels, panels, 2 + 3 * panels, settings.pool + 2 * m)
        filling = -(-settings.pool // settings.batch)
        panels = -(-m // settings.accept)
        columns = settings.pool if settings.all_rows else settings.pool + panels * settings.batch
        judged = panels if settings.criterion == "loo-error" else 0
        return cls(filling + panels, panels, 1 + panels, 2 + 2 * (filling + panels) + judged, columns)


def _norm_refit_bytes(settings: SelectionSettings, work: Workload) -> int:
    """Bytes of the paths, their centres and the fit of one of them."""
    m, targets = settings.max_centers, -(-work.n_targets // work.n_problems)
    paths = work.n_problems * (8 * (m + 1) ** 2 + 3 * m * (work.row_bytes + 8 * work.n_features))
    return paths + norm_fit_bytes(m, targets)


def _flops(rows: int, work: Workload, settings: SelectionSettings) -> Flops:
    m, p, new = settings.max_centers, settings.panel, settings.batch
    panels = -(-m // max(1, settings.accept))
    if settings.criterion == "residual":
        panels, p, new = -(-m // STEPS_A_PANEL), 2 * STEPS_A_PANEL, 2 * STEPS_A_PANEL
    mean = (m + 1) / 2
    fresh = 0 if settings.all_rows else new
    columns = settings.pool + panels * fresh
    each = 2 * rows * work.memberships
    return Flops(
        kernel=int(each * columns * work.n_features),
        projection=int(each * panels * mean * (p + 2 * fresh + p)),
        pool=int(each * settings.pool * (settings.pool + panels * (p + fresh))),
        update=int(each * work.targets_of_a_problem * panels * (2 * p + fresh)),
        refit=work.n_rows * work.memberships * m * (2 * work.n_features + m) if rows < work.n_rows else 0,
    )


def _scratch_traffic(memory: MemoryPlan, settings: SelectionSettings, processes: int) -> tuple[int, int]:
    """Bytes written to and read from scratch over a full path, by processes that are all like one."""
    out, course = memory.scratch, _Course.of(settings)
    # A step writes work twice and the pool once, and reads each three times, features for kernel columns and for a
    # draw, and twice what Q has so far, half of it on average.
    written = out.features + course.steps * (2 * out.work + out.pool) + out.factors
    read = course.steps * (3 * out.work + 3 * out.pool + 2 * out.features) + course.panels * out.factors
    return processes * written, processes * read


def _message_bytes(settings: SelectionSettings, work: Workload) -> tuple[int, int]:
    """Bytes of an average message, and of an average answer of one worker."""
    columns = (settings.max_centers + 1) // 2
    targets = work.targets_of_a_problem
    message = 8 * (columns * (settings.batch + settings.panel) + settings.panel * settings.pool) // 2
    answer = 8 * (columns * (settings.batch + settings.panel) + settings.pool * (settings.batch + targets)) // 2
    return message, answer
