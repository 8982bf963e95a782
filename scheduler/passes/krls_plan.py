"""Memory of kernel recursive least squares, from shapes and the number of centres."""

from __future__ import annotations

from math import ceil, log2

from distkern.methods.krls import GROUP_ROWS, SOLVE_ROWS

from ..planning.limits import WorkerFacts, default_limit
from ..planning.plan import Plan
from ..planning.workload import Workload
from ..rows.data_checks import MEDIAN_SAMPLE
from ..runtime.threads import available_cores

KRLS_ADVICE = "lower max_centers, raise nu, or use smaller chunks of X"


def plan_krls(work: Workload, facts: WorkerFacts | None, memory_limit: int | None, passes: int, m: int) -> Plan:
    """Plan for a dictionary of `m` centres; their final number is known only at the end.

    Parameters
    ----------
    work : Workload
        Shapes of the data.
    facts : WorkerFacts or None
        Workers; None for this process alone.
    memory_limit : int or None
        Bytes that a process may take beside its baseline; None for most of the available memory.
    passes : int
        Number of reads of X.
    m : int
        Number of centres.
    """
    together = facts is None or facts.in_process
    n_workers = 1 if facts is None else facts.n_workers
    threads = available_cores() if facts is None else facts.threads * (n_workers if together else 1)
    # Blocks of a wave that are searched at a time, in all processes.
    wave = min(threads * (1 if together else n_workers), work.n_blocks)
    targets = max(2, work.n_targets)
    row = work.row_bytes + 8 * work.target_columns + 16
    waiting = 2 * threads + ceil(log2(max(work.n_blocks, 1))) + 4
    sample = min(work.n_rows, waiting * MEDIAN_SAMPLE) * work.row_bytes
    loading = threads * work.block_rows * (2 * work.row_bytes + 16 * work.n_features) + sample
    driver = {
        # The packed factor while it grows, twice for sending, as a square, and that of the earlier model.
        "dictionary": 36 * m * m + 6 * m * (work.row_bytes + 8 * work.n_features),
        "survivors": 2 * wave * work.block_rows * (work.row_bytes + 9),
        "chunk": 8 * GROUP_ROWS * (2 * m + 3 * GROUP_ROWS + 2 * work.n_features),
        # Packed sums, and three square matrices for the solution.
        "solution": 32 * m * m + 8 * 5 * m * work.n_targets,
    }
    worker = {
        "blocks": (2 * threads + 1) * work.block_rows * row,
        "copies": threads * work.block_rows * (2 * row + 8 * 3 * targets),
        "loading": loading if passes > 1 else 0,
        "tiles": threads * min(SOLVE_ROWS, work.block_rows) * (32 * work.n_features + 28 * (m + 2) + 16 * targets),
        # Two dictionaries as sent; U unpacked and padded, R'R and its part of a tile.
        "dictionaries": 8 * m * m + 16 * m * work.n_features + threads * 8 * 5 * (m + 2) ** 2,
        "sums": waiting * (4 * m * m + 8 * m * targets),
    }
    limit = memory_limit or default_limit(None if together else facts)
    return Plan.by_passes(work, passes, driver, worker, together=together, limit=limit, advice=KRLS_ADVICE)
