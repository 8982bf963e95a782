"""Rows in memory: checks by `distkern.storage` and scikit-learn with errors of distkern, class weights, and batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from distkern.scheduler import evaluate, evaluate_batches
from distkern.scheduler.prediction.local import tile_rows
from distkern.scheduler.rows.class_weights import ClassWeighted, factors_of_classes, label_weights
from distkern.storage import BlockSource, frame_columns, is_sparse, plain_array, require_finite, sparse_rows, to_numeric

from ...errors import DataError, DataTypeError
from ...models.kernel_model import KernelModel


def validate_rows(
    estimator: Any, X: Any, y: Any = None, *, fitting: bool = False, more: bool = False, least_rows: int = 1
) -> Any:
    """Return rows in memory as an array of float64 or float32, shape (n_rows, n_features), sparse ones as sparse rows.

    Parameters
    ----------
    estimator : BlockEstimator
        Estimator, whose `feature_names_in_` and `n_features_in_` are set when `fitting` the first rows, else compared.
    X : object
        Rows in any container in memory.
    y : object, optional
        Targets; needed when `fitting`.
    fitting : bool, default False
        Whether the rows are to be trained on; only then may they hold NaN, which the source refuses.
    more : bool, default False
        Whether they follow those that the estimator was trained on.
    least_rows : int, default 1
        Fewest rows.

    Raises
    ------
    DataError, DataTypeError
        ``invalid-input`` for a wrong shape, ``not-numeric``, ``not-finite``, ``feature-names`` or ``feature-count``.
    """
    targets = {"y": y} if fitting else {}
    try:
        validate_data(estimator, X, **targets, reset=fitting and not more, skip_check_array=True, ensure_2d=False)
    except ValueError as error:
        if str(error).startswith("The feature names should match"):
            raise DataError(
                f"{str(error).strip()}\nGive the columns of feature_names_in_ in their order, as in "
                "X[model.feature_names_in_]",
                kind="feature-names",
            ) from None
        raise DataError(str(error), kind="invalid-input") from None
    except TypeError as error:
        raise DataTypeError(str(error), kind="invalid-input") from None
    if is_sparse(X) and getattr(estimator, "_takes_sparse", False):
        rows = sparse_rows(X)
        require_shape(rows, least_rows)
        _set_width(estimator, rows, fitting=fitting and not more)
        return rows
    if frame_columns(X) is None:
        X = plain_array(X, "X")
        require_shape(X, least_rows)
        if X.dtype.kind in "UST":
            X = X.astype(object)  # as in scikit-learn, texts in memory may be numbers
    rows = to_numeric(X, "X")
    require_shape(rows, least_rows)
    if rows.dtype != np.float32:
        rows = rows.astype(np.float64, copy=False)
    _set_width(estimator, rows, fitting=fitting and not more)
    if not fitting:
        require_finite(rows, "X")
    return rows


def _set_width(estimator: Any, rows: Any, *, fitting: bool) -> None:
    """Set the number of features of the training, or refuse rows with another one."""
    if fitting:
        estimator.n_features_in_ = rows.shape[1]
    else:
        estimator._check_width(rows.shape)


def require_shape(X: Any, least_rows: int) -> None:
    """Refuse an array that is not rows of features, at least `least_rows` of them: `DataError` ``invalid-input``."""
    if X.ndim == 0:
        raise DataError(
            f"X is {X.item()!r:.60}, no rows: give an array of two dimensions, rows and features", kind="invalid-input"
        )
    if X.ndim != 2:
        raise DataError(
            f"X has shape {X.shape} and {X.ndim} dimensions: it must have two, rows and features. Reshape your data to "
            "(-1, 1) if it is one feature, or to (1, -1) if it is one row",
            kind="invalid-input",
        )
    if X.shape[1] == 0:
        raise DataError(f"X has 0 feature(s) (shape={X.shape}) while a minimum of 1 is required.", kind="invalid-input")
    if X.shape[0] < least_rows:
        raise DataError(
            f"X has {X.shape[0]} sample(s) (shape={X.shape}) while a minimum of {least_rows} is required.",
            kind="invalid-input",
        )


def evaluated(model: KernelModel, rows: Any) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield first row and fitted targets of rows in memory, in batches, see `evaluate_batches`.

    Sparse rows are made dense a tile at a time, which has the bits of dense ones.
    """
    if not is_sparse(rows):
        yield from evaluate_batches(model, rows)
        return
    m, d = model.centers.shape
    step = tile_rows(m, d, np.dtype(model.dtype).itemsize)
    for start in range(0, max(1, rows.shape[0]), step):
        yield start, evaluate(model, rows[start : start + step].toarray())


def weighted(estimator: Any, source: BlockSource, *, more: bool) -> BlockSource:
    """Return rows to train on with the weights of their classes, and set `class_weight_`; as they are without these.

    Parameters
    ----------
    estimator : BlockEstimator
        A classifier with `class_weight`, or any other estimator.
    source : BlockSource
        The rows.
    more : bool
        Whether they follow those that the estimator was trained on, whose factors they get.

    Raises
    ------
    JobError
        ``invalid-parameter``: a factor of a label that no row has.
    """
    given = getattr(estimator, "class_weight", None)
    if given is None:
        if hasattr(estimator, "class_weight_"):
            del estimator.class_weight_
        return source
    if more:
        return ClassWeighted(source, estimator.classes_, estimator.class_weight_)
    labels = label_weights(source)
    classes = labels.values if source.classes is None else np.asarray(source.classes)[labels.values]
    estimator.class_weight_ = factors_of_classes(given, classes, labels.weights)
    return ClassWeighted(source, classes, estimator.class_weight_)
