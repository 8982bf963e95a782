"""The plan of conjugate gradients: bytes, passes and time of models with many centres, from shapes alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from distkern.selection.penalised_fit import system_bytes

from ..blocks.center_products import PART_VALUES, strip_rows
from ..rows.problem_rows import TILE_ROWS
from .workload import Workload

FACTORS, CONJUGATE_GRADIENTS = "factors", "conjugate-gradients"
"""Ways to fit the weights to all rows, see `distkern.scheduler.training.solver`."""

VALUE_SECONDS = 2.2e-9
"""Seconds of a thread for a kernel value of two dozen features; measured 1.7 to 2.5 with float32."""

COLUMN_SECONDS = 0.18e-9
"""Seconds of a thread for both products of a kernel value with a column."""

CUBE_SECONDS = 3e-11
"""Seconds of a thread for a multiplication and addition of the driver's factors with float32, twice with float64."""


@dataclass(frozen=True)
class LargeModel:
    """Shapes of the draws and of the solution of one problem; the preconditioner takes as many rows as centres."""

    centers: int
    """Centres of the model."""
    drawn: int
    """Centres that are drawn."""
    lambdas: int
    """Number of lambdas."""
    probes: int
    """Right-hand sides of random signs for each lambda."""
    iterations: int
    """Iterations for which passes and time are planned."""
    most_iterations: int
    """Most iterations, whose messages the log keeps."""
    itemsize: int
    """Bytes of a kernel value."""

    @property
    def passes(self) -> int:
        """Number of passes over all rows."""
        return (self.drawn > 0) + 2 + self.iterations

    def columns(self, work: Workload) -> int:
        """Return the number of right-hand sides of all lambdas."""
        return max(2, self.lambdas * (work.targets_of_a_problem + self.probes))

    def flops(self, work: Workload) -> int:
        """Return the floating-point operations of the products of all passes."""
        each = 2 * work.n_features + 4 * self.columns(work)
        return (1 + self.iterations) * work.n_rows * work.memberships * self.centers * each

    def seconds(self, work: Workload, threads: int) -> float:
        """Predict the seconds of all passes on a number of threads, and of the factors in the driver."""
        values = (1 + self.iterations) * work.n_rows * work.memberships * self.centers
        value = VALUE_SECONDS * self.itemsize / 4 + COLUMN_SECONDS * self.columns(work)
        cubes = (2 + self.lambdas) / 6 * self.centers**3 + self.centers**3
        factors = work.n_problems * cubes * CUBE_SECONDS * self.itemsize / 4
        return (values * value + factors) / max(threads, 1)

    def pass_bytes(self, work: Workload, threads: int, n_blocks: int) -> int:
        """Return the bytes of the passes in a process with rows, beside those of the selection."""
        m, k = self.centers, self.columns(work)
        in_flight = 2 * threads + 2 + ceil(log2(max(n_blocks, 1))) + 1
        shortlist = min(m, work.block_rows) * (work.row_bytes + 32)
        answers = max(in_flight * 8 * m * k, in_flight * shortlist + 3 * m * (work.row_bytes + 32))
        rows = 2 * work.block_rows * (work.row_bytes + 8 * max(1, work.target_columns) + 24)
        step = strip_rows(m)
        # The kernel columns, scaled rows and products of a strip; a tile's targets; the centres and vectors of a block.
        strip = m * step * self.itemsize + 8 * PART_VALUES + step * (24 * work.n_features + 32 * k)
        tile = min(TILE_ROWS, work.block_rows) * (32 * work.n_targets + 64)
        own = 3 * m * self.itemsize * work.n_features + 8 * m * k
        message = 2 * m * (8 * k + work.row_bytes + 8)
        return answers + threads * (rows + strip + tile + own) + message

    def driver_bytes(self, work: Workload, threads: int) -> int:
        """Return the bytes of the driver: preconditioner, vectors, drawn rows, and the messages in the log."""
        m, k = self.centers, self.columns(work)
        solving = system_bytes(m, work.n_features, self.lambdas, m, k // max(self.lambdas, 1), self.itemsize, threads)
        rows = 6 * m * (work.row_bytes + 32)
        models = work.n_problems * m * (3 * work.row_bytes + 8 * self.lambdas * work.targets_of_a_problem)
        return solving + rows + models + work.n_problems * (self.most_iterations + 4) * 8 * m * k
