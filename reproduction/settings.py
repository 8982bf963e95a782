"""Cross-validation of three settings: sigma, epsilon and the number of centres (thesis, section 5.1.2, for NPD)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

import numpy as np
from sklearn.base import clone

from distkern.estimators.sparse.kernel_least_squares import KernelLeastSquares

from .sets import Partition
from .widths import folds_of, path_errors

Estimator = TypeVar("Estimator", bound=KernelLeastSquares)

WIDTH_FACTORS = (2**-0.5, 1.0, 2**0.5)
"""Tried multiples of a given width."""

EPSILONS = (0.0, 0.01, 0.1, 1.0)
"""Tried values of epsilon."""


@dataclass(frozen=True)
class Choice:
    """Settings that a search chose."""

    sigma: float
    epsilon: float
    share: float
    """Centres as a share of the training rows."""

    def model(self, base: Estimator, n_rows: int) -> Estimator:
        """Return an estimator with these settings for `n_rows` training rows."""
        n_centers = max(1, round(self.share * n_rows))
        model: Estimator = clone(base).set_params(
            sigma=self.sigma, epsilon=self.epsilon, max_centers=n_centers, stop=None
        )
        return model

    @property
    def shown(self) -> str:
        """The settings in words."""
        return f"sigma {self.sigma:.3g}, epsilon {self.epsilon:g}"


def chosen_settings(
    base: KernelLeastSquares,
    sigma: float,
    parts: Sequence[Partition],
    shares: Sequence[float],
    epsilons: Sequence[float] = EPSILONS,
    factors: Sequence[float] = WIDTH_FACTORS,
) -> Choice:
    """Return the settings with the lowest mean error over the folds of every partition's training rows.

    Paths are nested, so one training gives the models of all numbers of centres.

    Parameters
    ----------
    base : OROLS or NPD estimator
        Estimator with the other settings.
    sigma : float
        Middle of the tried widths.
    parts : sequence of Partition
        Partitions; their test rows are not used.
    shares : sequence of float
        Numbers of centres, as shares of the training rows, ascending.
    epsilons : sequence of float
        Tried values of epsilon, `EPSILONS` by default.
    factors : sequence of float
        Tried multiples of the width, `WIDTH_FACTORS` by default.
    """
    grid = [(factor * sigma, epsilon) for factor, epsilon in product(factors, epsilons)]
    errors = np.zeros((len(grid), len(shares)))
    for part in parts:
        for fold in folds_of(part):
            lengths = [max(1, round(share * len(fold.X))) for share in shares]
            for index, (width, epsilon) in enumerate(grid):
                model = Choice(width, epsilon, shares[-1]).model(base, len(fold.X))
                errors[index] += path_errors(model, fold, lengths)
    best, length = np.unravel_index(np.argmin(errors), errors.shape)
    return Choice(*grid[best], shares[int(length)])
