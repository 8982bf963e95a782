"""The state of a run in one line."""

from __future__ import annotations

import math

from ...text import counted, duration
from ..event_checks import finite
from ..run_state import LEARNING, RunFigures

DOING = {"starting": "getting ready", "searching": "searching for settings", LEARNING: LEARNING}
"""Names of the states before the selection of centres."""


def latest(figures: RunFigures, name: str) -> float | None:
    """Return the last value of a series as a finite float; None where there is none."""
    value = finite(figures.latest(name), math.inf)
    return None if value is None else float(value)


def state(figures: RunFigures) -> str:
    """Return GCV, lambda, the held-out error, the pace and the time left, those that are known."""
    parts = []
    for name, label, form in (("gcv", "gcv", ".4g"), ("lambda_", "lambda", ".3g"), ("validation", "held out", ".4g")):
        value = latest(figures, name)
        if value is not None:
            parts.append(f"{label} {value:{form}}")
    pace, left = figures.centers_per_second, figures.seconds_left
    if pace:
        parts.append(f"{pace:.3g} centres/s")
    if figures.weight_passes:
        parts.append(f"pass {figures.weight_passes} for the weights")
    elif left:
        parts.append(f"at most {duration(left)} left")
    return "  ".join(parts)


def metric_rounds(figures: RunFigures) -> str:
    """Return the number of rounds of a learnt metric, and their lowest error."""
    return f"{counted(figures.metric_rounds, 'round')}, lowest error {figures.metric_error or 0.0:.4g}"


def line(figures: RunFigures) -> str:
    """Return the state of a run in one line."""
    doing = DOING.get(figures.state)
    if figures.state == LEARNING:
        return f"{doing}: {metric_rounds(figures)}, last {figures.metric_tried}"
    if figures.state == "searching":
        return f"{doing}: {counted(figures.search_exchanges, 'exchange')} in {duration(figures.search_seconds)}"
    if doing is not None:
        return doing
    limit = figures.shapes.get("max_centers")
    of = f" of {limit}" if limit else ""
    seconds = latest(figures, "seconds")
    after = "" if seconds is None else f" after {duration(seconds)}"
    return f"{figures.n_centers}{of} centres{after}, {state(figures)}".rstrip(", ")
