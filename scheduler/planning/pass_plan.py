"""What a method that goes over blocks with pure functions will take: bytes a buffer, from shapes alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distkern.errors import BudgetError

from ..runtime.threads import single_threaded_blas
from .memory import BASELINE, MIB, Workload

if TYPE_CHECKING:
    from .training_plan import TrainingPlan


@contextmanager
def within(plan: PassPlan | TrainingPlan, advice: str) -> Iterator[None]:
    """Run one training: with a plan that fits, and arithmetic that gives the same bits everywhere.

    Parameters
    ----------
    plan : PassPlan or TrainingPlan
        What the training will take.
    advice : str
        What to do where memory runs out all the same.

    Raises
    ------
    BudgetError
        ``memory``: the plan does not fit. ``out-of-memory``: less was there than planned for.
    """
    plan.require_fit()
    try:
        # Bits must not depend on the number of BLAS threads; overflow is found in the results.
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            yield
    except MemoryError as error:
        raise BudgetError(
            f"memory ran out where {plan.peak >> 20} MiB a process were planned ({error or 'no details'}): other "
            f"processes may hold the rest; free memory, or {advice}",
            kind="out-of-memory",
        ) from error


@dataclass(frozen=True)
class PassPlan:
    """Memory of a training without an engine, at most."""

    work: Workload
    """Shapes."""
    passes: int
    """Reads of X."""
    driver: dict[str, int]
    """Bytes of each buffer of the driver's process."""
    worker: dict[str, int]
    """Bytes of each buffer of a process that holds blocks; of the same process where there are no workers."""
    together: bool
    """Whether both are one process."""
    limit: int
    """Bytes that a process may take beside its baseline."""
    advice: str
    """What to change if that is not enough."""

    @property
    def needed(self) -> int:
        """Bytes of the largest process beside its baseline."""
        driver, worker = sum(self.driver.values()), sum(self.worker.values())
        return driver + worker if self.together else max(driver, worker)

    @property
    def peak(self) -> int:
        """Bytes of the largest process."""
        return BASELINE + self.needed

    def terms(self) -> dict[str, int]:
        """Return the bytes of every buffer by name."""
        return {**{f"driver_{name}": size for name, size in self.driver.items()}, **self.worker}

    def require_fit(self) -> None:
        """Refuse a job that does not fit.

        Raises
        ------
        BudgetError
            ``memory``: names the bytes, the largest term, the limit and what to change.
        """
        if self.needed > self.limit:
            terms = self.terms()
            largest = max(terms, key=terms.__getitem__)
            raise BudgetError(
                f"the training needs {-(-self.needed // MIB)} MiB, {-(-terms[largest] // MIB)} MiB of it for "
                f"{largest.replace('_', ' ')}, and {self.limit // MIB} MiB are allowed (memory_limit, [cluster] "
                f"memory): {self.advice}",
                kind="memory",
            )

    def record(self) -> dict[str, Any]:
        """Return the plan as plain numbers."""
        return {
            **self.work.record(),
            "passes": self.passes,
            "planned_peak_bytes": self.peak,
            "memory_limit": self.limit,
            "memory": self.terms(),
        }
