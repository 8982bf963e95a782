"""Rows that come later: `append` of the OROLS family continues the sums of a training."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import asdict, replace
from typing import Any

from sklearn.utils.validation import check_is_fitted

from distkern.scheduler import Drift, Plan, TrainingJob, TrainingResult, WorkerFacts, Workload, worker_facts
from distkern.scheduler.passes.fit import fit_by_passes
from distkern.scheduler.planning.large_plan import CONJUGATE_GRADIENTS
from distkern.scheduler.planning.workload import problem_counts
from distkern.scheduler.training.appended_rows import APPEND_ADVICE, compare, extend, plan_append
from distkern.storage import BlockSource, RunDirectory

from ...errors import JobError, RunError
from ...models.kernel_model import KernelModel
from ...selection.losses import SQUARED
from .estimator import BlockEstimator
from .kept_sums import keep_sums


class Appending(BlockEstimator):
    """Part of the base of the family: what the factors of a training allow after it."""

    _result: Any
    _sample: Any
    solver_: str
    loss_: str
    n_centers_: int
    run_dir: Any
    _flat: bool = False
    # Of the other parts of the family.
    training_job: Callable[[], TrainingJob]
    _model_of: Callable[[TrainingResult, list[int]], tuple[KernelModel, Any]]
    _penalised: Callable[[TrainingResult], TrainingResult]
    _take: Callable[[TrainingResult, list[int]], None]
    _record: Callable[[], dict[str, Any]]
    _set_class_weights: Callable[[Any], None]

    def append(self, X: Any, y: Any = None, sample_weight: Any = None) -> Drift:
        """Continue the sums of the training over rows that come after its own; only the new rows are read.

        Centres, their order and the space of the kernel stay. Weights, lambda, the number of centres that the stop rule
        takes, probabilities and intervals are those of one fit of these centres to all rows, up to rounding.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            New rows; one is enough.
        y : array-like, shape (n_rows,) or (n_rows, n_targets), optional
            Their targets or labels, of classes that the training has seen; those of a dataset by default.
        sample_weight : array-like, shape (n_rows,), optional
            Row weights; a weight counts as repeated rows, zero as absent.

        Returns
        -------
        Drift
            Error on the new rows before and after.

        Raises
        ------
        JobError
            ``no-append``: the weights were solved by conjugate gradients, which keep no factors, or minimise another
            loss than squares.
        RunError
            ``no-path``: the model was loaded from a model store, which keeps no factors; that of a run has them.
        DataError
            The rows cannot be trained on; the model stays as it was.
        """
        check_is_fitted(self)
        self._check_parameters()
        result, flat = self._factored_result(), self._flat
        with self._rows_to_train(X, y, sample_weight, 1, more=True) as (source, client):
            # Predictions keep the dimensions of the targets of the training.
            self._flat = flat
            return self._append(result, source, client)

    def _factored_result(self) -> TrainingResult:
        """Return the result of the training; refuse one without factors."""
        if self.solver_ == CONJUGATE_GRADIENTS:
            raise JobError(
                "the weights were solved by conjugate gradients, which keep no sums to continue: train with "
                "solver='factors'",
                kind="no-append",
            )
        if self.loss_ != SQUARED:
            raise JobError(
                f"the weights minimise the {self.loss_} loss, which has no sums to continue: train with loss='squared'",
                kind="no-append",
            )
        result: TrainingResult | None = getattr(self, "_result", None)
        if result is None:
            raise RunError(
                "this model was loaded from a model store, which does not keep the sums of its training: load the run "
                "directory instead (run_dir), append to the fitted estimator, or train again",
                kind="no-path",
            )
        return replace(result, paths=[path.of_data() for path in result.paths])

    def _append(self, result: TrainingResult, source: BlockSource, client: Any) -> Drift:
        job = self.training_job()
        before, sample = self._model, getattr(self, "_sample", None)
        plan = self.plan_append(source, None if client is None else worker_facts(client))
        with fit_by_passes(plan, source, client, classification=self._classification, advice=APPEND_ADVICE) as fit:
            fit.n_targets, fit.n_centers = len(result.target_means), self.n_centers_
            extended = extend(result, job, fit)
            found = self._penalised(extended.result)
            extended = replace(extended, result=found)
            after, _ = self._model_of(found, _prefixes(found))
            multiclass = getattr(self, "multiclass", "shared")
            drift, sample = compare(extended, self._result, (before, after), multiclass, sample, fit, self._seed)
        part = asdict(drift) | {"content": source.fingerprint()}
        summary = found.summary | _costs(self.summary_, fit.summary()) | {"plan": self.plan_}
        summary["appended"] = [*self.summary_.get("appended", []), part]
        longer = copy(self)
        longer._continue(replace(found, summary=summary), sample)
        if self.run_dir is not None:
            run = self.run_dir if isinstance(self.run_dir, RunDirectory) else RunDirectory.open(self.run_dir)
            keep_sums(longer, run)
            run.write_summary(longer._record())
        self._continue(longer._result, sample)
        return drift

    def _continue(self, result: TrainingResult, sample: Any) -> None:
        """Set the attributes of the training over all rows so far."""
        self._take(result, _prefixes(result))
        self._sample = sample
        if result.class_weights is not None:
            self._set_class_weights(result.class_weights)

    def plan_append(self, source: BlockSource, facts: WorkerFacts | None = None) -> Plan:
        """Plan the passes of `append` over the blocks of a source.

        Parameters
        ----------
        source : BlockSource
            The new rows.
        facts : WorkerFacts, optional
            The workers; this process alone by default.
        """
        result = self._factored_result()
        scheme = getattr(self, "multiclass", "shared")
        columns = len(result.target_means) if result.classes is None else _columns(len(result.classes))
        counts = problem_counts("one-vs-one" if scheme == "dag" else scheme, columns)
        work = Workload.of(source, columns, *counts)
        longest = max(len(path.rows) for path in result.paths)
        settings = replace(self.training_job().selection(source.n_rows), max_centers=max(longest, 1))
        return plan_append(work, facts, self._memory_bytes, settings, getattr(self, "_sample", None))


def _prefixes(result: TrainingResult) -> list[int]:
    return [path.n_centers for path in result.paths]


def _costs(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return the costs of the training and of all appended rows."""
    counts = ("passes", "bytes_read", "kernel_columns", "seconds")
    peaks = ("planned_peak_bytes", "peak_rss_driver", "peak_rss_worker")
    summed = {name: before[name] + now[name] for name in counts}
    return summed | {name: max(before[name], now[name]) for name in peaks}


def _columns(n_classes: int) -> int:
    return 1 if n_classes == 2 else n_classes
