"""Time limit of a training: selection ends early enough that the model can be finished in time.

The driver loop checks it after every exchange, once each path has a centre. The time of all steps after the selection
is predicted from measured times: those of the exchanges so far, and of the first one, which read the rows. Only the
length of a path depends on it, no other bit of a model.
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
"""Number of last exchanges; the slowest of them predicts the next one."""

MARGIN = 1.25
"""Factor on predicted times."""

SPARE = 0.02
"""Share of the limit that is reserved for steps without a prediction, such as writing the model."""

REFIT_SHARE = 0.15
"""Seconds of the pass over all rows after a selection on a sample, for each second of a selection on all rows: both
grow with the square of the centres. Measured: 0.05 to 0.08 (200 and 800 centres, samples of a half to an eighth)."""


@dataclass(frozen=True)
class WorkAfter:
    """The steps of a training after the selection."""

    reads: int = 0
    """Number of reads of all rows."""
    refit_rows: float = 0.0
    """Rows of the refit, in multiples of the rows that select; 0 without a refit."""
    norm_refit: bool = False
    """Whether the final weights are small in the norm of the kernel's space (`refit="rkhs"`)."""
    seconds: float = 0.0
    """Seconds of other steps, predicted from their operations."""


NOTHING = WorkAfter()


class TimeLimit:
    """The clock of one training, a subscriber of its events.

    Parameters
    ----------
    seconds : float, optional
        Limit; None, the default, for none.
    clock : callable
        Returns seconds; the performance counter by default.

    Attributes
    ----------
    seconds : float or None
        The limit.
    passed : bool
        Whether the limit has ended the selection; later exchanges belong to the shortened path.
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
        """Remaining seconds, above zero; None without a limit."""
        return None if self.seconds is None else max(self.seconds - self.elapsed, 1e-9)

    def begin(self) -> None:
        """Begin to measure the exchanges of a selection."""
        self._reading = None
        self._selecting = 0.0
        self._recent.clear()

    def __call__(self, event: Event) -> None:
        """Measure an exchange; the first one read the rows, and rebuilt blocks after a resume."""
        if isinstance(event, RunResumed):
            self._selecting += event.seconds
        elif isinstance(event, ExchangeDone):
            if self._reading is None:
                self._reading = event.seconds
            else:
                self._selecting += event.seconds
                self._recent.append(event.seconds)

    def ends(self, after: WorkAfter, n_centers: Sequence[int]) -> bool:
        """Return whether selection must end now, so that the model is finished in time.

        Parameters
        ----------
        after : WorkAfter
            Steps after the selection.
        n_centers : sequence of int
            Number of centres of every path.
        """
        if self.seconds is None:
            return False
        foreseen = max(self._recent, default=0.0)
        foreseen += after.reads * (self._reading or 0.0) + REFIT_SHARE * after.refit_rows * self._selecting
        foreseen += after.seconds
        if after.norm_refit:
            foreseen += sum(_norm_refit_seconds(n) for n in n_centers)
        return self.over(foreseen)

    def over(self, foreseen: float) -> bool:
        """Return whether steps of so many seconds would exceed the limit; after that `passed` is set."""
        if self.seconds is None:
            return False
        self.passed = self.passed or self.elapsed + MARGIN * foreseen + SPARE * self.seconds >= self.seconds
        return self.passed

    def require_search(self) -> None:
        """Refuse to compare paths that the limit ended.

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
    """Predict the seconds of a refit in the norm of the kernel's space: its two decompositions are cubic in centres."""
    return 2.0 * _probe_seconds() * (n_centers / _PROBE) ** 3


@cache
def _probe_seconds() -> float:
    """Measure the seconds of a small singular value decomposition on this machine."""
    matrix = np.random.default_rng(0).standard_normal((_PROBE, _PROBE))
    started = perf_counter()
    svd(matrix)
    return perf_counter() - started
