"""Selection by the leave-one-out misclassification rate (Hong, Chen and Harris, 2006).

Before a panel of one centre is formed, the blocks count for every candidate of the pool the rows that the model with it
would misclassify if each were left out, from the rows' recursions of the paper; equal counts are told apart by the
error reduction. One exchange more a centre than `PoolSelector` takes.
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
    """Accepts the candidate with the lowest leave-one-out misclassification rate, one a round."""

    def _start(self, n_targets: int) -> None:
        super()._start(n_targets)
        self._judging: NDArray[np.int64] | None = None
        self._counts: Array | None = None
        # A model without centres decides for no class: J_0 = 1 in the slides.
        self._misclassified = self._weight_sum

    @property
    def mid_round(self) -> bool:
        """Whether a panel was formed that the rows have not been told to append yet."""
        return self._finishing and self._judging is None

    def next_step(self) -> ProblemStep | None:
        """Ask for the candidates' counts before a panel is formed."""
        if self.reason is None and not self._finishing and not self._filling and self._counts is None:
            self._pool.drop_dependent()
            slots = np.flatnonzero(self._pool.usable)
            if len(slots):
                self._judging = slots
                return ProblemStep(judge=self._judge(slots))
        return super().next_step()

    def receive(self, answer: ProblemAnswer) -> None:
        """Take the answer to the last step."""
        if self._judging is None:
            super().receive(answer)
            return
        self._counts = np.full(self._pool.capacity, np.inf)
        self._counts[self._judging] = answer.sums["misclassified"]
        self._judging = None
        lowest = float(self._counts.min())
        if self.settings.stop == "loo" and lowest >= self._misclassified:
            self.reason = StopReason.LOO_RISEN
            return
        self._misclassified = lowest

    def _judge(self, slots: NDArray[np.int64]) -> Judge:
        pool, lam = self._pool, self.factors.lambda_
        inverse = 1.0 / (pool.gram.diagonal()[slots] + float(lam[0]))
        return Judge(slots, pool.products[slots] * inverse[:, None], inverse)

    def _pick(self, count: int) -> Panel:
        counts, self._counts = self._counts, None
        return self._pool.pick(1, among=None if counts is None else counts == counts.min())
