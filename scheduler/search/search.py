"""A cross-validated search over settings, in groups that share passes.

Covers the order of passes and their plans; one pass is in `cross_validation`, the record on disk in `search_record`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.errors import DataError
from distkern.kernels import Kernel
from distkern.monitoring.events import EventBus, Subscriber
from distkern.storage.arrays.source import BlockSource

from ..clusters.worker_queries import worker_facts
from ..execution.layers import AnnouncingExecutor
from ..planning.plan import within
from ..protocol.problems import Folds
from ..training.driver_loop import TrainingJob
from ..training.run import MEMORY_ADVICE, announce_dashboard, make_executor, workload
from ..training.time_limit import TimeLimit
from .cross_validation import VARIED, Finish, cross_validate
from .elimination import SuccessiveElimination
from .search_plan import SearchRoom


@dataclass(frozen=True)
class SearchResult:
    """Errors of all settings on all folds."""

    errors: Array
    """(n_settings, n_folds): fraction of wrong labels, or mean squared error summed over targets; NaN where a
    setting was eliminated before."""
    n_centers: NDArray[np.int64]
    """(n_settings, n_folds): centres of each model, 0 where there is none."""
    trained: NDArray[np.bool_]
    """(n_settings, n_folds): mask of the models that were trained."""
    mean_errors: Array
    """(n_settings,): mean over the trained folds; that of an eliminated setting is above the lowest."""
    kernels: list[Kernel]
    """Kernel of each setting."""
    passes: int
    """Number of reads of X."""
    bytes_read: int
    """Bytes of the arrays that were read."""
    seconds: float
    planned_peak: int = 0
    """Largest planned resident set of a process that holds rows; 0 where the result was read from a run directory."""
    planned_driver_peak: int = 0
    """The same of the driver."""

    @property
    def best(self) -> int:
        """The first of the settings with the lowest mean error."""
        return int(np.nanargmin(self.mean_errors))


def search_settings(
    jobs: Sequence[TrainingJob],
    n_folds: int,
    source: BlockSource,
    *,
    finishes: Sequence[Finish] | None = None,
    leave_out: bool = True,
    client: Any = None,
    factors: str = "auto",
    memory_limit: int | None = None,
    subscribers: Iterable[Subscriber] = (),
    limit: TimeLimit | None = None,
) -> SearchResult:
    """Cross-validate settings, as many in one pass as fit into memory.

    Parameters
    ----------
    jobs : sequence of TrainingJob
        One for each setting.
    n_folds : int
        Number of folds, at least 2.
    source : BlockSource
        Training rows.
    finishes : sequence of Finish, optional
        Step from paths to model for each setting, as for `cross_validate`.
    leave_out : bool
        Whether settings that cannot have the lowest mean are eliminated between passes (default).
    client, factors, memory_limit, subscribers
        As for `run_training`.
    limit : TimeLimit, optional
        Time limit of the search; none by default.

    Returns
    -------
    SearchResult

    Raises
    ------
    DataError
        The rows cannot be trained on.
    BudgetError
        One setting does not fit into memory even with scratch.
    RunError
        ``time-limit``.
    """
    if n_folds > source.n_rows:
        raise DataError(f"folds={n_folds}: there are {source.n_rows} rows only", kind="too-few-rows")
    limit = limit or TimeLimit()
    jobs = _on_common_rows([job.compared(source.n_rows) for job in jobs], source.n_rows)
    events = EventBus([limit, *subscribers])
    started = perf_counter()
    facts = None if client is None else worker_facts(client)
    elimination = SuccessiveElimination(len(jobs), n_folds, leave_out=leave_out)
    n_centers = np.zeros(elimination.errors.shape, dtype=np.int64)
    kernels: dict[int, Kernel] = {}
    passes = bytes_read = peak = driver_peak = 0
    try:
        announce_dashboard(client, events)
        for members in _alike(jobs):
            together = [jobs[i] for i in members]
            work = workload(together[0], source)
            room = SearchRoom(together, n_folds, work, facts, factors=factors, memory_limit=memory_limit)
            while models := elimination.next_models(members, room.most):
                plan = room.plan(len(models))
                peak, driver_peak = max(peak, plan.peak), max(driver_peak, plan.driver_peak)
                group = sorted({setting for setting, _ in models})
                with within(plan, MEMORY_ADVICE), closing(make_executor(source, client, events, plan)) as executor:
                    found = cross_validate(
                        [jobs[i] for i in group],
                        [(group.index(setting), fold) for setting, fold in models],
                        Folds(n_folds, jobs[group[0]].seed),
                        source,
                        AnnouncingExecutor(executor, events, plan.peak, "search"),
                        events,
                        None if finishes is None else [finishes[i] for i in group],
                        limit,
                        interleaved=client is None,
                    )
                elimination.note(models, found.errors)
                n_centers[tuple(np.transpose(models))] = found.n_centers
                kernels |= dict(zip(group, found.kernels, strict=True))
                passes, bytes_read = passes + 1, bytes_read + found.bytes_read
    except BaseException as error:
        events.cut_short(error)
        raise
    return SearchResult(
        errors=elimination.errors,
        n_centers=n_centers,
        trained=elimination.trained,
        mean_errors=elimination.means(),
        kernels=[kernels[i] for i in range(len(jobs))],
        passes=passes,
        bytes_read=bytes_read,
        seconds=perf_counter() - started,
        planned_peak=peak,
        planned_driver_peak=driver_peak,
    )


def _on_common_rows(jobs: Sequence[TrainingJob], n_rows: int) -> list[TrainingJob]:
    """Give all jobs the rows of the largest sample, all rows if one has no sample: errors are compared on one set."""
    sizes = [job.sampled_rows(n_rows) for job in jobs]
    rows = max(sizes, default=0) if all(sizes) else None
    return [replace(job, selection_rows=rows) for job in jobs]


def _alike(jobs: Sequence[TrainingJob]) -> list[list[int]]:
    """Group the settings that can share the state of the blocks, each group in order."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, job in enumerate(jobs):
        kernel = job.kernel.stationary if isinstance(job.kernel, Kernel) else job.kernel
        fixed = tuple(getattr(job, f.name) for f in fields(job) if f.name not in (*VARIED, "scaling"))
        # Rows that are held out for one setting would be missed by another. A learnt map has no hash.
        groups.setdefault((kernel, job.holds_out, id(job.scaling), *fixed), []).append(index)
    return list(groups.values())
