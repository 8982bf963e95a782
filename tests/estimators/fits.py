"""Data and small trainings for the tests of the estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import distkern as dk

Array = NDArray[Any]

ALL = (dk.OROLSRegressor, dk.OROLSClassifier, dk.NPDRegressor, dk.NPDClassifier)
REGRESSORS = (dk.OROLSRegressor, dk.NPDRegressor)
CLASSIFIERS = (dk.OROLSClassifier, dk.NPDClassifier)


def regression(n: int = 120, d: int = 2, n_targets: int = 0, seed: int = 0, noise: float = 0.1) -> tuple[Array, Array]:
    """Return smooth noisy data; y has one dimension where `n_targets` is 0."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    waves = X @ rng.standard_normal((d, max(n_targets, 1)))
    y = np.sin(waves) + noise * rng.standard_normal(waves.shape)
    return X, y if n_targets else y[:, 0]


def classes(n: int = 120, n_classes: int = 3, d: int = 2, seed: int = 0) -> tuple[Array, Array]:
    """Return overlapping clusters, coded from 0; every class has several rows."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.tile(np.arange(n_classes), 5), rng.integers(0, n_classes, n - 5 * n_classes)])
    middle = 3 * rng.standard_normal((n_classes, d))
    return middle[codes] + rng.standard_normal((n, d)), codes


def data_for(estimator: Any, n: int = 120, seed: int = 0) -> tuple[Array, Array]:
    """Return data of the kind that an estimator class or object takes."""
    name = estimator.__name__ if isinstance(estimator, type) else type(estimator).__name__
    return regression(n, seed=seed) if name.endswith("Regressor") else classes(n, seed=seed)


def fitted(cls: Any, n: int = 120, seed: int = 0, **parameters: Any) -> Any:
    """Fit on the data of `data_for`."""
    return cls(**{"max_centers": 15, "sigma": 1.0, **parameters}).fit(*data_for(cls, n, seed))


def assert_equal_models(ours: Any, theirs: Any, *, rtol: float | None = None) -> None:
    """Compare all that decides a model, bit for bit or within a tolerance."""
    for name in ("center_indices_", "centers_", "coef_", "intercept_", "lambda_", "gcv_", "history_"):
        a, b = np.asarray(getattr(ours, name)), np.asarray(getattr(theirs, name))
        assert a.shape == b.shape, name
        assert a.dtype == b.dtype, name
        if rtol is None or a.dtype.kind not in "fV":
            assert a.tobytes() == b.tobytes(), name
        elif a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(a).max(initial=0.0), err_msg=name)
    assert ours.stop_reason_ == theirs.stop_reason_
    assert ours.kernel_ == theirs.kernel_
    assert hasattr(ours, "classes_") == hasattr(theirs, "classes_")
    if hasattr(ours, "classes_"):
        np.testing.assert_array_equal(ours.classes_, theirs.classes_)
