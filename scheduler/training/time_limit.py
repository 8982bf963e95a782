"""How long a training may take: selection ends early enough that a model can still be made.

Looked at after every exchange, once each path has a centre. What follows the selection is foreseen from what was
measured: the exchanges so far, and the first one, which read the rows. No bit of a model depends on it but where the
path ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from time import perf_counter

import numpy as np
from scipy.linalg import svd

from distkern.errors import RunError
from distkern.monitoring.events import Event, ExchangeDone, RunResumed

__all__ = ["NOTHING", "TimeLimit", "WorkAfter"]

RECENT = 8
"""Exchanges whose slowest is taken for the next one."""

MARGIN = 1.25
"""What is foreseen counts this much."""

SPARE = 0.02
"""Share of the limit that is left for what is not foreseen, such as writing the model."""

REFIT_SHARE = 0.15
"""Seconds of the pass over all rows after a selection on a sample, for each second that selection would have taken on
all rows: both grow with the square of the centres, and 0.05 to 0.08 were measured (200 and 800 centres, samples of a
half to an eighth)."""


@dataclass(frozen=True)
class WorkAfter:
    """What follows a selection."""

    reads: int = 0
    """Times that the rows are read."""
    refit_rows: float = 0.0
    """Rows that the weights are fitted on, in multiples of those that select; 0 where they are the same."""
    norm_refit: bool = False
    """Whether the weights are made small in the norm of the kernel's space."""


NOTHING = WorkAfter()


class TimeLimit:
    """The clock of one training, a subscriber of its events.

    Parameters
    ----------
    seconds : float, optional
        Limit; None for none.
    clock : callable
        Seconds from any moment on.

    Attributes
    ----------
    seconds : float or None
        The limit.
    passed : bool
        Whether selection was ended: what is exchanged from then on belongs to the shortened path.
    """

    def __init__(self, seconds: float | None = None, clock: Callable[[], float] = perf_counter) -> None:
        self.seconds = seconds
        self.passed = False
        self._clock = clock
        self._started = clock()
        self._reading: float | None = None
        self._selecting = 0.0
        self._recent: deque[float] = deque(maxlen=RECENT)

    @property
    def elapsed(self) -> float:
        """Seconds so far."""
        return self._clock() - self._started

    @property
    def left(self) -> float | None:
        """Seconds that are left, above zero; None without a limit."""
        return None if self.seconds is None else max(self.seconds - self.elapsed, 1e-9)

    def begin(self) -> None:
        """Begin a selection, whose exchanges tell how long what follows it takes."""
        self._reading = None
        self._selecting = 0.0
        self._recent.clear()

    def __call__(self, event: Event) -> None:
        """Measure the exchanges; the first one read the rows, and built blocks anew after a resume."""
        if isinstance(event, RunResumed):
            self._selecting += event.seconds
        elif isinstance(event, ExchangeDone):
            if self._reading is None:
                self._reading = event.seconds
            else:
                self._selecting += event.seconds
                self._recent.append(event.seconds)

    def ends(self, after: WorkAfter, n_centers: Sequence[int]) -> bool:
        """Tell whether selection must end now, so that the model is there in time.

        Parameters
        ----------
        after : WorkAfter
            What follows.
        n_centers : sequence of int
            Centres of every path.
        """
        if self.seconds is None:
            return False
        foreseen = max(self._recent, default=0.0)
        foreseen += after.reads * (self._reading or 0.0) + REFIT_SHARE * after.refit_rows * self._selecting
        if after.norm_refit:
            foreseen += sum(_norm_refit_seconds(n) for n in n_centers)
        self.passed = self.elapsed + MARGIN * foreseen + SPARE * self.seconds >= self.seconds
        return self.passed

    def require_search(self) -> None:
        """Refuse to compare paths that were cut short.

        Raises
        ------
        RunError
            ``time-limit``.
        """
        if self.passed:
            raise RunError(
                f"max_seconds={self.seconds:g} were used up while settings were compared by cross-validation, and "
                "paths that were cut short cannot be compared: allow more seconds or fewer max_centers, give a "
                "sigma instead of 'cv', or compare on fewer rows with selection_rows",
                kind="time-limit",
            )


_PROBE = 256


def _norm_refit_seconds(n_centers: int) -> float:
    """Seconds of one refit in the norm of the kernel's space: an eigenproblem and singular values, cubic in centres."""
    return 2.0 * _probe_seconds() * (n_centers / _PROBE) ** 3


@cache
def _probe_seconds() -> float:
    """Seconds of a small singular value decomposition on this machine."""
    matrix = np.random.default_rng(0).standard_normal((_PROBE, _PROBE))
    started = perf_counter()
    svd(matrix)
    return perf_counter() - started
