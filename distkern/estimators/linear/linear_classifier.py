"""What the linear classifiers share: statistics of the classes first, then weights; a linear model at the end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler.clusters.worker_queries import peak_of_workers, worker_facts
from distkern.scheduler.passes.block_tasks import BlockTasks, block_tasks
from distkern.scheduler.passes.class_statistics import ClassStatistics, class_statistics, classes_of
from distkern.scheduler.passes.linear_plan import plan_linear
from distkern.scheduler.planning.limits import WorkerFacts
from distkern.scheduler.planning.memory import Workload
from distkern.scheduler.planning.pass_plan import PassPlan, out_of_memory
from distkern.scheduler.runtime.processes import peak_rss
from distkern.scheduler.runtime.threads import single_threaded_blas
from distkern.scheduler.training.run import UNKNOWN_CLASSES
from distkern.storage import BlockSource

from ...errors import DataError
from ...models.kernel_model import KernelModel
from ...models.linear_model import LinearModel
from ...numerics.scaling import FeatureScaling
from ..base.estimator import Array
from ..base.parameter_checks import byte_count, check_surroundings
from ..base.regressor_classifier import BlockClassifier


@dataclass(frozen=True)
class Solution:
    """What a method found, in scaled coordinates."""

    weights: Array
    """(d, T)."""
    intercept: Array
    """(T,)."""
    passes: int = 0
    """Times that X was read after the first."""
    bytes_read: int = 0
    """Bytes of those."""
    rounds: int = 1
    """Iterations."""


class LinearClassifier(BlockClassifier):
    """Base of the linear classifiers; see the subclasses for the parameters."""

    standardize: bool
    memory_limit: int | str | None
    _with_scatter = True
    """Whether the first pass takes the scatter of the classes."""
    _center_allowed = True
    """Whether rows may be shifted although they are not standardised."""
    _with_augmented = True
    """Whether `a_` is among the fitted attributes."""

    def _check_parameters(self) -> None:
        check_surroundings(self)

    def plan(self, work: Workload, facts: WorkerFacts | None) -> PassPlan:
        """Plan the memory of a training.

        Parameters
        ----------
        work : Workload
            Shapes.
        facts : WorkerFacts, optional
            The workers; this process alone if not given.
        """
        limit = byte_count("memory_limit", self.memory_limit)
        return plan_linear(work, facts, limit, with_scatter=self._with_scatter)

    @abstractmethod
    def _solve(
        self, tasks: BlockTasks, statistics: ClassStatistics, scaling: FeatureScaling, plan: PassPlan
    ) -> Solution:
        """Find the weights; set what attributes a method has beside them."""

    def _train(self, source: BlockSource, client: Any) -> None:
        plan = self._require_plan(source, client)
        started = perf_counter()
        with self._tasks(source, client, plan) as tasks:
            statistics = class_statistics(tasks, with_scatter=self._with_scatter)
            scaling = self._scaling(statistics)
            found = self._solve(tasks, statistics, scaling, plan)
        self.classes_ = classes_of(statistics, source.classes)
        assert statistics.loaded.labels is not None
        self._set_class_weights(statistics.loaded.labels.weights)
        self._keep(scaling, found)
        self._note(plan, source, client, found, 1, statistics.reads.bytes_read, started)

    @contextmanager
    def _tasks(self, source: BlockSource, client: Any, plan: PassPlan) -> Iterator[BlockTasks]:
        """Open what runs functions of blocks; the driver's own BLAS runs on one thread meanwhile."""
        try:
            with single_threaded_blas(), block_tasks(source, classification=True, client=client) as tasks:
                yield tasks
        except MemoryError as error:
            advice = "free memory, or use smaller chunks of X"
            raise out_of_memory(plan.peak, error, advice) from error

    def _note(
        self,
        plan: PassPlan,
        source: BlockSource,
        client: Any,
        found: Solution,
        passes: int,
        bytes_read: int,
        started: float,
    ) -> None:
        """Set `plan_` and `summary_`; `passes` and `bytes_read` are those before the solution."""
        self.plan_ = plan.terms()
        self.summary_ = {
            "n_rows": source.n_rows,
            "n_features": source.n_features,
            "n_targets": found.weights.shape[1],
            "n_centers": 0,
            "rounds": found.rounds,
            "exchanges": found.rounds + passes,
            "kernel_columns": 0,
            "passes": passes + found.passes,
            "bytes_read": bytes_read + found.bytes_read,
            "seconds": perf_counter() - started,
            "planned_peak_bytes": plan.peak,
            "peak_rss_driver": peak_rss(),
            "peak_rss_worker": 0 if client is None else peak_of_workers(client),
        }

    def _require_plan(self, source: BlockSource, client: Any) -> PassPlan:
        n_classes = UNKNOWN_CLASSES if source.classes is None else len(source.classes)
        work = Workload.of(source, 1 if n_classes <= 2 else n_classes, 1)
        plan = self.plan(work, None if client is None else worker_facts(client))
        plan.require_fit()
        return plan

    def _scaling(self, statistics: ClassStatistics) -> FeatureScaling:
        return FeatureScaling.fit(
            statistics.moments, standardize=bool(self.standardize), shift_allowed=self._center_allowed
        )

    def _norm_center(self, scaling: FeatureScaling) -> Array:
        """Origin of the features as `least_squares` wants it: the shortest solution is that of the method's own."""
        return np.zeros_like(scaling.shift) if self.standardize else scaling.shift

    def _keep(self, scaling: FeatureScaling, found: Solution) -> None:
        model = LinearModel.of(scaling, found.weights, found.intercept)
        with np.errstate(over="ignore", invalid="ignore"):
            figures = (found.weights, found.intercept, *model.in_units_of_rows())
        if not all(np.isfinite(part).all() for part in figures):
            raise DataError(
                "the weights of the features overflow: scale the features to ordinary sizes", kind="overflow"
            )
        self._set_model(model, np.empty(0, dtype=np.int64))

    def _set_model(self, model: KernelModel, rows: NDArray[np.int64]) -> None:
        linear = LinearModel(model.kernel, model.scaling, model.centers, model.coef, model.intercept, model.dtype)
        self._model = linear
        self.coef_, self.intercept_ = linear.in_units_of_rows()
        if self._with_augmented:
            stacked = np.concatenate([self.intercept_[None], self.coef_])
            self.a_ = -stacked[:, 0] if stacked.shape[1] == 1 else stacked

    def decision_function(self, X: Any) -> Any:
        """Return the value of every hyperplane's equation, x'coef_ + intercept_.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Rows in the training's feature space.

        Returns
        -------
        numpy, zarr or dask array, shape (n_rows,) for two classes, else (n_rows, n_classes)
            Above 0 on the side of the second class; for more classes, the largest is predicted. Container as for
            `predict`.
        """
        return super().decision_function(X)

    def _stored_figures(self) -> dict[str, Any]:
        return {"rank": getattr(self, "rank_", None)}

    def _restore(self, figures: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        if figures["rank"] is not None:
            self.rank_ = int(figures["rank"])
