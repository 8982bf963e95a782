"""The base of the linear classifiers: statistics of the classes, then weights, then a linear model."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler.passes.class_statistics import class_statistics
from distkern.scheduler.passes.first_pass import Statistics
from distkern.scheduler.passes.fit import Fit
from distkern.scheduler.passes.linear_plan import plan_linear
from distkern.scheduler.planning.limits import WorkerFacts
from distkern.scheduler.planning.plan import Plan
from distkern.scheduler.planning.workload import Workload
from distkern.scheduler.rows.numeric_ranges import feature_scales
from distkern.storage import BlockSource

from ...arrays import Array
from ...errors import DataError
from ...models.kernel_model import KernelModel
from ...models.linear_model import LinearModel
from ...numerics.scaling import FeatureScaling
from ..base.regressor_classifier import BlockClassifier


class Solution(NamedTuple):
    """Weights that a method found, in scaled coordinates."""

    weights: Array
    """(d, T)."""
    intercept: Array
    """(T,)."""


@dataclass(kw_only=True, eq=False, repr=False)
class LinearClassifier(BlockClassifier):
    """Base of the linear classifiers; see the subclasses for the parameters."""

    _memory_advice = "use smaller chunks of X"

    standardize: bool = True
    client: Any = None
    memory_limit: int | str | None = None
    _with_scatter = True
    """Whether the first pass takes the scatter of the classes."""
    _with_margins = False
    """Whether later passes keep a number for each row and target."""
    _center_allowed = True
    """Whether rows may be shifted although they are not standardised."""
    _with_augmented = True
    """Whether `a_` is among the fitted attributes."""

    def plan(self, work: Workload, facts: WorkerFacts | None) -> Plan:
        """Plan the memory of a training, see `BlockEstimator.plan`."""
        return plan_linear(
            work,
            facts,
            self._memory_bytes,
            with_scatter=self._with_scatter,
            again=self._passes_again(),
            margins=self._with_margins,
        )

    def _passes_again(self) -> int:
        """Return the most passes after the first."""
        return 0

    @abstractmethod
    def _solve(self, fit: Fit, statistics: Statistics, scaling: FeatureScaling) -> Solution:
        """Find the weights; set the other attributes of the method, and the counts of the fit."""

    def _train(self, source: BlockSource, client: Any) -> None:
        with self._fitting(source, client) as fit:
            statistics = class_statistics(fit.tasks, with_scatter=self._with_scatter)
            scaling = self._scaling(statistics, source)
            fit.rounds, fit.passes, fit.bytes_read = 1, 1, statistics.reads.bytes_read
            found = self._solve(fit, statistics, scaling)
            fit.n_targets, fit.exchanges = len(found.intercept), 1 + fit.rounds
            self._keep(scaling, found)
        # Classes of a source that have no row are left out.
        self.classes_ = statistics.labels if source.classes is None else source.classes[statistics.labels]
        assert statistics.loaded.labels is not None
        self._set_class_weights(statistics.loaded.labels.weights)

    def _scaling(self, statistics: Statistics, source: BlockSource) -> FeatureScaling:
        return FeatureScaling.fit(
            statistics.loaded.features,
            standardize=bool(self.standardize),
            shift_allowed=self._center_allowed,
            scales=feature_scales(source),
        )

    def _norm_center(self, scaling: FeatureScaling) -> Array:
        """Return the origin of the method's own coordinates, in which `least_squares` takes the shortest solution."""
        return np.zeros_like(scaling.shift) if self.standardize else scaling.shift

    def _keep(self, scaling: FeatureScaling, found: Solution) -> None:
        model = LinearModel.of(scaling, found.weights, found.intercept)
        if not all(np.isfinite(part).all() for part in (*found, *model.in_units_of_rows())):
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

    def _stored_values(self) -> dict[str, Any]:
        return {"rank": getattr(self, "rank_", None)}

    def _restore(self, stored: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        if stored["rank"] is not None:
            self.rank_ = int(stored["rank"])
