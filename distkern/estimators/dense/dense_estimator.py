"""What the dense kernel methods share: all rows in this process, a plan that says how many those may be."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler.clusters.worker_queries import peak_of_workers, worker_facts
from distkern.scheduler.passes.block_tasks import BlockTasks, block_tasks
from distkern.scheduler.passes.dense_rows import DenseJob, DenseRows, gather_rows, gathered_bytes, reading_bytes
from distkern.scheduler.planning.limits import WorkerFacts, default_limit
from distkern.scheduler.planning.memory import Workload
from distkern.scheduler.planning.pass_plan import PassPlan, out_of_memory
from distkern.scheduler.runtime.processes import peak_rss
from distkern.scheduler.runtime.threads import available_cores
from distkern.scheduler.training.run import target_count
from distkern.storage import BlockSource

from ...errors import DataError
from ...models.kernel_model import KernelModel
from ..base.estimator import BlockEstimator
from ..base.parameter_checks import byte_count, check_kernel_space

Array = NDArray[np.float64]

Terms = Callable[[Workload], dict[str, int]]
"""Bytes a buffer of the method itself, for some shapes."""

ATTRIBUTES = """
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
        Planned bytes, a term a buffer.
    summary_ : dict
        Counts and peaks of the training.
    n_features_in_ : int
        Features seen in `fit`."""


@dataclass(frozen=True)
class DenseSolution:
    """What a dense method came to."""

    coef: Array
    """(m, T)."""
    intercept: Array
    """(T,)."""
    positions: NDArray[np.int64] | None = None
    """(m,): rows of the expansion; None for all in order."""
    rounds: int = 1
    """Steps of the method."""
    exchanges: int = 0
    """Times that something went out to where blocks are worked on and came back, beside reading."""
    kernel_columns: int = 0
    """Columns of the Gram matrix that were computed, those that were computed again too."""


class DenseKernelEstimator(BlockEstimator):
    """Base of the methods that hold all rows, and mostly their Gram matrix, in one process; float64 throughout."""

    kernel: Any
    sigma: float | str
    standardize: bool
    client: Any
    memory_limit: int | str | None
    random_state: int

    def _check_parameters(self) -> None:
        check_kernel_space(self)

    @abstractmethod
    def _terms(self, work: Workload) -> dict[str, int]:
        """Bytes of each buffer of the method in the driver, beside the rows."""

    @abstractmethod
    def _solve(self, rows: DenseRows, tasks: BlockTasks, plan: PassPlan) -> DenseSolution:
        """Find the weights."""

    def _dense_job(self) -> DenseJob:
        return DenseJob(
            classification=self._classification,
            kernel=self.kernel,
            sigma=self.sigma if isinstance(self.sigma, str) else float(self.sigma),
            standardize=bool(self.standardize),
            seed=int(self.random_state),
        )

    def plan(self, work: Workload, facts: WorkerFacts | None) -> PassPlan:
        """Plan a training.

        Parameters
        ----------
        work : Workload
            Shapes.
        facts : WorkerFacts, optional
            The workers; this process alone if not given.
        """
        return self._plan_terms(work, facts, self._terms, lambda _: {})

    def _plan_terms(self, work: Workload, facts: WorkerFacts | None, driver: Terms, worker: Terms) -> PassPlan:
        threads = available_cores() if facts is None else facts.threads

        def plan(shapes: Workload, advice: str = "") -> PassPlan:
            return PassPlan(
                work=shapes,
                passes=1,
                driver={"rows": gathered_bytes(shapes), **driver(shapes)},
                worker={"blocks": reading_bytes(shapes, 2 * threads + 1), **worker(shapes)},
                together=facts is None or facts.in_process,
                limit=byte_count("memory_limit", self.memory_limit) or default_limit(),
                advice=advice,
            )

        most = largest_rows(plan, work)
        return plan(
            work,
            f"{type(self).__name__} takes up to {most} rows of {work.n_features} features here, and there are "
            f"{work.n_rows}; raise the limit, give it fewer rows, or use OROLS, which never holds the kernel matrix",
        )

    def _train(self, source: BlockSource, client: Any) -> None:
        started = perf_counter()
        job = self._dense_job()
        facts = None if client is None else worker_facts(client)
        work = Workload.of(source, target_count(job, source), 1)
        plan = self.plan(work, facts)
        plan.require_fit()
        try:
            with (
                np.errstate(over="ignore", invalid="ignore"),
                block_tasks(source, classification=self._classification, client=client) as tasks,
            ):
                rows = gather_rows(tasks, job)
                solution = self._solve(rows, tasks, plan)
        except MemoryError as error:
            advice = "other processes may hold the rest; free memory, or give fewer rows"
            raise out_of_memory(plan.peak, error, advice) from error
        if not (np.isfinite(solution.coef).all() and np.isfinite(solution.intercept).all()):
            raise DataError(
                f"the kernel values of the {rows.kernel.name} kernel overflow on these rows: scale the features "
                "(standardize=True does that), or change the kernel's parameters",
                kind="overflow",
            )
        positions = np.arange(len(rows.rows)) if solution.positions is None else solution.positions
        model = KernelModel(
            rows.kernel, rows.scaling, rows.raw[positions], solution.coef, solution.intercept, job.dtype
        )
        self._set_model(model, rows.rows[positions])
        if rows.classes is not None:
            self.classes_ = rows.classes
            self._set_class_weights(np.bincount(rows.codes, rows.weights, len(rows.classes)))
        self.plan_ = plan.terms()
        self.summary_ = {
            "n_rows": source.n_rows,
            "n_features": source.n_features,
            "n_targets": rows.targets.shape[1],
            "n_centers": self.n_centers_,
            "rounds": solution.rounds,
            "exchanges": 1 + solution.exchanges,
            "kernel_columns": solution.kernel_columns,
            "passes": plan.passes,
            "bytes_read": rows.bytes_read,
            "seconds": perf_counter() - started,
            "planned_peak_bytes": plan.peak,
            "peak_rss_driver": peak_rss(),
            "peak_rss_worker": 0 if client is None else peak_of_workers(client),
        }


def largest_rows(plan: Callable[[Workload], PassPlan], work: Workload) -> int:
    """Most rows of these features and targets whose plan fits its limit, by bisection.

    Parameters
    ----------
    plan : callable
        Takes shapes to a plan, whose need grows with the rows.
    work : Workload
        Shapes.
    """

    def fits(n_rows: int) -> bool:
        tried = plan(replace(work, n_rows=n_rows, block_rows=min(work.block_rows, max(n_rows, 1))))
        return tried.needed <= tried.limit

    low, high = 0, 1
    while high < 1 << 40 and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def square_bytes(n: int) -> int:
    """Bytes of an n x n matrix."""
    return 8 * n * n
