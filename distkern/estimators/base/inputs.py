"""Checks of rows in memory: arrays by `distkern.storage`, names of columns by scikit-learn, with errors of distkern."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from distkern.storage import frame_columns, plain_array, require_finite, to_numeric

from ...errors import DataError, DataTypeError


def validate_rows(
    estimator: Any, X: Any, y: Any = None, *, fitting: bool = False, more: bool = False, least_rows: int = 1
) -> NDArray[Any]:
    """Return rows in memory as an array of float64 or float32, shape (n_rows, n_features).

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
    if frame_columns(X) is None:
        X = plain_array(X, "X")
        require_shape(X, least_rows)
        if X.dtype.kind in "UST":
            X = X.astype(object)  # as in scikit-learn, texts in memory may be numbers
    rows = to_numeric(X, "X")
    require_shape(rows, least_rows)
    if rows.dtype != np.float32:
        rows = rows.astype(np.float64, copy=False)
    if fitting and not more:
        estimator.n_features_in_ = rows.shape[1]
        return rows
    estimator._check_width(rows.shape)
    if fitting:
        return rows
    require_finite(rows, "X")
    return rows


def require_shape(X: NDArray[Any], least_rows: int) -> None:
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
    if len(X) < least_rows:
        raise DataError(
            f"X has {len(X)} sample(s) (shape={X.shape}) while a minimum of {least_rows} is required.",
            kind="invalid-input",
        )
