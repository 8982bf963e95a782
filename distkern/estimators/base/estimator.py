"""The base class of all estimators: inputs in any container, prediction block by block, saving.

It follows the scikit-learn conventions: parameters are stored as given and checked in `fit`; fitted attributes end in
an underscore. A client and callbacks, which cannot be copied or pickled, are shared by clones and left out of pickles.
"""

from __future__ import annotations

import hashlib
import pickle
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from distkern.scheduler import (
    DaskArraySource,
    Plan,
    WorkerFacts,
    Workload,
    evaluate,
    found_client,
    is_dask_array,
    map_rows,
    outside_pool,
    partition_lengths,
    predict_blocks,
    predicting_client,
    row_chunks,
    worker_facts,
)
from distkern.scheduler.passes.fit import Fit, fit_by_passes
from distkern.scheduler.prediction.local import OutputFunction
from distkern.storage import (
    ArraySource,
    BlockSource,
    Dataset,
    ZarrRows,
    as_source,
    as_targets,
    check_rows_agree,
    check_weights,
    in_memory,
    is_sparse,
    is_zarr_array,
    memory_array,
    require_names,
    source_in_memory,
    to_numeric,
)

from ...arrays import Array
from ...errors import DataError, JobError
from ...models.kernel_model import KernelModel
from ...probability.leverage import Leverage
from .containers import OpenedRows, open_column, open_rows, require_same_rows, targets_with
from .encoded_rows import EncodedRows, TableInputs
from .inputs import evaluated, validate_rows, weighted
from .parameter_checks import CONSTRAINTS, bytes_of, check_parameters, is_source_of_seeds, seed_of

BY_REFERENCE = ("client", "callbacks")

_SHAPES = ("n_features_in_", "feature_names_in_", "table_schema_", "_flat", "class_weight_")
"""Attributes that are set before a training."""


class BlockEstimator(TableInputs, BaseEstimator, ABC):
    """Base of all estimators: `_train` is what a subclass adds, then `_model` evaluates rows of any container."""

    _classification: ClassVar[bool]
    _memory_advice: ClassVar[str]
    """Advice in the error where memory runs out in spite of the plan."""
    client: Any
    memory_limit: int | str | None
    plan_: dict[str, int]
    summary_: dict[str, Any]
    _model: KernelModel
    random_state: Any
    _drawn_seed = 0
    _calibration: Any = None
    """Calibration of probabilities or intervals that was read from a store."""
    _made_calibration: Any = (None,)
    """Calibration on training rows, in a list that is empty before: filling it changes no attribute."""

    def __sklearn_clone__(self) -> Self:
        """Clone with the same client and callbacks, without the run directory."""
        copied = type(self)(
            **{
                name: value if name in BY_REFERENCE else clone(value, safe=False)
                for name, value in self.get_params(deep=False).items()
            }
        )
        # A run is one training; clones are trained on other rows or with other settings.
        if hasattr(copied, "run_dir"):
            copied.run_dir = None
        for name in ("_metadata_request", "_sklearn_output_config"):
            if hasattr(self, name):
                setattr(copied, name, deepcopy(getattr(self, name)))
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the client and the callbacks, which belong to this process."""
        state = dict(super().__getstate__())
        state["client"] = None
        if "callbacks" in state:
            state["callbacks"] = ()
        return state

    def __dask_tokenize__(self) -> str:
        """Return a hash of the fitted model for dask's task keys; of a dataclass, dask hashes only the parameters."""
        try:
            return hashlib.sha256(pickle.dumps(self)).hexdigest()
        except (pickle.PicklingError, AttributeError, TypeError):  # a kernel that is defined in a function
            return uuid.uuid4().hex

    def _check_parameters(self) -> None:
        """Check every parameter before any data is looked at; raises `JobError`."""
        check_parameters(self)

    @property
    def _memory_bytes(self) -> int | None:
        """Bytes of `memory_limit`."""
        return None if self.memory_limit is None else bytes_of(self.memory_limit)

    @abstractmethod
    def _train(self, source: BlockSource, client: Any) -> None:
        """Fit to the blocks of a source, on the workers of a client if there is one; set the fitted attributes."""

    def shapes(self, source: BlockSource) -> Workload:
        """Return the shapes that decide the needs of a training, as far as they are known without a read of the source.

        Parameters
        ----------
        source : BlockSource
            Training rows.
        """
        return Workload.known(source, classification=self._classification)

    @abstractmethod
    def plan(self, work: Workload, facts: WorkerFacts | None) -> Plan:
        """Plan a training from shapes alone.

        Parameters
        ----------
        work : Workload
            Shapes.
        facts : WorkerFacts or None
            The workers; this process alone if None.
        """

    @contextmanager
    def _fitting(self, source: BlockSource, client: Any, plan: Plan | None = None) -> Iterator[Fit]:
        """Run one fit by passes over the blocks, as planned; set `plan_` and `summary_` when it is done."""
        if plan is None:
            plan = self.plan(self.shapes(source), None if client is None else worker_facts(client))
        with fit_by_passes(
            plan, source, client, classification=self._classification, advice=self._memory_advice
        ) as fit:
            yield fit
        self.plan_, self.summary_ = fit.plan.terms, fit.summary()

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Training rows; a dataset brings its own targets or labels.
        y : array-like, shape (n_rows,), or (n_rows, n_targets) for regression, optional
            Targets, or labels of any dtype.
        sample_weight : array-like, shape (n_rows,), optional
            Row weights; a weight counts as repeated rows, zero as absent.

        Returns
        -------
        self

        Raises
        ------
        JobError
            A parameter is wrong, or the client is asynchronous in this thread.
        DataError
            The data cannot be trained on.
        ClusterError
            The client is closed, or its cluster has no usable workers.
        """
        self._check_parameters()
        if is_source_of_seeds(getattr(self, "random_state", 0)):
            self._drawn_seed = seed_of(self.random_state)
        with self._rows_to_train(X, y, sample_weight) as (source, client):
            self._train(source, client)
        return self

    def _train_like(self, other: BlockEstimator, source: BlockSource, client: Any) -> None:
        """Train on a source that another estimator of this class has opened."""
        for name in _SHAPES:
            if hasattr(other, name):
                setattr(self, name, getattr(other, name))
        self._drawn_seed = other._drawn_seed
        self._train(source, client)

    @property
    def _seed(self) -> int:
        """The key of the row draws: `random_state`, or what was drawn for it, 0 before any training."""
        return self._drawn_seed if is_source_of_seeds(self.random_state) else seed_of(self.random_state)

    @contextmanager
    def _rows_to_train(
        self, X: Any, y: Any, sample_weight: Any, least_rows: int = 2, *, more: bool = False
    ) -> Iterator[tuple[BlockSource, Any]]:
        """Yield the blocks of what `fit` was given, and the client to train on, if any.

        With `more` (default False) the rows follow those that the model was trained on, at least `least_rows` (2).
        After an error, attributes that are set before a training are restored: the last model is still there.
        """
        before = {name: getattr(self, name) for name in _SHAPES if hasattr(self, name)}
        try:
            with outside_pool(self.client):
                source = self._source(X, y, sample_weight, least_rows, more=more)
                self._note_targets(source)
                # Arrays in memory go to workers only where a client was given.
                given = self.client is not None or isinstance(source, ArraySource)
                yield weighted(self, source, more=more), self.client if given else found_client()
        except BaseException:
            for name in _SHAPES:
                if name in before:
                    setattr(self, name, before[name])
                elif hasattr(self, name):
                    delattr(self, name)
            raise

    def _source(self, X: Any, y: Any, sample_weight: Any, least_rows: int, *, more: bool) -> BlockSource:
        """Turn whatever `fit` was given into blocks."""
        y = targets_with(X, y)
        require_same_rows(X, y, "y")
        require_same_rows(X, sample_weight, "sample_weight")
        X, y, sample_weight, schema = self._encoded(X, y, sample_weight, more=more)
        lengths = partition_lengths(X=X, y=y, sample_weight=sample_weight)
        y = open_column(y, "y", lengths["y"])
        scales = X.feature_scales if isinstance(X, EncodedRows) else None
        rows = open_rows(np.asarray(X) if isinstance(X, EncodedRows) else X, lengths["X"], finite=False)
        if schema is not None:
            scales, rows = schema.scales, replace(rows, names=schema.encoded_names)
        if more:
            self._require_names(rows)
        weights = open_column(sample_weight, "sample_weight", lengths["sample_weight"])
        with rows.checked():
            source = self._source_of(rows.X, y, weights, least_rows, more=more)
        if rows.names is not None and not more:
            self.feature_names_in_ = np.array(rows.names, dtype=object)
        if not more:
            self._set_schema(schema)
        if scales is not None:
            source.feature_scales = scales  # type: ignore[attr-defined]
        return source

    def _source_of(self, X: Any, y: Any, sample_weight: Any, least_rows: int, *, more: bool) -> BlockSource:
        """Turn arrays into blocks."""
        if isinstance(X, Dataset) or is_zarr_array(X):
            source = as_source(X, y, sample_weight, columns=self._names() if more else None)
        elif is_dask_array(X):
            source = DaskArraySource(X, in_memory(y, "y"), in_memory(sample_weight, "sample_weight"))
        else:
            y, sample_weight = in_memory(y, "y"), in_memory(sample_weight, "sample_weight")
            if sample_weight is not None:
                sample_weight = to_numeric(sample_weight, "sample_weight")
                if sample_weight.ndim == 0:
                    sample_weight = np.full(X.shape[:1] if is_sparse(X) else len(X), sample_weight)
            X, y, classes = self._validate_training(X, y, sample_weight, least_rows, more=more)
            return source_in_memory(X, y, sample_weight, classes=classes, feature_names=self._names())
        if more:
            self._check_width((source.n_rows, source.n_features))
        else:
            self.n_features_in_ = source.n_features
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        return source

    def _names(self) -> list[str] | None:
        """Return the names of the columns of the training, None where they had none."""
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    def _require_names(self, rows: OpenedRows) -> None:
        """Refuse columns of other names; those of a dataset may have another order, as they are read by name."""
        require_names(rows.names, self._names(), "X", "the training", any_order=isinstance(rows.X, Dataset))

    @abstractmethod
    def _validate_training(
        self, X: Any, y: Any, sample_weight: NDArray[Any] | None, least_rows: int, *, more: bool
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
        """Check arrays in memory: rows, targets or codes, and the classes the codes point into."""

    def _note_targets(self, source: BlockSource) -> None:
        """Check the source's targets against the kind of estimator."""

    def _set_model(self, model: KernelModel, rows: NDArray[np.int64]) -> None:
        self._model = model
        self.centers_ = model.centers
        self.center_indices_ = rows
        self.coef_ = model.coef
        self.intercept_ = model.intercept
        self.kernel_ = model.kernel
        self.n_centers_ = len(rows)

    def _evaluate(
        self,
        X: Any,
        finish: OutputFunction[NDArray[Any]],
        columns: int | tuple[int, ...] | None,
        dtype: Any,
        model: KernelModel | None = None,
    ) -> Any:
        """Apply the model, or another one, and `finish` to rows of any container, returning the same kind."""
        check_is_fitted(self)
        model = self._model if model is None else model
        rows = self._opened(X)
        with rows.checked():
            tail = () if columns is None else columns if isinstance(columns, tuple) else (columns,)
            return rows.wrap(self._evaluate_rows(rows.X, finish, tail, dtype, model))

    def _evaluate_rows(
        self, X: Any, finish: OutputFunction[NDArray[Any]], tail: tuple[int, ...], dtype: Any, model: KernelModel
    ) -> Any:
        if _is_stored(X):
            parts = self._stored_parts(X, finish, model)
            return memory_array((part for _, part in parts), _stored_rows(X).shape[0], tail, dtype)
        if is_dask_array(X):
            self._check_width(X.shape)
            return map_rows(model, X, finish, tail, dtype)
        made = [finish(values) for _, values in evaluated(model, self._validate_rows(X))]
        return np.concatenate(made) if len(made) > 1 else made[0]

    def iter_predictions(
        self, X: Any, *, proba: bool = False, interval: float | None = None
    ) -> Iterator[tuple[int, NDArray[Any], NDArray[Any] | None]]:
        """Predict block by block, in bounded memory; stores on the workers of the client, if there is one.

        Parameters
        ----------
        X : Dataset, zarr.Array, dask or xarray rows, or array-like, shape (n_rows, n_features)
            Rows.
        proba : bool, default False
            Whether to yield probabilities (classifiers only).
        interval : float, optional
            Coverage of intervals to yield (regressors only); none by default.

        Yields
        ------
        first_row : int
        predictions : array, shape (n,) or (n, T)
        probabilities or intervals : array, shape (n, n_classes), or (n, 2) or (n, T, 2), or None
        """
        check_is_fitted(self)
        model = self._model
        finish: OutputFunction[Any] = self._predictions_and_probabilities() if proba else self._predictions()
        if interval is not None:
            model, finish = self._predictions_and_interval(interval)
        opened = self._opened(X)
        X = opened.X
        if _is_stored(X):
            parts = self._stored_parts(X, finish, model)
        elif is_dask_array(X):
            self._check_width(X.shape)
            parts = self._computed_parts(opened, finish, model)
        else:
            with opened.checked():
                rows = self._validate_rows(X)
            parts = ((start, finish(values)) for start, values in evaluated(model, rows))
        for start, result in parts:
            yield (start, *result) if proba or interval is not None else (start, result, None)

    def _computed_parts(
        self, opened: OpenedRows, finish: OutputFunction[Any], model: KernelModel
    ) -> Iterator[tuple[int, Any]]:
        """Predict a dask array chunk by chunk."""
        for start, chunk in row_chunks(opened.X):
            with opened.checked():
                values = evaluate(model, self._validate_rows(chunk))
            yield start, finish(values)

    def _stored_parts(self, X: Any, finish: OutputFunction[Any], model: KernelModel) -> Iterator[tuple[int, Any]]:
        """Predict a zarr array or a dataset block by block."""
        self._check_width(_stored_rows(X).shape)
        source = X.source(self._names()) if isinstance(X, Dataset) else ZarrRows(X)
        CONSTRAINTS["client"].check("client", self.client)
        client = predicting_client(self.client)
        if client is None:
            yield from predict_blocks(model, source, finish)
            return
        # Only a user with a client has dask.
        from distkern.scheduler import predict_on_workers

        with outside_pool(client):
            yield from predict_on_workers(client, model, source, finish)

    def _scored(self, X: Any, y: Any, sample_weight: Any) -> tuple[NDArray[Any], NDArray[Any], Array | None]:
        """Return predictions in memory, the targets beside them, and the weights if there are any."""
        check_is_fitted(self)
        if isinstance(X, Dataset) and y is None:
            y = X.targets()
        y = targets_with(X, y)
        if y is None:
            raise DataError("y is missing: give the targets of the rows of X", kind="target")
        require_same_rows(X, y, "y")
        require_same_rows(X, sample_weight, "sample_weight")
        lengths = partition_lengths(y=y, sample_weight=sample_weight)
        targets = as_targets(in_memory(open_column(y, "y", lengths["y"]), "y"))
        predicted = as_targets(self.predict(X))
        check_rows_agree(len(predicted), len(targets) if targets.ndim else 0)
        if sample_weight is None:
            return predicted, targets, None
        weights = in_memory(open_column(sample_weight, "sample_weight", lengths["sample_weight"]), "sample_weight")
        return predicted, targets, check_weights(weights, len(predicted))

    @abstractmethod
    def _predictions(self) -> OutputFunction[NDArray[Any]]:
        """Return the function from fitted targets, shape (n, T), to predictions."""

    def _calibrated(self) -> Any:
        """Return the calibration, None without one; it is made on first use."""
        if self._calibration is None and not self._made_calibration:
            self._made_calibration.append(self._make_calibration())
        return self._made_calibration[0] if self._calibration is None else self._calibration

    def _make_calibration(self) -> Any:
        """Calibrate on rows that the training kept; None without such rows."""
        return None

    def _predictions_and_probabilities(self) -> OutputFunction[tuple[NDArray[Any], Array]]:
        raise JobError(f"{type(self).__name__} predicts values, not probabilities", kind="no-probabilities")

    def _leverage(self) -> Leverage:
        raise JobError(f"this model keeps no factors for standard deviations: {self._advice()}", kind="no-deviation")

    def _advice(self) -> str:
        return f"{type(self).__name__} has none; train OROLSRegressor or NPDRegressor with intervals=True"

    def _predictions_and_interval(self, coverage: float) -> tuple[KernelModel, OutputFunction[Any]]:
        raise JobError(f"{type(self).__name__} predicts no numbers, which have intervals", kind="no-intervals")

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
        overwrite : bool, default False
            Whether to replace a model at `path`.

        Raises
        ------
        StoreError
            The store exists, or cannot be written.
        """
        from .persistence import save_estimator

        save_estimator(self, path, overwrite=overwrite)

    def _stored_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a model store beside those of the model itself."""
        return {}

    def _stored_values(self) -> dict[str, Any]:
        """Return the JSON values of a model store beside those of every estimator."""
        return {}

    def _restore(self, stored: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Set the fitted attributes of `_stored_arrays` and `_stored_values`."""


def _is_stored(X: Any) -> bool:
    return isinstance(X, Dataset) or is_zarr_array(X)


def _stored_rows(X: Any) -> Any:
    return X.X if isinstance(X, Dataset) else X
