"""How well the default stop rule chooses: its test error beside the best along the same path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

import distkern
from benchmarks.baselines import error_of
from benchmarks.datasets import Split

GRID = 40
"""Models looked at along a path."""


def measure(split: Split, seed: int = 0) -> dict[str, Any]:
    """Train to the end, look at the test error along the path, and ask where the rule would have stopped."""
    recipe = split.recipe
    cls = distkern.OROLSClassifier if recipe.classification else distkern.OROLSRegressor
    options: dict[str, Any] = {"standardize": recipe.standardize, "random_state": seed}
    if recipe.sigma is not None:
        options["sigma"] = recipe.sigma
    error = error_of(split)
    path = cls(max_centers=recipe.centers, stop=None, **options).fit(split.X, split.y)
    sizes = np.unique(np.linspace(1, path.n_centers_, GRID).astype(int))
    errors = [error(path.truncate(int(m)).predict(split.X_test)) for m in sizes]
    chosen = cls(max_centers=recipe.centers, stop="gcv", **options).fit(split.X, split.y)
    best = float(min(errors))
    stopped = error(chosen.predict(split.X_test))
    n = len(split.y_test)
    spread = np.sqrt(best * (1 - best) / n) if recipe.classification else best / np.sqrt(2 * n)
    return {
        "set": recipe.name,
        "best": best,
        "at": int(sizes[int(np.argmin(errors))]),
        "gcv rule": stopped,
        "centers": chosen.n_centers_,
        "reason": str(chosen.stop_reason_),
        "ratio": stopped / best if best else float("inf"),
        "standard errors": float((stopped - best) / spread) if spread else 0.0,
    }


def run(splits: Iterable[Split], seed: int) -> Iterator[dict[str, Any]]:
    """Measure every split."""
    for split in splits:
        yield measure(split, seed)
