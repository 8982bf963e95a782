"""What a cross-validated search takes, before it starts: models that are trained side by side, and their memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..planning.limits import WorkerFacts
from ..planning.memory import Workload
from ..planning.training_plan import SearchPlan, TrainingPlan
from ..training.driver_loop import TrainingJob
from ..training.run import plan_job

MODELS_IN_MEMORY = 20
"""Models trained side by side on arrays in memory: of 5 to 50, 10 and 20 took the least time each (7494 rows)."""


class SearchRoom:
    """How many models of settings that share blocks have room side by side, each outside one fold.

    Parameters
    ----------
    jobs : sequence of TrainingJob
        The settings, alike but for what `cross_validate` may vary.
    n_folds : int
        Folds.
    work : Workload
        Shapes of a training of one of them.
    facts, factors, memory_limit
        As for `plan_job`.
    """

    def __init__(
        self,
        jobs: Sequence[TrainingJob],
        n_folds: int,
        work: Workload,
        facts: WorkerFacts | None = None,
        *,
        factors: str = "auto",
        memory_limit: int | None = None,
    ) -> None:
        widest = max(jobs, key=lambda job: job.max_centers)
        self._widest = replace(widest, sigma=max(jobs, key=lambda job: job.n_widths).sigma)
        self._n_folds, self._work = n_folds, work
        self._facts, self._factors, self._memory_limit = facts, factors, memory_limit
        self._models = len(jobs) * n_folds
        self.most = self._most()
        """Models that have room."""

    def plan(self, count: int) -> TrainingPlan:
        """Plan a training of some models."""
        # A fold's rows take part in all models but those outside it.
        taking = -(-count * (self._n_folds - 1) * self._work.memberships // self._n_folds)
        work = replace(self._work, n_problems=count * self._work.n_problems, memberships=taking)
        return plan_job(self._widest, work, self._facts, factors=self._factors, memory_limit=self._memory_limit)

    @property
    def whole(self) -> SearchPlan:
        """The search over all settings and folds."""
        return SearchPlan(models=self._models, at_a_time=self.most, largest=self.plan(self.most))

    def _most(self) -> int:
        # Where a pass costs nothing, fewer problems at a time stay in the processor's cache from one exchange to the
        # next; where it costs a read, a setting has all its folds in one, if need be with row matrices in scratch.
        models = self._models
        if self._work.inline:
            models = min(models, max(self._n_folds, MODELS_IN_MEMORY))
        fitting = _largest(self._n_folds, lambda count: self._fixed_fits(self.plan(count)))
        if fitting < self._n_folds:
            return max(1, fitting)
        more = models - self._n_folds
        return self._n_folds + _largest(more, lambda count: self._fits(self.plan(self._n_folds + count)))

    def _fits(self, plan: TrainingPlan) -> bool:
        return plan.worker.scratch.total == 0 and self._fixed_fits(plan)

    @staticmethod
    def _fixed_fits(plan: TrainingPlan) -> bool:
        return plan.worker.limit is None or plan.worker.fixed <= plan.worker.limit


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number up to `most` that something holds for, which holds for all smaller ones; 0 if none."""
    return bisect_left(range(1, most + 1), True, key=lambda number: not holds(number))
