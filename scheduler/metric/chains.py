"""Chains of rounds: those of one kernel and one shape of the map, and what is better among several.

Covers comparisons; which rounds a chain gets is decided in `learning`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from distkern.numerics.learnt_metric import LinearMap

from ..training.driver_loop import TrainingJob
from .metric_job import FULL
from .rounds import Round
from .sample import MetricSample

SMOOTH_GAIN = 0.04
"""Least share of the error by which a Gaussian with large weights must be better than the other kernels of
``kernel="auto"``. Its columns nearly depend on each other, and the large weights that follow fit the rows held out but
not rows far from all others, of which a few thousand rows hold none."""

LARGE_WEIGHTS = 1e4
"""Sum of the absolute weights of one target, in deviations of the target, from which weights are large: a thousandth of
them is ten deviations."""

SELECTED_UPDATES = 1
"""Updates of the map of a chain after which the centres are selected anew; the later rounds keep them, see
`LARGE_STEP`."""

LARGE_STEP = 0.05
"""Share of the error that a round lowers, from which the next one selects its centres anew, too: the map still changes
much, and the centres of another map find less."""

UNIMPROVED = 2
"""A chain ends after as many rounds that lower the error by less than `LEAST_GAIN` together."""

LEAST_GAIN = 0.003
"""Least share of the error that rounds must lower."""

HOPELESS = 1.12
"""A chain has no further round where its error is above this times the lowest, and such a kernel is not tried again."""


@dataclass
class Chain:
    """Rounds of one kernel and shape of the map."""

    job: TrainingJob
    """Settings of the models."""
    kernel: str
    """Name of the kernel."""
    shape: str
    """Shape of the map."""
    factor: float
    """Width, in multiples of the median distance."""
    sample: MetricSample
    """Rows of the rounds."""
    done: list[Round]
    """Rounds so far; the first one has the standardised features, or the map of another chain."""
    start: int = 0
    """Updates of the map of the first round, 0 by default."""

    @property
    def best(self) -> Round:
        """The round with the lowest error."""
        return min(self.done, key=lambda made: made.error)

    @property
    def given(self) -> NDArray[np.int64] | None:
        """Centres of the next round; None where it selects its own."""
        if len(self.done) <= SELECTED_UPDATES or self.done[-1].error < (1 - LARGE_STEP) * self.done[-2].error:
            return None
        return self.done[-1].centers

    @property
    def ended(self) -> bool:
        """Whether the last rounds did not lower the error."""
        before = [made.error for made in self.done[:-UNIMPROVED]]
        return bool(before) and self.best.error > (1 - LEAST_GAIN) * min(before)


Made = tuple[int, Chain, Round]
"""Updates of the map, settings, and result of a round."""


def error_of(chain: Chain) -> float:
    """Return the lowest error of a chain."""
    return chain.best.error


def rough(among: Sequence[Made]) -> Sequence[Made]:
    """Return the rounds but Gaussians with large weights, or all where one of these is clearly better."""
    others = [found for found in among if found[1].kernel != "gaussian" or found[2].weight_sum < LARGE_WEIGHTS]
    lowest = min(made.error for *_, made in among)
    return others if any(made.error <= lowest / (1 - SMOOTH_GAIN) for *_, made in others) else among


def hopeful(chains: list[Chain]) -> list[Chain]:
    """Return the chains whose error is not far above the lowest."""
    lowest = min(map(error_of, chains))
    return [chain for chain in chains if error_of(chain) <= HOPELESS * lowest]


def turned(chain: Chain) -> Chain:
    """Return a chain of matrices that begins with the best factors of a chain."""
    first = replace(chain.best, map=LinearMap(np.diag(chain.best.map.factors)))
    return replace(chain, shape=FULL, done=[first], start=chain.start + chain.done.index(chain.best))
