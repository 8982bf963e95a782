"""Settings of the rounds that learn a metric: how many centres and rows they have.

A round takes a small share of the work of the training, and enough centres and rows to see what the target depends on.
Covers sizes only; the rounds are in `learning`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..training.driver_loop import TrainingJob

DIAGONAL, FULL = "diagonal", "full"
"""Shapes of a map: a factor for each feature, and a matrix."""

ROUNDS = 12
"""Most rounds of a chain by default."""

ROWS_A_FINAL_CENTER = 7
"""Least rows for each centre of a repeated round."""

FINAL_TIMES = 1.6
"""Most centres of a repeated round, in those of a round."""

ROUND_CENTERS = 500
"""Most centres of a model of a round."""

LEAST_CENTERS = 100
"""Centres of a model of a round where two thirds of those of the training are fewer."""

SHARE_OF_WORK = 1 / 20
"""Work of a round, as a share of that of the training: some thirty rounds are made."""

POOL_COLUMNS = 500
"""Columns that a step works on beside those of the model: the pool's, and kernel columns."""

ROWS_A_CENTER = 10
"""Least rows that train a model of a round, for each of its centres, if there are as many."""

MOST_ROUND_ROWS = 30_000
"""Most rows that train a model of a round."""

MOST_HELD = 10_000
"""Most rows that are held out."""

HELD_SHARE = 0.25
"""Most of the rows of the sample that are held out."""


@dataclass(frozen=True, kw_only=True)
class MetricJob:
    """A training with a learnt metric, or a kernel that is chosen by rounds."""

    job: TrainingJob
    """The training; its kernel may be "auto"."""
    metric: str
    """"isotropic", "diagonal", "full" or "auto"."""
    rounds: int = ROUNDS
    """Most rounds of a chain."""
    rank: int | None = None
    """Most directions of the map."""

    @property
    def shapes(self) -> tuple[str, ...]:
        """Shapes of the map that are tried."""
        return {"isotropic": (), "auto": (DIAGONAL, FULL)}.get(self.metric, (self.metric,))

    def sample_rows(self, n_rows: int) -> tuple[int, int]:
        """Return the numbers of rows that train the models, and that score them, of data of `n_rows` rows."""
        held, m = min(MOST_HELD, int(HELD_SHARE * n_rows)), self.centers(n_rows)
        fitted = min(max(ROWS_A_CENTER * m, int(self._work(n_rows) / _work_a_row(m))), MOST_ROUND_ROWS)
        return min(fitted, n_rows - held), held

    def final(self, n_rows: int) -> tuple[int, int]:
        """Return the numbers of centres of a repeated round, and of the rows that train it."""
        fitted, held = self.sample_rows(n_rows)
        m = min(self.job.max_centers, int(FINAL_TIMES * self.centers(n_rows)))
        rows = min(n_rows - held, max(fitted, ROWS_A_FINAL_CENTER * m))
        return min(m, rows // ROWS_A_FINAL_CENTER), rows

    def centers(self, n_rows: int) -> int:
        """Return the number of centres of a model of a round.

        A model of few centres does not see all that the target depends on, so that a large training has rounds of many
        centres whatever its own number is.
        """
        most = min(ROUND_CENTERS, max(1, n_rows // 4))
        affordable = np.arange(most, 0, -1)
        affordable = affordable[ROWS_A_CENTER * affordable * _work_a_row(affordable) <= self._work(n_rows)]
        of_training = max(LEAST_CENTERS, 2 * self.job.max_centers // 3)
        return min(most, max(of_training, int(affordable.max(initial=1))))

    def _work(self, n_rows: int) -> float:
        """Return the work that a round may take: products of rows, columns and centres."""
        selecting = self.job.sampled_rows(n_rows) or n_rows
        # Products with Q and the pool over the rows that select, and those of a pass over all rows after a sample.
        most = self.job.max_centers
        return SHARE_OF_WORK * most * (selecting * (most + POOL_COLUMNS) + (selecting < n_rows) * n_rows * most // 2)


def _work_a_row(n_centers: Any) -> Any:
    """Return the products for each row of a selection of some centres."""
    return n_centers * (n_centers + POOL_COLUMNS)
