"""What a training takes, at most: the memory of its processes, a term a buffer, and the work of the engine.

Every method has a function that returns its terms: `distkern.scheduler.planning.training_plan` for the engine, a module
beside each method of `distkern.scheduler.passes`, and the estimators with dense matrices. All of them look at shapes
only, so that a training that cannot fit is refused before any data is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distkern.errors import BudgetError
from distkern.text import byte_size

from ..runtime.threads import single_threaded_blas
from .workload import Workload

MIB = 1 << 20

BASELINE = 250 * MIB
"""Bytes of an interpreter with numpy, scipy, zarr and dask loaded."""


@dataclass(frozen=True)
class Memory:
    """Peak bytes of one process."""

    terms: dict[str, int]
    """Buffers that no budget can move to scratch, beside the baseline."""
    limit: int
    """What the process may take beside the baseline."""
    advice: str
    """What to do where that is not enough."""
    who: str = "this process"
    matrices: dict[str, int] = field(default_factory=dict)
    """Row matrices: memory that the limit leaves is filled in this order, the rest is in scratch."""

    @property
    def fixed(self) -> int:
        """Sum of the terms."""
        return sum(self.terms.values())

    @property
    def fits(self) -> bool:
        """Whether the terms are within the limit."""
        return self.fixed <= self.limit

    @property
    def room(self) -> int:
        """Bytes the limit leaves for row matrices."""
        return max(0, self.limit - self.fixed)

    @property
    def resident(self) -> dict[str, int]:
        """Bytes of each row matrix in memory."""
        left, inside = self.room, {}
        for name, size in self.matrices.items():
            inside[name] = min(left, size)
            left -= inside[name]
        return inside

    @property
    def scratch(self) -> dict[str, int]:
        """Bytes of each row matrix in scratch; no part of the peak."""
        return {name: self.matrices[name] - inside for name, inside in self.resident.items()}

    @property
    def scratch_bytes(self) -> int:
        """Bytes of all row matrices in scratch."""
        return sum(self.scratch.values())

    @property
    def total(self) -> int:
        """Peak of the process."""
        return BASELINE + self.fixed + sum(self.resident.values())

    def named(self) -> dict[str, int]:
        """Return the baseline, the terms, and with ``resident_`` and ``scratch_`` before them the row matrices."""
        matrices = {f"resident_{name}": size for name, size in self.resident.items()}
        scratch = {f"scratch_{name}": size for name, size in self.scratch.items()}
        return {"baseline": BASELINE, **self.terms, **matrices, **scratch}

    def require_fit(self) -> None:
        """Refuse a training that does not fit even with every row matrix in scratch.

        Raises
        ------
        BudgetError
            ``memory``: names the bytes, the largest term, the limit and what to change.
        """
        if self.fits:
            return
        largest = max(self.terms, key=self.terms.__getitem__)
        scratch = " even with every row matrix in scratch" if self.matrices else ""
        raise BudgetError(
            f"{self.who} needs {byte_size(self.fixed)} beside the interpreter's {byte_size(BASELINE)}{scratch}, and "
            f"the limit is {byte_size(self.limit)}; most of it is {largest.replace('_', ' ')} "
            f"({byte_size(self.terms[largest])}): "
            f"raise memory_limit ([cluster] memory), or {self.advice}",
            kind="memory",
        )


@dataclass(frozen=True)
class Course:
    """What the engine does over a full path; a stop rule can only make it shorter."""

    selected_rows: int
    """Rows that selection looks at."""
    n_workers: int
    """Processes that hold blocks."""
    threads: int
    """Threads of each."""
    rounds: int
    """Draws of candidates, one before each panel."""
    exchanges: int
    """Driver-workers-driver exchanges."""
    kernel_columns: int
    """Kernel columns computed."""
    flops: dict[str, int]
    """Floating-point operations of the matrix products over all rows, by kind, and their total."""
    bytes_read: int
    """Of X and y from the store, by all workers."""
    scratch_bytes: int
    """Row matrices of the largest process that are in scratch."""
    scratch_written: int
    """To scratch, by all workers."""
    scratch_read: int
    """From scratch, by all workers."""
    bytes_sent: int
    """Messages to all workers and answers from them."""
    in_driver: bool
    """Whether the factors live in the driver's process."""
    together: bool
    """Whether that process also holds the features: there are no workers, or they are threads of it."""
    read_ahead: int
    """Blocks that reads run ahead of the work, where requests wait on a network."""
    norm_refit: int
    """Bytes that the driver's process takes for ``refit="rkhs"``, after the rows are gone, beside its baseline."""


@dataclass(frozen=True)
class Plan:
    """What a training takes, at most."""

    work: Workload
    """Shapes."""
    passes: int
    """Reads of X."""
    processes: tuple[Memory, ...]
    """Those whose memory is limited, the one with most rows first."""
    terms: dict[str, int]
    """Bytes of every buffer, by name."""
    driver_peak: int
    """Peak of the driver's process."""
    course: Course | None = None
    """Of the engine; None for a method by passes."""
    worker_room: int = 0
    """Bytes of row matrices that each worker of the engine may keep in memory."""
    driver_room: int = 0
    """Bytes of row matrices that factors in the driver may keep in memory."""
    search: dict[str, int] | None = None
    """Models of the search that the training begins with, and how many are trained side by side at most."""

    @classmethod
    def by_passes(
        cls,
        work: Workload,
        passes: int,
        driver: dict[str, int],
        worker: dict[str, int],
        *,
        together: bool,
        limit: int,
        advice: str,
    ) -> Plan:
        """Plan a method without an engine: a driver, and processes that hold blocks or threads of the same one."""
        own = {f"driver_{name}": size for name, size in driver.items()}
        terms = {**own, **worker}
        here = Memory(terms if together else own, limit, advice)
        processes = (here,) if together else (Memory(worker, limit, advice, "a worker"), here)
        return cls(work, passes, processes, terms, here.total)

    @property
    def limit(self) -> int:
        """Bytes that a process with rows may take beside its baseline."""
        return self.processes[0].limit

    @property
    def needed(self) -> int:
        """Bytes of the largest process that no budget can move to scratch, beside the baseline."""
        return max(process.fixed for process in self.processes)

    @property
    def peak(self) -> int:
        """Peak of the largest process."""
        return max(process.total for process in self.processes)

    @property
    def fits(self) -> bool:
        """Whether every process is within its limit."""
        return all(process.fits for process in self.processes)

    def require_fit(self) -> None:
        """Refuse a training that does not fit; raises `BudgetError`."""
        for process in self.processes:
            process.require_fit()

    def record(self) -> dict[str, Any]:
        """Return the plan as plain numbers, flat but for the terms of the memory and of the products."""
        return {
            **self.work.record(),
            "passes": self.passes,
            **({} if self.course is None else vars(self.course)),
            **({} if self.search is None else {"search": self.search}),
            "planned_peak_bytes": self.peak,
            "planned_peak_driver": self.driver_peak,
            "memory_limit": self.limit,
            "memory": self.terms,
        }


@contextmanager
def within(plan: Plan, advice: str) -> Iterator[None]:
    """Run one training: with a plan that fits, and arithmetic that gives the same bits everywhere.

    Parameters
    ----------
    plan : Plan
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
            f"memory ran out where {byte_size(plan.peak)} a process were planned ({error or 'no details'}): other "
            f"processes may hold the rest; free memory, or {advice}",
            kind="out-of-memory",
        ) from error


def largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to `most` that something fits for, which then fits for all smaller ones; or 0."""
    return bisect_left(range(1, most + 1), True, key=lambda number: not fits(number))
