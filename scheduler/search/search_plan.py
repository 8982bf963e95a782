"""Plan of a cross-validated search: the number of models in one pass, and their memory.

The memory of one training is planned in `..planning`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..planning.limits import WorkerFacts
from ..planning.plan import Plan, largest
from ..planning.workload import Workload
from ..training.driver_loop import TrainingJob
from ..training.run import plan_job

MODELS_IN_MEMORY = 20
"""Models of a pass over arrays in memory: of 5 to 50, 10 and 20 took the least time each (7494 rows)."""


class SearchRoom:
    """Number of models of settings that share blocks, each outside one fold, that fit into memory.

    Parameters
    ----------
    jobs : sequence of TrainingJob
        The settings, which differ only in `VARIED` of `cross_validation`.
    n_folds : int
        Number of folds.
    work : Workload
        Shapes of the training of one of them.
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
        jobs = [job.compared(work.n_rows) for job in jobs]
        widest = max(jobs, key=lambda job: job.max_centers)
        self._widest = replace(widest, sigma=max(jobs, key=lambda job: job.n_widths).sigma)
        self._n_folds, self._work = n_folds, work
        self._facts, self._factors, self._memory_limit = facts, factors, memory_limit
        self._models = len(jobs) * n_folds
        self.most = self._most()
        """Most models of a pass."""

    def plan(self, count: int) -> Plan:
        """Plan the training of `count` models."""
        # The rows of a fold take part in all models but those outside it.
        taking = -(-count * (self._n_folds - 1) * self._work.memberships // self._n_folds)
        work = replace(self._work, n_problems=count * self._work.n_problems, memberships=taking)
        return plan_job(self._widest, work, self._facts, factors=self._factors, memory_limit=self._memory_limit)

    def before(self, plan: Plan) -> Plan:
        """Return the plan of a training that begins with this search, with the memory of both."""
        own = self.plan(self.most)
        return replace(
            plan,
            processes=own.processes + plan.processes,
            driver_peak=max(plan.driver_peak, own.driver_peak),
            search={"models": self._models, "at_a_time": self.most},
        )

    def _most(self) -> int:
        # Over arrays in memory a pass costs little, and fewer problems at a time stay in the processor's cache between
        # exchanges. Otherwise a pass reads all rows, so a setting has all its folds in one, if necessary with scratch.
        models = self._models
        if self._work.inline:
            models = min(models, max(self._n_folds, MODELS_IN_MEMORY))
        fitting = largest(lambda count: self.plan(count).processes[0].fits, self._n_folds)
        if fitting < self._n_folds:
            return max(1, fitting)
        return self._n_folds + largest(self._fits_whole, models - self._n_folds)

    def _fits_whole(self, more: int) -> bool:
        """Return whether all folds of a setting and `more` models fit without scratch."""
        process = self.plan(self._n_folds + more).processes[0]
        return process.fits and not process.scratch_bytes
