"""Regression on Boston and abalone (paper, Table 4; thesis, Table 5.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from distkern.estimators.sparse.npd import NPDRegressor
from distkern.estimators.sparse.orols import OROLSRegressor
from distkern.scheduler.metric.few_rows import FEW_ROWS

from .competitors import measured as measured_competitor
from .published import REGRESSION_QR, REGRESSION_SVM, Table
from .report import Report, Row, mean_error
from .sets import REGRESSION, Partition, scaled_continuous
from .settings import chosen_settings
from .study import Study
from .widths import cross_validated_width, prediction_error

SEARCHED = {"boston": 5, "abalone": 2}
"""Number of the first training parts that settings are chosen on."""

WIDTH_ONLY = "OROLS, width only"
"""Name of OROLS where only sigma is chosen: by the defaults on few rows, by cross-validation on more."""

COMPETITORS = {"SVM": "SVM, regression", "QR": "QR"}
"""Methods that the sources compare with, and their names in `competitors`."""

SHARES = {
    "boston": (0.05, 0.075, 0.1, 0.15, 0.2, 0.26, 0.35, 0.5),
    "abalone": (0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05),
}
"""Tried numbers of centres, as shares of the training rows."""

NOTES = (
    (
        "Seeded random partitions of the published sizes; continuous features scaled by the training part, "
        "features of 0 and 1 (abalone's sex, boston's chas) as they are. A verdict needs a difference of two standard "
        "errors, of both means over their partitions."
    ),
    (
        "sigma, epsilon (0, 0.01, 0.1, 1) and the number of centres by 5-fold cross-validation on the first five "
        "training parts (boston) or two (abalone); three widths are tried, around the median width of searches with "
        "the stop rule gcv."
    ),
)

Errors = tuple[Sequence[float], Sequence[float], str]


def _parts(study: Study, name: str) -> list[Partition]:
    def read() -> list[Partition]:
        return [scaled_continuous(part) for part in study.partitions(REGRESSION[name])]

    return study.once(("regression-parts", name), read)


def _width(study: Study, name: str) -> float:
    def search() -> float:
        study.log(f"{name}: sigma by cross-validation")
        parts = _parts(study, name)[: SEARCHED[name]]
        return cross_validated_width(OROLSRegressor(standardize=False), parts, len(parts))

    return study.once(("regression-width", name), search)


def _measured(study: Study, name: str, method: str) -> Errors:
    parts = _parts(study, name)
    study.log(f"{name}: {method}")
    if method in COMPETITORS:
        errors, sizes, (width, constant) = measured_competitor(COMPETITORS[method], parts, standardize=False)
        return errors, sizes, f"sigma {width:.3g}, constant {constant:g}"
    if method == WIDTH_ONLY and len(parts[0].X) <= FEW_ROWS:
        return _errors(OROLSRegressor(standardize=False), parts, "all defaults")
    sigma = _width(study, name)
    if method == WIDTH_ONLY:
        return _errors(OROLSRegressor(sigma=sigma, standardize=False), parts, f"sigma {sigma:.3g}")
    base = METHODS[method](standardize=False)
    choice = chosen_settings(base, sigma, parts[: SEARCHED[name]], SHARES[name])
    return _errors(choice.model(base, REGRESSION[name].n_train), parts, choice.shown)


def _errors(model: OROLSRegressor | NPDRegressor, parts: Sequence[Partition], settings: str) -> Errors:
    errors, centers = [], []
    for part in parts:
        model.fit(part.X, part.y)
        errors.append(prediction_error(model, part))
        centers.append(model.n_centers_)
    return errors, centers, settings


METHODS: dict[str, type[OROLSRegressor | NPDRegressor]] = {"OROLS": OROLSRegressor, "NPD": NPDRegressor}


def _row(study: Study, name: str, method: str, table: Table) -> Row:
    facts, published = REGRESSION[name], table[name]
    row = Row(
        data=name,
        method=method,
        measure="MSE",
        published=published.mean,
        published_deviation=published.deviation,
        published_evaluations=published.evaluations(facts.n_train),
        published_error=mean_error(published.deviation, facts.random_partitions),
    )
    if not study.is_present(facts):
        return row
    errors, n_centers, settings = study.once(("regression", name, method), lambda: _measured(study, name, method))
    deviation = float(np.std(errors, ddof=1)) if len(errors) > 1 else None
    centers = float(np.mean(n_centers))
    return replace(
        row,
        ours=float(np.mean(errors)),
        deviation=deviation,
        error=mean_error(deviation, len(errors)),
        runs=len(errors),
        centers=centers,
        evaluations=centers,
        settings=settings,
    )


def regression_table(study: Study, tables: Mapping[str, Table]) -> Report:
    """Reproduce the columns of some methods.

    Parameters
    ----------
    study : Study
        Data, runs and results so far.
    tables : mapping
        Published numbers of the methods in `METHODS`.
    """
    tables = {**tables, "QR": REGRESSION_QR, "SVM": REGRESSION_SVM}
    rows = [_row(study, name, method, t) for name in REGRESSION for method, t in tables.items() if name in t]
    more = (
        (
            "OROLS, width only: all defaults for boston, which take width and regularisation of largest evidence; for "
            "abalone sigma alone, with the stop rule gcv."
        ),
        "SVM (scikit-learn) and QR on the same partitions, by cross-validation on the first two training parts.",
    )
    return Report(rows, (*NOTES, *more))
