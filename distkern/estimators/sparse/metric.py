"""The learnt metric of an estimator: its rounds before a training, its attributes, and its arrays in a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from distkern.scheduler import (
    LearntMetric,
    MetricJob,
    MetricRoom,
    Plan,
    TrainingJob,
    WorkerFacts,
    Workload,
    learn_once,
    worker_facts,
    workload,
)
from distkern.scheduler.training.automatic_sample import AUTO_SAMPLE, CANDIDATES, SAMPLE_AFTER_ROUNDS
from distkern.storage import BlockSource, RunDirectory

from ...arrays import Array
from ...models.kernel_model import KernelModel
from ...models.linear_model import LinearModel
from ...numerics.learnt_metric import LinearMap
from ...numerics.scaling import DirectionScaling, FeatureScaling
from ..base.output_functions import all_targets
from ..base.parameter_checks import AUTO


class MetricLearning:
    """Part of the estimators that have the parameter `metric`.

    Attributes
    ----------
    metric_, feature_importances_, metric_rounds_
        See the estimators.
    """

    kernel: Any
    _model: KernelModel
    _evaluate: Callable[..., Any]
    _memory_bytes: int | None
    training_job: Callable[[], TrainingJob]
    metric: str
    metric_: Array
    feature_importances_: Array
    feature_names_in_: NDArray[Any]
    table_schema_: Any
    metric_rounds_: list[dict[str, Any]]

    @property
    def _has_rounds(self) -> bool:
        """Whether rounds precede the training."""
        return bool(self.kernel == AUTO or getattr(self, "metric", "isotropic") != "isotropic")

    def _metric_job(self, job: TrainingJob, n_rows: int) -> MetricJob:
        """Return the job of the rounds, whose models have the centres that a training selects."""
        given = {"rounds": getattr(self, "metric_rounds", None), "rank": getattr(self, "metric_rank", None)}
        chosen = {name: int(value) for name, value in given.items() if value is not None}
        compared = job.compared(n_rows)
        # The larger pool and sample are for the training: rounds compare models, and there are many of them.
        compared = replace(compared, candidates=min(compared.candidates, CANDIDATES[AUTO_SAMPLE]))
        if compared.selection_rows == SAMPLE_AFTER_ROUNDS:
            compared = replace(compared, selection_rows=AUTO_SAMPLE)
        return MetricJob(job=compared, metric=getattr(self, "metric", "isotropic"), **chosen)

    def _room(self, job: TrainingJob, work: Workload, facts: WorkerFacts | None) -> MetricRoom:
        return MetricRoom(self._metric_job(job, work.n_rows), work, facts, self._memory_bytes)

    def _plan_rounds(self, planned: Plan, job: TrainingJob, work: Workload, facts: WorkerFacts | None) -> Plan:
        """Return a plan with the rounds, if there are any, before the training."""
        return self._room(job, work, facts).before(planned) if self._has_rounds else planned

    def _learn(
        self,
        job: TrainingJob,
        source: BlockSource,
        run: RunDirectory | None,
        *,
        with_width: bool,
        client: Any,
        **how: Any,
    ) -> tuple[TrainingJob, tuple[LearntMetric, MetricRoom] | None]:
        """Run the rounds, if there are any; return the job of the training in their space, their result and plan."""
        if not self._has_rounds:
            return job, None
        room = self._room(job, workload(job, source), None if client is None else worker_facts(client))
        room.require_fit()
        found = learn_once(run, self._metric_job(job, source.n_rows), source, client=client, **how)
        return found.applied(job, with_width=with_width), (found, room)

    @property
    def column_importances_(self) -> dict[str, float]:
        """Sums of `feature_importances_` by column: of a raw table, all that one column became.

        Raises
        ------
        AttributeError
            No metric was learnt, or the columns have no names.
        """
        if hasattr(self, "table_schema_"):
            sums: dict[str, float] = self.table_schema_.summed(self.feature_importances_)
            return sums
        return dict(zip(self.feature_names_in_.tolist(), self.feature_importances_.tolist(), strict=True))

    @property
    def arcsinh_columns_(self) -> NDArray[np.int64]:
        """Numbers of the columns that arcsinh maps before they are standardised, as the rounds chose; often none.

        Raises
        ------
        AttributeError
            The estimator learns no metric.
        """
        if not hasattr(self, "metric"):
            raise AttributeError(f"{type(self).__name__} learns no metric")
        mapped = self._model.scaling.arcsinh
        return np.empty(0, dtype=np.int64) if mapped is None else mapped.columns

    def metric_transform(self, X: Any) -> Any:
        """Map rows to the space in which the kernel measures distances: the learnt directions, longest first.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Rows in the training's feature space.

        Returns
        -------
        numpy, zarr or dask array, shape (n_rows, k)
            Container as for `predict`. With ``metric="full"`` the columns are the principal directions of the metric,
            k of them with ``metric_rank=k``; otherwise the scaled features.
        """
        check_is_fitted(self)
        scaling = self._model.scaling
        space = np.eye(len(scaling.shift))
        if isinstance(scaling, DirectionScaling):
            space = LinearMap(scaling.directions).leading(scaling.width).factors
        features = FeatureScaling(scaling.shift, scaling.scale, arcsinh=scaling.arcsinh)
        linear = LinearModel.of(features, space.T, np.zeros(len(space)))
        return self._evaluate(X, all_targets, len(space), np.dtype(np.float64), linear)

    def _note_metric(
        self, learnt: tuple[LearntMetric, MetricRoom] | None, n_features: int, summary: dict[str, Any]
    ) -> None:
        """Set the attributes, and add the costs of the rounds to the summary of a training."""
        if not hasattr(self, "metric"):
            return
        self.metric_, self.metric_rounds_ = np.ones(n_features), []
        if learnt is None:
            if hasattr(self, "feature_importances_"):
                del self.feature_importances_
            return
        found, room = learnt
        if found.map is not None:
            self.metric_ = found.map.metric()
        if self.metric == "full" and self.metric_.ndim == 1:
            self.metric_ = np.diag(self.metric_)
        self.metric_rounds_ = found.rounds
        self.feature_importances_ = found.importances
        costs = {"passes": 1, "bytes_read": found.bytes_read, "seconds": found.seconds}
        summary |= {name: summary[name] + cost for name, cost in costs.items()}
        summary["metric_rounds"] = len(found.rounds)
        summary["plan"] = {**summary["plan"], **room.terms}
        for name in ("planned_peak_driver", *(["planned_peak_bytes"] if room.together else [])):
            summary[name] = max(summary[name], room.peak)


def metric_arrays(estimator: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of a model store."""
    if not hasattr(estimator, "feature_importances_"):
        return {}
    return {"metric": estimator.metric_, "feature_importances": estimator.feature_importances_}


def restore_metric(estimator: Any, arrays: dict[str, NDArray[Any]], rounds: list[dict[str, Any]]) -> None:
    """Set the attributes from the arrays of a model store."""
    d = len(arrays["feature_shift"])
    metric, importances = arrays.get("metric"), arrays.get("feature_importances")
    if metric is not None and metric.shape not in ((d,), (d, d)):
        raise ValueError("metric does not fit the rest")
    if importances is not None:
        if importances.shape != (d,):
            raise ValueError("feature_importances does not fit the rest")
        estimator.feature_importances_ = importances
    estimator.metric_ = np.ones(d) if metric is None else metric
    estimator.metric_rounds_ = rounds
