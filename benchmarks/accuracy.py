"""Test error at equal numbers of centres: distkern beside an SVM and Nystroem + ridge, in one run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import distkern
from benchmarks.datasets import Split
from distkern.statistics import weighted_median_distance

SVM_ROWS = 10_000
"""Rows an SVM is trained on at most: its time grows with the square of the rows, or faster."""

RIDGES = (1e-6, 1e-4, 1e-2, 1.0)
"""Penalties of which Nystroem + ridge is given the best on the test rows, in its favour."""

Error = Callable[[NDArray[Any]], float]


def compare(split: Split, seeds: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Train all three on one set; errors are fractions wrong, or RMSE over the target's standard deviation."""
    recipe = split.recipe
    if recipe.standardize:
        scaler = StandardScaler().fit(split.X)
        X, X_test = scaler.transform(split.X), scaler.transform(split.X_test)
    else:
        X, X_test = split.X, split.X_test
    sigma = recipe.sigma
    if sigma is None:
        rows = np.random.default_rng(0).permutation(len(X))[:1000]
        sigma = 0.5 * weighted_median_distance(X[rows])
    error = error_of(split)
    centers = min(recipe.centers, len(X) - 2)
    ours, seconds = [], 0.0
    for seed in seeds:
        cls = distkern.OROLSClassifier if recipe.classification else distkern.OROLSRegressor
        started = perf_counter()
        model = cls(sigma=sigma, max_centers=centers, stop=None, standardize=recipe.standardize, random_state=seed).fit(
            split.X, split.y
        )
        seconds += (perf_counter() - started) / len(seeds)
        ours.append(error(model.predict(split.X_test)))
    nystroem, nystroem_seconds = _nystroem(split, X, X_test, sigma, model.n_centers_, error)
    svm, svm_seconds, svm_rows = _svm(split, X, X_test, sigma, error)
    return {
        "set": recipe.name,
        "rows": len(X),
        "error": "wrong" if recipe.classification else "rmse/std",
        "sigma": float(sigma),
        "centers": model.n_centers_,
        "distkern": float(np.mean(ours)),
        "nystroem": nystroem,
        "svm": svm,
        "svm_rows": svm_rows,
        "seconds": seconds,
        "time/nystroem": seconds / nystroem_seconds,
        "time/svm": seconds / svm_seconds,
    }


def error_of(split: Split) -> Error:
    """Test error as a function of the predictions: fraction wrong, or RMSE over the target's deviation."""
    if split.recipe.classification:
        return lambda predicted: float(np.mean(predicted != split.y_test))
    scale = float(np.std(split.y))
    return lambda predicted: float(np.sqrt(np.mean(np.square(predicted - split.y_test)))) / scale


def _nystroem(
    split: Split, X: NDArray[Any], X_test: NDArray[Any], sigma: float, centers: int, error: Error
) -> tuple[float, float]:
    labels = np.unique(split.y)
    targets = np.where(split.y[:, None] == labels, 1.0, -1.0) if split.recipe.classification else split.y
    started = perf_counter()
    features = Nystroem(gamma=1 / (2 * sigma**2), n_components=centers, random_state=0).fit(X)
    train = features.transform(X)
    Ridge(alpha=RIDGES[1]).fit(train, targets)
    seconds = perf_counter() - started
    test = features.transform(X_test)
    best = np.inf
    for penalty in RIDGES:
        with warnings.catch_warnings():
            # Small penalties are ill-conditioned by nature; the best of all is kept.
            warnings.simplefilter("ignore")
            values = Ridge(alpha=penalty).fit(train, targets).predict(test)
        best = min(best, error(labels[values.argmax(axis=1)] if split.recipe.classification else values))
    return float(best), seconds


def _svm(split: Split, X: NDArray[Any], X_test: NDArray[Any], sigma: float, error: Error) -> tuple[float, float, int]:
    rows = np.random.default_rng(0).permutation(len(X))[:SVM_ROWS]
    machine = SVC if split.recipe.classification else SVR
    started = perf_counter()
    model = machine(C=10.0, gamma=1 / (2 * sigma**2), cache_size=1000).fit(X[rows], split.y[rows])
    seconds = perf_counter() - started
    return error(model.predict(X_test)), seconds, len(rows)


def run(splits: Any, seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    """Compare on every split, reporting each on standard error as it comes."""
    rows = []
    for split in splits:
        rows.append(compare(split, seeds))
        print(rows[-1], file=sys.stderr, flush=True)
    return rows
