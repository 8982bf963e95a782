"""Raetsch's collection: OROLS and NPD (thesis, Table 5.3), and forward selection by leave-one-out error (slides)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from distkern.estimators.sparse.kernel_least_squares import KernelLeastSquares
from distkern.estimators.sparse.loo_forward import LOOForwardClassifier
from distkern.estimators.sparse.npd import NPDClassifier
from distkern.estimators.sparse.orols import OROLSClassifier
from distkern.scheduler.metric.few_rows import FEW_ROWS

from .competitors import measured as measured_competitor
from .published import (
    LOO,
    LOO_SIZE_DEVIATION,
    RAETSCH_KFD,
    RAETSCH_NPD,
    RAETSCH_OLS,
    RAETSCH_OROLS,
    RAETSCH_SVM,
    Published,
)
from .report import Report, Row, mean_error
from .sets import RAETSCH, Partition
from .settings import chosen_settings
from .study import Study
from .widths import cross_validated_width, prediction_error

SEARCHED = 5
"""Number of the first training partitions that settings are chosen on, as in the thesis, and number of searches."""

WIDTH_ONLY = "OROLS, width only"
"""Name of OROLS where only sigma is chosen: by the defaults on few rows, by cross-validation on more."""

COMPETITORS = {"SVM": RAETSCH_SVM, "KFD": RAETSCH_KFD, "OLS": RAETSCH_OLS}
"""Methods that the source compares with, which are measured on the same partitions."""

SHARES = (0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)
"""Tried numbers of centres, as shares of the training rows."""

NOTES = (
    (
        "sigma, epsilon (0, 0.01, 0.1, 1) and the number of centres by 5-fold cross-validation on the first five "
        "training partitions, or all where there are fewer; three widths are tried, around the median width of five "
        "searches with the stop rule gcv."
    ),
    (
        "The thesis chooses only the width for OROLS. In the row 'width only' nothing is chosen by hand: on at most "
        "600 training rows these are all defaults, which take width and regularisation of largest evidence; on more "
        "rows the width is that of the searches, with the stop rule gcv."
    ),
    (
        "SVM (scikit-learn), KFD and OLS on the same partitions: five widths and four or five constants by 5-fold "
        "cross-validation on the first two training partitions."
    ),
    (
        "Original realisations 1 to 10 of 100 for banana, breast cancer, titanic and heart, one for diabetis and "
        "twonorm; splice has no original splits here, but 10 seeded ones of the original sizes. A verdict needs a "
        "difference of two standard errors, of both means over their partitions; one partition of 100 has none."
    ),
)

LOO_NOTES = (
    (
        "sigma: the median width of five 5-fold cross-validations on the first five training partitions, or with "
        "different folds on a single partition. Numbers of centres are shown and not compared: fewer of them are no "
        "better model."
    ),
    "The slides average over 100 realisations; 10 of them are available here, one for diabetis.",
)


@dataclass(frozen=True)
class Errors:
    """Errors and sizes over the partitions of a set."""

    percent: Sequence[float]
    centers: Sequence[float]
    settings: str

    def into(self, row: Row) -> Row:
        """Return `row` with these means and deviations."""
        runs, centers = len(self.percent), float(np.mean(self.centers))
        deviation = float(np.std(self.percent, ddof=1)) if runs > 1 else None
        return replace(
            row,
            ours=float(np.mean(self.percent)),
            deviation=deviation,
            error=mean_error(deviation, runs),
            runs=runs,
            centers=centers,
            evaluations=centers,
            settings=self.settings,
        )


def _errors(model: KernelLeastSquares, parts: Sequence[Partition], settings: str) -> Errors:
    percent, centers = [], []
    for part in parts:
        model.fit(part.X, part.y)
        percent.append(100 * prediction_error(model, part))
        centers.append(model.n_centers_)
    return Errors(percent, centers, settings)


def _width(study: Study, name: str, parts: Sequence[Partition]) -> float:
    def search() -> float:
        study.log(f"{name}: sigma by cross-validation")
        return cross_validated_width(OROLSClassifier(), parts[:SEARCHED], SEARCHED)

    return study.once(("raetsch-width", name), search)


def _measured(study: Study, name: str, method: str) -> Errors:
    parts = study.partitions(RAETSCH[name])
    study.log(f"{name}: {method}")
    if method in COMPETITORS:
        wrong, sizes, (width, constant) = measured_competitor(method, parts)
        return Errors([100 * share for share in wrong], sizes, f"sigma {width:.3g}, constant {constant:g}")
    if method == WIDTH_ONLY and len(parts[0].X) <= FEW_ROWS:
        return _errors(OROLSClassifier(), parts, "all defaults")
    sigma = _width(study, name, parts)
    if method == WIDTH_ONLY:
        return _errors(OROLSClassifier(sigma=sigma), parts, f"sigma {sigma:.3g}")
    base = METHODS[method]()
    choice = chosen_settings(base, sigma, parts[:SEARCHED], SHARES)
    return _errors(choice.model(base, RAETSCH[name].n_train), parts, choice.shown)


METHODS: dict[str, type[OROLSClassifier | NPDClassifier]] = {"OROLS": OROLSClassifier, "NPD": NPDClassifier}
TABLES = {WIDTH_ONLY: RAETSCH_OROLS, "OROLS": RAETSCH_OROLS, "NPD": RAETSCH_NPD, **COMPETITORS}


def _row(study: Study, name: str, method: str) -> Row:
    row = _base(name, method, TABLES[method][name])
    if not study.is_present(RAETSCH[name]):
        return row
    return study.once(("raetsch", name, method), lambda: _measured(study, name, method)).into(row)


def _base(name: str, method: str, published: Published) -> Row:
    return Row(
        data=name,
        method=method,
        measure="% wrong",
        published=published.mean,
        published_deviation=published.deviation,
        published_error=mean_error(published.deviation, RAETSCH[name].published_partitions),
        published_evaluations=published.evaluations(RAETSCH[name].n_train),
    )


def raetsch_table(study: Study) -> Report:
    """Reproduce the thesis's Table 5.3."""
    rows = [_row(study, name, method) for name in RAETSCH for method in TABLES]
    present = [facts for facts in RAETSCH.values() if study.is_present(facts)]
    notes = [part.note for facts in present for part in study.partitions(facts, 1) if part.note]
    return Report(rows, (*NOTES, *notes))


def loo_table(study: Study, name: str) -> Report:
    """Reproduce a table of the slides: error and model size of forward selection by leave-one-out error.

    Parameters
    ----------
    study : Study
        Data and runs.
    name : str
        Name in `published.LOO`.
    """
    facts, published = RAETSCH[name], LOO[name]
    row = _base(name, "LOO", published)
    size = Row(
        data=name,
        method="LOO",
        measure="centres",
        published=published.centers,
        published_deviation=LOO_SIZE_DEVIATION[name],
        comparable=False,
    )
    if not study.is_present(facts):
        return Report([row, size], LOO_NOTES)
    parts = study.partitions(facts)
    study.log(f"{name}: sigma by cross-validation")
    sigma = cross_validated_width(LOOForwardClassifier(), parts[:SEARCHED], SEARCHED)
    study.log(f"{name}: forward selection by leave-one-out error")
    errors = _errors(LOOForwardClassifier(sigma=sigma), parts, f"sigma {sigma:.3g}")
    row = errors.into(row)
    size = replace(
        size,
        ours=row.centers,
        deviation=float(np.std(errors.centers, ddof=1)) if row.runs > 1 else None,
        runs=row.runs,
        settings=row.settings,
    )
    return Report([row, size], LOO_NOTES)
