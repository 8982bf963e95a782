"""Base classes of regressors and classifiers: targets, predictions and probabilities."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from distkern.scheduler.prediction.local import OutputFunction
from distkern.scheduler.rows.block_reading import flat_labels
from distkern.storage import (
    BlockSource,
    as_targets,
    check_rows_agree,
    is_zarr_array,
    memory_array,
    plain_labels,
    require_finite,
    to_numeric,
)

from ...arrays import Array
from ...errors import DataError, JobError
from ...models.kernel_model import KernelModel
from ...probability.decisions import pair_scores
from ...probability.intervals import Intervals
from . import output_functions as outputs
from .estimator import BlockEstimator
from .inputs import validate_rows
from .parameter_checks import one_of, real

_COVERAGE = real("a number above 0 and below 1", lambda value: 0 < value < 1)
_INTERVAL_WIDTH = one_of("local", "constant")


class BlockRegressor(RegressorMixin, BlockEstimator):
    """Regression of one or several targets."""

    _classification = False

    def __sklearn_tags__(self) -> Any:
        """Declare to scikit-learn that several targets are allowed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _note_targets(self, source: BlockSource) -> None:
        if source.classes is not None:
            raise DataError(
                "the dataset holds class labels: use a classifier, or ingest it with --task regression",
                kind="task",
            )
        self._flat = source.target_shape == ()

    def _validate_training(
        self, X: Any, y: Any, sample_weight: NDArray[Any] | None, least_rows: int, *, more: bool
    ) -> tuple[NDArray[Any], NDArray[Any], None]:
        return validate_rows(self, X, y, fitting=True, more=more, least_rows=least_rows), self._numbers_of(y), None

    def _numbers_of(self, y: Any) -> NDArray[np.float64]:
        """Return targets in memory as numbers, shape (n,) or (n, T)."""
        targets = to_numeric(y, "y").astype(np.float64, copy=False)
        if targets.ndim not in (1, 2) or 0 in targets.shape[1:]:
            raise DataError(
                f"y has shape {targets.shape}: it must have shape (n_rows,) or (n_rows, n_targets)",
                kind="shape-mismatch",
            )
        require_finite(targets, "y")
        return targets

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict targets.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Rows in the training's feature space.
        return_std : bool, default False
            Whether to return the standard deviation of a new target at each row, too: of its noise, and of the weights
            (Bishop 2006, eq 3.59). It takes a product with a matrix of m + 1 rows and columns for each row.

        Returns
        -------
        predictions : numpy, zarr or dask array, shape (n_rows,) or (n_rows, n_targets)
            zarr and dask arrays come back for zarr and dask arrays, computed block by block.
        deviations : the same, only with `return_std`

        Raises
        ------
        JobError
            ``no-deviation``: with `return_std`, the model keeps no factors.
        """
        if not return_std:
            columns = None if self._is_flat() else self._n_targets()
            return self._evaluate(X, self._predictions(), columns, np.dtype(np.float64))
        check_is_fitted(self)
        n_targets = self._n_targets()
        finish = partial(outputs.means_and_deviations, n_targets=n_targets)
        model = replace(self._model, further=self._leverage())
        both = self._evaluate(X, finish, self._pairs_of_targets(), np.dtype(np.float64), model)
        parts = both[..., 0], both[..., 1]
        if n_targets == 1 and not self._is_flat():
            parts = parts[0][:, None], parts[1][:, None]
        if not is_zarr_array(both):
            return parts
        return tuple(memory_array([part], len(part), part.shape[1:], part.dtype) for part in parts)

    def predict_interval(self, X: Any, coverage: float = 0.9, *, width: str = "local") -> Any:
        """Predict intervals that a given share of new targets falls into.

        Half the width is a quantile of the leave-one-out residuals of training rows (jackknife; Barber, Candes, Ramdas
        and Tibshirani, 2021), so the share holds for rows that are drawn as the training rows were, whatever the noise
        is. The residuals are kept by `fit`, see the parameter `intervals`.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Rows in the training's feature space.
        coverage : float, default 0.9
            The share, above 0 and below 1; each target has it by itself.
        width : {"local", "constant"}, default "local"
            Whether the width follows the size of the residuals near the row, or is the same everywhere.

        Returns
        -------
        numpy, zarr or dask array, shape (n_rows, 2) or (n_rows, n_targets, 2)
            Lower and upper ends; container as for `predict`.

        Raises
        ------
        JobError
            ``no-intervals``: the model keeps no residuals; ``invalid-parameter``: `coverage` or `width`, or a
            coverage that the number of residuals cannot promise.
        """
        check_is_fitted(self)
        model, halves = self._with_scale(coverage, width)
        finish = partial(outputs.interval, halves=halves)
        return self._evaluate(X, finish, self._pairs_of_targets(), np.dtype(np.float64), model)

    def _with_scale(self, coverage: float, width: str = "local") -> tuple[KernelModel, Array]:
        """Return the model with the scale of the residuals after the targets, and the half widths in units of it."""
        _COVERAGE.check("coverage", coverage)
        _INTERVAL_WIDTH.check("width", width)
        intervals: Intervals | None = self._calibrated()
        if intervals is None:
            raise JobError(f"this model keeps no residuals for intervals: {self._advice()}", kind="no-intervals")
        if width == "constant":
            return self._model, intervals.constant.at(float(coverage))
        return replace(self._model, further=intervals.scale), intervals.local.at(float(coverage))

    def _pairs_of_targets(self) -> tuple[int, ...]:
        return (2,) if self._n_targets() == 1 else (self._n_targets(), 2)

    def _predictions_and_interval(
        self, coverage: float
    ) -> tuple[KernelModel, OutputFunction[tuple[NDArray[Any], Array]]]:
        model, halves = self._with_scale(coverage)
        return model, partial(outputs.predictions_and_interval, predictions=self._predictions(), halves=halves)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R squared of the predictions, the mean over the targets.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Rows.
        y : array-like, optional
            Their targets, in any container that `fit` takes; those of a dataset by default.
        sample_weight : array-like, shape (n_rows,), optional
            Row weights.

        Returns
        -------
        float
            At most 1.

        Raises
        ------
        DataError
            The rows, targets or weights cannot be used.
        """
        from sklearn.metrics import r2_score

        predicted, y, weights = self._scored(X, y, sample_weight)
        truth = self._numbers_of(y)
        if truth.size != predicted.size:
            raise DataError(
                f"y has shape {truth.shape}, but the model has {self._n_targets()} targets", kind="shape-mismatch"
            )
        return float(r2_score(truth.reshape(predicted.shape), predicted, sample_weight=weights))

    def _predictions(self) -> OutputFunction[NDArray[Any]]:
        return outputs.only_target if self._is_flat() else outputs.all_targets

    def _is_flat(self) -> bool:
        return bool(getattr(self, "_flat", False))

    def _n_targets(self) -> int:
        return len(getattr(self, "intercept_", ()))


class BlockClassifier(ClassifierMixin, BlockEstimator):
    """Classification by least squares on targets of +-1 for each class."""

    _classification = True
    multiclass: str
    class_weight_: Array

    def _validate_training(
        self, X: Any, y: Any, sample_weight: NDArray[Any] | None, least_rows: int, *, more: bool
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        X = validate_rows(self, X, y, fitting=True, more=more, least_rows=least_rows)
        lazy, y = hasattr(y, "__dask_graph__"), as_targets(y)
        check_rows_agree(X.shape[0], len(y) if y.ndim else 0)
        if y.ndim == 2 and y.shape[1] == 1:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected: give y.ravel()",
                DataConversionWarning,
                stacklevel=4,
            )
        if y.ndim:
            y = flat_labels(y)
        labels = y if y.dtype.kind == "S" else plain_labels(y)
        require_finite(labels, "y")
        try:
            check_classification_targets(labels)
        except (ValueError, TypeError) as error:
            raise DataError(str(error), kind="invalid-target") from None
        present = labels
        if sample_weight is not None and sample_weight.shape == labels.shape:
            present = labels[sample_weight > 0]
        classes = np.unique(present if len(present) else labels)
        # Rows of weight zero count as absent, and so does a class of such rows only.
        codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        return X, codes, classes.astype(object) if y.dtype == object and not lazy else classes

    def _note_targets(self, source: BlockSource) -> None:
        if source.target_shape not in ((), (1,)):
            raise DataError(
                f"y has {source.target_shape[0]} columns: a classifier takes one label a row", kind="shape-mismatch"
            )

    def decision_function(self, X: Any) -> Any:
        """Return the fitted targets, about +1 for the class and -1 for the others; of pairs of classes, their votes.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Rows in the training's feature space.

        Returns
        -------
        numpy, zarr or dask array, shape (n_rows,) for two classes, else (n_rows, n_classes)
            Container as for `predict`.
        """
        n_classes = self._n_classes()
        finish: OutputFunction[NDArray[Any]] = outputs.only_target if n_classes == 2 else outputs.all_targets
        if n_classes > 2 and self._scheme() in ("one-vs-one", "dag"):
            finish = partial(pair_scores, n_classes=n_classes)
        return self._evaluate(X, finish, None if n_classes == 2 else n_classes, np.dtype(np.float64))

    def predict(self, X: Any) -> Any:
        """Predict labels.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Rows in the training's feature space.

        Returns
        -------
        numpy, zarr or dask array, shape (n_rows,)
            Labels as they were given to `fit`.
        """
        classes = self._labels()
        dtype = np.array(classes.tolist()).dtype if classes.dtype == object else classes.dtype
        return self._evaluate(X, self._predictions(), None, dtype)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the share of rows whose label is predicted.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Rows.
        y : array-like, optional
            Their labels, in any container that `fit` takes; those of a dataset by default.
        sample_weight : array-like, shape (n_rows,), optional
            Row weights.

        Returns
        -------
        float
            From 0 to 1.

        Raises
        ------
        DataError
            The rows, labels or weights cannot be used.
        """
        predicted, y, weights = self._scored(X, y, sample_weight)
        truth, predicted = flat_labels(plain_labels(y)), plain_labels(predicted)
        require_finite(truth, "y")
        if (truth.dtype.kind == "U") != (predicted.dtype.kind == "U"):
            raise DataError(
                f"y holds labels of dtype {truth.dtype}, but the model predicts {predicted.dtype}: use the labels "
                "of the training",
                kind="mixed-labels",
            )
        return float(np.average(truth == predicted, weights=weights))

    def predict_proba(self, X: Any) -> Any:
        """Estimate class probabilities.

        The log-odds are linear in the fitted targets and were fitted to leave-one-out outputs of training rows, so
        the probabilities are calibrated; the largest is that of the class which `predict` returns. A model without
        calibration uses its targets of +-1 as estimates of 2 P(class | x) - 1, which rank well. With pairs of classes
        each pair has odds of its own, and pairwise coupling joins them (thesis 4.8); the most probable class may then
        be another than the one that wins most pairs.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Rows in the training's feature space.

        Returns
        -------
        numpy, zarr or dask array, shape (n_rows, n_classes)
            Container as for `predict`.
        """
        return self._evaluate(X, self._probabilities(), self._n_classes(), np.dtype(np.float64))

    def predict_interval(self, X: Any, coverage: float = 0.9, *, width: str = "local") -> Any:
        """Refuse: intervals are of numbers; a class has a probability, see `predict_proba`.

        Parameters
        ----------
        X : object
            Rows.
        coverage : float, default 0.9
            As for regressors.
        width : {"local", "constant"}, default "local"
            As for regressors.

        Raises
        ------
        JobError
            ``no-intervals``, always.
        """
        raise JobError(
            f"{type(self).__name__} predicts classes, which have no intervals: use predict_proba, or a regressor with "
            "intervals=True",
            kind="no-intervals",
        )

    def log_likelihood(self, X: Any) -> Any:
        """Return log p(x | class) up to a number that all classes share: emission scores of hidden Markov models.

        By Bayes' rule, log P(class | x) - log P(class) with the shares of the training rows as P(class); minus infinity
        for a class that no training row had, as a stream may name one.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Rows in the training's feature space.

        Returns
        -------
        numpy, zarr or dask array, shape (n_rows, n_classes)
            Container as for `predict`.

        Raises
        ------
        JobError
            The model has no shares of its classes.
        """
        check_is_fitted(self)
        priors = getattr(self, "class_prior_", None)
        if priors is None:
            raise JobError(
                "this model was saved without the shares of its classes (class_prior_), which likelihoods need: "
                "train it again",
                kind="no-priors",
            )
        finish = partial(outputs.log_likelihoods, probabilities=self._probabilities(), priors=np.asarray(priors))
        return self._evaluate(X, finish, self._n_classes(), np.dtype(np.float64))

    def _n_classes(self) -> int:
        return len(self._labels())

    def _labels(self) -> NDArray[Any]:
        return np.asarray(getattr(self, "classes_", ()))

    def _predictions(self) -> OutputFunction[NDArray[Any]]:
        return partial(outputs.labels, classes=self._labels(), multiclass=self._scheme())

    def _scheme(self) -> str:
        return getattr(self, "multiclass", "shared")

    def _predictions_and_probabilities(self) -> OutputFunction[tuple[NDArray[Any], Array]]:
        return partial(
            outputs.labels_and_probabilities,
            classes=self._labels(),
            multiclass=self._scheme(),
            probabilities=self._probabilities(),
        )

    def _probabilities(self) -> OutputFunction[Array]:
        """Return the function from fitted targets to probabilities, shape (n, n_classes)."""
        return partial(outputs.probabilities, calibration=self._calibrated())

    def _set_class_weights(self, weights: Array) -> None:
        """Set the weights of the training rows of every class, and their shares."""
        self._class_weights = np.asarray(weights, dtype=np.float64)
        self.class_prior_ = self._class_weights / self._class_weights.sum()
