"""The page ``/distkern`` of dask's dashboard: runs side by side, with curves, and bars of their time and memory.

It runs in the scheduler's process and is the only module that imports bokeh. A session draws the changes of the board's
runs twice a second. The texts of the page are in `page_text`, the board in `scheduler_plugin`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bokeh.layouts import column, row
from bokeh.models import (
    AdaptiveTicker,
    CheckboxButtonGroup,
    ColumnDataSource,
    CustomJSTickFormatter,
    Div,
    FactorRange,
    HoverTool,
    NumeralTickFormatter,
)
from bokeh.plotting import figure

from .colours import PHASE_COLOURS, TASK_COLOURS
from .page_text import OVERVIEW_STYLE, incidents, overview, run_names, short_names, shown_phase

if TYPE_CHECKING:
    from .scheduler_plugin import RunBoard
    from .shown_run import ShownRun

ROUTE = "/distkern"

REFRESH_MILLISECONDS = 500

RUN_COLOURS = ("#3b6fb6", "#e07b39", "#3f9b6c", "#b0497f", "#7a5cc0", "#9a7d0a", "#c0392b", "#2c7a7b")

MOST_POINTS = 800
"""Most points of a curve; longer paths are thinned out."""

MOST_WORKERS = 12
"""Most workers of a run whose memory is drawn."""

FIRST_SHOWN = 2
"""Most ended runs that a new session shows beside those that have not ended."""

CURVES = (
    ("gcv", "GCV", "log"),
    ("lambda_", "lambda", "log"),
    ("residual_max", "largest residual", "log"),
    ("validation", "validation error", "log"),
    ("seconds", "seconds", "linear"),
)
"""Field of a round, title, and scale of the axis."""

CURVE = ("x", "y", "colour", "run")
MARK = ("x", "y", "what")
BARS = ("run", "what", "colour", "left", "right", "seconds", "share")
"""Columns of what is drawn."""

MARKS = {
    "WorkerLost": ("x", "#7b241c", "worker lost"),
    "BlocksReplayed": ("circle", "#9d2c00", "blocks replayed"),
    "StorageRetried": ("triangle", "#b7950b", "reads retried"),
    "RunResumed": ("diamond", "#2471a3", "resumed"),
}
"""Incident to shape, colour and name."""

_BYTES = """
const units = ["B", "KiB", "MiB", "GiB", "TiB"];
let size = tick, unit = 0;
while (Math.abs(size) >= 1024 && unit < units.length - 1) { size /= 1024; unit += 1; }
return size.toFixed(size < 10 && unit ? 1 : 0) + " " + units[unit];
"""


def draw(board: RunBoard, extra: dict[str, Any], doc: Any) -> None:
    """Fill a document for one session.

    Parameters
    ----------
    board : RunBoard
        The runs.
    extra : dict
        Variables of dask's templates: the pages of the navigation bar.
    doc : bokeh.document.Document
        An empty document, to fill.
    """
    page = Page(board)
    page.update()
    doc.title = "Dask: distkern"
    doc.add_root(page.root)
    try:
        from distributed.dashboard.components.scheduler import BOKEH_THEME, env

        template = env.get_template("simple.html")
    except Exception:  # the page works without dask's frame
        template = None
    if template is not None:
        doc.template, doc.theme = template, BOKEH_THEME
        doc.template_variables.update(extra)
    doc.add_periodic_callback(page.update, REFRESH_MILLISECONDS)


class Page:
    """The page of one session.

    Parameters
    ----------
    board : RunBoard
        The runs.
    """

    def __init__(self, board: RunBoard) -> None:
        self._board = board
        self._drawn: tuple[Any, ...] = ()
        self._listed: list[str] = []
        self._chosen: set[str] = set()
        self._colours: dict[str, str] = {}
        self._palette = itertools.cycle(RUN_COLOURS)
        self._overview = Div(sizing_mode="stretch_width", stylesheets=[OVERVIEW_STYLE])
        self._incidents = Div(sizing_mode="stretch_width", stylesheets=[OVERVIEW_STYLE])
        self._choice = CheckboxButtonGroup(labels=[], active=[], margin=(4, 12, 4, 12))
        self._choice.on_change("active", self._choose)
        self._curves = {name: _Curve(title, scale) for name, title, scale in CURVES}
        self._time = _Bars("where the threads' time goes", PHASE_COLOURS, share=True)
        self._messages = _Bars(
            "seconds in exchanges, by message (colours of the task stream)", TASK_COLOURS, share=False
        )
        self._memory = _Memory()
        self._laid_out: list[list[Any]] = []
        self.root = column(self._overview, sizing_mode="stretch_width", margin=(0, 8, 8, 8))

    def update(self) -> None:
        """Redraw the changed parts; times of runs that have not ended change every time."""
        runs = list(self._board.runs.values())
        self._list(runs)
        shown = [run for run in runs if run.key in self._chosen]
        names = run_names(runs)
        self._overview.text = overview(runs, names, self._colours, self._board.missing)
        state = tuple((run.key, run.changed) for run in shown)
        if state == self._drawn:
            return
        self._drawn, short = state, short_names(names)
        for name, curve in self._curves.items():
            curve.draw(name, [(run, short[run.key], self._colours[run.key]) for run in shown])
        self._time.draw([(short[run.key], run.figures.busy) for run in shown])
        self._messages.draw([(short[run.key], run.figures.exchange_seconds) for run in shown])
        self._memory.draw([(short[run.key], run.figures.memory) for run in shown])
        self._incidents.text = incidents(shown, names, self._colours)
        self._lay_out()

    def _lay_out(self) -> None:
        """Put the plots with data below the overview."""
        first, second = ("gcv", "lambda_"), ("residual_max", "validation", "seconds")
        rows = [
            [self._choice] if len(self._listed) > 1 else [],
            *([self._curves[name].plot for name in names if self._curves[name].any] for names in (first, second)),
            [bars.plot for bars in (self._time, self._messages) if bars.any],
            [self._memory.plot] if self._memory.any else [],
            [self._incidents] if self._incidents.text else [],
        ]
        if rows != self._laid_out:
            self._laid_out = rows
            self.root.children = [
                self._overview,
                *(row(*plots, sizing_mode="stretch_width") for plots in rows if plots),
            ]

    def _list(self, runs: Sequence[ShownRun]) -> None:
        """List the runs for choice; new runs are chosen."""
        keys = [run.key for run in runs]
        if keys == self._listed:
            return
        fresh = [run for run in runs if run.key not in self._listed]
        if not self._listed:
            going_on = {run.key for run in runs if run.figures.state != "done"}
            fresh = [run for run in runs if run.key in going_on | set(keys[-FIRST_SHOWN:])]
        for run in runs:
            if run.key not in self._colours:
                self._colours[run.key] = next(self._palette)
        self._chosen = (self._chosen | {run.key for run in fresh}) & set(keys)
        self._listed = keys
        names = short_names(run_names(runs))
        self._choice.labels = [names[key] for key in keys]
        self._choice.active = [number for number, key in enumerate(keys) if key in self._chosen]

    def _choose(self, attribute: str, before: Any, after: list[int]) -> None:
        del attribute, before
        self._chosen = {self._listed[number] for number in after if number < len(self._listed)}
        self.update()


class _Curve:
    """One field of the rounds of every run, against the number of centres."""

    def __init__(self, title: str, scale: str) -> None:
        self._scale = scale
        self.any = False
        self.plot = figure(
            title=title,
            x_axis_label="centres",
            y_axis_type=scale,
            height=270,
            min_width=260,
            sizing_mode="stretch_width",
            tools="pan,wheel_zoom,box_zoom,reset,save",
            active_drag="box_zoom",
        )
        _plain(self.plot)
        self.plot.yaxis.ticker.desired_num_ticks = 4
        self._lines, self._points = ColumnDataSource(_table(CURVE, [])), ColumnDataSource(_table(CURVE, []))
        self.plot.multi_line("x", "y", source=self._lines, color="colour", line_width=2, legend_field="run")
        points = self.plot.scatter("x", "y", source=self._points, color="colour", size=5, alpha=0.0, hover_alpha=1.0)
        self.plot.add_tools(
            HoverTool(renderers=[points], tooltips=[("run", "@run"), ("centres", "@x"), (title, "@y{0.0000e+0}")])
        )
        self._marks: dict[str, ColumnDataSource] = {}
        for kind, (shape, colour, name) in MARKS.items():
            source = self._marks[kind] = ColumnDataSource(_table(MARK, []))
            drawn = self.plot.scatter(
                "x", "y", source=source, marker=shape, size=11, line_color=colour, fill_color=None, line_width=2
            )
            self.plot.add_tools(HoverTool(renderers=[drawn], tooltips=[(name, "@what")]))
        location = "top_left" if scale == "linear" else "top_right"
        self.plot.legend[0].update(location=location, background_fill_alpha=0.6, **LEGEND)

    def draw(self, name: str, runs: Sequence[tuple[ShownRun, str, str]]) -> None:
        lines: list[Any] = []
        points: list[Any] = []
        marks: dict[str, list[Any]] = {kind: [] for kind in MARKS}
        for run, title, colour in runs:
            x, y = self._series(run, name)
            if not x:
                continue
            lines.append((x, y, colour, title))
            points += [(*point, colour, title) for point in zip(x, y, strict=True)]
            for mark in run.figures.marks:
                if mark.kind in marks:
                    near = min(range(len(x)), key=lambda i: abs(x[i] - mark.n_centers))
                    marks[mark.kind].append((x[near], y[near], mark.text))
        self._lines.data, self._points.data = _table(CURVE, lines), _table(CURVE, points)
        for kind, found in marks.items():
            if found or self._marks[kind].data["x"]:
                self._marks[kind].data = _table(MARK, found)
        self.any = bool(lines)
        self.plot.legend.visible = len(lines) > 1

    def _series(self, run: ShownRun, name: str) -> tuple[list[float], list[float]]:
        """Return the points of a curve, without those that the axis cannot show."""
        series = run.figures.series
        pairs = [
            (x, y)
            for x, y in zip(series["n_centers"], series[name], strict=True)
            if y is not None and y == y and (y > 0 or self._scale == "linear")
        ]
        step = -(-len(pairs) // MOST_POINTS) or 1
        pairs = pairs[::step] if (len(pairs) - 1) % step == 0 else [*pairs[::step], pairs[-1]]
        return [float(x) for x, _ in pairs], [float(y) for _, y in pairs]


class _Bars:
    """Seconds of every run by phase or message, as one stacked bar for each run."""

    def __init__(self, title: str, colours: dict[str, str], *, share: bool) -> None:
        self._colours = dict(colours)
        self._share = share
        self.any = False
        self._palette = itertools.cycle(RUN_COLOURS)
        self._parts = ColumnDataSource(_table(BARS, []))
        self.plot = _bar_figure(title)
        if share:
            self.plot.x_range.end = 1
            self.plot.xaxis.formatter = NumeralTickFormatter(format="0 %")
        else:
            self.plot.xaxis.axis_label = "seconds"
        bars = self.plot.hbar(
            y="run",
            left="left",
            right="right",
            height=0.7,
            color="colour",
            line_color="white",
            line_width=0.5,
            source=self._parts,
            legend_field="what",
        )
        self.plot.add_tools(
            HoverTool(renderers=[bars], tooltips=[("run", "@run"), ("@what", "@seconds{0.00} s (@share{0.0 %})")])
        )
        _legend_below(self.plot, ncols=6, glyph_width=12, glyph_height=12, spacing=2, padding=2)

    def draw(self, runs: Sequence[tuple[str, dict[str, float]]]) -> None:
        bars: list[Any] = []
        for name, seconds in runs:
            total, left = sum(seconds.values()) or 1.0, 0.0
            for what in sorted(seconds, key=self._order):
                right = left + (seconds[what] / total if self._share else seconds[what])
                spent = seconds[what], seconds[what] / total
                bars.append((name, shown_phase(what), self._colour(what), left, right, *spent))
                left = right
        self.plot.y_range.factors = [name for name, _ in reversed(runs)]
        self.plot.height = 150 + 34 * max(0, len(runs) - 1)
        self._parts.data = _table(BARS, bars)
        self.any = bool(bars)

    def _order(self, what: str) -> tuple[int, str]:
        known = list(PHASE_COLOURS)
        return (known.index(what) if what in known else len(known), what)

    def _colour(self, what: str) -> str:
        if what not in self._colours:
            self._colours[what] = next(self._palette)
        return self._colours[what]


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the columns of a plot's data."""
    return {name: [row[number] for row in rows] for number, name in enumerate(names)}


class _Memory:
    """Resident set of each worker against its plan, with its row matrices in memory and in scratch."""

    KINDS = (
        ("resident", "#b9c7dc", 0.8, "resident"),
        ("cache", "#3b6fb6", 0.4, "row matrices in memory"),
        ("scratch", "#f28e2b", 0.16, "row matrices in scratch"),
    )
    COLUMNS = ("worker", "planned", *(kind[0] for kind in KINDS))

    def __init__(self) -> None:
        self.any = False
        self._source = ColumnDataSource(_table(self.COLUMNS, []))
        self.plot = _bar_figure("memory of the workers")
        self.plot.xaxis.formatter = CustomJSTickFormatter(code=_BYTES)
        self.plot.xaxis.ticker = AdaptiveTicker(base=1024, mantissas=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
        for kind, colour, height, name in self.KINDS:
            looks = {"height": height, "color": colour, "legend_label": name}
            self.plot.hbar(y="worker", left=0, right=kind, source=self._source, **looks)
        self.plot.scatter(
            "planned",
            "worker",
            source=self._source,
            marker="dash",
            angle=90,
            angle_units="deg",
            size=24,
            line_width=3,
            color="#c0392b",
            legend_label="planned peak",
        )
        self.plot.add_tools(
            HoverTool(
                tooltips=[
                    ("worker", "@worker"),
                    ("resident", "@resident{0.0 ib}"),
                    ("in memory", "@cache{0.0 ib}"),
                    ("in scratch", "@scratch{0.0 ib}"),
                    ("planned", "@planned{0.0 ib}"),
                ]
            )
        )
        _legend_below(self.plot)

    def draw(self, runs: Sequence[tuple[str, dict[str, dict[str, int]]]]) -> None:
        bars: list[Any] = []
        several = sum(bool(memory) for _, memory in runs) > 1
        for name, memory in runs:
            largest = sorted(memory, key=lambda worker: -memory[worker].get("resident", 0))[:MOST_WORKERS]
            for worker in sorted(largest):
                found, short = memory[worker], worker.split("://")[-1]
                planned = found.get("planned") or float("nan")
                held = (found.get(kind, 0) for kind, *_ in self.KINDS)
                bars.append((f"{name}: {short}" if several else short, planned, *held))
        self.plot.y_range.factors = list(dict.fromkeys(bar[0] for bar in reversed(bars)))
        self.plot.height = 110 + 26 * max(2, len(bars))
        self.any = bool(bars)
        self._source.data = _table(self.COLUMNS, bars)


LEGEND: dict[str, Any] = {"border_line_color": None, "label_text_font_size": "11px"}
AXES: dict[str, Any] = {
    "axis_line_color": "#c5cdd8",
    "major_tick_line_color": "#c5cdd8",
    "minor_tick_line_color": None,
    "major_label_text_color": "#51607a",
    "axis_label_text_color": "#51607a",
    "axis_label_text_font_style": "normal",
}
"""Style that all plots share."""


def _bar_figure(title: str) -> Any:
    """Return an empty plot of horizontal bars from zero on."""
    plot = figure(
        title=title, y_range=FactorRange(), height=150, min_width=320, sizing_mode="stretch_width", tools="save"
    )
    _plain(plot)
    plot.x_range.start = 0
    plot.ygrid.visible = False
    return plot


def _legend_below(plot: Any, **style: Any) -> None:
    legend = plot.legend[0]
    plot.add_layout(legend, "below")
    legend.update(orientation="horizontal", location="left", **LEGEND, **style)


def _plain(plot: Any) -> None:
    plot.toolbar.update(autohide=True, logo=None)
    plot.title.update(text_font_size="13px", text_color="#33415c")
    plot.outline_line_color = None
    for axis in itertools.chain(plot.xaxis, plot.yaxis):
        axis.update(**AXES)
    for grid in itertools.chain(plot.xgrid, plot.ygrid):
        grid.grid_line_color = "#eceff4"
