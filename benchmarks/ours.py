"""Trainings of distkern in the benchmarks."""

from __future__ import annotations

import inspect
from time import perf_counter
from typing import Any

import distkern
from benchmarks.baselines import Measured, Problem


def estimator(*, classification: bool) -> type[Any]:
    """Return the OROLS estimator of a task."""
    found: type[Any] = distkern.OROLSClassifier if classification else distkern.OROLSRegressor
    return found


def takes(parameter: str) -> bool:
    """Return whether the estimators of this version have a parameter."""
    return parameter in inspect.signature(distkern.OROLSRegressor).parameters


def fit(problem: Problem, centers: int, *, seed: int = 0, **parameters: Any) -> tuple[Any, Measured]:
    """Train on raw rows to exactly `centers` centres, with the width of all methods."""
    split = problem.split
    cls = estimator(classification=split.recipe.classification)
    started = perf_counter()
    model = cls(
        sigma=problem.sigma,
        max_centers=min(centers, len(split.X) - 2),
        stop=None,
        standardize=split.recipe.standardize,
        random_state=seed,
        **parameters,
    ).fit(split.X, split.y)
    seconds = perf_counter() - started
    return model, Measured(problem.error(model.predict(split.X_test)), seconds, len(split.X))


def sample_rows(n_rows: int, centers: int) -> int:
    """Return `selection_rows`, the number of rows to choose `centers` centres on."""
    return min(n_rows, max(7500, 10 * centers))
