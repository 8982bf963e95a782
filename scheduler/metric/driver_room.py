"""Memory and reads of work in the driver before a training, the base of the plans of a metric and of a choice."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from ..planning.limits import WorkerFacts, default_limit
from ..planning.plan import BASELINE, Memory, Plan
from ..planning.workload import Workload


class DriverRoom(ABC):
    """Memory of the driver's process beside its baseline, and one more read of all rows.

    Parameters
    ----------
    work : Workload
        Shapes of the training that follows.
    facts : WorkerFacts or None
        The workers; this process alone if None.
    memory_limit : int, optional
        As for `plan_job`.

    Attributes
    ----------
    together : bool
        Whether the driver's process holds the rows of the training, too.
    """

    advice: str
    """Settings to change where the work does not fit."""

    def __init__(self, work: Workload, facts: WorkerFacts | None, memory_limit: int | None = None) -> None:
        self._work = work
        self._limit = memory_limit or default_limit(None)
        self.together = facts is None or facts.in_process

    @property
    @abstractmethod
    def terms(self) -> dict[str, int]:
        """Bytes in the driver's process beside its baseline, by buffer."""

    @property
    def memory(self) -> Memory:
        """The work as a process with the limit of the training."""
        return Memory(self.terms, self._limit, self.advice)

    def require_fit(self) -> None:
        """Refuse work that does not fit into a process with a limit; raises `BudgetError`."""
        if self.together:
            self.memory.require_fit()

    @property
    def peak(self) -> int:
        """Peak of the driver's process during the work."""
        return BASELINE + sum(self.terms.values())

    def before(self, plan: Plan) -> Plan:
        """Return the plan of a training that begins with the work."""
        work, course = self._work, plan.course
        if course is not None:
            read = work.n_rows * (work.row_bytes + 8 * work.target_columns)
            course = replace(course, bytes_read=course.bytes_read + read)
        return replace(
            plan,
            passes=plan.passes + 1,
            processes=(*plan.processes, self.memory) if self.together else plan.processes,
            driver_peak=max(plan.driver_peak, self.peak),
            course=course,
            terms={**plan.terms, **self.terms},
        )
