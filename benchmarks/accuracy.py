"""Test error at equal numbers of centres: distkern beside an SVM and Nystroem + ridge, in one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from benchmarks import baselines, ours
from benchmarks.datasets import Split


def compare(split: Split, seeds: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Train all three on one set; errors are fractions wrong, or RMSE over the target's standard deviation."""
    problem, recipe = baselines.prepare(split), split.recipe
    fits = [ours.fit(problem, recipe.centers, seed=seed) for seed in seeds]
    model = fits[-1][0]
    seconds = float(np.mean([measured.seconds for _, measured in fits]))
    nystroem = baselines.nystroem(problem, model.n_centers_)
    svm = baselines.svm(problem)
    return {
        "set": recipe.name,
        "rows": len(split.X),
        "error": "wrong" if recipe.classification else "rmse/std",
        "sigma": problem.sigma,
        "centers": model.n_centers_,
        "distkern": float(np.mean([measured.error for _, measured in fits])),
        "nystroem": nystroem.error,
        "svm": svm.error,
        "svm_rows": svm.rows,
        "seconds": seconds,
        "time/nystroem": seconds / nystroem.seconds,
        "time/svm": seconds / svm.seconds,
    }


def run(splits: Iterable[Split], seeds: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Compare on every split."""
    for split in splits:
        yield compare(split, seeds)
