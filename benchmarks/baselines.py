"""The methods that distkern is compared with: Nystroem + ridge, an SVM, and Falkon where it is installed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from benchmarks.datasets import Split
from distkern.numerics.moments import weighted_median_distance

SVM_ROWS = 10_000
"""Largest number of rows of an SVM: its time grows with the square of the rows, or faster."""

RIDGES = (1e-6, 1e-4, 1e-2, 1e-1, 1.0)
"""Penalties of Nystroem + ridge; the best on the test rows counts, which favours it."""

FALKON_PENALTIES = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5)
"""Penalties of Falkon, which multiplies them by the number of rows; the best on the test rows counts."""

Error = Callable[[NDArray[Any]], float]


@dataclass(frozen=True)
class Problem:
    """A split in kernel space, the same for every method."""

    split: Split
    X: NDArray[np.float64]
    """Training rows, standardised if the recipe requires it."""
    X_test: NDArray[np.float64]
    """Test rows, scaled in the same way."""
    sigma: float
    """Kernel width."""
    error: Error
    """Test error as a function of the predictions."""


@dataclass(frozen=True)
class Measured:
    """Result of one method on one problem."""

    error: float
    """Fraction wrong, or RMSE over the target's standard deviation."""
    seconds: float
    """Time of one fit."""
    rows: int
    """Number of training rows."""


def prepare(split: Split) -> Problem:
    """Scale the rows and choose the width by the recipe; without one, half the median distance."""
    recipe = split.recipe
    X, X_test = split.X, split.X_test
    if recipe.standardize:
        scaler = StandardScaler().fit(X)
        X, X_test = scaler.transform(X), scaler.transform(X_test)
    sigma = recipe.sigma
    if sigma is None:
        rows = np.random.default_rng(0).permutation(len(X))[:1000]
        sigma = 0.5 * weighted_median_distance(X[rows])
    return Problem(split, X, X_test, float(sigma), error_of(split))


def error_of(split: Split) -> Error:
    """Return the test error as a function of the predictions: fraction wrong, or RMSE over the target's deviation."""
    if split.recipe.classification:
        return lambda predicted: float(np.mean(predicted != split.y_test))
    scale = float(np.std(split.y.astype(np.float64)))
    return lambda predicted: float(np.sqrt(np.mean(np.square(predicted - split.y_test)))) / scale


def nystroem(problem: Problem, centers: int) -> Measured:
    """Train Nystroem features and ridge with intercept: one penalty is timed, the best on the test rows is kept."""
    targets, decode = _targets(problem)
    started = perf_counter()
    features = Nystroem(gamma=1 / (2 * problem.sigma**2), n_components=centers, random_state=0).fit(problem.X)
    train = features.transform(problem.X)
    Ridge(alpha=RIDGES[1]).fit(train, targets)
    seconds = perf_counter() - started
    test = features.transform(problem.X_test)
    errors = []
    for penalty in RIDGES:
        with warnings.catch_warnings():
            # Small penalties give ill-conditioned systems; the best of all is kept.
            warnings.simplefilter("ignore")
            errors.append(problem.error(decode(Ridge(alpha=penalty).fit(train, targets).predict(test))))
    return Measured(min(errors), seconds, len(train))


def svm(problem: Problem) -> Measured:
    """Train SVC or SVR with C = 10 on at most `SVM_ROWS` rows."""
    rows = np.random.default_rng(0).permutation(len(problem.X))[:SVM_ROWS]
    machine = SVC if problem.split.recipe.classification else SVR
    started = perf_counter()
    model = machine(C=10.0, gamma=1 / (2 * problem.sigma**2), cache_size=1000)
    model.fit(problem.X[rows], problem.split.y[rows])
    seconds = perf_counter() - started
    return Measured(problem.error(model.predict(problem.X_test)), seconds, len(rows))


def falkon(problem: Problem, centers: int) -> Measured | None:
    """Train Falkon on the CPU: one penalty is timed, the best on the test rows is kept. None if it is not installed."""
    if find_spec("falkon") is None:
        return None
    library, kernels, torch = (import_module(name) for name in ("falkon", "falkon.kernels", "torch"))
    targets, decode = _targets(problem)
    targets = targets.reshape(len(targets), -1)
    # Falkon fits no intercept.
    mean = targets.mean(axis=0)
    X, Y, X_test = (torch.from_numpy(np.ascontiguousarray(a)) for a in (problem.X, targets - mean, problem.X_test))
    fresh = partial(
        library.Falkon,
        kernel=kernels.GaussianKernel(problem.sigma),
        M=centers,
        seed=0,
        error_every=None,
        options=library.FalkonOptions(use_cpu=True),
    )
    errors, seconds = [], []
    for penalty in FALKON_PENALTIES:
        started = perf_counter()
        model = fresh(penalty=penalty).fit(X, Y)
        seconds.append(perf_counter() - started)
        values = model.predict(X_test).numpy() + mean
        errors.append(problem.error(decode(values if values.shape[1] > 1 else values[:, 0])))
    return Measured(min(errors), float(np.median(seconds)), len(targets))


def _targets(problem: Problem) -> tuple[NDArray[Any], Callable[[NDArray[Any]], NDArray[Any]]]:
    """Return the targets of least squares, +-1 for each class, and the function that decodes predictions."""
    y = problem.split.y
    if not problem.split.recipe.classification:
        return y, lambda values: values
    labels = np.unique(y)
    return np.where(y[:, None] == labels, 1.0, -1.0), lambda values: labels[values.argmax(axis=1)]
