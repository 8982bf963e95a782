"""The parts of a report as plain values, tables and charts; `predictions` has the part on test data."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup

from ..monitoring.event_checks import finite
from ..selection.stopping import StopReason
from ..text import byte_size, duration, shown
from . import charts
from .formats import MOST_SETTINGS, KeyNumber, ReportTable, grouped, moment, rate, shortened
from .images import image_address, image_side
from .predictions import TestPart
from .record import RunRecord

MOST_IMAGES = 60
"""Most centres that are shown as images."""

MOST_PHASES = 30
"""Most kinds of exchanges in a table."""

MOST_PARTS = 200
"""Most parts of appended rows in a table."""

MOST_FEATURES = 60
"""Most features in the table of centres."""


@dataclass
class CenterPart:
    """The part of a report on centres: images, or a table of features."""

    text: str
    images: list[tuple[str, str, str]] = field(default_factory=list)
    """Address, alternative text and caption of each image."""
    side: int = 0
    features: list[tuple[str, list[str], Markup]] = field(default_factory=list)
    """Name of each feature; its least value, quartiles and largest value; their chart."""
    left_out: int = 0


@dataclass(frozen=True)
class Planned:
    """A planned quantity, and its measured value."""

    name: str
    planned: str
    measured: str
    share: float | None
    """Measured value divided by the planned one."""


def headline(record: RunRecord, test: TestPart | None) -> list[KeyNumber]:
    """Return the key figures."""
    shapes, summary = record.figures.shapes, record.summary or {}
    figures = list(test.numbers[:1]) if test is not None else _summary_test(summary)
    figures.append(KeyNumber("centres", grouped(record.n_centers), record.n_centers))
    for name, series in (("lambda", "lambda_"), ("gcv", "gcv")):
        value = summary.get(name, record.figures.latest(series))
        several = [item for item in value if finite(item, math.inf) is not None] if isinstance(value, list) else []
        number = max(several) if several else finite(value, math.inf)
        if number is not None:
            label = "GCV" if name == "gcv" else "λ, largest" if several else "λ"
            figures.append(KeyNumber(label, f"{number:.4g}", number))
    seconds = record.number("seconds") or record.figures.training_seconds
    if seconds is not None:
        figures.append(KeyNumber("training", duration(float(seconds)), seconds))
    if {"n_rows", "n_features"} <= set(shapes):
        figures.append(KeyNumber("rows × features", f"{grouped(shapes['n_rows'])} × {grouped(shapes['n_features'])}"))
    selecting = finite(summary.get("selection_rows"))
    if selecting is not None and selecting != shapes.get("n_rows"):
        figures.append(KeyNumber("rows for selection", grouped(int(selecting)), selecting))
    if summary.get("loss", "squared") != "squared":
        figures.append(KeyNumber("loss", shortened(str(summary["loss"]))))
    if summary.get("solver") == "conjugate-gradients":
        figures.append(KeyNumber("weights by", "conjugate gradients"))
    return figures


def _summary_test(summary: Mapping[str, Any]) -> list[KeyNumber]:
    test = summary.get("test")
    if not isinstance(test, Mapping):
        return []
    return [
        KeyNumber(f"test {shortened(str(name))}", rate(value) if name == "error" else f"{value:.4g}", value)
        for name, value in list(test.items())[:2]
        if finite(value) is not None
    ]


def advice(record: RunRecord) -> str | None:
    """Return the advice of the stop reason."""
    reason = record.stop_reason
    return StopReason(reason).advice if reason in set(StopReason) else None


def model_note(record: RunRecord, model: Any) -> str | None:
    """Return a note where the number of centres shows that the model is not that of the run."""
    found = getattr(model, "n_centers_", None)
    if record.state != "finished" or found is None or found == record.n_centers:
        return None
    return (
        f"The run ended with {record.n_centers} centres. The present model has {found}: it was shortened, or another "
        "training wrote it. Predictions and centres below are those of the present model."
    )


def job_tables(record: RunRecord) -> list[ReportTable]:
    """Return the settings of the job, and the data and software that decided the model."""
    tables = [
        ReportTable(shortened(str(name)), ("setting", "value"), _settings(section))
        for name, section in list(_sections(record.job))[:20]
        if section
    ]
    for name, section in (("data", "data as read"), ("software", "software")):
        facts = record.identity.get(name)
        if isinstance(facts, Mapping):
            tables.append(ReportTable(section, ("fact", "value"), _settings(facts)))
    return tables


def _settings(section: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(shortened(str(key)), shortened(shown(value))) for key, value in list(section.items())[:MOST_SETTINGS]]


def _sections(job: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    loose = {name: value for name, value in job.items() if not isinstance(value, Mapping)}
    if loose:
        yield "job", loose
    for name, value in job.items():
        if isinstance(value, Mapping):
            yield name, value


def curves(record: RunRecord) -> list[Markup]:
    """Return the curves of the run that have points."""
    wanted = (
        ("gcv", "generalised cross validation", "n_centers", "centres"),
        ("lambda_", "λ", "n_centers", "centres"),
        ("residual_max", "largest residual", "n_centers", "centres"),
        ("validation", "held-out squared residual", "n_centers", "centres"),
        ("n_centers", "centres", "seconds", "seconds of training"),
    )
    drawn = (charts.curve(record, name, title, x, label) for name, title, x, label in wanted)
    return [chart for chart in drawn if chart is not None]


def center_part(model: Any, feature_names: Sequence[str] | None = None) -> CenterPart | None:
    """Return the part on centres; None without. `feature_names` (optional) are for a model without feature names."""
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
    part = CenterPart(
        f"The first {min(m, MOST_IMAGES)} of {m} centres in the order of their selection, {side} × {side} pixels each.",
        side=side,
    )
    low, high = float(values.min()), float(values.max())
    classes = model.predict(centers[:MOST_IMAGES]) if getattr(model, "classes_", None) is not None else None
    rows = getattr(model, "center_indices_", np.full(m, -1))
    for index in range(min(m, MOST_IMAGES)):
        label = "" if classes is None else str(classes[index])
        where = f", row {rows[index]}" if rows[index] >= 0 else ""
        prediction = f", predicted as {label}" if label else ""
        part.images.append(
            (
                image_address(values[index], side, low, high),
                f"centre {index + 1}{where}{prediction}",
                label or str(index + 1),
            )
        )
    return part


def _feature_table(values: Any, names: Sequence[str] | None) -> CenterPart:
    m, d = values.shape
    part = CenterPart(
        f"Distribution of the {m} centres along each feature: least value, quartiles, largest value.",
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
    """Return planned and measured quantities; `planned` is None where the job could not be planned again."""
    number, most = record.number, ({} if planned is None else planned).get
    worker, driver = number("peak_rss_worker"), number("peak_rss_driver")
    exchanges = number("exchanges") or record.figures.exchanges or None
    who = "largest worker" if worker else "this process"
    rows = [
        _planned(f"peak memory, {who}", number("planned_peak_bytes"), worker or driver, byte_size),
        *([_planned("peak memory, driver", number("planned_peak_driver"), driver, byte_size)] if worker else []),
        _planned("rounds", most("rounds"), number("rounds"), grouped),
        _planned("exchanges", most("exchanges"), exchanges, grouped),
        _planned("kernel columns", most("kernel_columns"), number("kernel_columns"), grouped),
        _planned("bytes read", most("bytes_read"), number("bytes_read"), byte_size),
    ]
    return [row for row in rows if {row.planned, row.measured} != {_UNKNOWN}]


_UNKNOWN = "–"


def _planned(name: str, most: float | None, value: float | None, show: Callable[[float], str]) -> Planned:
    planned, measured = (_UNKNOWN if count is None else show(count) for count in (most, value))
    return Planned(name, planned, measured, value / most if value is not None and most else None)


def memory_terms(model: Any) -> list[tuple[str, str, float]]:
    """Return name, size and share of each planned buffer of the process with most rows, largest first."""
    plan = getattr(model, "plan_", None)
    if not isinstance(plan, Mapping):
        return []
    terms = {name: value for name, value in plan.items() if isinstance(value, int) and value > 0}
    largest = max(terms.values(), default=1)
    ordered = sorted(terms.items(), key=lambda item: -item[1])
    return [(name.replace("_", " "), byte_size(value), value / largest) for name, value in ordered]


def appended_part(record: RunRecord) -> ReportTable | None:
    """Return the errors on rows that were appended, before and after; None where there are none."""
    found = (record.summary or {}).get("appended")
    parts = [part for part in found if isinstance(part, Mapping)] if isinstance(found, list) else []
    rows = []
    for number, part in enumerate(parts[:MOST_PARTS], start=1):
        show = rate if part.get("score") == "error" else "{:.4g}".format
        values = [finite(part.get(name)) for name in ("expected", "before", "after")]
        count = finite(part.get("n_rows"))
        errors = [_UNKNOWN if value is None else show(value) for value in values]
        rows.append((number, _UNKNOWN if count is None else grouped(count), shortened(str(part.get("score"))), *errors))
    header = ("part", "rows", "error", "expected", "of the model before", "of the model after")
    return ReportTable("Rows that came later", header, rows) if rows else None


def phase_table(record: RunRecord) -> list[tuple[str, str, str, str, float, int]]:
    """Return name, exchanges, seconds, mean, share of the longest, and colour of each phase, longest first."""
    seconds, counts = record.figures.exchange_seconds, record.figures.exchange_counts
    coloured = charts.phases_of(record.exchanges)
    longest = max(seconds.values(), default=0.0) or 1.0
    return [
        (
            shortened(name),
            grouped(counts.get(name, 0)),
            duration(taken),
            duration(taken / max(1, counts.get(name, 0))),
            taken / longest,
            coloured.index(name) + 1 if name in coloured else 0,
        )
        for name, taken in sorted(seconds.items(), key=lambda item: -item[1])[:MOST_PHASES]
    ]


def incident_rows(record: RunRecord) -> list[tuple[str, int, str, bool]]:
    """Return time, centres, text and severity of the incidents."""
    begin = record.first or 0.0
    return [(duration(max(0.0, i.at - begin)), i.n_centers, shortened(i.text), i.severe) for i in record.incidents]


def run_facts(record: RunRecord) -> list[tuple[str, str]]:
    """Return times, workers, counts of incidents and directory of the run."""
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
        (figures.storage_retries, "repeated reads"),
        (record.incident_counts["WorkerLost"], "workers lost"),
    ):
        if count:
            facts.append((label, grouped(count)))
    facts.append(("directory", os.fspath(record.path)))
    return facts
