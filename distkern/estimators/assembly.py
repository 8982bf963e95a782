"""From the paths of a training to one model: the union of the centres, with a weight a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import JobError
from distkern.estimators.parameters import integer
from distkern.factors import kernel_weights
from distkern.scheduler.training import Path

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Assembled:
    """Arrays of a model made of one prefix of every path."""

    rows: NDArray[np.int64]
    """(m,): training row of each centre, in the order of selection."""
    centers: NDArray[Any]
    """(m, d): raw features."""
    coef: Array
    """(m, T)."""
    intercept: Array
    """(T,)."""
    lambdas: Array
    """(1,) or (T,)."""
    gcv: float
    """Mean over paths."""


def assemble(
    paths: Sequence[Path],
    outputs: Sequence[tuple[int, ...]],
    target_means: Array,
    n_centers: Sequence[int],
) -> Assembled:
    """Merge one prefix of every path.

    Parameters
    ----------
    paths : sequence of Path
        One a problem.
    outputs : sequence of tuple of int
        Outputs of the model that each path gives.
    target_means : array, shape (T,)
        Added to the intercepts: targets were centred.
    n_centers : sequence of int
        Length of each prefix.
    """
    order: dict[int, int] = {}
    features: list[NDArray[Any]] = []
    for position in range(max(n_centers, default=0)):
        for path, count in zip(paths, n_centers, strict=True):
            if position < count and int(path.rows[position]) not in order:
                order[int(path.rows[position])] = len(order)
                features.append(path.features[position])
    coef = np.zeros((len(order), len(target_means)))
    intercept = target_means.astype(np.float64).copy()
    for path, columns, count in zip(paths, outputs, n_centers, strict=True):
        k = count + 1
        weights = kernel_weights(path.u[:k, :k], path.s[:k], path.z[:k], path.lambdas[count])
        where = [order[int(row)] for row in path.rows[:count]]
        coef[np.ix_(where, list(columns))] = weights[1:]
        intercept[list(columns)] += weights[0]
    return Assembled(
        rows=np.array(list(order), dtype=np.int64),
        centers=np.array(features) if features else paths[0].features[:0],
        coef=coef,
        intercept=intercept,
        lambdas=np.concatenate([path.lambdas[count] for path, count in zip(paths, n_centers, strict=True)]),
        gcv=float(
            np.mean([path.gcv[count - 1] if count else np.nan for path, count in zip(paths, n_centers, strict=True)])
        ),
    )


def prefix_lengths(paths: Sequence[Path], n_centers: int) -> list[int]:
    """Lengths of the paths' prefixes of at most `n_centers` centres.

    Raises
    ------
    JobError
        `n_centers` is not on any path.
    """
    longest = max(len(path.rows) for path in paths)
    if not 1 <= integer("n_centers", n_centers, 1) <= longest:
        raise JobError(
            f"n_centers={n_centers}: the path has between 1 and {longest} centres; train with a larger max_centers",
            kind="invalid-parameter",
        )
    return [min(n_centers, len(path.rows)) for path in paths]
