"""Bytes of kernel recursive least squares, from shapes and the number of centres."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from distkern.methods.krls import GROUP_ROWS, SOLVE_ROWS

from ..planning.limits import WorkerFacts, default_limit
from ..planning.memory import Workload
from ..planning.pass_plan import PassPlan
from ..rows.data_checks import MEDIAN_SAMPLE
from ..runtime.threads import available_cores

KRLS_ADVICE = "raise memory_limit, lower max_centers, raise nu, or use smaller chunks of X"


@dataclass(frozen=True)
class KRLSPlanner:
    """Plans for any number of centres: how many there will be is known only at the end."""

    work: Workload
    """Shapes."""
    passes: int
    """Reads of X."""
    facts: WorkerFacts | None
    """Workers; this process alone if None."""
    limit: int
    """Bytes that a process may take beside its baseline."""

    @classmethod
    def of(cls, work: Workload, passes: int, facts: WorkerFacts | None, memory_limit: int | None) -> KRLSPlanner:
        """Plan with a limit, or with most of what a process that holds blocks has left now."""
        here = facts is None or facts.in_process
        return cls(work, passes, facts, memory_limit or default_limit(None if here else facts))

    def at(self, m: int) -> PassPlan:
        """Return the plan for a dictionary of `m` centres."""
        work, facts = self.work, self.facts
        together = facts is None or facts.in_process
        threads = available_cores() if facts is None else facts.threads * (facts.n_workers if facts.in_process else 1)
        in_flight = 2 * threads * (1 if facts is None or facts.in_process else facts.n_workers)
        return PassPlan(
            work=work,
            passes=self.passes,
            driver=self._driver(m, min(in_flight // 2, work.n_blocks)),
            worker=self._worker(m, threads),
            together=together,
            limit=self.limit,
            advice=KRLS_ADVICE,
        )

    def most_centers(self, known: int) -> int:
        """Return how many centres fit, at most those that are `known` and one a row."""
        low, high = 0, known + self.work.n_rows
        if self.at(high).needed <= self.limit:
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.at(middle).needed <= self.limit else (low, middle)
        return low

    def _driver(self, m: int, wave: int) -> dict[str, int]:
        work = self.work
        return {
            # The packed factor while it grows, as sent twice, as a square, and that of the model before.
            "dictionary": 36 * m * m + 6 * m * (work.row_bytes + 8 * work.n_features),
            "survivors": 2 * wave * work.block_rows * (work.row_bytes + 9),
            "chunk": 8 * GROUP_ROWS * (2 * m + 3 * GROUP_ROWS + 2 * work.n_features),
            # Packed sums, and three squares while they are solved.
            "solution": 32 * m * m + 8 * 5 * m * work.n_targets,
        }

    def _worker(self, m: int, threads: int) -> dict[str, int]:
        work = self.work
        targets = max(2, work.n_targets)
        row = work.row_bytes + 8 * work.target_columns + 16
        waiting = 2 * threads + ceil(log2(max(work.n_blocks, 1))) + 4
        tile = min(SOLVE_ROWS, work.block_rows)
        return {
            "blocks": (2 * threads + 1) * work.block_rows * row,
            "copies": threads * work.block_rows * (2 * row + 8 * 3 * targets),
            "loading": threads * work.block_rows * (2 * work.row_bytes + 16 * work.n_features)
            + min(work.n_rows, waiting * MEDIAN_SAMPLE) * work.row_bytes
            if self.passes > 1
            else 0,
            "tiles": threads * tile * (16 * work.n_features + 28 * (m + 2) + 16 * targets),
            # Two dictionaries as they were sent; U unpacked and padded, R'R and its share of a tile.
            "dictionaries": 8 * m * m + 16 * m * work.n_features + threads * 8 * 5 * (m + 2) ** 2,
            "sums": waiting * (4 * m * m + 8 * m * targets),
        }
