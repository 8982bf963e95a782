"""The part of a report on predictions for test rows: errors, confusions, residuals, reliability."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from markupsafe import Markup

from ..estimators.scoring import ClassificationScore, RegressionScore
from ..text import fixed
from . import charts
from .evaluation import LIKELIEST, Evaluation
from .formats import KeyNumber, ReportTable, grouped, rate
from .record import RunRecord

MOST_CLASSES = 40
"""Most classes of a confusion matrix."""

MOST_CONFUSIONS = 15
"""Listed confusions of more classes."""

MOST_CURVES = 12
"""Most classes with their own reliability diagrams."""


@dataclass
class TestPart:
    """The part of a report on test rows; each field is None or empty where it does not apply."""

    numbers: list[KeyNumber]
    classes: ReportTable | None = None
    confusion: Confusion | None = None
    confusions: ReportTable | None = None
    targets: ReportTable | None = None
    residuals: list[Markup] = field(default_factory=list)
    reliability: Markup | None = None
    per_class: list[Markup] = field(default_factory=list)
    bins: ReportTable | None = None
    calibration_error: float | None = None
    coverage: Markup | None = None
    note: str | None = None


@dataclass(frozen=True)
class Confusion:
    """Counts by true class (rows) and predicted class (columns)."""

    labels: list[str]
    rows: list[tuple[str, list[tuple[int, str, float]]]]
    """Label of each row, and count, "hit" or "miss", and colour from 0 to 1 of its cells."""


def test_part(evaluation: Evaluation, record: RunRecord) -> TestPart:
    """Return the part of a report on predictions for test rows."""
    score = evaluation.score
    part = _classes(score, evaluation) if isinstance(score, ClassificationScore) else _values(score, evaluation)
    recorded = (record.summary or {}).get("test")
    for name, value in score.headline().items():
        before = recorded.get(name) if isinstance(recorded, Mapping) else None
        if isinstance(before, int | float) and not math.isclose(before, value, rel_tol=1e-6, abs_tol=1e-12):
            part.note = (
                f"When the run ended, the test {name} was {before:.6g}; with the present model and test data it is "
                f"{value:.6g}."
            )
    return part


def _classes(score: ClassificationScore, evaluation: Evaluation) -> TestPart:
    numbers = [KeyNumber("test error", rate(score.error), score.error), KeyNumber("test rows", grouped(score.n_rows))]
    for name, value in (("log loss", score.log_loss), ("Brier score", score.brier)):
        if math.isfinite(value):
            numbers.append(KeyNumber(name, f"{value:.4f}", value))
    rows = [
        (str(item["label"]), grouped(item["rows"]), *(fixed(item[name]) for name in ("precision", "recall", "f1")))
        for item in score.per_class()
    ]
    part = TestPart(numbers, classes=ReportTable("Classes", ("class", "rows", "precision", "recall", "F1"), rows))
    if len(score.labels) <= MOST_CLASSES:
        part.confusion = _confusion(score)
    else:
        part.confusions = _worst(score)
    reliability = evaluation.reliability
    if reliability is not None:
        labels = [str(label) for label in reliability.classes]
        two = len(labels) == 2
        top = 1 if two else LIKELIEST
        title = f"Reliability, class {labels[1]}" if two else "Reliability, likeliest class"
        part.reliability = charts.reliability_chart(reliability, top, title)
        part.calibration_error = reliability.calibration_error(top)
        part.bins = ReportTable(
            f"Bins of the {title.lower()}",
            ("predicted", "right", "rows"),
            [(f"{p:.4f}", f"{r:.4f}", grouped(n)) for p, r, n in zip(*reliability.curve(top), strict=True)],
        )
        if not two and len(labels) <= MOST_CURVES:
            part.per_class = [
                charts.reliability_chart(reliability, index, f"Reliability, class {label}")
                for index, label in enumerate(labels)
            ]
    return part


def _confusion(score: ClassificationScore) -> Confusion:
    counts = score.confusion
    wrong = counts - np.diag(np.diag(counts))
    tallest, worst = int(np.diag(counts).max(initial=0)) or 1, int(wrong.max(initial=0)) or 1
    labels = [str(label) for label in score.labels]
    rows = []
    for i, label in enumerate(labels):
        cells = []
        for j, count in enumerate(counts[i].tolist()):
            most = tallest if i == j else worst
            cells.append((count, "hit" if i == j else "miss", math.sqrt(count / most)))
        rows.append((label, cells))
    return Confusion(labels, rows)


def _worst(score: ClassificationScore) -> ReportTable:
    wrong = score.confusion - np.diag(np.diag(score.confusion))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSIONS]
    pairs = [np.unravel_index(int(i), wrong.shape) for i in order]
    rows = [(str(score.labels[i]), str(score.labels[j]), grouped(wrong[i, j])) for i, j in pairs if wrong[i, j]]
    return ReportTable("Most frequent confusions", ("true class", "predicted", "rows"), rows)


def _values(score: RegressionScore, evaluation: Evaluation) -> TestPart:
    numbers = [
        KeyNumber("test RMSE", f"{score.rmse:.4g}", score.rmse),
        KeyNumber("test rows", grouped(score.n_rows)),
        KeyNumber("mean absolute error", f"{score.mae:.4g}", score.mae),
        KeyNumber("R²", fixed(score.r2), score.r2),
    ]
    part = TestPart(numbers)
    each = list(score.per_target())
    if len(each) > 1:
        rows = [
            (f"target {i}", f"{item['rmse']:.4g}", f"{item['mae']:.4g}", fixed(item["r2"]))
            for i, item in enumerate(each)
        ]
        part.targets = ReportTable("Targets, counted from 0", ("target", "RMSE", "mean absolute error", "R²"), rows)
    residuals = evaluation.residuals
    if residuals is not None:
        drawn = (
            charts.residual_chart(grid, "Residuals" if len(each) == 1 else f"Residuals of target {i}")
            for i, grid in enumerate(residuals.grids)
        )
        part.residuals = [chart for chart in drawn if chart is not None]
    if evaluation.coverage is not None and score.n_rows:
        part.coverage = charts.coverage_chart(evaluation.coverage)
    return part
