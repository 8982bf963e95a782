"""A learnt metric with a kernel of its own choice, beside the best single width of three kernels on the same rows.

A set holds if the learnt metric has an error at most 2 % above that of the best single width, or at most one standard
error of the difference. The standard error is that of the loss of a test row, which both models have, averaged over the
seeds. The best of three is chosen by the test rows, which favours it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import ours
from benchmarks.datasets import Split

KERNELS = ("gaussian", "laplacian", "laplacian-l1")
"""Kernels of the single widths, each with the width of its default search."""

TOLERATED = 0.02
"""Share by which the error may be above that of the best single width."""

Losses = NDArray[np.float64]


def run(splits: Iterable[Split], centers: int, seeds: int) -> Iterator[dict[str, Any]]:
    """Compare on every split.

    Parameters
    ----------
    splits : iterable of Split
        Sets.
    centers : int
        Most centres; at most half of the training rows.
    seeds : int
        Trainings of each kind; errors are means.
    """
    for split in splits:
        yield compare(split, min(centers, len(split.X) // 2), seeds)


def compare(split: Split, centers: int, seeds: int) -> dict[str, Any]:
    """Train the learnt metric and every single width on one set."""
    single = {name: _trained(split, seeds, max_centers=centers, kernel=name) for name in KERNELS}
    learnt, seconds = _trained(split, seeds, max_centers=centers, kernel="auto", metric="auto")
    errors = {name: _error(split, losses) for name, (losses, _) in single.items()}
    best = min(errors, key=errors.__getitem__)
    error = _error(split, learnt)
    deviation = _standard_error(split, learnt, single[best][0])
    return {
        "set": split.recipe.name,
        "rows": len(split.X),
        "test": len(split.X_test),
        "centers": centers,
        **errors,
        "auto": error,
        "above best": error / errors[best] - 1 if errors[best] > 0 else float(error > 0),
        "standard error": deviation / errors[best] if errors[best] > 0 else deviation,
        "holds": error - errors[best] <= max(TOLERATED * errors[best], deviation),
        # Of the single width that took longest, which may be any of them.
        "CPU/one width": seconds / max(spent for _, spent in single.values()),
    }


def _trained(split: Split, seeds: int, **parameters: Any) -> tuple[list[Losses], float]:
    """Return the loss of every test row for each seed, and the mean CPU seconds of a fit."""
    cls = ours.estimator(classification=split.recipe.classification)
    losses, started, predicting = [], process_time(), 0.0
    for seed in range(seeds):
        model = cls(random_state=seed, **parameters).fit(split.X, split.y)
        fitted = process_time()
        predicted = model.predict(split.X_test)
        wrong = predicted != split.y_test if split.recipe.classification else np.square(predicted - split.y_test)
        losses.append(wrong.astype(np.float64))
        predicting += process_time() - fitted
    return losses, (process_time() - started - predicting) / seeds


def _error(split: Split, losses: list[Losses]) -> float:
    """Return the mean fraction wrong, or the mean RMSE over the target's deviation."""
    if split.recipe.classification:
        return float(np.mean(losses))
    return float(np.mean([np.sqrt(loss.mean()) for loss in losses]) / np.std(split.y.astype(np.float64)))


def _standard_error(split: Split, one: list[Losses], other: list[Losses]) -> float:
    """Return the standard error of the difference of two errors over the test rows."""
    differences = np.mean(one, axis=0) - np.mean(other, axis=0)
    deviation = float(differences.std() / np.sqrt(len(differences)))
    if split.recipe.classification:
        return deviation
    # The derivative of a root, at the mean of both squared errors.
    scale = float(np.std(split.y.astype(np.float64)))
    return deviation / (2 * np.sqrt((np.mean(one) + np.mean(other)) / 2)) / scale
