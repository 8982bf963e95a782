"""Texts and numbers of the page ``/distkern``, as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from time import localtime, strftime, time
from typing import TYPE_CHECKING, Any

from distkern.monitoring.run_state import LEARNING, OVER
from distkern.text import byte_size, duration

if TYPE_CHECKING:
    from .shown_run import ShownRun

SILENT_SECONDS = 30.0
"""A run without an update for so long is marked as silent."""

LISTED_INCIDENTS = 12
"""Most incidents in the table, of all runs together."""

LONGEST_NAME = 28
"""Most characters of a run's name in plots and on buttons."""

OVERVIEW_STYLE = """
:host, .bk-clearfix { width: 100%; }
.empty { color: #51607a; font-size: 15px; padding: 24px 12px; }
.runs { display: flex; flex-wrap: wrap; gap: 12px; padding: 8px 4px; font-family: inherit; }
.run { flex: 1 1 430px; max-width: 860px; border: 1px solid #dde3ea; border-left: 6px solid var(--run);
       border-radius: 6px; padding: 10px 14px; background: #fff; color: #26324a; }
.head { display: flex; align-items: baseline; gap: 10px; font-size: 15px; }
.head b { font-size: 16px; overflow-wrap: anywhere; }
.state { border-radius: 9px; padding: 1px 9px; font-size: 12px; background: #e8eefb; color: #24488a; }
.state.done { background: #e4f3ea; color: #1e6b41; }
.state.cut { background: #fbe6e3; color: #8c2f25; }
.state.silent { background: #fdf0dc; color: #8a5a00; }
.shape { color: #66738a; font-size: 12px; margin: 3px 0 8px; }
.track { height: 7px; border-radius: 4px; background: #edf0f5; overflow: hidden; margin-bottom: 9px; }
.track div { height: 100%; background: var(--run); }
.cells { display: grid; grid-template-columns: repeat(auto-fill, minmax(104px, 1fr)); gap: 6px 12px; }
.cells span { display: block; color: #66738a; font-size: 11px; }
.cells b { font-size: 15px; font-weight: 600; font-variant-numeric: tabular-nums; }
.bad b { color: #b03a2e; }
.missing { color: #8a5a00; background: #fdf6e6; border-radius: 6px; padding: 6px 12px; margin: 6px 4px;
           font-size: 13px; }
.incidents { border-collapse: collapse; font-size: 13px; color: #26324a; margin: 4px 10px; }
.incidents caption { text-align: left; font-size: 13px; font-weight: bold; color: #33415c; padding: 4px 0; }
.incidents td { padding: 3px 12px 3px 0; border-bottom: 1px solid #eceff4; vertical-align: top; }
"""


def run_names(runs: Sequence[ShownRun]) -> dict[str, str]:
    """Return a unique name of each run: its title, with a number in the order of starts where several have the same."""
    names: dict[str, str] = {}
    for run in runs:
        alike = [other for other in runs if other.title == run.title]
        number = alike.index(run) + 1
        names[run.key] = run.title if len(alike) == 1 else f"{run.title} #{number}"
    return names


def short_names(names: Mapping[str, str]) -> dict[str, str]:
    """Return short unique names for plots and buttons, without the middle of long names."""
    short: dict[str, str] = {}
    for key, name in names.items():
        cut = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME // 2 - 1]}…{name[-LONGEST_NAME // 2 :]}"
        again = sum(other == cut or other.startswith(f"{cut} #") for other in short.values())
        short[key] = f"{cut} #{again + 1}" if again else cut
    return short


def overview(
    runs: Sequence[ShownRun], names: Mapping[str, str], colours: Mapping[str, str], missing: Iterable[str]
) -> str:
    """Return a card for each run, the newest first."""
    text = "".join(f'<div class="missing">Not shown here: {escape(what)}</div>' for what in missing)
    if not runs:
        return text + '<div class="empty">No training of distkern has run on this cluster yet.</div>'
    cards = (_card(run, names[run.key], colours[run.key]) for run in reversed(runs))
    return f'{text}<div class="runs">{"".join(cards)}</div>'


def incidents(runs: Sequence[ShownRun], names: Mapping[str, str], colours: Mapping[str, str]) -> str:
    """Return a table of the incidents of the runs, the latest first."""
    rows = sorted(
        ((mark.timestamp, run, mark) for run in runs for mark in run.figures.marks),
        key=lambda entry: -entry[0],
    )
    if not rows:
        return ""
    shown = "".join(
        f'<tr><td>{strftime("%H:%M:%S", localtime(when))}</td><td style="color:{colours[run.key]}">'
        f"{escape(names[run.key])}</td><td>{escape(mark.text)}</td>"
        f"<td>at {mark.n_centers} centres</td></tr>"
        for when, run, mark in rows[:LISTED_INCIDENTS]
    )
    more = "" if len(rows) <= LISTED_INCIDENTS else f" (the last {LISTED_INCIDENTS} of {len(rows)})"
    return f'<table class="incidents"><caption>incidents{more}</caption>{shown}</table>'


def shown_phase(name: str) -> str:
    """Return a phase, or a message, as words."""
    return name.replace("-", " ")


def _card(run: ShownRun, name: str, colour: str) -> str:
    figures = run.figures
    limit, done, over = figures.shapes.get("max_centers", 0), figures.state == "done", figures.state in OVER
    centers = figures.summary.get("n_centers", figures.n_centers)
    silent = time() - run.updated
    state, style = (figures.stop_reason or "done", "done") if done else (figures.state, "")
    if figures.failure is not None:
        state, style = f"{state}: {figures.failure}", "cut"
    if not over and silent > SILENT_SECONDS:
        state, style = f"{state}, silent for {duration(silent)}", "silent"
    share = 100.0 if done else 100 * figures.n_centers / limit if limit else 0.0
    seconds, latest = figures.training_seconds, figures.latest
    cells = [
        ("centres", f"{centers} of {limit}" if limit else str(centers), ""),
        ("GCV", digits(figures.summary.get("gcv", latest("gcv"))), ""),
        ("lambda", digits(figures.summary.get("lambda", latest("lambda_"))), ""),
        ("largest residual", digits(latest("residual_max")), ""),
        ("validation error", digits(latest("validation")), ""),
        ("centres per second", digits(figures.centers_per_second), ""),
        ("time", "" if seconds is None else duration(seconds), ""),
        ("time left, at most", "" if over or figures.seconds_left is None else duration(figures.seconds_left), ""),
        ("exchanges", f"{figures.exchanges}", ""),
        ("searching", duration(figures.search_seconds) if figures.search_exchanges else "", ""),
        ("metric rounds", str(figures.metric_rounds or ""), ""),
        ("metric error, lowest", digits(figures.metric_error), ""),
        ("last metric round", figures.metric_tried if figures.state == LEARNING else "", ""),
        ("read", byte_size(figures.bytes_read) if figures.bytes_read else "", ""),
        ("workers lost", str(figures.workers_lost or ""), "bad"),
        ("blocks rebuilt", str(figures.replayed_blocks or ""), "bad"),
        ("reads retried", str(figures.storage_retries or ""), "bad"),
        ("resumed", str(figures.resumed or ""), ""),
    ]
    grid = "".join(
        f'<div class="{style_}"><span>{label}</span><b>{escape(text)}</b></div>'
        for label, text, style_ in cells
        if text
    )
    return (
        f'<div class="run" style="--run:{colour}"><div class="head"><b>{escape(name)}</b>'
        f'<span class="state {style}">{escape(state)}</span></div><div class="shape">{_shape(run)}</div>'
        f'<div class="track"><div style="width:{min(share, 100):.1f}%"></div></div>'
        f'<div class="cells">{grid}</div></div>'
    )


def _shape(run: ShownRun) -> str:
    shapes, started = run.figures.shapes, run.figures.started
    parts = []
    if shapes:
        parts.append(f"{shapes.get('n_rows', 0):,} rows x {shapes.get('n_features', 0):,} features")
        for name, one, many in (
            ("n_targets", "target", "targets"),
            ("n_problems", "problem", "problems"),
            ("n_blocks", "block", "blocks"),
            ("workers", "worker", "workers"),
        ):
            count = shapes.get(name, 1)
            if count != 1 or name in ("workers", "n_blocks"):
                parts.append(f"{count:,} {one if count == 1 else many}")
    if started is not None:
        parts.append(f"since {strftime('%H:%M:%S', localtime(started))}")
    return ", ".join(parts) or "reading the rows"


def digits(value: Any) -> str:
    """Return four digits of a number, or of the largest of several; nothing where there is none."""
    if isinstance(value, list | tuple):
        value = max(value, default=None)
    return "" if value is None or value != value else f"{value:.4g}"
