"""One model from the paths of a training: the union of their centres, with a weight for each target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler.protocol.path import Path
from distkern.scheduler.runtime.threads import single_threaded_blas

from ...arrays import Array
from ...errors import JobError
from ..base.parameter_checks import whole


@dataclass(frozen=True)
class PrefixWeights:
    """Weights of one prefix of one path."""

    weights: Array
    """(k + 1, T): the first row is the intercept on centred targets."""
    lambdas: Array
    """(1,) or (T,): regularisation of the weights."""
    gcv: float
    rounding: float = 0.0
    """Deviations of a target that rounding may add to the residual, where rows have not shown it; default 0.0."""


Weigh = Callable[[Path, int], PrefixWeights]
"""Function that returns the weights of a path's first centres."""


@dataclass(frozen=True)
class Assembled:
    """Arrays of a model made of one prefix of every path."""

    rows: NDArray[np.int64]
    """(m,): training row of each centre, in the order of selection."""
    widths: NDArray[np.int64]
    """(m,): index of its width among the widths of the kernel."""
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
    rounding: float
    """Largest over paths."""


def path_weights(path: Path, count: int) -> PrefixWeights:
    """Return the weights of the first `count` centres with the lambda or mu of the path (thesis 3.83, 3.84)."""
    lambdas = path.lambdas[count] if path.mu is None else np.array([path.mu])
    return PrefixWeights(path.weights(count), lambdas, float(path.gcv[count - 1]) if count else float("nan"))


def assemble(
    paths: Sequence[Path],
    outputs: Sequence[tuple[int, ...]],
    target_means: Array,
    n_centers: Sequence[int],
    weigh: Weigh = path_weights,
) -> Assembled:
    """Merge one prefix of every path.

    Parameters
    ----------
    paths : sequence of Path
        Paths of the problems.
    outputs : sequence of tuple of int
        Outputs of the model for each path.
    target_means : array, shape (T,)
        Means of the targets, which are added to the intercepts.
    n_centers : sequence of int
        Length of each prefix.
    weigh : callable, default path_weights
        Function that returns the weights of a prefix.
    """
    order: dict[tuple[int, int], int] = {}
    features: list[NDArray[Any]] = []
    for position in range(max(n_centers, default=0)):
        for path, count in zip(paths, n_centers, strict=True):
            if position < count and (center := _identity(path, position)) not in order:
                order[center] = len(order)
                features.append(path.features[position])
    coef = np.zeros((len(order), len(target_means)))
    intercept = target_means.astype(np.float64).copy()
    with single_threaded_blas():  # a solution by several threads has other last bits
        parts = [weigh(path, count) for path, count in zip(paths, n_centers, strict=True)]
    for path, columns, count, part in zip(paths, outputs, n_centers, parts, strict=True):
        where = [order[_identity(path, position)] for position in range(count)]
        coef[np.ix_(where, list(columns))] = part.weights[1:]
        intercept[list(columns)] += part.weights[0]
    return Assembled(
        rows=np.array([row for row, _ in order], dtype=np.int64),
        widths=np.array([width for _, width in order], dtype=np.int64),
        centers=np.array(features) if features else paths[0].features[:0],
        coef=coef,
        intercept=intercept,
        lambdas=np.concatenate([part.lambdas for part in parts]),
        gcv=float(np.mean([part.gcv for part in parts])),
        rounding=max((part.rounding for part in parts), default=0.0),
    )


def _identity(path: Path, position: int) -> tuple[int, int]:
    """Return row and width of a centre."""
    return int(path.rows[position]), int(path.widths[position])


def prefixes_of(paths: Sequence[Path]) -> list[int]:
    """Return the centres that the model keeps of every path."""
    return [path.n_centers for path in paths]


def prefix_lengths(paths: Sequence[Path], n_centers: int) -> list[int]:
    """Return the lengths of the paths' prefixes of `n_centers` centres; raise `JobError` where no path has as many."""
    longest = max(len(path.rows) for path in paths)
    whole(1).check("n_centers", n_centers)
    if n_centers > longest:
        raise JobError(
            f"n_centers={n_centers}: the path has between 1 and {longest} centres; train with a larger max_centers",
            kind="invalid-parameter",
        )
    return [min(n_centers, len(path.rows)) for path in paths]
