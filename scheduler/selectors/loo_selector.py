"""Selection by the leave-one-out misclassification rate (Hong, Chen and Harris, 2006).

Before a panel of one centre is formed, the blocks count for every candidate of the pool the rows that the model with
this candidate misclassifies without them, by the paper's recursions in `..blocks.loo_rows`. Of equal counts the larger
error reduction decides. Each centre takes one exchange more than with `PoolSelector`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.selection.candidate_pool import Panel
from distkern.selection.stopping import StopReason

from ..protocol.answers import ProblemAnswer
from ..protocol.messages import Judge, ProblemStep
from .pool_selector import PoolSelector


class LooSelector(PoolSelector):
    """Accepts the candidate with the lowest leave-one-out misclassification rate, one in each round."""

    def _start(self, n_targets: int) -> None:
        super()._start(n_targets)
        self._scoring: NDArray[np.int64] | None = None
        self._counts: Array | None = None
        # A model without centres predicts no class: J_0 = 1 in the slides.
        self._misclassified = self._weight_sum

    @property
    def mid_round(self) -> bool:
        """Whether a panel was formed whose columns the blocks have not appended yet."""
        return self._finishing and self._scoring is None

    def next_step(self) -> ProblemStep | None:
        """Return a step that counts errors before one that forms a panel."""
        if self.reason is None and not self._finishing and not self._filling and self._counts is None:
            self._pool.drop_dependent()
            slots = np.flatnonzero(self._pool.usable)
            if len(slots):
                self._scoring = slots
                pool, lam = self._pool, self.factors.lambda_
                inverse = 1.0 / (pool.gram.diagonal()[slots] + float(lam[0]))
                return ProblemStep(judge=Judge(slots, pool.products[slots] * inverse[:, None], inverse))
        return super().next_step()

    def receive(self, answer: ProblemAnswer) -> None:
        """Take the answer to the last step."""
        if self._scoring is None:
            super().receive(answer)
            return
        self._counts = np.full(self._pool.capacity, np.inf)
        self._counts[self._scoring] = answer.sums["misclassified"]
        self._scoring = None
        lowest = float(self._counts.min())
        if self.settings.stop == "loo" and lowest >= self._misclassified:
            self.reason = StopReason.LOO_RISEN
            return
        self._misclassified = lowest

    def _pick(self, count: int) -> Panel:
        counts, self._counts = self._counts, None
        return self._pool.pick(1, among=None if counts is None else counts == counts.min())
