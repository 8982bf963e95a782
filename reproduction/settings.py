"""Three settings by cross-validation: sigma, epsilon and the number of centres (thesis, section 5.1.2, for NPD)."""

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
"""Multiples of a given width that are tried."""

EPSILONS = (0.0, 0.01, 0.1, 1.0)
"""Values that are tried."""


@dataclass(frozen=True)
class Choice:
    """What the search chose."""

    sigma: float
    epsilon: float
    share: float
    """Centres as a share of the training rows."""

    def model(self, base: Estimator, n_rows: int) -> Estimator:
        """Return an estimator with these settings for so many training rows."""
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
) -> Choice:
    """Return the settings with the lowest mean error over the folds of every partition's training rows.

    Centres are nested, so that one training serves every number of them.

    Parameters
    ----------
    base : OROLS or NPD estimator
        The other settings.
    sigma : float
        Middle of the widths that are tried.
    parts : sequence of Partition
        Test rows are not looked at.
    shares : sequence of float
        Numbers of centres, as shares of the training rows, ascending.
    epsilons : sequence of float
        Values of epsilon.
    """
    grid = [(factor * sigma, epsilon) for factor, epsilon in product(WIDTH_FACTORS, epsilons)]
    errors = np.zeros((len(grid), len(shares)))
    for part in parts:
        for fold in folds_of(part):
            lengths = [max(1, round(share * len(fold.X))) for share in shares]
            for index, (width, epsilon) in enumerate(grid):
                model = Choice(width, epsilon, shares[-1]).model(base, len(fold.X))
                errors[index] += path_errors(model, fold, lengths)
    best, length = np.unravel_index(np.argmin(errors), errors.shape)
    return Choice(*grid[best], shares[int(length)])
