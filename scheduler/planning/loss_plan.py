"""The plan of a loss other than the square: bytes and passes, from shapes alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from distkern.selection.loss_fit import sample_fit_bytes

from ..rows.problem_rows import TILE_ROWS
from .workload import Workload

LARGEST_SAMPLE, SMALLEST_SAMPLE = 20_000, 2_000
"""About the rows of the sample of a large set, and the least of any set that has as many."""

COLUMN_BYTES = 128 << 20
"""Bytes of the sample's columns, unless `SMALLEST_SAMPLE` need more."""

MOST_PASSES, PLANNED_PASSES = 40, 10
"""Evaluations of the loss over all rows: at most, and those for which time and bytes are planned."""


def sample_size(m: int, n_features: int, n_targets: int) -> int:
    """Return the rows of the sample on which lambda of `m` centres is chosen."""
    return max(SMALLEST_SAMPLE, min(LARGEST_SAMPLE, COLUMN_BYTES // (8 * (m + 1 + n_features + n_targets))))


@dataclass(frozen=True)
class LossPlan:
    """Shapes of the fit of one problem."""

    centers: int
    """Most centres of the model."""

    @property
    def passes(self) -> int:
        """Number of passes over all rows."""
        return 1 + PLANNED_PASSES

    def flops(self, work: Workload) -> int:
        """Return the floating-point operations of all evaluations, with those of their kernel columns."""
        each = 2 * work.n_features + 4 * max(2, work.targets_of_a_problem)
        return PLANNED_PASSES * work.n_rows * self.centers * each

    def pass_bytes(self, work: Workload, threads: int, n_blocks: int) -> int:
        """Return the bytes of a pass in a process with rows, beside those of the selection."""
        m, T = self.centers, max(2, work.targets_of_a_problem)
        in_flight = 2 * threads + 1 + ceil(log2(max(n_blocks, 1))) + 1
        answers = in_flight * 8 * (m + 2) * T + 3 * self._sample(work) * 8 * (work.n_features + T + 2)
        rows = 2 * work.block_rows * (work.row_bytes + 8 * max(1, work.target_columns) + 24)
        tile = min(TILE_ROWS, work.block_rows) * (work.row_bytes + 16 * (work.n_features + 1) + 12 * (m + 2) + 80 * T)
        own = 8 * (m + 1) * (m + 1 + 2 * T) + 3 * m * 8 * work.n_features
        return answers + threads * (rows + tile + own) + 2 * 8 * (m + 1) ** 2

    def driver_bytes(self, work: Workload) -> int:
        """Return the bytes of the driver: the sample, its fit, and the messages in the log."""
        m, T, n = self.centers, work.targets_of_a_problem, self._sample(work)
        fit = sample_fit_bytes(n, m, T)
        messages = (MOST_PASSES + 2) * (8 * (m + 1) * T + m * work.row_bytes) + 8 * (m + 1) ** 2
        return fit + messages + 3 * n * 8 * (work.n_features + T + 2) + 4 * 8 * (m + 1) ** 2

    def _sample(self, work: Workload) -> int:
        return min(work.n_rows, sample_size(self.centers, work.n_features, work.targets_of_a_problem) * 11 // 10)
