"""Plan of the rounds of a metric: the sample, one model of it, and the matrices of the map, in the driver."""

from __future__ import annotations

from dataclasses import replace

from ..planning.limits import WorkerFacts
from ..planning.workload import Workload
from ..runtime.threads import available_cores
from ..training.run import plan_job
from .driver_room import DriverRoom
from .given_centers import bytes_of_given
from .metric_job import MetricJob
from .rounds import BLOCK_ROWS, MOST_TARGETS, ROWS_OF_A_PART


class MetricRoom(DriverRoom):
    """Memory and reads of the rounds.

    Parameters
    ----------
    search : MetricJob
        Settings of the rounds.
    work, facts, memory_limit
        As for `DriverRoom`.
    """

    advice = "use fewer max_centers, metric='diagonal', or fewer features"

    def __init__(
        self, search: MetricJob, work: Workload, facts: WorkerFacts | None, memory_limit: int | None = None
    ) -> None:
        super().__init__(work, facts, memory_limit)
        self._search = search

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
            # Raw and standardised rows, those after arcsinh of some columns, the mapped rows of a round, and the parts
            # of the blocks; the rows of all rounds but the last, before and after arcsinh.
            "metric_sample": rows * (2 * work.row_bytes + 5 * 8 * d + 8 * (2 * T + work.target_columns) + 56)
            + (few + held) * (8 * (2 * d + T) + 24),
            "metric_model": max(model.fixed + sum(model.matrices.values()), bytes_of_given(m, threads)),
            # Sums of the threads, the map of each round, and its eigenvectors.
            "metric_map": threads * (tile + 2 * matrix) + (4 + 4 * (1 + self._search.rounds)) * matrix,
        }
