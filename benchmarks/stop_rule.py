"""Test errors of the stop rules' models, compared with the best model along the same path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

import distkern
from benchmarks.baselines import error_of
from benchmarks.datasets import Split

GRID = 40
"""Number of tested models along a path."""

RULES = ("gcv", "bic", "mdl")
"""Measured stop rules."""


def measure(split: Split, seed: int = 0, rules: tuple[str, ...] = RULES, longer: int = 1) -> dict[str, Any]:
    """Train a whole path, test models along it, and train with each rule.

    Parameters
    ----------
    split : Split
        Training and test rows.
    seed : int
        Key of the row draws.
    rules : tuple of str
        Stop rules to measure.
    longer : int
        Largest number of centres, as a multiple of the recipe's.
    """
    recipe = split.recipe
    cls = distkern.OROLSClassifier if recipe.classification else distkern.OROLSRegressor
    options: dict[str, Any] = {
        "standardize": recipe.standardize,
        "random_state": seed,
        "max_centers": longer * recipe.centers,
    }
    if recipe.sigma is not None:
        options["sigma"] = recipe.sigma
    error = error_of(split)
    path = cls(stop=None, **options).fit(split.X, split.y)
    sizes = np.unique(np.linspace(1, path.n_centers_, GRID).astype(int))
    errors = [error(path.truncate(int(m)).predict(split.X_test)) for m in sizes]
    best = float(min(errors))
    n = len(split.y_test)
    spread = np.sqrt(best * (1 - best) / n) if recipe.classification else best / np.sqrt(2 * n)
    row: dict[str, Any] = {"set": recipe.name, "best": best, "at": int(sizes[int(np.argmin(errors))])}
    for rule in rules:
        chosen = cls(stop=rule, **options).fit(split.X, split.y)
        stopped = error(chosen.predict(split.X_test))
        row |= {
            rule: stopped,
            f"{rule} centers": chosen.n_centers_,
            f"{rule} reason": str(chosen.stop_reason_),
            f"{rule} ratio": stopped / best if best else float("inf"),
            f"{rule} standard errors": float((stopped - best) / spread) if spread else 0.0,
        }
    return row


def run(
    splits: Iterable[Split], seed: int, rules: tuple[str, ...] = RULES, longer: int = 1
) -> Iterator[dict[str, Any]]:
    """Measure every split."""
    for split in splits:
        yield measure(split, seed, rules, longer)
