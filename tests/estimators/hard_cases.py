"""Random trainings at the end of the arithmetic, and what their models and their factors say of the training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import distkern as dk

Array = NDArray[Any]

KERNELS = ("gaussian", "laplacian", "matern", "wendland", "polynomial", "sigmoid", "linear")


@dataclass(frozen=True)
class HardCase:
    """An estimator and its rows."""

    model: Any
    X: Array
    y: Array
    weights: Array | None


def hard_case(seed: int, most_rows: int, most_centers: int) -> HardCase:
    """Draw a case: kernel, width from 0.01 to 1000 medians, dtype, duplicates, weights, scales, settings.

    Parameters
    ----------
    seed : int
        The case.
    most_rows, most_centers : int
        Sizes are between a handful and these.
    """
    rng = np.random.default_rng(seed)

    def one_of(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    n, d, n_targets = int(40 * (most_rows / 40) ** rng.random()), one_of(1, 2, 5, 12), one_of(1, 1, 1, 3)
    X = rng.standard_normal((n, d))
    if rng.random() < 0.4:
        X = X[rng.integers(0, max(2, n // one_of(2, 5, 20)), n)]
    waves = np.sin(2 * X[:, :1] + np.arange(n_targets)) + 0.3 * X[:, -1:] ** 2
    y = waves + one_of(0.0, 0.01, 0.3) * rng.standard_normal((n, n_targets))
    y = y * one_of(1.0, 1.0, 1e-5, 1e6) + one_of(0.0, 1e3)
    weights = None
    if rng.random() < 0.35:
        weights = rng.choice([0.0, 0.01, 1.0, 7.0, 100.0], n) * rng.random(n) + (rng.random(n) < 0.2)
    pairs = X[rng.integers(0, n, 200)] - X[rng.integers(0, n, 200)]
    width = float(np.median(np.linalg.norm(pairs, axis=1)) + 1e-3) * 10 ** rng.uniform(-2, 3)
    scale = one_of(1.0, 1.0, 1e-2, 1e3)
    X, width = scale * X + one_of(0.0, 0.0, 100.0) * scale, width * scale
    kernel = {
        "wendland": dk.Wendland(width),
        "polynomial": dk.Polynomial(one_of(2, 3, 5)),
        "sigmoid": dk.Sigmoid(),
        "linear": dk.Linear(),
    }.get(name := one_of(*KERNELS), name)
    settings = {
        "kernel": kernel,
        "sigma": width,
        "standardize": False,
        "dtype": one_of("float32", "float64"),
        "max_centers": int(2 * (most_centers / 2) ** rng.random()),
        "stop": one_of(None, None, "gcv", "lambda"),
        "criterion": one_of("error-reduction", "error-reduction", "residual"),
        "regularization": one_of("gcv", "gcv", "none", "gcv-per-target", "evidence", 1e-8),
        "epsilon": one_of(0.0, 0.0, 0.0, 1e-3),
        "selection_rows": n // 2 if rng.random() < 0.2 and n >= 200 else None,
        "random_state": seed % 7,
    }
    kind = dk.NPDRegressor if rng.random() < 0.2 else dk.OROLSRegressor
    if not isinstance(kernel, str):
        del settings["sigma"]
    model = kind(**{key: value for key, value in settings.items() if key in kind().get_params()})
    return HardCase(model, X, y if n_targets > 1 else y[:, 0], weights)


def contradiction(case: HardCase, model: Any) -> float:
    """Return how far the root mean square residual of a model's predictions is from what its factors give.

    Returns
    -------
    float
        In standard deviations of the target, the largest of all targets.
    """
    (path,) = model._result.paths
    n, k = model.n_centers_, model.n_centers_ + 1
    y = case.y.reshape(len(case.X), -1)
    weights = np.ones(len(y)) if case.weights is None else case.weights
    predicted = model.predict(case.X).reshape(y.shape)
    # The kernel of the training is k + epsilon I.
    np.add.at(predicted, path.rows[:n], float(model.epsilon) * path.weights(n)[1:])
    total = weights.sum()
    deviations = np.sqrt(weights @ np.square(y - weights @ y / total) / total)
    found = np.sqrt(weights @ np.square(y - predicted) / total)
    s, z, shrunk = path.s[:k, None], path.z[:k], path.lambdas[n] + path.s[:k, None]
    left = path.target_norms - 2 * (z**2 / shrunk).sum(axis=0) + (s * (z / shrunk) ** 2).sum(axis=0)
    expected = np.sqrt(np.maximum(left, 0.0) / path.s[0])
    return float((np.abs(found - expected) / deviations).max())
