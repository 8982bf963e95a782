"""Memory of the linear methods, from shapes alone."""

from __future__ import annotations

from distkern.methods.lms import GROUP

from ..planning.limits import WorkerFacts, default_limit
from ..planning.memory import Workload
from ..planning.pass_plan import PassPlan
from ..runtime.threads import available_cores
from .class_statistics import statistics_bytes

ADVICE_WIDE = "raise it, or use fewer features or smaller chunks of X"


def plan_linear(
    work: Workload,
    facts: WorkerFacts | None,
    limit: int | None,
    *,
    with_scatter: bool,
    again: int = 0,
    margins: bool = False,
) -> PassPlan:
    """Plan the training of a linear method.

    Parameters
    ----------
    work : Workload
        Shapes; `n_targets` is the number of targets.
    facts : WorkerFacts, optional
        The workers; this process alone if not given.
    limit : int, optional
        Bytes that a process that holds rows may take beside its baseline.
    with_scatter : bool
        Whether the first pass takes the scatter of the classes.
    again : int
        Passes after the first, at most.
    margins : bool
        Whether those keep a number a row and target.

    Returns
    -------
    PassPlan
        Its worker term ``held_rows`` is there where rows stay in memory between passes, because they fit.
    """
    threads = available_cores() if facts is None else facts.threads
    n_workers = 1 if facts is None else facts.n_workers
    here = facts is None or facts.in_process
    allowed = limit or default_limit(facts)
    d, T, n_classes = work.n_features, work.n_targets, max(2, work.n_targets)
    # With workers in one process there are as many as all of them read at a time.
    processes = n_workers if facts is not None and here else 1
    held_rows = work.rows_of_a_worker(n_workers) * processes
    blocks, sums = statistics_bytes(
        d if with_scatter else 0, n_classes, work.block_rows, work.row_bytes, threads * processes, work.n_blocks
    )
    if not with_scatter:
        sums = 2 * threads * processes * work.block_rows * d * 8
    worker = {"blocks": blocks, "sums": sums}
    if again:
        # Scaled rows with a column of ones, also put behind those that wait; targets and what is made of them.
        scaled = work.block_rows * 8 * (3 * (d + 1) + 6 * T + 4)
        # LMS goes through one block at a time. The sums are gone by then.
        steps = (threads * processes if margins else 1) * scaled + 8 * (GROUP * (GROUP + d + T) + 4 * (d + 1) * T)
        worker["steps"] = max(0, steps - sums)
    if margins:
        worker["margins"] = held_rows * T * 8
    # The factor of all rows, its inverse and what makes them; weights in several forms.
    driver = {"solution": 8 * (8 * d * d * with_scatter + (n_classes + 4 * T + 8) * (2 * d + T))}
    plan = PassPlan(work, 1 + again, driver, worker, here, allowed, ADVICE_WIDE)
    if again:
        kept = {**worker, "held_rows": held_rows * (work.row_bytes + 8 * (work.target_columns + 2))}
        roomy = PassPlan(work, 2, driver, kept, here, allowed, ADVICE_WIDE)
        if roomy.needed <= roomy.limit:
            return roomy
    return plan


def keeps_rows(plan: PassPlan) -> bool:
    """Whether rows stay in memory between passes."""
    return "held_rows" in plan.worker
