"""The methods that the sources compare with, on the same partitions: SVM, kernel Fisher, forward selections.

The SVM is scikit-learn's, the others are distkern's own. Width and constants by cross-validation over small grids on
the first training partitions, features scaled as for the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import distkern as dk

from .sets import Partition
from .widths import folds_of, median_distance

WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Tried widths, in multiples of the median distance of scaled rows."""

SEARCHED = 2
"""Number of the first training partitions that constants are chosen on."""

SHARES = (0.03, 0.07, 0.15, 0.3)
"""Tried numbers of centres of the forward selections, as shares of the training rows."""

Settings = tuple[float, float]
Maker = Callable[[float, float, int], Any]
"""Function of a width, a constant and the number of training rows that returns an estimator."""


def _svc(sigma: float, constant: float, n_rows: int) -> Any:
    return SVC(C=constant, gamma=1 / (2 * sigma**2), cache_size=500)


def _svr(sigma: float, constant: float, n_rows: int) -> Any:
    # Targets are used as they are: the tube is a tenth of Boston's noise.
    return SVR(C=constant, gamma=1 / (2 * sigma**2), epsilon=0.3, cache_size=500)


def _kfd(sigma: float, constant: float, n_rows: int) -> Any:
    return dk.KernelFisherDiscriminant(sigma=sigma, regularization=constant, standardize=False)


def _forward(cls: Any) -> Maker:
    def make(sigma: float, share: float, n_rows: int) -> Any:
        return cls(sigma=sigma, max_centers=max(1, round(share * n_rows)), standardize=False)

    return make


COMPETITORS: dict[str, tuple[Maker, Sequence[float]]] = {
    "SVM": (_svc, (0.1, 1.0, 10.0, 100.0, 1000.0)),
    "SVM, regression": (_svr, (10.0, 30.0, 100.0, 300.0)),
    "KFD": (_kfd, (1e-4, 1e-3, 1e-2, 1e-1, 1.0)),
    "OLS": (_forward(dk.OLSForwardClassifier), SHARES),
    "QR": (_forward(dk.QRForwardRegressor), SHARES),
}
"""Estimator and tried constants of each method."""


def measured(
    name: str, parts: Sequence[Partition], *, standardize: bool = True
) -> tuple[list[float], list[float], Settings]:
    """Choose the settings of a method, and measure it on all partitions.

    Parameters
    ----------
    name : str
        Name in `COMPETITORS`.
    parts : sequence of Partition
        Partitions of a set.
    standardize : bool, default True
        Whether features are scaled to unit deviation first.

    Returns
    -------
    errors : list of float
        Fraction wrong, or mean squared error, of each partition.
    sizes : list of float
        Kernel evaluations of a prediction.
    settings : tuple of float
        Width, in the space of the kernel, and constant.
    """
    make, constants = COMPETITORS[name]
    scale = _pipeline if standardize else _alone
    first = StandardScaler().fit_transform(parts[0].X) if standardize else parts[0].X
    grid = list(product(np.multiply(WIDTHS, median_distance(first)).tolist(), constants))
    errors = np.zeros(len(grid))
    for part in parts[:SEARCHED]:
        for fold in folds_of(part):
            for index, (sigma, constant) in enumerate(grid):
                errors[index] += _error(scale(make(sigma, constant, len(fold.X))), fold)[0]
    sigma, constant = grid[int(np.argmin(errors))]
    found = [_error(scale(make(sigma, constant, len(part.X))), part) for part in parts]
    return [error for error, _ in found], [size for _, size in found], (sigma, constant)


def _pipeline(model: Any) -> Any:
    return make_pipeline(StandardScaler(), model)


def _alone(model: Any) -> Any:
    return make_pipeline(model)


def _error(pipeline: Any, part: Partition) -> tuple[float, float]:
    predicted = clone(pipeline).fit(part.X, part.y)
    model, outputs = predicted[-1], predicted.predict(part.X_test)
    wrong = outputs != part.y_test if hasattr(model, "classes_") else np.square(outputs - part.y_test)
    size = len(model.support_) if hasattr(model, "support_") else model.n_centers_
    return float(np.mean(wrong)), float(size)
