"""What all estimators of the OROLS family share: inputs, training, prediction, saving.

Follows the scikit-learn conventions: parameters are stored as given and checked in `fit`; fitted attributes end
in an underscore; what cannot be copied or pickled (a client, callbacks) is kept by reference or left behind.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy, deepcopy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from distkern.errors import BudgetError, DataError, DataTypeError, JobError, RunError
from distkern.estimators.assembly import assemble, prefix_lengths
from distkern.estimators.parameters import byte_count, check_parameters
from distkern.events import Event, Subscriber
from distkern.model import KernelModel
from distkern.scheduler import (
    DaskArraySource,
    TrainingJob,
    TrainingResult,
    current_client,
    evaluate,
    is_dask_array,
    map_rows,
    predict_blocks,
    run_training,
)
from distkern.scheduler.prediction import Finish
from distkern.stopping import StopReason
from distkern.storage import (
    ArraySource,
    BlockSource,
    Dataset,
    RunDirectory,
    ZarrRows,
    as_source,
    as_targets,
    is_run,
    is_zarr_array,
    memory_array,
    numeric_dtype,
    require_finite,
)

logger = logging.getLogger(__name__)

Array = NDArray[np.float64]
_BY_REFERENCE = ("client", "callbacks")


class KernelLeastSquares(BaseEstimator, ABC):
    """Base of the estimators; see the subclasses for the parameters."""

    _classification: bool

    # Parameters that subclasses set in their __init__.
    kernel: Any
    sigma: float | str
    max_centers: int
    criterion: str
    sampler: str
    candidates: int
    panel: int
    stop: str | None
    tol: float | None
    patience: int | None
    epsilon: float
    selection_rows: int | None
    standardize: bool
    dtype: str
    factors: str
    client: Any
    memory_limit: int | str | None
    run_dir: Any
    random_state: int
    callbacks: Any

    def __sklearn_clone__(self) -> Self:
        """Clone, keeping the client and the callbacks by reference; a run directory stays behind."""
        copied = type(self)(
            **{
                name: value if name in _BY_REFERENCE else clone(value, safe=False)
                for name, value in self.get_params(deep=False).items()
            }
        )
        # A run is of one training, and clones are made to be trained on other rows or with other settings.
        copied.run_dir = None
        for name in ("_metadata_request", "_sklearn_output_config"):
            if hasattr(self, name):
                setattr(copied, name, deepcopy(getattr(self, name)))
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Leave the client and the callbacks behind: they belong to this process."""
        state = dict(super().__getstate__())
        state["client"] = None
        state["callbacks"] = ()
        return state

    def training_job(self) -> TrainingJob:
        """Return what a training would be asked for: the parameters that decide the model."""
        return TrainingJob(
            classification=self._classification,
            kernel=self.kernel,
            sigma=self.sigma if isinstance(self.sigma, str) else float(self.sigma),
            standardize=bool(self.standardize),
            dtype=self.dtype,
            epsilon=float(self.epsilon),
            one_vs_rest=getattr(self, "multiclass", "shared") == "one-vs-rest",
            max_centers=int(self.max_centers),
            criterion=self.criterion,
            sampler=self.sampler,
            candidates=int(self.candidates),
            panel=int(self.panel),
            regularization=self._plain_regularization(),
            stop=None if self.stop == "none" else self.stop,
            tol=None if self.tol is None else float(self.tol),
            patience=None if self.patience is None else int(self.patience),
            seed=int(self.random_state),
            selection_rows=None if self.selection_rows is None else int(self.selection_rows),
        )

    def _plain_regularization(self) -> str | float:
        value = getattr(self, "regularization", "none")
        return value if isinstance(value, str) else float(value)

    def _source(self, X: Any, y: Any, sample_weight: Any) -> BlockSource:
        """Turn whatever `fit` was given into blocks."""
        if isinstance(X, Dataset) or is_zarr_array(X):
            source = as_source(X, y, sample_weight)
        elif is_dask_array(X):
            source = DaskArraySource(X, y, sample_weight)
        else:
            if sample_weight is not None:
                sample_weight = np.asarray(sample_weight)
                if sample_weight.ndim == 0:
                    sample_weight = np.full(len(X), sample_weight)
            X, y, classes = self._validate_training(X, y, sample_weight)
            names = getattr(self, "feature_names_in_", None)
            return ArraySource(
                X, y, sample_weight, classes=classes, feature_names=None if names is None else list(map(str, names))
            )
        self.n_features_in_ = source.n_features
        return source

    @abstractmethod
    def _validate_training(
        self, X: Any, y: Any, sample_weight: NDArray[Any] | None
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
        """Check arrays in memory: rows, targets or codes, and the classes the codes point into."""

    def _note_targets(self, source: BlockSource) -> None:
        """Check the source's targets against the kind of estimator."""

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> TrainingResult:
        check_parameters(self)
        source = self._source(X, y, sample_weight)
        self._note_targets(source)
        client = self.client
        if client is None and not isinstance(source, ArraySource):
            client = current_client()
        subscribers: list[Subscriber] = list(self.callbacks or ())
        run, is_new = self._run_directory()
        if run is not None:
            subscribers.append(_Recorder(run))
        try:
            result = run_training(
                self.training_job(),
                source,
                client=client,
                factors=self.factors,
                memory_limit=byte_count("memory_limit", self.memory_limit),
                subscribers=subscribers,
                run=run,
            )
        except (JobError, DataError, BudgetError):
            if run is not None and is_new:
                run.discard()
            raise
        self._take(result, [path.n_centers for path in result.paths])
        if run is not None and run is not self.run_dir:
            run.write_summary(self.summary_ | {"stop_reason": str(self.stop_reason_)})
        return result

    def _run_directory(self) -> tuple[RunDirectory | None, bool]:
        """Make or reopen the run directory, and tell which; a caller that gives one as it is looks after it."""
        if self.run_dir is None or isinstance(self.run_dir, RunDirectory):
            return self.run_dir, False
        parameters = {
            name: value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)
            for name, value in self.get_params(deep=False).items()
            if name not in _BY_REFERENCE
        }
        document = {"estimator": type(self).__name__, "parameters": parameters}
        if not is_run(self.run_dir):
            return RunDirectory.create(self.run_dir, document), True
        run = RunDirectory.open(self.run_dir)
        run.job = document
        return run, False

    def _take(self, result: TrainingResult, n_centers: list[int]) -> None:
        """Set the fitted attributes from one prefix of every path."""
        assembled = assemble(result.paths, result.problems, result.target_means, n_centers)
        self._result = result
        self._set_model(
            KernelModel(
                result.kernel,
                result.scaling,
                assembled.centers,
                assembled.coef,
                assembled.intercept,
                self.dtype,
            ),
            assembled.rows,
        )
        single = len(assembled.lambdas) == 1
        self.lambda_ = float(assembled.lambdas[0]) if single else assembled.lambdas
        self.gcv_ = assembled.gcv
        keep = np.array(n_centers)
        order = result.history["problem"]
        steps = np.concatenate([np.arange(np.count_nonzero(order == p)) for p in range(len(keep))])
        self.history_ = result.history[steps < keep[order]] if len(order) else result.history
        self.stop_reason_: StopReason = result.reason
        if not self.n_centers_:
            logger.warning("the model has no centre and predicts a constant: %s", result.reason.advice)
        self.plan_ = result.summary["plan"]
        self.summary_ = {
            **{key: value for key, value in result.summary.items() if key != "plan"},
            "n_centers": self.n_centers_,
        }

    def _set_model(self, model: KernelModel, rows: NDArray[np.int64]) -> None:
        self._model = model
        self.centers_ = model.centers
        self.center_indices_ = rows
        self.coef_ = model.coef
        self.intercept_ = model.intercept
        self.kernel_ = model.kernel
        self.n_centers_ = len(rows)

    def truncate(self, n_centers: int) -> Self:
        """Return the model of the first `n_centers` centres; the path is nested, so nothing is trained again.

        Parameters
        ----------
        n_centers : int
            At least 1 and at most the length of the path, which may be longer than the model if the stop
            rule went back to a minimum. With one-vs-rest, centres of each class.

        Returns
        -------
        estimator
            A fitted copy.

        Raises
        ------
        JobError
            The path is shorter.
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
        shorter = copy(self)
        shorter.client, shorter.callbacks = self.client, self.callbacks
        shorter._take(self._result, prefix_lengths(self._result.paths, n_centers))
        return shorter

    def _evaluate(self, X: Any, finish: Finish[NDArray[Any]], columns: int | None, dtype: Any) -> Any:
        """Apply the model and `finish` to rows of any container, returning the same kind."""
        check_is_fitted(self)
        if _is_stored(X):
            tail = () if columns is None else (columns,)
            parts = self._stored_parts(X, finish)
            return memory_array((part for _, part in parts), _stored_rows(X).shape[0], tail, dtype)
        if is_dask_array(X):
            self._check_width(X.shape)
            return map_rows(self._model, X, finish, columns, dtype)
        return finish(evaluate(self._model, self._validate_rows(X)))

    def iter_predictions(
        self, X: Any, *, proba: bool = False
    ) -> Iterator[tuple[int, NDArray[Any], NDArray[Any] | None]]:
        """Predict block by block, in bounded memory; stores on the workers of the client, if there is one.

        Parameters
        ----------
        X : Dataset, zarr.Array or array-like, shape (n_rows, n_features)
            Rows.
        proba : bool
            Whether to yield probabilities (classifiers only).

        Yields
        ------
        first_row : int
        predictions : array, shape (n,) or (n, T)
        probabilities : array, shape (n, n_classes), or None
        """
        check_is_fitted(self)
        finish: Finish[Any] = self._predictions_and_probabilities() if proba else self._predictions()
        if _is_stored(X):
            parts = self._stored_parts(X, finish)
        else:
            parts = iter([(0, finish(evaluate(self._model, self._validate_rows(X))))])
        for start, result in parts:
            yield (start, *result) if proba else (start, result, None)

    def _stored_parts(self, X: Any, finish: Finish[Any]) -> Iterator[tuple[int, Any]]:
        """Predict a zarr array or a dataset block by block."""
        self._check_width(_stored_rows(X).shape)
        source = X.source() if isinstance(X, Dataset) else ZarrRows(X)
        yield from predict_blocks(self._model, source, finish, self._running_client())

    def _running_client(self) -> Any:
        client = current_client() if self.client is None else self.client
        if client is not None and client.status != "running":
            logger.info("the client is %s: predicting in this process", client.status)
            return None
        return client

    @abstractmethod
    def _predictions(self) -> Finish[NDArray[Any]]:
        """Return the function from fitted targets, shape (n, T), to predictions."""

    def _predictions_and_probabilities(self) -> Finish[tuple[NDArray[Any], Array]]:
        raise JobError(f"{type(self).__name__} predicts values, not probabilities", kind="no-probabilities")

    def _validate_rows(self, X: Any) -> NDArray[Any]:
        checked: NDArray[Any] = validate_rows(self, X)
        return checked

    def _check_width(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 2 or shape[1] != self.n_features_in_:
            raise DataError(
                f"X has {shape[1] if len(shape) == 2 else shape} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input",
                kind="feature-count",
            )

    def save(self, path: Any, *, overwrite: bool = False) -> None:
        """Write the model store: plain arrays and JSON, no pickle.

        Parameters
        ----------
        path : path-like
            Directory to make.
        overwrite : bool
            Whether a model that is already there may be replaced.

        Raises
        ------
        StoreError
            It exists, or cannot be written.
        """
        from distkern.estimators.persistence import save_estimator

        save_estimator(self, path, overwrite=overwrite)


def _is_stored(X: Any) -> bool:
    return isinstance(X, Dataset) or is_zarr_array(X)


def _stored_rows(X: Any) -> Any:
    return X.X if isinstance(X, Dataset) else X


class _Recorder:
    """Writes every event to a run directory."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run

    def __call__(self, event: Event) -> None:
        self._run.record(event.as_record())


def validate_rows(estimator: Any, X: Any, **options: Any) -> Any:
    """Run scikit-learn's checks; its complaints become `DataError`, NaN and infinity are named by place.

    Raises
    ------
    DataError
        Shape, dtype or values are wrong.
    """
    fitting = "y" in options
    if getattr(getattr(X, "dtype", None), "kind", "") in ("M", "m"):
        # scikit-learn would take dates for the numbers that they are kept as.
        numeric_dtype(X.dtype, "X")
    if fitting and options["y"] is not None:
        require_finite(as_targets(options["y"]), "y")
    try:
        checked = validate_data(
            estimator,
            X,
            reset=fitting,
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_samples=2 if fitting else 1,
            **options,
        )
    except ValueError as error:
        raise DataError(str(error), kind="invalid-input") from None
    except TypeError as error:
        raise DataTypeError(str(error), kind="invalid-input") from None
    if not fitting:
        require_finite(checked, "X")
    return checked
