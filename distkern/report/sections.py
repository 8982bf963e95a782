"""What each part of a report shows, as plain values, tables and drawings."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from markupsafe import Markup

from distkern.estimators.scoring import ClassificationScore, RegressionScore
from distkern.progress.wording import duration
from distkern.report import charts
from distkern.report.evaluation import Evaluation
from distkern.report.images import image_address, image_side
from distkern.report.record import RunRecord
from distkern.stopping import StopReason

MOST_CLASSES = 40
"""Classes up to which all confusions are shown."""

MOST_CONFUSIONS = 15
"""Confusions that are listed where there are more classes."""

MOST_CURVES = 12
"""Classes up to which each has its reliability diagram."""

MOST_IMAGES = 60
"""Centres that are drawn."""

MOST_FEATURES = 60
"""Features that have a row in the table of centres."""


@dataclass(frozen=True)
class Figure:
    """A number with its name."""

    name: str
    text: str
    value: object = None
    """The number in full, for programs that read the page."""


@dataclass(frozen=True)
class Table:
    """A table; its first column names the rows."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass
class Test:
    """A model on test rows."""

    figures: list[Figure]
    classes: Table | None = None
    confusion: Confusion | None = None
    confusions: Table | None = None
    targets: Table | None = None
    residuals: list[Markup] = field(default_factory=list)
    reliability: Markup | None = None
    per_class: list[Markup] = field(default_factory=list)
    bins: Table | None = None
    calibration_error: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class Confusion:
    """Counts by true class (rows) and predicted class (columns)."""

    labels: list[str]
    rows: list[tuple[str, list[tuple[int, str, float]]]]
    """Of every cell the count, "hit" or "miss", and how strongly it is coloured, from 0 to 1."""


@dataclass
class Centers:
    """The centres of a model."""

    text: str
    images: list[tuple[str, str, str]] = field(default_factory=list)
    """Address of the image, what it shows, and its caption."""
    side: int = 0
    features: list[tuple[str, list[str], Markup]] = field(default_factory=list)
    """Name of a feature, least value, quartiles and largest value, and their drawing."""
    left_out: int = 0


@dataclass(frozen=True)
class Planned:
    """A quantity that was planned, and what it came to."""

    name: str
    planned: str
    measured: str
    share: float | None
    """Measured against planned."""


def plain(value: object) -> str:
    """Return a value as a person reads it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else "–"
    if isinstance(value, list | tuple):
        return "none" if not value else ", ".join(map(plain, value[:20])) + (", …" if len(value) > 20 else "")
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plain(item)}" for name, item in value.items())
    return str(value)


def grouped(count: float) -> str:
    """Return a whole number with its digits in groups of three."""
    return f"{round(count):,}".replace(",", "\u202f")


def size(count: float | None) -> str:
    """Return a number of bytes in binary units."""
    if count is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def moment(timestamp: float | None) -> str:
    """Return a time of the day where this runs, with the date and the zone."""
    if timestamp is None:
        return "–"
    return datetime.fromtimestamp(timestamp).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def headline(record: RunRecord, test: Test | None) -> list[Figure]:
    """Return the few figures that matter most."""
    shapes, summary = record.figures.shapes, record.summary or {}
    figures = list(test.figures[:1]) if test is not None else _summary_test(summary)
    figures.append(Figure("centres", grouped(record.n_centers), record.n_centers))
    for name, series in (("lambda", "lambda_"), ("gcv", "gcv")):
        values = record.figures.series.get(series) or [None]
        value = summary.get(name, values[-1])
        if isinstance(value, int | float):
            figures.append(Figure("λ" if name == "lambda" else "GCV", f"{value:.4g}", value))
        elif isinstance(value, list) and value:
            figures.append(Figure("λ, largest", f"{max(value):.4g}", max(value)))
    seconds = record.number("seconds") or record.figures.seconds
    if seconds is None and record.figures.series["seconds"]:
        seconds = record.figures.series["seconds"][-1]
    if seconds is not None:
        figures.append(Figure("training", duration(float(seconds)), seconds))
    if "n_rows" in shapes:
        figures.append(Figure("rows × features", f"{grouped(shapes['n_rows'])} × {grouped(shapes['n_features'])}"))
    return figures


def _summary_test(summary: Mapping[str, Any]) -> list[Figure]:
    test = summary.get("test")
    if not isinstance(test, Mapping):
        return []
    return [
        Figure(f"test {name}", _rate(value) if name == "error" else f"{value:.4g}", value)
        for name, value in test.items()
        if isinstance(value, int | float)
    ]


def _rate(value: float) -> str:
    return "–" if not math.isfinite(value) else f"{100 * value:.3g} %"


def advice(record: RunRecord) -> str | None:
    """Return what the reason why selection ended means."""
    reason = record.stop_reason
    return StopReason(reason).advice if reason in set(StopReason) else None


def job_tables(record: RunRecord) -> list[Table]:
    """Return what was asked for, and what decided the model."""
    tables = [
        Table(name, ("setting", "value"), [(key, plain(value)) for key, value in section.items()])
        for name, section in _sections(record.job)
        if section
    ]
    for name, section in (("data", "data as read"), ("software", "software")):
        facts = record.identity.get(name)
        if isinstance(facts, Mapping):
            tables.append(Table(section, ("fact", "value"), [(key, plain(value)) for key, value in facts.items()]))
    return tables


def _sections(job: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    loose = {name: value for name, value in job.items() if not isinstance(value, Mapping)}
    if loose:
        yield "job", loose
    for name, value in job.items():
        if isinstance(value, Mapping):
            yield name, value


def curves(record: RunRecord) -> list[Markup]:
    """Return the curves of the run, those that there are."""
    wanted = (
        ("gcv", "generalised cross validation", "n_centers", "centres"),
        ("lambda_", "λ", "n_centers", "centres"),
        ("residual_max", "largest residual", "n_centers", "centres"),
        ("validation", "held-out squared residual", "n_centers", "centres"),
        ("n_centers", "centres", "seconds", "seconds of training"),
    )
    drawn = (charts.curve(record, name, title, x, label) for name, title, x, label in wanted)
    return [chart for chart in drawn if chart is not None]


def test_part(evaluation: Evaluation, record: RunRecord) -> Test:
    """Return what is shown of the predictions on test rows."""
    score = evaluation.score
    part = _classes(score, evaluation) if isinstance(score, ClassificationScore) else _values(score, evaluation)
    recorded = (record.summary or {}).get("test")
    for name, value in score.headline().items():
        before = recorded.get(name) if isinstance(recorded, Mapping) else None
        if isinstance(before, int | float) and not math.isclose(before, value, rel_tol=1e-6, abs_tol=1e-12):
            part.note = (
                f"When the run ended, the test {name} was {before:.6g}; with the model and the test data that are "
                f"there now it is {value:.6g}."
            )
    return part


def _classes(score: ClassificationScore, evaluation: Evaluation) -> Test:
    figures = [Figure("test error", _rate(score.error), score.error), Figure("test rows", grouped(score.n_rows))]
    for name, value in (("log loss", score.log_loss), ("Brier score", score.brier)):
        if math.isfinite(value):
            figures.append(Figure(name, f"{value:.4f}", value))
    rows = [
        (str(item["label"]), grouped(item["rows"]), *(_fixed(item[name]) for name in ("precision", "recall", "f1")))
        for item in score.per_class()
    ]
    part = Test(figures, classes=Table("Classes", ("class", "rows", "precision", "recall", "F1"), rows))
    if len(score.labels) <= MOST_CLASSES:
        part.confusion = _confusion(score)
    else:
        part.confusions = _worst(score)
    reliability = evaluation.reliability
    if reliability is not None:
        labels = [str(label) for label in reliability.classes]
        two = len(labels) == 2
        top = 1 if two else None
        title = f"Reliability, class {labels[1]}" if two else "Reliability, likeliest class"
        part.reliability = charts.reliability_chart(reliability, top, title)
        part.calibration_error = reliability.calibration_error(top)
        part.bins = Table(
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


def _fixed(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "–"


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


def _worst(score: ClassificationScore) -> Table:
    wrong = score.confusion - np.diag(np.diag(score.confusion))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSIONS]
    pairs = [np.unravel_index(int(i), wrong.shape) for i in order]
    rows = [(str(score.labels[i]), str(score.labels[j]), grouped(wrong[i, j])) for i, j in pairs if wrong[i, j]]
    return Table("Most frequent confusions", ("true class", "predicted", "rows"), rows)


def _values(score: RegressionScore, evaluation: Evaluation) -> Test:
    figures = [
        Figure("test RMSE", f"{score.rmse:.4g}", score.rmse),
        Figure("test rows", grouped(score.n_rows)),
        Figure("mean absolute error", f"{score.mae:.4g}", score.mae),
        Figure("R²", _fixed(score.r2), score.r2),
    ]
    part = Test(figures)
    each = list(score.per_target())
    if len(each) > 1:
        rows = [
            (f"target {i}", f"{item['rmse']:.4g}", f"{item['mae']:.4g}", _fixed(item["r2"]))
            for i, item in enumerate(each)
        ]
        part.targets = Table("Targets, counted from 0", ("target", "RMSE", "mean absolute error", "R²"), rows)
    residuals = evaluation.residuals
    if residuals is not None:
        drawn = (
            charts.residual_chart(grid, "Residuals" if len(each) == 1 else f"Residuals of target {i}")
            for i, grid in enumerate(residuals.grids)
        )
        part.residuals = [chart for chart in drawn if chart is not None]
    return part


def center_part(model: Any, feature_names: Sequence[str] | None = None) -> Centers | None:
    """Return what is shown of a model's centres; None where it has none.

    Parameters
    ----------
    model : fitted estimator
        Any.
    feature_names : sequence of str, optional
        Those of the training data, where the model knows none.
    """
    centers = getattr(model, "centers_", None)
    if centers is None or not len(centers):
        return None
    names = getattr(model, "feature_names_in_", feature_names)
    names = None if names is None or len(names) != centers.shape[1] else [str(name) for name in names]
    values = np.asarray(centers, dtype=np.float64)
    m = len(values)
    side = image_side(values, names)
    if side is None:
        return _feature_table(values, names)
    part = Centers(
        f"The first {min(m, MOST_IMAGES)} of {m} centres in the order of their selection, {side} × {side} pixels each.",
        side=side,
    )
    low, high = float(values.min()), float(values.max())
    classes = model.predict(centers[:MOST_IMAGES]) if getattr(model, "classes_", None) is not None else None
    rows = getattr(model, "center_indices_", np.full(m, -1))
    for index in range(min(m, MOST_IMAGES)):
        label = "" if classes is None else str(classes[index])
        where = f", row {rows[index]}" if rows[index] >= 0 else ""
        said = f", predicted as {label}" if label else ""
        part.images.append(
            (image_address(values[index], side, low, high), f"centre {index + 1}{where}{said}", label or str(index + 1))
        )
    return part


def _feature_table(values: Any, names: Sequence[str] | None) -> Centers:
    m, d = values.shape
    part = Centers(
        f"How the {m} centres are spread along each feature: least value, quartiles, largest value.",
        left_out=max(0, d - MOST_FEATURES),
    )
    for index in range(min(d, MOST_FEATURES)):
        quartiles = np.quantile(values[:, index], [0.0, 0.25, 0.5, 0.75, 1.0]).tolist()
        name = f"feature {index}" if names is None else names[index]
        texts = [f"{value:.4g}" for value in quartiles]
        strip = charts.box_strip(quartiles, quartiles[0], quartiles[-1], f"{name}: {', '.join(texts)}")
        part.features.append((name, texts, strip))
    return part


def planned_part(record: RunRecord, planned: Mapping[str, float] | None) -> list[Planned]:
    """Return what was planned beside what was measured.

    Parameters
    ----------
    record : RunRecord
        The run.
    planned : mapping or None
        Planned rounds, exchanges, kernel columns and bytes read, where the plan could be made again.
    """
    rows = []
    peak = record.number("planned_peak_bytes")
    measured = max(record.number("peak_rss_worker") or 0.0, 0.0) or record.number("peak_rss_driver")
    if peak is not None and measured is not None:
        who = "largest worker" if record.number("peak_rss_worker") else "this process"
        rows.append(Planned(f"peak memory, {who}", size(peak), size(measured), measured / peak if peak else None))
    driver, used = record.number("planned_peak_driver"), record.number("peak_rss_driver")
    if driver and used and record.number("peak_rss_worker"):
        rows.append(Planned("peak memory, driver", size(driver), size(used), used / driver))
    figures: dict[str, float | None] = {
        "rounds": record.number("rounds"),
        "exchanges": record.number("exchanges") or float(record.figures.exchanges) or None,
        "kernel_columns": record.number("kernel_columns"),
        "bytes_read": record.number("bytes_read"),
    }
    for name, value in figures.items():
        most = None if planned is None else planned.get(name)
        if value is None and most is None:
            continue
        show = size if name.startswith("bytes") else grouped
        share = value / most if value is not None and most else None
        rows.append(
            Planned(
                name.replace("_", " "),
                "–" if most is None else show(most),
                "–" if value is None else show(value),
                share,
            )
        )
    return rows


def memory_terms(model: Any) -> list[tuple[str, str, float]]:
    """Return name, size and share of every planned buffer of the process that holds most rows, largest first."""
    plan = getattr(model, "plan_", None)
    if not isinstance(plan, Mapping):
        return []
    terms = {name: value for name, value in plan.items() if isinstance(value, int) and value > 0}
    largest = max(terms.values(), default=1)
    ordered = sorted(terms.items(), key=lambda item: -item[1])
    return [(name.replace("_", " "), size(value), value / largest) for name, value in ordered]


def phase_table(record: RunRecord) -> list[tuple[str, str, str, str, float, int]]:
    """Return name, exchanges, seconds, mean, share of the longest, and colour of every phase, longest first."""
    seconds, counts = record.figures.exchange_seconds, record.figures.exchange_counts
    coloured = charts.phases_of(record.exchanges)
    longest = max(seconds.values(), default=0.0) or 1.0
    return [
        (
            name,
            grouped(counts.get(name, 0)),
            _brief(taken),
            _brief(taken / max(1, counts.get(name, 0))),
            taken / longest,
            coloured.index(name) + 1 if name in coloured else 0,
        )
        for name, taken in sorted(seconds.items(), key=lambda item: -item[1])
    ]


def _brief(seconds: float) -> str:
    return duration(seconds) if seconds >= 0.95 else f"{1000 * seconds:.3g} ms"


def incident_rows(record: RunRecord) -> list[tuple[str, int, str, bool]]:
    """Return time, centres, text and severity of what befell the run."""
    begin = record.first or 0.0
    return [(duration(max(0.0, i.at - begin)), i.n_centers, i.text, i.severe) for i in record.incidents]


def run_facts(record: RunRecord) -> list[tuple[str, str]]:
    """Return when the run was, and what carried it."""
    figures, shapes = record.figures, record.figures.shapes
    facts = [("first event", moment(record.first)), ("last event", moment(record.last))]
    if record.away > 1.0:
        facts.append(("between processes", duration(record.away)))
    for name, label in (("workers", "workers at the start"), ("n_blocks", "blocks"), ("n_problems", "factor sets")):
        if name in shapes:
            facts.append((label, str(shapes[name])))
    for count, label in (
        (figures.resumed, "resumed"),
        (figures.replayed_blocks, "blocks rebuilt"),
        (figures.storage_retries, "reads tried again"),
        (record.incident_counts["WorkerLost"], "workers lost"),
    ):
        if count:
            facts.append((label, grouped(count)))
    facts.append(("directory", os.fspath(record.path)))
    return facts
