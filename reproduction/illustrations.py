"""The sets of two features that the thesis draws (Figures 3.2 and 5.1), and the worked example of the slides."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

import distkern
from distkern.estimators.sparse.grid_search import GridSearch
from distkern.estimators.sparse.npd import NPDClassifier

from .competitors import measured
from .panels import Boundary
from .published import MSE_EXAMPLE, RIPLEY_KFD, RIPLEY_NPD, SPIRALS_CENTERS
from .report import Report, Row, binomial_error
from .sets import RIPLEY, SPIRALS, Partition
from .settings import EPSILONS
from .study import Study
from .widths import FOLDS, median_distance, prediction_error

Array = NDArray[np.float64]

WIDTH_FACTORS = 2.0 ** (np.arange(-8, 2) / 2)
"""Multiples of the median distance that the search tries."""

_GRID = 200
"""Points of a drawn grid along each feature."""

_RIPLEY_CENTERS = 10
_RIPLEY_SEARCHES = 5


def ripley_figure(study: Study) -> Report:
    """Reproduce Figure 3.2: NPD with ten centres beside the full kernel Fisher discriminant."""
    published = {"NPD": RIPLEY_NPD, "KFD": RIPLEY_KFD}
    rows = [
        Row(
            data="ripley",
            method=method,
            measure="% wrong",
            published=value.mean,
            published_error=binomial_error(value.mean, RIPLEY.n_test),
            published_evaluations=value.centers,
        )
        for method, value in published.items()
    ]
    if not study.is_present(RIPLEY):
        return Report(rows)
    (part,) = study.partitions(RIPLEY)
    study.log("ripley: sigma and epsilon by cross-validation")
    base = NPDClassifier(max_centers=_RIPLEY_CENTERS, stop=None, standardize=False)
    sigma, epsilon = _ripley_settings(base, part)
    model = clone(base).set_params(sigma=sigma, epsilon=epsilon).fit(part.X, part.y)
    (wrong,), _, (width, constant) = measured("KFD", [part], standardize=False)
    full = distkern.KernelFisherDiscriminant(sigma=width, regularization=constant, standardize=False)
    full.fit(part.X, part.y)
    found = {
        "NPD": (100 * prediction_error(model, part), model.n_centers_, f"sigma {sigma:.3g}, epsilon {epsilon:g}"),
        "KFD": (100 * wrong, len(part.X), f"sigma {width:.3g}, regularization {constant:g}"),
    }
    rows = [
        replace(
            row,
            ours=error,
            error=binomial_error(error, RIPLEY.n_test),
            runs=1,
            centers=count,
            evaluations=count,
            settings=settings,
        )
        for row, (error, count, settings) in zip(rows, found.values(), strict=True)
    ]
    panels = (
        _boundary(f"full KFD, {rows[1].ours:.1f} % wrong", part, full.decision_function, part.X[:0]),
        _boundary(f"NPD, 10 centres, {rows[0].ours:.1f} % wrong", part, model.decision_function, model.centers_),
    )
    notes = (
        "sigma and epsilon of NPD with ten centres by 5-fold cross-validation on the training rows, five times.",
        (
            "KFD is KernelFisherDiscriminant, which has every row as a centre; its sigma and regularization by 5-fold "
            "cross-validation on the training rows. A verdict needs a difference of two standard errors of the "
            "difference, those of counting wrong rows among as many test rows."
        ),
    )
    return Report(rows, notes, panels)


def _ripley_settings(base: NPDClassifier, part: Partition) -> tuple[float, float]:
    """Return sigma and epsilon with the lowest mean error of several cross-validations with different folds."""
    settings = list(product(WIDTH_FACTORS * median_distance(part.X), EPSILONS))
    grid = [{"sigma": [float(sigma)], "epsilon": [epsilon]} for sigma, epsilon in settings]
    errors = np.zeros(len(grid))
    for seed in range(_RIPLEY_SEARCHES):
        search = GridSearch(clone(base).set_params(random_state=seed), grid, folds=FOLDS).fit(part.X, part.y)
        errors += np.asarray(search.cv_results_["mean_error"])
    sigma, epsilon = settings[int(np.argmin(errors))]
    return float(sigma), epsilon


def spirals_figure(study: Study) -> Report:
    """Reproduce Figure 5.1: NPD with 90 and 120 centres on two spirals."""
    rows, panels = [], []
    present = study.is_present(SPIRALS)
    if present:
        (part,) = study.partitions(SPIRALS)
        study.log("spirals: sigma by cross-validation")
        sigma = _spirals_width(part)
    for n_centers in SPIRALS_CENTERS:
        row = Row(
            data=f"spirals, {n_centers} centres",
            method="NPD",
            measure="% wrong of the training rows",
            published=0.0,
            equality=True,
            published_evaluations=n_centers,
        )
        if present:
            model = NPDClassifier(sigma=sigma, max_centers=n_centers, stop=None, standardize=False).fit(part.X, part.y)
            row = replace(
                row,
                ours=100 * float(np.mean(model.predict(part.X) != part.y)),
                runs=1,
                centers=model.n_centers_,
                evaluations=model.n_centers_,
                settings=f"sigma {sigma:.3g}",
            )
            title = f"NPD, {model.n_centers_} centres"
            panels.append(_boundary(title, part, model.decision_function, model.centers_))
        rows.append(row)
    notes = (
        (
            "sigma by 5-fold cross-validation with 90 centres, among the widths with 120 independent kernel columns; "
            "the two spirals have no test rows."
        ),
    )
    return Report(rows, notes, panels)


def _spirals_width(part: Partition) -> float:
    """Return the width with the lowest cross-validated error among those with enough independent kernel columns."""
    base = NPDClassifier(max_centers=max(SPIRALS_CENTERS), stop=None, standardize=False)
    widths = [
        float(sigma)
        for sigma in WIDTH_FACTORS * median_distance(part.X)
        if clone(base).set_params(sigma=sigma).fit(part.X, part.y).n_centers_ == max(SPIRALS_CENTERS)
    ]
    search = GridSearch(base.set_params(max_centers=min(SPIRALS_CENTERS)), {"sigma": widths}, folds=FOLDS)
    best: float = search.fit(part.X, part.y).best_params_["sigma"]
    return best


def _boundary(title: str, part: Partition, decision: Any, centers: Array) -> Boundary:
    low, high = part.X.min(axis=0), part.X.max(axis=0)
    edge = 0.05 * (high - low)
    first, second = (np.linspace(a, b, _GRID) for a, b in zip(low - edge, high + edge, strict=True))
    points = np.stack(np.meshgrid(first, second), axis=-1).reshape(-1, 2)
    values = np.concatenate([decision(points[i : i + 4096]) for i in range(0, len(points), 4096)])
    return Boundary(title, first, second, values.reshape(_GRID, _GRID), part.X, part.y, centers)


def mse_example(study: Study) -> Report:
    """Reproduce the slides' example: Y a = b on four rows, by the pseudoinverse."""
    rows = [
        Row(data="Y a = b", method="MSE", measure=f"a_{i}", published=value, published_evaluations=0.0)
        for i, value in enumerate(MSE_EXAMPLE)
    ]
    study.log("the worked example of the slides")
    X = np.array([[1.0, 2.0], [2.0, 0.0], [3.0, 1.0], [2.0, 3.0]])
    solution = np.ravel(distkern.MSEClassifier().fit(X, np.array(["first", "first", "second", "second"])).a_)
    found = [replace(row, ours=float(value), runs=1, equality=True) for row, value in zip(rows, solution, strict=True)]
    return Report(found, ("Equal up to 1e-9, or not as good.",))
