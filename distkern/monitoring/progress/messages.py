"""What is said of a run in words: its state in one line, and what befell it."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from ..event_checks import finite
from ..run_state import RunFigures

_REASONS = {
    "left": "it was killed or left",
    "retired": "it retires",
    "paused": "dask paused it",
    "frozen": "it does not answer",
}


DOING = {"starting": "getting ready", "searching": "searching for settings"}
"""What a run is at before it selects centres, by its state."""


def duration(seconds: float) -> str:
    """Return a time in at most two units, as in ``2 min 5 s``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, smaller, smaller_size in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def latest(figures: RunFigures, name: str) -> float | None:
    """Return a figure after the last round; None where there is none."""
    values = figures.series.get(name) or [None]
    value = finite(values[-1], math.inf)
    return None if value is None else float(value)


def state(figures: RunFigures) -> str:
    """Return GCV, lambda, the held-out error and the pace, as far as they are known."""
    parts = []
    for name, label, form in (("gcv", "gcv", ".4g"), ("lambda_", "lambda", ".3g"), ("validation", "held out", ".4g")):
        value = latest(figures, name)
        if value is not None:
            parts.append(f"{label} {value:{form}}")
    pace, left = figures.centers_per_second, figures.seconds_left
    if pace:
        parts.append(f"{pace:.3g} centres/s")
    if left:
        parts.append(f"at most {duration(left)} left")
    return "  ".join(parts)


def line(figures: RunFigures) -> str:
    """Return how far a run is, in one line."""
    doing = DOING.get(figures.state)
    if doing is not None:
        if figures.state != "searching":
            return doing
        count = figures.search_exchanges
        return f"{doing}: {count} exchange{'' if count == 1 else 's'} in {duration(figures.search_seconds)}"
    limit = figures.shapes.get("max_centers")
    of = f" of {limit}" if limit else ""
    seconds = latest(figures, "seconds")
    after = "" if seconds is None else f" after {duration(seconds)}"
    return f"{figures.n_centers}{of} centres{after}, {state(figures)}".rstrip(", ")


def told(record: Mapping[str, Any]) -> tuple[int, str] | None:
    """Return what an event is worth saying, with the level of a log; None for those of every round.

    Parameters
    ----------
    record : mapping
        As `Event.as_record` makes it.
    """
    say = _TOLD.get(str(record.get("event")))
    try:
        return None if say is None else say(record)
    except (KeyError, TypeError, ValueError, OverflowError):
        # Recorded by another version, or damaged.
        return None


def _started(record: Mapping[str, Any]) -> tuple[int, str]:
    return logging.INFO, (
        f"training on {record['n_rows']} rows x {record['n_features']} features in {record['n_blocks']} blocks; "
        f"targets {record['n_targets']}, workers {record['workers']}, centres at most {record['max_centers']}"
    )


def _dashboard(record: Mapping[str, Any]) -> tuple[int, str]:
    return logging.INFO, f"dashboard at {record['address']}"


def _resumed(record: Mapping[str, Any]) -> tuple[int, str]:
    seconds = duration(float(record["seconds"]))
    return logging.INFO, f"resumed: {record['exchanges']} exchanges, which took {seconds}, are not made again"


def _blocks(record: Mapping[str, Any]) -> str:
    count = len(record["blocks"])
    return "1 block" if count == 1 else f"{count} blocks"


def _lost(record: Mapping[str, Any]) -> tuple[int, str]:
    reason = str(record.get("reason", "left"))
    return logging.WARNING, (
        f"lost worker {record['worker']} ({_REASONS.get(reason, reason)}); others take over {_blocks(record)}"
    )


def _replayed(record: Mapping[str, Any]) -> tuple[int, str]:
    return logging.INFO, (
        f"worker {record['worker']} rebuilt {_blocks(record)} from {record['messages']} messages "
        f"in {float(record['seconds']):.1f} s"
    )


def _refused(record: Mapping[str, Any]) -> tuple[int, str]:
    return logging.WARNING, (
        f"worker {record['worker']} is not used: {record['what']} is {record['found']} there and {record['driver']} "
        "here"
    )


def _awaited(record: Mapping[str, Any]) -> tuple[int, str]:
    unusable = record.get("unusable", ())
    why = f"{len(unusable)} are there" if unusable else "the cluster has none"
    return logging.WARNING, (
        f"no worker can be used ({why}); waiting up to {float(record['seconds']):g} s for one ([cluster] wait)"
    )


def _retried(record: Mapping[str, Any]) -> tuple[int, str]:
    return logging.WARNING, (
        f"reads of {record['array']} failed {record['count']} times and succeeded when tried again"
    )


def _ended(record: Mapping[str, Any]) -> tuple[int, str]:
    seconds = duration(float(record["seconds"]))
    return logging.INFO, f"{record['n_centers']} centres in {seconds}, stopped: {record['stop_reason']}"


def _cut_short(record: Mapping[str, Any]) -> tuple[int, str]:
    return logging.WARNING, f"cut short: {record['message'] or record['error']}"


_TOLD = {
    "RunStarted": _started,
    "DashboardServed": _dashboard,
    "RunResumed": _resumed,
    "WorkerLost": _lost,
    "WorkerRefused": _refused,
    "WorkersAwaited": _awaited,
    "BlocksReplayed": _replayed,
    "StorageRetried": _retried,
    "RunEnded": _ended,
    "RunCutShort": _cut_short,
}
