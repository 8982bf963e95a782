"""A cross-validated search over settings: groups that share passes, planned like trainings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.events import EventBus, Subscriber
from distkern.kernels import Kernel
from distkern.scheduler.backends import AnnouncingBackend
from distkern.scheduler.cross_validation import VARIED, cross_validate
from distkern.scheduler.memory import Workload
from distkern.scheduler.pass_plan import out_of_memory
from distkern.scheduler.plan import TrainingPlan
from distkern.scheduler.problems import Folds
from distkern.scheduler.running import make_backend, plan_job, problem_counts, target_count
from distkern.scheduler.training import TrainingJob
from distkern.scheduler.workers import WorkerFacts, worker_facts
from distkern.storage.source import BlockSource

Array = NDArray[np.float64]


PROBLEMS_IN_MEMORY = 20
"""Models trained side by side on arrays in memory: of 5 to 50, 10 and 20 took the least time each (7494 rows)."""


@dataclass(frozen=True)
class SearchResult:
    """Errors of all settings on all folds."""

    errors: Array
    """(n_settings, n_folds): fraction of wrong labels, or mean squared error summed over targets."""
    n_centers: NDArray[np.int64]
    """(n_settings, n_folds): centres of each model."""
    kernels: list[Kernel]
    """Of each setting."""
    passes: int
    """Reads of X."""
    bytes_read: int
    """Bytes of the arrays that were read."""
    seconds: float

    @property
    def best(self) -> int:
        """The first of the settings with the lowest mean error."""
        return int(np.argmin(self.errors.mean(axis=1)))


def search_settings(
    jobs: Sequence[TrainingJob],
    n_folds: int,
    source: BlockSource,
    *,
    client: Any = None,
    factors: str = "auto",
    memory_limit: int | None = None,
    subscribers: Iterable[Subscriber] = (),
) -> SearchResult:
    """Cross-validate settings, as many side by side as fit into memory.

    Parameters
    ----------
    jobs : sequence of TrainingJob
        One a setting.
    n_folds : int
        Folds, at least 2.
    source : BlockSource
        Training rows.
    client, factors, memory_limit, subscribers
        As for `run_training`.

    Returns
    -------
    SearchResult

    Raises
    ------
    DataError
        The rows cannot be trained on.
    BudgetError
        One setting does not fit, whatever goes to scratch.
    """
    started = perf_counter()
    events = EventBus(subscribers)
    facts = None if client is None else worker_facts(client)
    errors = np.zeros((len(jobs), n_folds))
    n_centers = np.zeros((len(jobs), n_folds), dtype=np.int64)
    kernels: dict[int, Kernel] = {}
    passes = bytes_read = 0
    for members in _alike(jobs):
        while members:
            group, plan = _largest_group([jobs[i] for i in members], n_folds, source, facts, factors, memory_limit)
            now, members = members[: len(group)], members[len(group) :]
            plan.require_fit()
            executor, backend = make_backend(source, client, events, plan)
            try:
                found = cross_validate(
                    group,
                    Folds(n_folds, group[0].seed),
                    source,
                    AnnouncingBackend(backend, events, plan.peak, "search"),
                    events,
                )
            except MemoryError as error:
                advice = "free memory, lower memory_limit ([cluster] memory), or use more workers"
                raise out_of_memory(plan.peak, error, advice) from error
            finally:
                executor.close()
            errors[now], n_centers[now] = found.errors, found.n_centers
            kernels |= dict(zip(now, found.kernels, strict=True))
            passes, bytes_read = passes + 1, bytes_read + found.bytes_read
    return SearchResult(
        errors, n_centers, [kernels[i] for i in range(len(jobs))], passes, bytes_read, perf_counter() - started
    )


def _alike(jobs: Sequence[TrainingJob]) -> list[list[int]]:
    """Group the settings that the same blocks can serve, each group in order."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, job in enumerate(jobs):
        kernel = job.kernel.stationary if isinstance(job.kernel, Kernel) else job.kernel
        fixed = tuple(getattr(job, f.name) for f in fields(job) if f.name not in VARIED)
        # Rows that are held out for one setting would be missed by another.
        groups.setdefault((kernel, job.stop == "validation", *fixed), []).append(index)
    return list(groups.values())


def _largest_group(
    jobs: Sequence[TrainingJob],
    n_folds: int,
    source: BlockSource,
    facts: WorkerFacts | None,
    factors: str,
    memory_limit: int | None,
) -> tuple[list[TrainingJob], TrainingPlan]:
    """Return a prefix of the settings whose row matrices all fit into memory, at least one setting."""
    widest = max(jobs, key=lambda job: job.max_centers)
    widest = replace(widest, sigma=max(jobs, key=lambda job: job.n_widths).sigma)

    def plan(count: int) -> TrainingPlan:
        n_targets = target_count(widest, source)
        n_problems, memberships = problem_counts(widest.multiclass, n_targets)
        work = Workload.of(source, n_targets, count * n_folds * n_problems, count * (n_folds - 1) * memberships)
        return plan_job(widest, work, facts, factors=factors, memory_limit=memory_limit)

    def fits(count: int) -> bool:
        planned = plan(count)
        memory = planned.worker
        return memory.scratch.total == 0 and (memory.limit is None or memory.fixed <= memory.limit)

    # Where a pass costs nothing, fewer problems at a time stay in the processor's cache from one exchange to the next.
    most = max(1, PROBLEMS_IN_MEMORY // n_folds) if source.inline else len(jobs)
    count = 1
    while count < min(len(jobs), most) and fits(count + 1):
        count += 1
    return list(jobs[:count]), plan(count)
