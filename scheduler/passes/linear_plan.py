"""Memory of the linear methods, from shapes alone."""

from __future__ import annotations

from math import ceil, log2

from distkern.methods.lms import GROUP

from ..planning.limits import WorkerFacts, default_limit
from ..planning.plan import Plan
from ..planning.workload import Workload
from ..runtime.threads import available_cores
from .class_statistics import tile_rows

LINEAR_ADVICE = "use fewer features or smaller chunks of X"


def plan_linear(
    work: Workload,
    facts: WorkerFacts | None,
    memory_limit: int | None,
    *,
    with_scatter: bool,
    again: int = 0,
    margins: bool = False,
) -> Plan:
    """Plan the training of a linear method.

    Parameters
    ----------
    work : Workload
        Shapes of the data.
    facts : WorkerFacts or None
        The workers; None for this process alone.
    memory_limit : int or None
        Bytes that a process with rows may take beside its baseline; None for most of the available memory.
    with_scatter : bool
        Whether the first pass computes the scatter of the classes.
    again : int
        Most passes after the first; 0 by default.
    margins : bool
        Whether blocks keep a number for each row and target in these passes; False by default.

    Returns
    -------
    Plan
        The plan, with the term ``held_rows`` where rows fit into memory and stay there between passes.
    """
    n_workers = 1 if facts is None else facts.n_workers
    together = facts is None or facts.in_process
    # With workers in one process it holds the blocks of all their threads.
    processes = n_workers if together else 1
    threads = (available_cores() if facts is None else facts.threads) * processes
    held_rows = work.rows_of_a_worker(n_workers) * processes
    d, T, n_classes = work.n_features, work.n_targets, max(2, work.n_targets)
    worker = {
        # Rows as read, and those of positive weight; the same for raw targets, row numbers and weights.
        "blocks": 2 * threads * work.block_rows * (2 * work.row_bytes + 64),
        "sums": _sums(work, n_classes, threads) if with_scatter else 2 * threads * work.block_rows * d * 8,
    }
    if again:
        # Scaled rows with a column of ones, also joined to pending rows; targets and arrays computed from them.
        scaled = work.block_rows * 8 * (3 * (d + 1) + 6 * T + 4)
        # LMS processes one block at a time. The sums are freed before.
        steps = (threads if margins else 1) * scaled + 8 * (GROUP * (GROUP + d + T) + 4 * (d + 1) * T)
        worker["steps"] = max(0, steps - worker["sums"])
    if margins:
        worker["margins"] = held_rows * T * 8
    # The factor of all rows, its inverse and temporary matrices; weights in several forms.
    driver = {"solution": 8 * (8 * d * d * with_scatter + (n_classes + 4 * T + 8) * (2 * d + T))}
    limit = memory_limit or default_limit(facts)
    if again:
        kept = {**worker, "held_rows": held_rows * (work.row_bytes + 8 * (work.target_columns + 2))}
        roomy = Plan.by_passes(work, 2, driver, kept, together=together, limit=limit, advice=LINEAR_ADVICE)
        if roomy.fits:
            return roomy
    return Plan.by_passes(work, 1 + again, driver, worker, together=together, limit=limit, advice=LINEAR_ADVICE)


def _sums(work: Workload, n_classes: int, threads: int) -> int:
    """Return the bytes of the factors and means of blocks, and of their temporary arrays."""
    d = work.n_features
    # Moments are computed from a whole block in float64, the scatter from one tile at a time.
    moments = 2 * work.block_rows * d * 8
    tile = 5 * min(tile_rows(d), work.block_rows) * (d + 4) * 8
    partial = 8 * (d * d + n_classes * (d + 2))
    merging = 3 * 8 * (2 * d + n_classes) * d
    waiting = 2 * threads + ceil(log2(max(work.n_blocks, 1))) + 2
    return threads * (max(moments, tile) + merging) + waiting * partial


def keeps_rows(plan: Plan) -> bool:
    """Return whether rows stay in memory between passes."""
    return "held_rows" in plan.terms
