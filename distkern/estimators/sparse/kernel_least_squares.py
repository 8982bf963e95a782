"""The base of the OROLS family: training by the engine, searches of the width, run directories, nested prefixes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from time import perf_counter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from distkern.scheduler import (
    Finish,
    Plan,
    SearchResult,
    SearchRoom,
    TimeLimit,
    TrainingJob,
    TrainingResult,
    WorkerFacts,
    Workload,
    evaluate,
    plan_job,
    published,
    run_training,
    search_once,
    search_settings,
    workload,
)
from distkern.scheduler.planning.large_plan import CONJUGATE_GRADIENTS, FACTORS
from distkern.scheduler.protocol.path import Path
from distkern.scheduler.runtime.threads import single_threaded_blas
from distkern.scheduler.training.automatic_sample import AUTO_SAMPLE, CANDIDATES, SAMPLE_AFTER_ROUNDS
from distkern.scheduler.training.calibration_rows import draw_rows, outputs_left_out
from distkern.storage import BlockSource, RunDirectory, is_run

from ...arrays import Array
from ...errors import BudgetError, DataError, JobError, RunError
from ...kernels import Kernel, kernel_of_centers
from ...models.kernel_model import KernelModel
from ...monitoring.events import Event, Subscriber
from ...numerics.scaling import FeatureScaling
from ...probability.calibration import AnyCalibration, Calibration, PairCalibration
from ...probability.intervals import Intervals
from ...probability.pair_gaussians import PairGaussians
from ...selection.factors import PER_TARGET
from ...selection.losses import HUBER, LOGISTIC, QUANTILE, SQUARED, LossChoice
from ...selection.rounding import AGREES, warn_of_rounding
from ...selection.stopping import StopReason
from ..base.appending import Appending
from ..base.estimator import BY_REFERENCE
from ..base.kept_sums import keep_sums
from ..base.parameter_checks import AUTO, WIDTHS, check_selection, plain_parameter, seed_of, width_values
from .assembly import Assembled, Weigh, assemble, path_weights, prefix_lengths, prefixes_of
from .metric import MetricLearning, metric_arrays, restore_metric
from .parameters import SparseParameters
from .projections import Projections, projection_arrays, restore_projections
from .rkhs_refit import NormRefit, penalised
from .uncertainty import Uncertainty, restore_uncertainty, uncertainty_arrays
from .width_search import WidthChoice, sigma_results, width_jobs

logger = logging.getLogger(__name__)

_TRAINED_AS = {"dag": "one-vs-one"}
"""Schemes that differ from another one only in the decision."""


class KernelLeastSquares(Projections, MetricLearning, WidthChoice, SparseParameters, Appending, Uncertainty):
    """Base of the family; see the subclasses for the parameters."""

    _intercept: ClassVar[bool] = True
    _takes_sparse: ClassVar[bool] = True
    solver_: str = FACTORS
    """That of pickles of version 0.1, which do not name it."""
    loss_: str = SQUARED
    _constraints: ClassVar = {"sigma": WIDTHS}

    # Parameters, or what the method fixes.
    criterion: str
    sampler: str
    candidates: int | str
    panel: int
    tol: float | None
    patience: int | None
    epsilon: float
    selection_rows: int | str | None

    def __sklearn_tags__(self) -> Any:
        """Declare to scikit-learn whether rows may be sparse."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._takes_sparse
        return tags

    def training_job(self) -> TrainingJob:
        """Return the job of a training: the parameters that decide the model.

        With ``sigma="cv"`` the width is the median distance until the search has been made.
        """
        multiclass = getattr(self, "multiclass", "shared")
        automatic = SAMPLE_AFTER_ROUNDS if self._has_rounds else AUTO_SAMPLE
        rows = plain_parameter(self.selection_rows)
        return TrainingJob(
            classification=self._classification,
            kernel=self.kernel,
            sigma="median" if isinstance(self.sigma, str) else width_values(self.sigma),
            standardize=bool(self.standardize),
            dtype=plain_parameter(self.dtype),
            epsilon=float(self.epsilon),
            multiclass=_TRAINED_AS.get(multiclass, multiclass),
            max_centers=int(self.max_centers),
            criterion=self.criterion,
            sampler=self.sampler,
            candidates=CANDIDATES[automatic] if isinstance(self.candidates, str) else int(self.candidates),
            panel=int(self.panel),
            regularization=self._plain_regularization(),
            stop=None if self.stop == "none" else self.stop,
            tol=None if self.tol is None else float(self.tol),
            patience=None if self.patience is None else int(self.patience),
            seed=self._seed,
            selection_rows=automatic if isinstance(rows, str) else rows,
            intercept=bool(getattr(self, "fit_intercept", self._intercept)),
            refit=self._plain_refit(),
            solver=getattr(self, "solver", FACTORS),
            loss=self._loss_choice(),
        )

    def shapes(self, source: BlockSource) -> Workload:
        """Return the shapes that decide how much a training needs, see `BlockEstimator.shapes`."""
        return workload(self.training_job(), source)

    def plan(self, work: Workload, facts: WorkerFacts | None) -> Plan:
        """Plan a training, see `BlockEstimator.plan`; with ``sigma="cv"`` also the peaks of the search."""
        limit = self._memory_bytes
        job = self.training_job()
        kernel = replace(job, kernel="gaussian") if job.kernel == AUTO else job
        planned = plan_job(kernel, work, facts, factors=self.factors, memory_limit=limit)
        if self._searches:
            tried, n_folds = width_jobs(job), int(self.folds)
            room = SearchRoom(tried, n_folds, work, facts, factors=self.factors, memory_limit=limit)
            planned = room.before(planned)
        planned = self._plan_choice(self._plan_rounds(planned, job, work, facts), job, work, facts)
        draws = getattr(self, "loss", SQUARED) != LOGISTIC if self._classification else self._wants_intervals()
        if not draws:
            return planned
        # Rows that calibrate probabilities or intervals are picked in a pass of their own.
        more = work.n_rows * (work.row_bytes + 8 * work.target_columns)
        assert planned.course is not None
        course = replace(planned.course, bytes_read=planned.course.bytes_read + more)
        return replace(planned, passes=planned.passes + 1, course=course)

    def _search(
        self,
        trials: Sequence[KernelLeastSquares],
        n_folds: int,
        source: BlockSource,
        client: Any,
        *,
        leave_out: bool,
        limit: TimeLimit,
    ) -> SearchResult:
        """Cross-validate the settings of `trials`."""
        with published(client, f"search for {type(self).__name__}") as shown:
            found = search_settings(
                [trial.training_job() for trial in trials],
                n_folds,
                source,
                finishes=[trial._finish() for trial in trials],
                leave_out=leave_out,
                client=client,
                factors=self.factors,
                memory_limit=self._memory_bytes,
                subscribers=[shown, *(self.callbacks or ())],
                limit=limit,
            )
            shown.conclude({"n_centers": int(found.n_centers.max()), "seconds": found.seconds})
        return found

    @property
    def _searches(self) -> bool:
        """Whether a search for the width precedes the training."""
        return isinstance(self.sigma, str) and self.sigma == "cv"

    def _plain_regularization(self) -> str | float:
        value = getattr(self, "regularization", "none")
        return value if isinstance(value, str) else float(value)

    def _loss_choice(self) -> LossChoice | None:
        """Return the loss of the final weights, None for squares."""
        name = getattr(self, "loss", SQUARED)
        if name == SQUARED:
            return None
        constants = {HUBER: "huber_threshold", QUANTILE: "quantile"}
        return LossChoice(name, float(getattr(self, constants[name])) if name in constants else 0.0)

    def _weigh(self, kernel: Kernel, scaling: FeatureScaling) -> Weigh:
        """Return the function that returns the weights of a path's prefix."""
        if self._plain_refit() is None:
            return path_weights
        per_target = str(self._plain_regularization()).endswith(PER_TARGET)
        return NormRefit(kernel, scaling, float(self.epsilon), per_target, self.dtype)

    def _finish(self) -> Finish:
        """Return the settings of a search for the end of this setting's paths."""

        def refit(path: Path, count: int, kernel: Kernel, scaling: FeatureScaling) -> Array:
            return self._weigh(kernel, scaling)(path, count).weights

        return Finish(getattr(self, "multiclass", "shared"), None if self._plain_refit() is None else refit)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_selection(self)

    def _time_limit(self) -> TimeLimit:
        return TimeLimit(None if self.max_seconds is None else float(self.max_seconds))

    def _train(self, source: BlockSource, client: Any) -> None:
        run, is_new = self._run_directory()
        with published(client, type(self).__name__, run) as shown:
            self._train_shown(source, client, run, is_new, shown)
            shown.conclude(self._record())

    def _train_shown(
        self, source: BlockSource, client: Any, run: RunDirectory | None, is_new: bool, shown: Subscriber
    ) -> None:
        limit = self._time_limit()
        subscribers: list[Subscriber] = [shown, *(self.callbacks or ())]
        if run is not None:
            subscribers.append(_Recorder(run))
        where = {
            "client": client,
            "factors": self.factors,
            "memory_limit": self._memory_bytes,
            "subscribers": subscribers,
            "limit": limit,
        }
        searched = {}
        choice = None
        try:
            reading = {"client": client, "subscribers": subscribers, "limit": limit}
            given = self.training_job()
            job, learnt = self._learn(given, source, run, with_width=not self._searches, **reading)
            if self._searches:
                tried = width_jobs(job)
                finishes = [self._finish()] * len(tried)
                found = search_once(run, tried, int(self.folds), source, finishes=finishes, **where)
                self.cv_results_ = sigma_results(found)
                job = tried[found.best]
                searched = {"planned_peak_bytes": found.planned_peak, "planned_peak_driver": found.planned_driver_peak}
            elif (choice := self._choose(given, source, run, client, learnt and learnt[0])) is not None:
                if learnt is not None:
                    learnt = choice[0].kept(learnt[0]), learnt[1]
                    job = learnt[0].applied(job)
                job = choice[0].applied(job)
            result = run_training(job, source, run=run, **where)
            if choice is not None and choice[0].sigma:
                result = penalised(result, choice[0].mu, choice[0].share)
        except (JobError, DataError, BudgetError):
            if run is not None and is_new:
                run.discard()
            raise
        # The measured peak is that of the whole process, and a search trains several models at a time.
        most = {name: max(peak, result.summary[name]) for name, peak in searched.items()}
        result = replace(result, summary={**result.summary, **most})
        self._note_metric(learnt, source.n_features, result.summary)
        self._note_choice(choice, result.summary)
        self._take(result, prefixes_of(result.paths))
        if result.classes is not None:
            self._note_classes(result, source, client)
        else:
            self._note_residuals(result, source, client)
        if run is not None:
            keep_sums(self, run)
        if run is not None and run is not self.run_dir:
            run.write_summary(self._record())

    def _record(self) -> dict[str, Any]:
        """Return the summary of the training, as JSON values."""
        lambdas = np.asarray(self.lambda_).tolist()
        return self.summary_ | {"lambda": lambdas, "gcv": self.gcv_, "stop_reason": str(self.stop_reason_)}

    def _note_classes(self, result: TrainingResult, source: BlockSource, client: Any) -> None:
        """Set the attributes of classifiers: labels, their shares, and the rows that calibrate."""
        assert result.classes is not None
        self.classes_ = result.classes
        assert result.class_weights is not None
        self._set_class_weights(result.class_weights)
        self._sample = None
        if self.loss_ == LOGISTIC:
            return
        sample = draw_rows(source, result.classes, self.class_prior_, seed=self._seed, client=client)
        self._sample = replace(sample, weights=sample.weights * result.weight_scale)
        for name, added in (("passes", 1), ("bytes_read", self._sample.bytes_read)):
            self.summary_[name] += added

    def _make_calibration(self) -> AnyCalibration | PairGaussians | Intervals | None:
        if self.loss_ == LOGISTIC and self._classification:
            return Calibration.of_log_odds(len(self.classes_))
        sample = getattr(self, "_sample", None)
        if sample is None or getattr(self, "_result", None) is None:
            return None
        outputs = self._outputs_left_out()
        if self._result.classes is None:
            return self._make_intervals(outputs)
        usable = np.isfinite(outputs).all(axis=1)
        if not usable.any():
            return None
        rows = outputs[usable], sample.codes[usable], sample.mass[usable]
        with single_threaded_blas():
            if getattr(self, "probabilities", "logistic") == "gaussian":
                own = self._result.multiclass == "one-vs-one"
                return PairGaussians.fit(*rows, len(self.classes_), own_outputs=own)
            if self._result.multiclass == "one-vs-one" and len(self._result.outputs) > 1:
                return PairCalibration.fit(*rows, len(self.classes_))
            return Calibration.fit(*rows)

    def _outputs_left_out(self) -> Array:
        """Return the outputs of the rows that calibrate, each from the model without it, shape (n, T).

        The weights of ``refit="rkhs"`` without a row have no closed form in the factors, and conjugate gradients have
        no factors: there the model's own outputs are used.
        """
        if self._plain_refit() or self.solver_ == CONJUGATE_GRADIENTS:
            own: Array = evaluate(self._model, self._sample.features)
            return own
        summary = self._result.summary
        # Pickles of version 0.1 hold no number of rows that selected.
        on_all_rows = summary.get("selection_rows", self.selection_rows or summary["n_rows"]) < summary["n_rows"]
        return outputs_left_out(
            self._result,
            self._prefixes,
            self._sample,
            epsilon=float(self.epsilon),
            held_out_seed=self._seed if self.stop == "validation" and not on_all_rows else None,
        )

    def _run_directory(self) -> tuple[RunDirectory | None, bool]:
        """Make or open the run directory, and return whether it is new; a given `RunDirectory` is the caller's."""
        if self.run_dir is None or isinstance(self.run_dir, RunDirectory):
            return self.run_dir, False
        run = RunDirectory.open(self.run_dir) if is_run(self.run_dir) else None
        if run is not None:
            # A seed that was drawn is that of the run.
            self._drawn_seed = seed_of(run.job.get("parameters", {}).get("random_state", 0))
        parameters = {
            name: value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)
            for name, value in ((name, plain_parameter(value)) for name, value in self.get_params(deep=False).items())
            if name not in BY_REFERENCE
        }
        document = {"estimator": type(self).__name__, "parameters": {**parameters, "random_state": self._seed}}
        if run is None:
            return RunDirectory.create(self.run_dir, document), True
        run.job = document
        return run, False

    def _take(self, result: TrainingResult, n_centers: list[int]) -> None:
        """Set the fitted attributes from one prefix of every path."""
        started = perf_counter()
        model, assembled = self._model_of(result, n_centers)
        seconds = perf_counter() - started if self._plain_refit() else 0.0
        self._result = result
        self._prefixes = n_centers
        self._calibration = None
        self._made_calibration = []
        self._stored_leverage = None
        self._set_model(model, assembled.rows)
        single = len(assembled.lambdas) == 1
        self.lambda_ = float(assembled.lambdas[0]) if single else assembled.lambdas
        self.gcv_ = assembled.gcv
        keep = np.array(n_centers)
        order = result.history["problem"]
        steps = np.concatenate([np.arange(np.count_nonzero(order == p)) for p in range(len(keep))])
        self.history_ = result.history[steps < keep[order]] if len(order) else result.history
        self.stop_reason_: StopReason = result.reason
        self.solver_ = result.summary.get("solver", FACTORS)
        self.loss_ = result.summary.get("loss", SQUARED)
        if assembled.rounding > AGREES:
            self.stop_reason_ = StopReason.ROUNDING
            warn_of_rounding(self.n_centers_, assembled.rounding, None, self.dtype)
        if not self.n_centers_:
            logger.warning("the model has no centre and predicts a constant: %s", result.reason.advice)
        self.chosen_ = result.summary.get("chosen", {})
        self.plan_ = result.summary["plan"]
        self.summary_ = {
            **{key: value for key, value in result.summary.items() if key != "plan"},
            "n_centers": self.n_centers_,
            "seconds": result.summary["seconds"] + seconds,
        }

    def _model_of(self, result: TrainingResult, n_centers: list[int]) -> tuple[KernelModel, Assembled]:
        """Return the model of one prefix of every path, and its arrays."""
        weigh = self._weigh(result.kernel, result.scaling)
        found = assemble(result.paths, result.outputs, result.target_means, n_centers, weigh)
        kernel = kernel_of_centers(result.kernel, found.widths)
        dtype = plain_parameter(self.dtype)
        return KernelModel(kernel, result.scaling, found.centers, found.coef, found.intercept, dtype), found

    def _stored_arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {"lambda": np.atleast_1d(np.asarray(self.lambda_, dtype=np.float64)), "history": self.history_}
        of_regression = {} if self._classification else uncertainty_arrays(self)
        return {**arrays, **projection_arrays(self), **metric_arrays(self), **of_regression}

    def _stored_values(self) -> dict[str, Any]:
        values = {"gcv": self.gcv_, "stop_reason": str(self.stop_reason_), "solver": self.solver_, "loss": self.loss_}
        values["chosen"] = getattr(self, "chosen_", {})  # absent in pickles of earlier versions
        return values | ({"metric_rounds": self.metric_rounds_} if hasattr(self, "metric") else {})

    def _restore(self, stored: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        lambdas = arrays["lambda"]
        if lambdas.ndim != 1 or not len(lambdas) or lambdas.dtype.kind != "f" or not np.isfinite(lambdas).all():
            raise ValueError("lambda is no vector of numbers")
        if arrays["history"].dtype.names is None:
            raise ValueError("history has no columns")
        restore_projections(self, arrays)
        if not self._classification:
            restore_uncertainty(self, arrays)
        if hasattr(self, "metric"):
            restore_metric(self, arrays, stored.get("metric_rounds", []))
        self.lambda_ = float(lambdas[0]) if len(lambdas) == 1 else lambdas
        self.gcv_ = float("nan") if stored["gcv"] is None else stored["gcv"]
        self.history_ = arrays["history"]
        self.stop_reason_ = StopReason(stored["stop_reason"])
        self.solver_ = str(stored.get("solver", FACTORS))
        self.loss_ = str(stored.get("loss", SQUARED))
        self.chosen_ = dict(stored.get("chosen", {}))

    def truncate(self, n_centers: int) -> Self:
        """Return the model of the first `n_centers` centres; the path is nested, so nothing is trained again.

        A classifier calibrates its probabilities anew when they are first asked for, or when it is saved, on the
        training rows that it keeps for that.

        Parameters
        ----------
        n_centers : int
            At least 1 and at most the length of the path, which is longer than the model if the stop rule returned to a
            minimum. With one-vs-rest, centres of each class.

        Returns
        -------
        estimator
            A fitted copy.

        Raises
        ------
        JobError
            The path is shorter, or the weights were solved by conjugate gradients.
        RunError
            The model was loaded from a store, which keeps the model but not its path.
        """
        check_is_fitted(self)
        if getattr(self, "_result", None) is None:
            raise RunError(
                "this model was loaded from a store, which does not keep the path: truncate the fitted estimator "
                "and save the result",
                kind="no-path",
            )
        if self.solver_ == CONJUGATE_GRADIENTS and n_centers != self.n_centers_:
            raise JobError(
                f"n_centers={n_centers}: the weights of {self.n_centers_} centres were solved together, by conjugate "
                "gradients, and there are none of fewer centres; train with a smaller max_centers, or solver='factors'",
                kind="no-path",
            )
        if self.loss_ != SQUARED and n_centers != self.n_centers_:
            raise JobError(
                f"n_centers={n_centers}: the weights of {self.n_centers_} centres were fitted together by the "
                f"{self.loss_} loss, and there are none of fewer centres; train with a smaller max_centers",
                kind="no-path",
            )
        shorter = copy(self)
        shorter.client, shorter.callbacks = self.client, self.callbacks
        shorter._take(self._result, prefix_lengths(self._result.paths, n_centers))
        return shorter


class _Recorder:
    """Writes every event to a run directory."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run

    def __call__(self, event: Event) -> None:
        self._run.record(event.as_record())
