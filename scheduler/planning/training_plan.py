"""The plan of a training by the engine: exchanges, bytes, products and memory, from shapes alone.

The plan assumes that the path has `max_centers` centres; a stop rule can only make it shorter. The terms of the memory
are in `memory`, the plans of other methods in `..passes`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from distkern.selection.rkhs_refit import norm_fit_bytes

from ..protocol.selected_rows import part_count
from ..protocol.selection_settings import SelectionSettings
from ..runtime.threads import available_cores
from .large_plan import CONJUGATE_GRADIENTS, FACTORS, LargeModel
from .limits import WorkerFacts, results_fetched
from .loss_plan import LossPlan
from .memory import answer_bytes, driver_bytes, plan_memory, refit_bytes, refit_driver_bytes, sample_bytes
from .plan import BASELINE, Course, Memory, Plan
from .workload import Workload

STEPS_A_PANEL = 10
"""Assumed steps of a panel with ``criterion="residual"``; panels had 7 to 30 in trainings."""


def plan_training(
    work: Workload,
    settings: SelectionSettings,
    facts: WorkerFacts,
    *,
    threads: int,
    limit: int,
    in_driver: bool = False,
    feature_limit: int = 0,
    selected_rows: int | None = None,
    norm_refit: bool = False,
    large: LargeModel | None = None,
    losses: LossPlan | None = None,
) -> Plan:
    """Plan a training.

    Parameters
    ----------
    work : Workload
        Shapes of the data.
    settings : SelectionSettings
        Widths of pool, panel and batch.
    facts : WorkerFacts
        Processes that hold blocks, which may be threads of the driver's process.
    threads : int
        Tile threads of a process with factors.
    limit : int
        Bytes that a process with factors may take beside its baseline.
    in_driver : bool
        Whether the factors are in the driver's process; False by default.
    feature_limit : int
        Bytes that a process with features only may take beside its baseline; 0 by default.
    selected_rows : int, optional
        Rows on which centres are selected; all by default.
    norm_refit : bool
        Whether the final weights are those of ``refit="rkhs"``; False by default.
    large : LargeModel, optional
        Draws and conjugate gradients after the selection; by default a Gram matrix over all rows, if only some select.
    losses : LossPlan, optional
        The fit of a loss other than the square after that; none by default.
    """
    n_workers, together = facts.n_workers, facts.in_process
    rows = work.n_rows if selected_rows is None else min(selected_rows, work.n_rows)
    sampled = rows < work.n_rows
    chosen, share = work, work.rows_of_a_worker(n_workers)
    here = in_driver or together
    final_pass = final_driver = collected = 0
    blocks = work.n_blocks if together else -(-work.n_blocks // n_workers)
    if sampled:
        parts = part_count(rows, work.n_blocks)
        chosen = replace(work, n_rows=rows, block_rows=-(-rows // parts))
        # Parts are spread evenly over the blocks.
        share = min(rows, -(-parts * -(-work.n_blocks // n_workers) // work.n_blocks) * chosen.block_rows)
        collected = sample_bytes(work, rows)
        final_driver = refit_driver_bytes(work, settings)
        final_pass = refit_bytes(work, settings, threads, blocks)
    if large is not None:
        final_driver = large.driver_bytes(work, available_cores())
        final_pass = large.pass_bytes(work, threads, blocks)
    if losses is not None:
        final_driver = max(final_driver, losses.driver_bytes(work))
        final_pass = max(final_pass, losses.pass_bytes(work, threads, blocks))
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
        sample=collected,
    )
    features = None
    if in_driver and not together:
        features = plan_memory(
            chosen,
            share,
            settings,
            threads=facts.threads,
            is_driver=False,
            limit=feature_limit,
            factors=False,
            columns_sent=True,
            read_rows=work.block_rows,
            read_ahead=work.read_ahead(feature_limit),
            refit=final_pass,
            sample=collected,
        )
    path = _Path.of(settings)
    message, answer = _message_bytes(settings, work)
    senders = min(n_workers, work.n_blocks)
    written, read = _scratch_traffic(memory, path, 1 if here else senders)
    if features is not None:
        more_written, more_read = _scratch_traffic(features, path, senders)
        written, read = written + more_written, read + more_read
    # The blocks of a worker or a tree are a few whole subtrees; their sums wait for those of the others.
    fetched = results_fetched(senders)
    waiting = fetched * min(2 * work.n_blocks.bit_length(), -(-work.n_blocks // fetched)) + 3
    driver = work.n_problems * driver_bytes(settings, work.row_bytes) + final_driver + collected
    apart = BASELINE + driver + answer_bytes(work, settings, rows, waiting) + work.lazy_results
    refitted = norm_refit * _norm_refit_bytes(settings, work)
    processes = [memory] if features is None else [memory, features]
    if refitted and here:
        advice = "use fewer max_centers, or refit=None"
        processes.append(Memory({"refit='rkhs'": refitted}, limit, advice))
    passes = 1 + (sampled if large is None else work.n_problems * large.passes)
    flops = _flops(rows, work, settings)
    if losses is not None:
        passes += losses.passes
        flops["loss"] = losses.flops(work)
    if large is not None:
        flops["refit"] = large.flops(work)
    if large is not None or losses is not None:
        flops["total"] = sum(value for name, value in flops.items() if name != "total")
    compared = settings.single_precision and large is None  # float32 compares the model with its fit
    course = Course(
        selected_rows=rows,
        n_workers=n_workers,
        threads=threads,
        rounds=path.rounds,
        exchanges=path.exchanges + passes - 1 + compared,
        kernel_columns=path.columns * work.n_problems,
        flops=flops,
        bytes_read=passes * work.n_rows * (work.row_bytes + 8 * work.target_columns),
        scratch_bytes=memory.scratch_bytes,
        scratch_written=written,
        scratch_read=read,
        bytes_sent=path.exchanges * (message + answer) * senders * work.n_problems,
        in_driver=in_driver,
        together=together,
        read_ahead=work.read_ahead(limit if features is None else feature_limit),
        norm_refit=refitted,
        solver=FACTORS if large is None else CONJUGATE_GRADIENTS,
        loss_passes=0 if losses is None else losses.passes,
        solving_seconds=0.0 if large is None else large.seconds(work, n_workers * threads if not here else threads),
    )
    worker_room = driver_room = memory.room
    if features is not None:
        worker_room = features.room
    elif together and memory.scratch_bytes:
        # Features and factors share the memory, and workers their part of it.
        driver_room = worker_room - memory.resident["features"]
        worker_room = (memory.resident["features"] if in_driver else worker_room) // n_workers
    driver_peak = max(memory.total if here else apart, BASELINE + refitted)
    return Plan(work, passes, tuple(processes), memory.named(), driver_peak, course, worker_room, driver_room)


@dataclass(frozen=True)
class _Path:
    """Numbers of a full path, from the settings alone."""

    steps: int
    """Pairs of exchanges, which form and finish a panel or a batch of kernel columns."""
    panels: int
    """Number of panels."""
    rounds: int
    """Draws of candidates."""
    exchanges: int
    """Number of exchanges."""
    columns: int
    """Kernel columns of one problem."""

    @classmethod
    def of(cls, settings: SelectionSettings) -> _Path:
        m = settings.max_centers
        if settings.criterion == "residual":
            panels = -(-m // STEPS_A_PANEL)
            return cls(panels, panels, panels, 2 + 3 * panels, settings.pool + 2 * m)
        filling = -(-settings.pool // settings.batch)
        panels = -(-m // settings.accept)
        columns = settings.pool if settings.all_rows else settings.pool + panels * settings.batch
        scored = panels if settings.criterion == "loo-error" else 0
        return cls(filling + panels, panels, 1 + panels, 2 + 2 * (filling + panels) + scored, columns)


def _norm_refit_bytes(settings: SelectionSettings, work: Workload) -> int:
    """Return the bytes of the paths, their centres and the fit of one of them."""
    m, targets = settings.max_centers, -(-work.n_targets // work.n_problems)
    paths = work.n_problems * (8 * (m + 1) ** 2 + 3 * m * (work.row_bytes + 8 * work.n_features))
    return paths + norm_fit_bytes(m, targets)


def _flops(rows: int, work: Workload, settings: SelectionSettings) -> dict[str, int]:
    m, p, new = settings.max_centers, settings.panel, settings.batch
    panels = -(-m // max(1, settings.accept))
    if settings.criterion == "residual":
        panels, p, new = -(-m // STEPS_A_PANEL), 2 * STEPS_A_PANEL, 2 * STEPS_A_PANEL
    mean = (m + 1) / 2
    fresh = 0 if settings.all_rows else new
    columns = settings.pool + panels * fresh
    each = 2 * rows * work.memberships
    flops = {
        # Inner products for kernel columns.
        "kernel": int(each * columns * work.n_features),
        # Q'K and K - Qc for new candidates, two passes for accepted ones.
        "projection": int(each * panels * mean * (p + 2 * fresh + p)),
        # Orthogonalisation of the pool against panels, and its products with new candidates.
        "pool": int(each * settings.pool * (settings.pool + panels * (p + fresh))),
        # Residuals and products with them.
        "update": int(each * work.targets_of_a_problem * panels * (2 * p + fresh)),
        # Kernel columns of all centres and their Gram matrix over all rows, with `selection_rows`.
        "refit": work.n_rows * work.memberships * m * (2 * work.n_features + m) if rows < work.n_rows else 0,
    }
    return {**flops, "total": sum(flops.values())}


def _scratch_traffic(memory: Memory, path: _Path, processes: int) -> tuple[int, int]:
    """Return the bytes written to and read from scratch over a full path, by equal processes."""
    features, work, pool, factors = memory.scratch.values()
    # A step writes work twice and the pool once, and reads each three times. It reads features for kernel columns and
    # for a draw, and Q so far twice, which is half of Q on average.
    written = features + path.steps * (2 * work + pool) + factors
    read = path.steps * (3 * work + 3 * pool + 2 * features) + path.panels * factors
    return processes * written, processes * read


def _message_bytes(settings: SelectionSettings, work: Workload) -> tuple[int, int]:
    """Return the bytes of an average message, and of an average answer of one worker."""
    columns = (settings.max_centers + 1) // 2
    targets = work.targets_of_a_problem
    message = 8 * (columns * (settings.batch + settings.panel) + settings.panel * settings.pool) // 2
    answer = 8 * (columns * (settings.batch + settings.panel) + settings.pool * (settings.batch + targets)) // 2
    return message, answer
