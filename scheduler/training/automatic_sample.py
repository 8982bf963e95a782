"""The rows on which centres are selected by default, `selection_rows="auto"`: all of few, otherwise a sample.

Choosing m centres needs some multiple of m rows; fitting their weights needs all of them, in one pass more. The numbers
are measured, see `docs/design/045-selection-on-a-sample-by-default.md`. Covers the size only; the draw is in
`..rows.block_reading`, the cut into tiles in `..protocol.selected_rows`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .solver import selected_centers

if TYPE_CHECKING:
    from .driver_loop import TrainingJob

AUTO_SAMPLE, SAMPLE_AFTER_ROUNDS = "auto", "auto-after-rounds"
"""Values of `selection_rows` for a sample of this size: after rounds that learn a metric there are more rows."""

SELECTING_A_CENTER = 5
"""Rows of the sample for each of the most centres."""

MORE_AFTER_ROUNDS = 4 / 3
"""Times as many rows of the sample after rounds, if there are so many."""

CANDIDATES = {AUTO_SAMPLE: 384, SAMPLE_AFTER_ROUNDS: 512}
"""Rows of the pool by default; in a learnt space more of the rows are worth a comparison."""

LEAST_SELECTING = 5000
"""Least rows of a sample."""

WORTH_A_PASS = 1.5
"""A sample is drawn where there are so many times its rows, since the pass over all of them costs a share."""


def automatic_rows(job: TrainingJob, n_rows: int) -> int:
    """Return the size of the sample of a job on `n_rows` rows; 0 where all of them select centres.

    All rows select where a setting asks about each of them: the largest residual (``criterion="residual"``), the
    leave-one-out errors (``"loo-error"``), every row as a candidate (``sampler="all"``), rows that are held out
    (``stop="validation"``), and pairs of classes, which have a part of the rows each.
    """
    asks_all = job.criterion != "error-reduction" or job.sampler == "all" or job.holds_out
    if asks_all or job.multiclass == "one-vs-one":
        return 0
    wanted, most = SELECTING_A_CENTER * selected_centers(job), int(n_rows / WORTH_A_PASS)
    size = max(LEAST_SELECTING, wanted)
    if size > most:
        return 0
    return size if job.selection_rows == AUTO_SAMPLE else max(size, min(int(MORE_AFTER_ROUNDS * wanted), most))
