"""The picture of a run for terminals and notebooks: a progress bar, figures, and the address of the dashboard."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING

from ...text import duration
from ..run_state import LEARNING, RunFigures
from .messages import DOING, latest, metric_rounds

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def picture(figures: RunFigures, dashboard: str | None = None, *, now: float | None = None) -> Table:
    """Return a bar of centres against the limit, above figures and the address of a dashboard.

    Parameters
    ----------
    figures : RunFigures
        The run.
    dashboard : str, optional
        Address of the dashboard.
    now : float, optional
        Seconds since the epoch; the present time by default.
    """
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    limit, count = figures.shapes.get("max_centers", 0), figures.n_centers
    head = Table.grid(padding=(0, 1))
    for ratio in (None, 1, None, None):
        head.add_column(ratio=ratio, no_wrap=True)
    head.expand = True
    elapsed = _elapsed(figures, time() if now is None else now)
    bar = ProgressBar(total=limit or None, completed=count, pulse=not count, width=None)
    left = figures.seconds_left
    times = elapsed if not left else f"{elapsed}, at most {duration(left)} left"
    if figures.weight_passes and figures.state == "selecting":
        times = f"{elapsed}, pass {figures.weight_passes} for the weights"
    doing, done = (
        ("training", f"{count}/{limit} centres")
        if figures.shapes
        else (DOING.get(figures.state, DOING["starting"]), "")
    )
    head.add_row(Text(doing, style="bold"), bar, Text(done), Text(times, style="cyan"))
    body = Table.grid(padding=(0, 0))
    body.expand = True
    body.add_row(head)
    facts = Text("   ").join(_facts(figures))
    if facts:
        body.add_row(facts)
    if dashboard is not None:
        body.add_row(Text.assemble(("dashboard ", "dim"), (dashboard, f"link {dashboard}")))
    return body


def _facts(figures: RunFigures) -> list[Text]:
    from rich.text import Text

    if figures.state == LEARNING:
        return [Text(f"{metric_rounds(figures)}, last {figures.metric_tried}", style="dim")]
    shown: list[tuple[str, str]] = []
    for name, label, form in (
        ("gcv", "gcv", ".4g"),
        ("lambda_", "lambda", ".3g"),
        ("residual_max", "largest residual", ".3g"),
        ("validation", "held out", ".4g"),
    ):
        value = latest(figures, name)
        if value is not None:
            shown.append((label, f"{value:{form}}"))
    if figures.centers_per_second:
        shown.append(("centres/s", f"{figures.centers_per_second:.3g}"))
    if figures.exchanges:
        shown.append(("exchanges", str(figures.exchanges)))
    if figures.replayed_blocks:
        shown.append(("blocks rebuilt", str(figures.replayed_blocks)))
    return [Text.assemble((f"{label} ", "dim"), value) for label, value in shown]


def _elapsed(figures: RunFigures, now: float) -> str:
    done = figures.search_seconds if figures.state == "searching" else latest(figures, "seconds")
    if done is None or figures.updated is None:
        return duration(max(0.0, now - figures.started)) if figures.started is not None else ""
    return duration(done + max(0.0, now - figures.updated))
