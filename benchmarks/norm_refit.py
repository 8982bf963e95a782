"""Test errors of a path's own weights and of ``refit="rkhs"``, for the path of the stop rule and the whole path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import distkern
from benchmarks.baselines import error_of
from benchmarks.datasets import Split


def measure(split: Split, seed: int = 0, longer: int = 1) -> dict[str, Any]:
    """Train four models of one set.

    Parameters
    ----------
    split : Split
        Training and test rows.
    seed : int
        Key of the row draws.
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
    row: dict[str, Any] = {"set": recipe.name}
    kinds: dict[str, dict[str, Any]] = {
        "path": {},
        "rkhs": {"refit": "rkhs"},
        "evidence": {"regularization": "evidence"},
    }
    for place, stop in (("stopped", "gcv"), ("whole", None)):
        for kind, changes in kinds.items():
            model = cls(stop=stop, **options, **changes).fit(split.X, split.y)
            if kind == "path":
                row[f"{place} centers"] = model.n_centers_
            row[f"{place} {kind}"] = error(model.predict(split.X_test))
    return row


def run(splits: Iterable[Split], seed: int, longer: int = 1) -> Iterator[dict[str, Any]]:
    """Measure every split."""
    for split in splits:
        yield measure(split, seed, longer)
