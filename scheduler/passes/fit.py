"""What every fit by passes over blocks does: keep to its plan, do arithmetic on one thread, count what it costs.

The methods themselves are in `distkern.methods`, what they do with blocks is beside this module, and the engine of the
OROLS family has its own loop (`distkern.scheduler.training`).
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
    """One fit: its plan, where blocks are, and what it has cost so far."""

    plan: Plan
    """What it was planned to take."""
    tasks: BlockTasks
    """Where functions of blocks run."""
    n_rows: int
    """Rows of the model's training so far."""
    n_features: int
    """Features of each."""
    n_targets: int = 1
    """Encoded target columns."""
    n_centers: int = 0
    """Rows that the model is expanded in."""
    rounds: int = 0
    """Steps of the method."""
    exchanges: int = 0
    """Times that something went out to where blocks are and came back."""
    kernel_columns: int = 0
    """Kernel columns that were computed, those that were computed again too."""
    passes: int = 0
    """Times that X was read."""
    bytes_read: int = 0
    """Bytes of that."""
    seconds: float = 0.0
    """From the first read to the model."""
    peak_rss_worker: int = 0
    """Largest resident set of a worker process."""

    def summary(self) -> dict[str, Any]:
        """Return what `summary_` shows."""
        counts = {name: value for name, value in vars(self).items() if name not in ("plan", "tasks")}
        return {**counts, "planned_peak_bytes": self.plan.peak, "peak_rss_driver": peak_rss()}


@contextmanager
def fit_by_passes(plan: Plan, source: BlockSource, client: Any, *, classification: bool, advice: str) -> Iterator[Fit]:
    """Run one fit: what does not fit is refused before anything is read.

    Parameters
    ----------
    plan : Plan
        What the fit will take.
    source : BlockSource
        Training rows.
    client : distributed.Client or None
        Workers; the threads of this process if None.
    classification : bool
        Whether targets are labels.
    advice : str
        What to do where memory runs out all the same.

    Raises
    ------
    BudgetError
        ``memory``: the plan does not fit. ``out-of-memory``: less was there than planned for.
    """
    started = perf_counter()
    with within(plan, advice), block_tasks(source, classification=classification, client=client) as tasks:
        fit = Fit(plan, tasks, source.n_rows, source.n_features)
        yield fit
    fit.seconds = perf_counter() - started
    fit.peak_rss_worker = 0 if client is None else peak_of_workers(client)
