"""Plan of the rounds of a metric: the sample, one model of it, and the matrices of the map, in the driver."""

from __future__ import annotations

from dataclasses import replace

from ..planning.limits import WorkerFacts, default_limit
from ..planning.plan import BASELINE, Memory, Plan
from ..planning.workload import Workload
from ..runtime.threads import available_cores
from ..training.run import plan_job
from .metric_job import MetricJob
from .rounds import BLOCK_ROWS, MOST_TARGETS, ROWS_OF_A_PART

ADVICE = "use fewer max_centers, metric='diagonal', or fewer features"
"""Settings to change where the rounds do not fit."""


class MetricRoom:
    """Memory and reads of the rounds.

    Parameters
    ----------
    search : MetricJob
        Settings of the rounds.
    work : Workload
        Shapes of the training that follows.
    facts : WorkerFacts or None
        The workers; this process alone if None.
    memory_limit : int, optional
        As for `plan_job`.

    Attributes
    ----------
    together : bool
        Whether the driver's process holds the rows of the training, too.
    """

    def __init__(
        self, search: MetricJob, work: Workload, facts: WorkerFacts | None, memory_limit: int | None = None
    ) -> None:
        self._search, self._work = search, work
        self._limit = memory_limit or default_limit(None)
        self.together = facts is None or facts.in_process

    @property
    def terms(self) -> dict[str, int]:
        """Bytes in the driver's process beside its baseline, by buffer."""
        work, n_rows = self._work, self._work.n_rows
        few, held = self._search.sample_rows(n_rows)
        final, fitted = self._search.final(n_rows)
        d, T, rows = work.n_features, work.n_targets, fitted + held
        m = max(self._search.centers(n_rows), final)
        job = replace(
            self._search.job, kernel="gaussian", sigma=1.0, max_centers=m, selection_rows=None, dtype="float32"
        )
        blocks = -(-fitted // BLOCK_ROWS)
        sampled = Workload(fitted, d, 8, min(fitted, BLOCK_ROWS), blocks, T, T, 1, 1, inline=True)
        model = plan_job(job, sampled, memory_limit=1 << 62).processes[0]
        threads = available_cores()
        tile = 8 * ROWS_OF_A_PART * (min(T, MOST_TARGETS) * d + 3 * m)
        matrix = 8 * d * (d if "full" in self._search.shapes else 1)
        return {
            # Raw and standardised rows, the mapped rows of a round, and the parts of the blocks; the rows of all rounds
            # but the last.
            "metric_sample": rows * (2 * work.row_bytes + 4 * 8 * d + 8 * (2 * T + work.target_columns) + 56)
            + (few + held) * (8 * (d + T) + 24),
            "metric_model": model.fixed + sum(model.matrices.values()),
            # Sums of the threads, the map of each round, and its eigenvectors.
            "metric_map": threads * (tile + 2 * matrix) + (4 + 4 * (1 + self._search.rounds)) * matrix,
        }

    @property
    def memory(self) -> Memory:
        """The rounds as a process with the limit of the training."""
        return Memory(self.terms, self._limit, ADVICE)

    def require_fit(self) -> None:
        """Refuse rounds that do not fit into a process with a limit; raises `BudgetError`."""
        if self.together:
            self.memory.require_fit()

    @property
    def peak(self) -> int:
        """Peak of the driver's process during the rounds."""
        return BASELINE + sum(self.terms.values())

    def before(self, plan: Plan) -> Plan:
        """Return the plan of a training that begins with the rounds."""
        work = self._work
        processes = plan.processes
        if self.together:
            processes = (*processes, self.memory)
        course = plan.course
        if course is not None:
            read = work.n_rows * (work.row_bytes + 8 * work.target_columns)
            course = replace(course, bytes_read=course.bytes_read + read)
        return replace(
            plan,
            passes=plan.passes + 1,
            processes=processes,
            driver_peak=max(plan.driver_peak, self.peak),
            course=course,
            terms={**plan.terms, **self.terms},
        )
