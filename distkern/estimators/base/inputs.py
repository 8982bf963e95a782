"""Checks of rows in memory: those of scikit-learn, with errors of distkern."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from distkern.storage import as_targets, numeric_dtype, require_finite

from ...errors import DataError, DataTypeError


def validate_rows(estimator: Any, X: Any, **options: Any) -> Any:
    """Run scikit-learn's checks; raise `DataError` for a wrong shape or dtype, and for NaN and infinity."""
    fitting = "y" in options
    if getattr(getattr(X, "dtype", None), "kind", "") in ("M", "m"):
        # scikit-learn would read dates as the integers that they are stored as.
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
            **{"ensure_min_samples": 2 if fitting else 1, **options},
        )
    except ValueError as error:
        raise DataError(str(error), kind="invalid-input") from None
    except TypeError as error:
        raise DataTypeError(str(error), kind="invalid-input") from None
    if not fitting:
        require_finite(checked, "X")
    return checked
