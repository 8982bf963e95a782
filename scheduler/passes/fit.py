"""The frame of every fit by passes: its plan, one BLAS thread, its tasks and its summary.

The methods are in `distkern.methods`, their functions of blocks beside this module. The engine of the OROLS family has
its own loop in `..training`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from distkern.storage.arrays.source import BlockSource

from ..clusters.worker_queries import peak_of_workers
from ..planning.plan import Plan, within
from ..runtime.processes import peak_rss
from .block_tasks import BlockTasks, block_tasks


@dataclass
class Fit:
    """One fit: its plan, its tasks, and its costs so far."""

    plan: Plan
    """Plan of the fit."""
    tasks: BlockTasks
    """Runner of functions of blocks."""
    n_rows: int
    """Number of training rows of the model so far."""
    n_features: int
    """Number of features."""
    n_targets: int = 1
    """Number of encoded target columns."""
    n_centers: int = 0
    """Number of centres of the model."""
    rounds: int = 0
    """Number of steps of the method."""
    exchanges: int = 0
    """Number of exchanges with all blocks."""
    kernel_columns: int = 0
    """Number of computed kernel columns, repeated ones included."""
    passes: int = 0
    """Number of reads of X."""
    bytes_read: int = 0
    """Bytes read."""
    seconds: float = 0.0
    """Seconds from the first read to the model."""
    peak_rss_worker: int = 0
    """Largest resident set of a worker process."""

    def summary(self) -> dict[str, Any]:
        """Return the attribute `summary_` of an estimator."""
        counts = {name: value for name, value in vars(self).items() if name not in ("plan", "tasks")}
        return {**counts, "planned_peak_bytes": self.plan.peak, "peak_rss_driver": peak_rss()}


@contextmanager
def fit_by_passes(plan: Plan, source: BlockSource, client: Any, *, classification: bool, advice: str) -> Iterator[Fit]:
    """Run one fit; refuse a plan that does not fit before any data is read.

    Parameters
    ----------
    plan : Plan
        Plan of the fit.
    source : BlockSource
        Training rows.
    client : distributed.Client or None
        Cluster to use; None for the threads of this process.
    classification : bool
        Whether targets are labels.
    advice : str
        Settings to change where memory runs out in spite of the plan.

    Raises
    ------
    BudgetError
        ``memory``: the plan does not fit. ``out-of-memory``: less memory was available than planned.
    """
    started = perf_counter()
    with within(plan, advice), block_tasks(source, classification=classification, client=client) as tasks:
        fit = Fit(plan, tasks, source.n_rows, source.n_features)
        yield fit
    fit.seconds = perf_counter() - started
    fit.peak_rss_worker = 0 if client is None else peak_of_workers(client)
