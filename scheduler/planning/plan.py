"""The plan of a training: most memory of its processes, with a term for each buffer, and the work of the engine.

Each method has a function that returns its terms: `training_plan` for the engine, a module beside each method of
`..passes`, and the estimators with dense matrices. They use shapes only, so a training that does not fit is refused
before any data is read.
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
"""Bytes of an interpreter after the import of numpy, scipy, zarr and dask."""


@dataclass(frozen=True)
class Memory:
    """Peak bytes of one process."""

    terms: dict[str, int]
    """Bytes of each buffer beside the baseline that cannot be in scratch."""
    limit: int
    """Bytes that the process may take beside the baseline."""
    advice: str
    """Settings to change where the limit is too low."""
    who: str = "this process"
    matrices: dict[str, int] = field(default_factory=dict)
    """Bytes of each row matrix; they fill the memory within the limit in this order, and the others are in scratch."""

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
        """Bytes within the limit for row matrices."""
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
        """Bytes of each row matrix in scratch, which are not in the peak."""
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
        """Return the baseline, the terms, and the row matrices with the prefixes ``resident_`` and ``scratch_``."""
        matrices = {f"resident_{name}": size for name, size in self.resident.items()}
        scratch = {f"scratch_{name}": size for name, size in self.scratch.items()}
        return {"baseline": BASELINE, **self.terms, **matrices, **scratch}

    def require_fit(self) -> None:
        """Refuse a training that does not fit even with every row matrix in scratch.

        Raises
        ------
        BudgetError
            ``memory``; the message names the bytes, the largest term, the limit and settings to change.
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
    """Work of the engine over a full path; a stop rule can only make it shorter."""

    selected_rows: int
    """Rows on which centres are selected."""
    n_workers: int
    """Number of processes that hold blocks."""
    threads: int
    """Threads of each process."""
    rounds: int
    """Draws of candidates, one before each panel."""
    exchanges: int
    """Number of exchanges."""
    kernel_columns: int
    """Number of kernel columns."""
    flops: dict[str, int]
    """Floating-point operations of the matrix products over all rows, by kind, and their total."""
    bytes_read: int
    """Bytes of X and y read from the store, by all workers; of a dask array, those of its computed rows."""
    scratch_bytes: int
    """Bytes of row matrices of the largest process in scratch."""
    scratch_written: int
    """Bytes written to scratch, by all workers."""
    scratch_read: int
    """Bytes read from scratch, by all workers."""
    bytes_sent: int
    """Bytes of messages to all workers and of their answers."""
    in_driver: bool
    """Whether the factors are in the driver's process."""
    together: bool
    """Whether the driver's process holds the features: there are no workers, or they are threads of it."""
    read_ahead: int
    """Blocks that reads run ahead, where requests wait on a network."""
    solver: str
    """Way to fit the weights to all rows: "factors" or "conjugate-gradients"."""
    loss_passes: int
    """Reads for a loss other than the square, about; 0 with squares."""
    solving_seconds: float
    """Predicted seconds of conjugate gradients; 0 without them."""
    norm_refit: int
    """Bytes of ``refit="rkhs"`` in the driver's process beside its baseline, after the rows are freed."""


@dataclass(frozen=True)
class Plan:
    """Most memory and work of a training."""

    work: Workload
    """Shapes of the data."""
    passes: int
    """Number of reads of X."""
    processes: tuple[Memory, ...]
    """Processes with a memory limit, the one with most rows first."""
    terms: dict[str, int]
    """Bytes of every buffer, by name."""
    driver_peak: int
    """Peak of the driver's process."""
    course: Course | None = None
    """Work of the engine; None for a method by passes."""
    worker_room: int = 0
    """Bytes of row matrices that each worker of the engine may keep in memory."""
    driver_room: int = 0
    """Bytes of row matrices that factors in the driver may keep in memory."""
    search: dict[str, int] | None = None
    """Number of models of the search before the training, and most of them in one pass."""

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
        """Plan a method by passes: a driver, and workers, which with `together` are threads of the driver's process."""
        # dask keeps them in the driver's process, or on the workers of its current client.
        lazy = {"lazy_results": work.lazy_results} if work.lazy_results else {}
        own = {**{f"driver_{name}": size for name, size in driver.items()}, **lazy}
        worker = {**worker, **lazy}
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
        """Bytes of the largest process beside the baseline, with every row matrix in scratch."""
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
        """Return the plan as plain numbers; only the terms of the memory and of the products are nested."""
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
    """Run one training within a plan that fits, on one BLAS thread.

    Parameters
    ----------
    plan : Plan
        Plan of the training.
    advice : str
        Settings to change where memory runs out in spite of the plan.

    Raises
    ------
    BudgetError
        ``memory``: the plan does not fit. ``out-of-memory``: less memory was available than planned.
    """
    plan.require_fit()
    try:
        # Bits must not depend on the number of BLAS threads. Overflow is found in the results.
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            yield
    except MemoryError as error:
        raise BudgetError(
            f"memory ran out where {byte_size(plan.peak)} a process were planned ({error or 'no details'}): other "
            f"processes may hold the rest; free memory, or {advice}",
            kind="out-of-memory",
        ) from error


def largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to `most` for which `fits` holds, by bisection; 0 if there is none."""
    return bisect_left(range(1, most + 1), True, key=lambda number: not fits(number))
