"""The part of a report on a learnt metric: importances of the features, and the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ..text import counted
from .formats import ReportTable, shortened
from .record import RunRecord
from .svg import element, number

MOST_BARS = 20
"""Most features in the chart of importances."""

LONGEST_FEATURE_NAME = 24
"""Most characters of a feature name in the chart."""

_ROW, _LEFT, _BAR, _RIGHT = 20.0, 150.0, 160.0, 50.0
"""Height of a row of the chart, and widths of its names, bars and numbers."""


@dataclass
class MetricPart:
    """The part of a report on a learnt metric."""

    text: str
    rounds: ReportTable
    importances: Markup | None = None
    """Chart of the leading features; None while the rounds are made."""
    left_out: int = 0
    """Features that are not in the chart."""


def metric_part(record: RunRecord, model: Any, feature_names: Sequence[str] | None = None) -> MetricPart | None:
    """Return the part on a learnt metric; None where none was learnt. Names of the model precede `feature_names`."""
    found = record.metric
    rounds = record.metric_rounds if found is None else found.rounds
    if not rounds:
        return None
    table = ReportTable(
        "Rounds of the metric",
        ("", "kernel", "map", "round", "width factor", "error on held-out rows", "kept"),
        [
            (
                index + 1,
                shortened(row["kernel"]),
                shortened(row["shape"]),
                row["round"],
                f"{row['factor']:.4g}",
                f"{row['error']:.4g}",
                "kept" if row.get("kept") is True else "",
            )
            for index, row in enumerate(rounds)
        ],
    )
    if found is None:
        return MetricPart(f"The rounds are not finished: {counted(len(rounds), 'round')} so far.", table)
    shares = found.importances.tolist()
    names = getattr(model, "feature_names_in_", feature_names)
    names = None if names is None or len(names) != len(shares) else [str(name) for name in names]
    schema = getattr(model, "table_schema_", None)
    if schema is not None and schema.n_encoded == len(shares):
        sums = schema.summed(found.importances)
        names, shares = list(sums), list(sums.values())
    ordered = sorted(range(len(shares)), key=lambda index: -shares[index])[:MOST_BARS]
    bars = [(f"feature {index}" if names is None else names[index], shares[index]) for index in ordered]
    space = found.map
    n_features = len(found.importances)
    if space is None:
        what = "no map had a lower error than the standardised features"
    elif space.diagonal:
        what = "a factor for each standardised feature"
    else:
        what = f"a matrix, from {counted(n_features, 'standardised feature')} to {counted(space.width, 'direction')}"
    mapped = found.standardized.arcsinh
    if mapped is not None:
        what += f", after arcsinh of {counted(len(mapped.columns), 'column')}"
    text = f"{counted(len(rounds), 'round')} on a sample of the rows. Kernel: {found.kernel.name}. Map: {what}."
    return MetricPart(shortened(text), table, _bar_chart(bars), len(shares) - len(bars))


def _bar_chart(bars: Sequence[tuple[str, float]]) -> Markup:
    """Draw a bar for each feature: its share of the mean squared gradient."""
    longest = max(share for _, share in bars) or 1.0
    width, height = _LEFT + _BAR + _RIGHT, _ROW * len(bars)
    shapes = []
    for row, (name, share) in enumerate(bars):
        top = row * _ROW
        cut = name if len(name) <= LONGEST_FEATURE_NAME else f"{name[: LONGEST_FEATURE_NAME - 1]}…"
        shapes += [
            element(
                "text",
                element("title", shortened(name)),
                cut,
                class_="label",
                x=_LEFT - 8,
                y=top + 14,
                text_anchor="end",
            ),
            element("rect", class_="share c1", x=_LEFT, y=top + 3, width=_BAR * share / longest, height=_ROW - 6),
            element("text", f"{100 * share:.1f} %", x=_LEFT + _BAR * share / longest + 5, y=top + 14),
        ]
    title = "Importances of the features"
    description = "; ".join(f"{shortened(name)} {100 * share:.1f} %" for name, share in bars)
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *shapes,
        class_="chart",
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_label=f"{title}. {description}",
    )
