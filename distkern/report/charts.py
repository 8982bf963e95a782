"""The charts of a report: curves of a path, reliability, residuals, timeline, and the spread of features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ..monitoring.event_checks import finite
from .evaluation import Coverage, Reliability, ResidualGrid
from .formats import shortened
from .record import Exchange, Incident, RunRecord
from .svg import Axis, Chart, element, number, path

CURVE_POINTS = 500
"""Most points of a curve."""

LARGEST_DRAWN = 1e100
"""Largest number in a chart."""

SLICES = 90
"""Slices of time of the timeline."""

LARGEST_PHASES = 5
"""Most phases with their own colour."""

_LEVELS = 7
_UNITS = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


def curve(
    record: RunRecord, name: str, title: str, x_name: str = "n_centers", x_label: str = "centres"
) -> Markup | None:
    """Draw one series of the run against another; None with fewer than two points.

    Parameters
    ----------
    record : RunRecord
        The run.
    name : str
        Series along the y axis.
    title : str
        Name of the series in the chart.
    x_name : str, default "n_centers"
        Series along the x axis.
    x_label : str, default "centres"
        Its name in the chart.
    """
    pairs = finite_pairs(record.figures.series.get(x_name, []), record.figures.series.get(name, []))
    if len(pairs) < 2:
        return None
    first, last = pairs[0], pairs[-1]
    pairs = thinned(pairs)
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    log = name != "n_centers" and min(ys) > 0 and max(ys) / min(ys) > 20
    description = (
        f"From {first[1]:.4g} at {first[0]:.4g} to {last[1]:.4g} at {last[0]:.4g} {x_label}; "
        f"lowest {min(ys):.4g}, highest {max(ys):.4g}."
    )
    chart = Chart(title, description, x_label, title)
    x = Axis(0.0 if x_name == "n_centers" else min(0.0, xs[0]), xs[-1] * 1.02 or 1.0, chart.left, chart.right)
    y = Axis.around(ys, chart.bottom, chart.top, log=log, zero=name == "n_centers")
    chart.axes(x, y)
    for place in _marked(record, x_name):
        chart.add(element("line", class_="mark", x1=x(place), x2=x(place), y1=chart.top, y2=chart.bottom))
    kept = record.n_centers
    if x_name == "n_centers" and record.stop_reason and 0 < kept < last[0]:
        at = x(kept)
        chart.add(
            element("line", class_="kept", x1=at, x2=at, y1=chart.top, y2=chart.bottom),
            element("text", f"kept {kept}", class_="tick", x=at - 4, y=chart.top + 9, text_anchor="end"),
        )
    chart.add(element("path", class_="line c1", d=path([(x(a), y(b)) for a, b in pairs])))
    chart.add(element("circle", class_="dot c1", cx=x(last[0]), cy=y(last[1]), r=2.6))
    return chart.render()


def finite_pairs(xs: Sequence[Any], ys: Sequence[Any]) -> list[tuple[float, float]]:
    """Return the pairs of finite numbers; others are skipped."""
    return [
        (float(x), float(y))
        for x, y in zip(xs, ys, strict=False)
        if finite(x, LARGEST_DRAWN) is not None and finite(y, LARGEST_DRAWN) is not None
    ]


def thinned(pairs: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return about `CURVE_POINTS` of the pairs, among them the lowest and the highest of each piece."""
    if len(pairs) <= CURVE_POINTS:
        return pairs
    size = -(-2 * len(pairs) // CURVE_POINTS)
    kept: list[tuple[float, float]] = []
    for start in range(0, len(pairs), size):
        piece = list(enumerate(pairs[start : start + size]))
        ends = {min(piece, key=lambda item: item[1][1])[0], max(piece, key=lambda item: item[1][1])[0]}
        kept += [piece[i][1] for i in sorted(ends)]
    return [pairs[0], *kept, pairs[-1]]


def _marked(record: RunRecord, x_name: str) -> list[float]:
    """Return the places on the path where workers failed and the run was resumed."""
    if x_name != "n_centers":
        return []
    kinds = ("WorkerLost", "RunResumed")
    return sorted({float(incident.n_centers) for incident in record.incidents if incident.kind in kinds})


def reliability_chart(reliability: Reliability, index: int, title: str) -> Markup:
    """Draw the fraction of right predictions against the probability, above the rows of each bin."""
    predicted, right, counts = reliability.curve(index)
    error = reliability.calibration_error(index)
    points_text = ", ".join(f"{p:.2f}: {r:.2f}" for p, r in zip(predicted, right, strict=True))
    chart = Chart(
        title,
        f"Expected calibration error {error:.3f}. Predicted probability and fraction that is right: {points_text}.",
        "predicted probability",
        "fraction that is right",
        size=(300.0, 300.0),
        left=40.0,
    )
    floor = chart.bottom
    chart.bottom -= 44
    x, y = Axis(0.0, 1.0, chart.left, chart.right), Axis(0.0, 1.0, chart.bottom, chart.top)
    ticks = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    chart.axes(x, y, x_ticks=[])
    chart.add(element("line", class_="diagonal", x1=x(0), y1=y(0), x2=x(1), y2=y(1)))
    points = [(x(float(p)), y(float(r))) for p, r in zip(predicted, right, strict=True)]
    if len(points) > 1:
        chart.add(element("path", class_="line c1", d=path(points)))
    all_counts = reliability.counts[index]
    for (a, b), p, r, n in zip(points, predicted, right, counts, strict=True):
        tip = element("title", f"predicted {p:.3f}, right {r:.3f}, {int(n)} rows")
        chart.add(element("circle", tip, class_="dot c1", cx=a, cy=b, r=3.2))
    tallest, edges = float(all_counts.max()) or 1.0, reliability.edges
    for n, low, high in zip(all_counts, edges[:-1], edges[1:], strict=True):
        height = 34.0 * math.sqrt(float(n) / tallest)
        tip = element("title", f"{int(n)} rows from {low:.1f} to {high:.1f}")
        bar = {"x": x(float(low)) + 1, "y": floor - height, "width": x(float(high)) - x(float(low)) - 2}
        chart.add(element("rect", tip, class_="bar c1", height=height, **bar))
    for value in ticks:
        chart.add(element("text", number(value), class_="tick", x=x(value), y=floor + 14, text_anchor="middle"))
    chart.add(element("line", class_="axis", x1=chart.left, x2=chart.right, y1=floor, y2=floor))
    return chart.render()


def coverage_chart(coverage: Coverage) -> Markup:
    """Draw the share of targets within intervals against the coverage that was asked for."""
    pairs = list(zip(coverage.levels, map(float, coverage.shares()), strict=True))
    described = ", ".join(f"{level:g}: {share:.3f}" for level, share in pairs)
    chart = Chart(
        "Coverage of intervals",
        f"Coverage that was asked for, and share of targets within the intervals: {described}.",
        "coverage asked for",
        "share within",
        size=(300.0, 300.0),
        left=40.0,
    )
    x, y = Axis(0.0, 1.0, chart.left, chart.right), Axis(0.0, 1.0, chart.bottom, chart.top)
    chart.axes(x, y)
    chart.add(element("line", class_="diagonal", x1=x(0), y1=y(0), x2=x(1), y2=y(1)))
    chart.add(element("path", class_="line c1", d=path([(x(level), y(share)) for level, share in pairs])))
    for level, share in pairs:
        tip = element("title", f"asked for {level:g}, covered {share:.3f}")
        chart.add(element("circle", tip, class_="dot c1", cx=x(level), cy=y(share), r=3.2))
    return chart.render()


def residual_chart(grid: ResidualGrid, title: str) -> Markup | None:
    """Draw residuals against predictions: a point for each row, or cells, darker with more rows."""
    if grid.points is not None:
        if not len(grid.points):
            return None
        what = f"{len(grid.points)} rows, a point for each"
        xs, ys = grid.points.T
    else:
        assert grid.counts is not None
        inside = int(grid.counts.sum())
        what = f"{inside} rows counted in cells, {grid.outside} beyond the axes"
        xs, ys = _occupied(grid.x_edges, grid.counts.sum(axis=1)), _occupied(grid.y_edges, grid.counts.sum(axis=0))
    description = (
        f"{what}. Predictions from {xs.min():.4g} to {xs.max():.4g}, residuals from {ys.min():.4g} to {ys.max():.4g}."
    )
    chart = Chart(title, description, "predicted", "truth less prediction", size=(420.0, 270.0))
    x = Axis.around([float(xs.min()), float(xs.max())], chart.left, chart.right)
    y = Axis.around([float(ys.min()), float(ys.max()), 0.0], chart.bottom, chart.top)
    chart.axes(x, y)
    if grid.points is not None:
        chart.add(*(element("circle", class_="point", cx=x(float(a)), cy=y(float(b)), r=1.8) for a, b in grid.points))
    else:
        chart.add(*_cells(grid, x, y))
    chart.add(element("line", class_="zero", x1=chart.left, x2=chart.right, y1=y(0.0), y2=y(0.0)))
    return chart.render()


def _occupied(edges: NDArray[np.float64], counts: NDArray[Any]) -> NDArray[np.float64]:
    some = np.flatnonzero(counts)
    return edges[[some[0], some[-1] + 1]] if len(some) else edges[[0, -1]]


def _cells(grid: ResidualGrid, x: Axis, y: Axis) -> list[Markup]:
    """Return a path for each level of darkness."""
    assert grid.counts is not None
    levels = np.zeros(grid.counts.shape, dtype=int)
    some = grid.counts > 0
    share = np.log1p(grid.counts[some]) / np.log1p(grid.counts.max())
    levels[some] = np.ceil(share * _LEVELS).astype(int).clip(1, _LEVELS)
    shapes = []
    for level in range(1, _LEVELS + 1):
        pieces = []
        for i, j in np.argwhere(levels == level):
            left, right = x(float(grid.x_edges[i])), x(float(grid.x_edges[i + 1]))
            low, high = y(float(grid.y_edges[j])), y(float(grid.y_edges[j + 1]))
            pieces.append(f"M{number(left)} {number(high)}H{number(right)}V{number(low)}H{number(left)}Z")
        if pieces:
            shapes.append(element("path", class_="cell", d="".join(pieces), fill_opacity=0.12 + 0.88 * level / _LEVELS))
    return shapes


def phases_of(exchanges: Sequence[Exchange]) -> list[str]:
    """Return the names of the messages with the longest total time, longest first."""
    seconds: dict[str, float] = {}
    for exchange in exchanges:
        seconds[exchange.name] = seconds.get(exchange.name, 0.0) + exchange.seconds
    return sorted(seconds, key=lambda name: -seconds[name])[:LARGEST_PHASES]


def timeline(record: RunRecord) -> Markup | None:
    """Draw the exchanges that the driver waited for during the run, and its incidents above them."""
    if record.first is None or record.last is None or not record.exchanges:
        return None
    begin = min(record.first, min(e.end - e.seconds for e in record.exchanges))
    span = max(record.last - record.away - begin, 1e-3)
    unit, size = next(((u, s) for u, s in _UNITS if span >= 2 * s), _UNITS[-1])
    phases = phases_of(record.exchanges)
    shares = _shares(record.exchanges, phases, begin, span)
    busy = float(np.mean(shares.sum(axis=0)))
    description = (
        f"{span / size:.3g} {unit} from the first event to the last, {len(record.exchanges)} exchanges, in which the "
        f"driver waited {100 * busy:.0f} % of the time; {len(record.incidents)} incidents."
    )
    chart = Chart("Timeline", description, unit, "share of time", size=(900.0, 230.0), left=48.0)
    chart.top += 16
    x, y = Axis(0.0, span / size, chart.left, chart.right), Axis(0.0, 1.0, chart.bottom, chart.top)
    chart.axes(x, y, count=4)
    width = (chart.right - chart.left) / SLICES
    below = np.zeros(SLICES)
    for row, share in enumerate(shares):
        style = f"phase p{row + 1}" if row < len(phases) else "phase p0"
        pieces = []
        for i in np.flatnonzero(share > 1e-4):
            left = chart.left + i * width
            top, bottom = y(float(below[i] + share[i])), y(float(below[i]))
            pieces.append(f"M{number(left)} {number(bottom)}V{number(top)}h{number(width * 0.94)}V{number(bottom)}Z")
        name = shortened(phases[row]) if row < len(phases) else "others"
        if pieces:
            chart.add(element("path", element("title", name), class_=style, d="".join(pieces)))
        below += share
    chart.add(*_flags(record.incidents, chart, x, begin, size))
    return chart.render(wide=True)


def _shares(exchanges: Sequence[Exchange], phases: list[str], begin: float, span: float) -> NDArray[np.float64]:
    """Return the share of each phase in each slice of time; the last row is the other phases."""
    shares = np.zeros((len(phases) + 1, SLICES))
    width = span / SLICES
    rows = {name: row for row, name in enumerate(phases)}
    for exchange in exchanges:
        row = rows.get(exchange.name, len(phases))
        low, high = (exchange.end - exchange.seconds - begin) / width, (exchange.end - begin) / width
        for i in range(max(0, int(low)), min(SLICES - 1, int(high)) + 1):
            shares[row, i] += max(0.0, min(high, i + 1) - max(low, i))
    # Exchanges of two driver threads may overlap, and a clock may be set back.
    total: NDArray[np.float64] = np.maximum(shares.sum(axis=0), 1.0)
    return shares / total


def _flags(incidents: Sequence[Incident], chart: Chart, x: Axis, begin: float, size: float) -> list[Markup]:
    shapes = []
    for incident in incidents:
        at = x(min(max((incident.at - begin) / size, x.low), x.high))
        style = "flag bad" if incident.severe else "flag"
        top = chart.top - 12
        tip = element("title", f"{(incident.at - begin) / size:.3g}: {shortened(incident.text)}")
        shapes.append(
            element(
                "g",
                tip,
                element("line", x1=at, x2=at, y1=top, y2=chart.bottom),
                element("circle", cx=at, cy=top, r=4.0),
                class_=style,
            )
        )
    return shapes


def box_strip(quartiles: Sequence[float], low: float, high: float, label: str) -> Markup:
    """Draw least value, quartiles and largest value of a feature between two limits, for a cell of a table."""
    width, height = 150.0, 16.0
    axis = Axis(low, high, 3.0, width - 3) if high > low else Axis(low - 1, low + 1, 3.0, width - 3)
    a, b, c, d, e = (axis(float(value)) for value in quartiles)
    return element(
        "svg",
        element("title", label),
        element("line", class_="axis", x1=a, x2=e, y1=height / 2, y2=height / 2),
        element("rect", class_="bar c1", x=b, y=3.0, width=max(d - b, 1.0), height=height - 6),
        element("line", class_="median", x1=c, x2=c, y1=2.0, y2=height - 2),
        class_="strip",
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_label=label,
    )
