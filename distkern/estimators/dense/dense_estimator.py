"""The base of the dense kernel methods: all rows in this process, and a plan that names the most rows that fit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler.passes.dense_rows import DenseRows, gather_rows, gathered_bytes, reading_bytes
from distkern.scheduler.passes.fit import Fit
from distkern.scheduler.planning.limits import WorkerFacts, default_limit
from distkern.scheduler.planning.plan import Plan, largest
from distkern.scheduler.planning.workload import Workload
from distkern.scheduler.rows.data_checks import SpaceJob
from distkern.scheduler.runtime.threads import available_cores
from distkern.storage import BlockSource

from ...arrays import Array
from ...errors import DataError
from ...kernels import Kernel
from ...models.kernel_model import KernelModel
from ..base.estimator import BlockEstimator

Terms = Callable[[Workload], dict[str, int]]
"""Function of shapes that returns the bytes of each buffer of the method itself."""

PLANNED_ROWS = 1 << 40
"""Largest number of rows that a plan considers in the search for the most that fit."""

DENSE_ATTRIBUTES = """
    centers_ : array, shape (m, d)
        Rows that the model is expanded in, in the caller's feature space.
    center_indices_ : array, shape (m,)
        Their row numbers.
    coef_ : array, shape (m, T)
        Weights.
    intercept_ : array, shape (T,)
        Intercepts.
    n_centers_ : int
        Rows in the expansion.
    kernel_ : Kernel
        The kernel with its width.
    plan_ : dict
        Planned bytes of each buffer.
    summary_ : dict
        Counts and peaks of the training.
    n_features_in_ : int
        Features seen in `fit`."""


@dataclass(frozen=True)
class DenseSolution:
    """Weights that a dense method found."""

    coef: Array
    """(m, T)."""
    intercept: Array
    """(T,)."""
    positions: NDArray[np.int64] | None = None
    """(m,): rows of the expansion, default None: all in order."""


@dataclass(kw_only=True, eq=False, repr=False)
class DenseKernelEstimator(BlockEstimator):
    """Base of the methods that hold all rows, and mostly their Gram matrix, in one process; float64 throughout."""

    _memory_advice = "give fewer rows"

    kernel: str | Kernel = "gaussian"
    sigma: float | str = "median"
    standardize: bool = True
    client: Any = None
    memory_limit: int | str | None = None
    random_state: Any = 0

    @abstractmethod
    def _terms(self, work: Workload) -> dict[str, int]:
        """Return the bytes of each buffer of the method in the driver, beside the rows."""

    @abstractmethod
    def _solve(self, rows: DenseRows, fit: Fit) -> DenseSolution:
        """Find the weights; add kernel columns, rounds and passes to the counts of the fit."""

    def _job(self) -> SpaceJob:
        return SpaceJob(
            classification=self._classification,
            kernel=self.kernel,
            sigma=self.sigma if isinstance(self.sigma, str) else float(self.sigma),
            standardize=bool(self.standardize),
            seed=self._seed,
        )

    def plan(self, work: Workload, facts: WorkerFacts | None) -> Plan:
        """Plan a training, see `BlockEstimator.plan`."""
        return self._plan_terms(work, facts, self._terms, lambda _: {})

    def _plan_terms(self, work: Workload, facts: WorkerFacts | None, driver: Terms, worker: Terms) -> Plan:
        threads = available_cores() if facts is None else facts.threads

        def plan(n_rows: int, advice: str = "") -> Plan:
            shapes = replace(work, n_rows=n_rows, block_rows=min(work.block_rows, max(n_rows, 1)))
            return Plan.by_passes(
                shapes,
                1,
                {"rows": gathered_bytes(shapes), **driver(shapes)},
                {"blocks": reading_bytes(shapes, 2 * threads + 1), **worker(shapes)},
                together=facts is None or facts.in_process,
                limit=self._memory_bytes or default_limit(),
                advice=advice,
            )

        most = largest(lambda n_rows: plan(n_rows).fits, PLANNED_ROWS)
        return plan(
            work.n_rows,
            f"give fewer rows ({type(self).__name__} takes up to {most} rows of {work.n_features} features here, and "
            f"there are {work.n_rows}), or use OROLS, which never holds the kernel matrix",
        )

    def _train(self, source: BlockSource, client: Any) -> None:
        job = self._job()
        with self._fitting(source, client) as fit:
            rows = gather_rows(fit.tasks, job)
            fit.n_targets, fit.bytes_read = rows.targets.shape[1], rows.bytes_read
            fit.rounds = fit.exchanges = fit.passes = 1
            found = self._solve(rows, fit)
            if not (np.isfinite(found.coef).all() and np.isfinite(found.intercept).all()):
                raise DataError(
                    f"the kernel values of the {rows.kernel.name} kernel overflow on these rows: scale the features "
                    "(standardize=True does that), or change the kernel's parameters",
                    kind="overflow",
                )
            positions = np.arange(len(rows.rows)) if found.positions is None else found.positions
            fit.n_centers = len(positions)
        model = KernelModel(rows.kernel, rows.scaling, rows.raw[positions], found.coef, found.intercept, job.dtype)
        self._set_model(model, rows.rows[positions])
        if rows.classes is not None:
            self.classes_ = rows.classes
            self._set_class_weights(np.bincount(rows.codes, rows.weights, len(rows.classes)))


def square_bytes(n: int) -> int:
    """Return the bytes of an n x n matrix."""
    return 8 * n * n
