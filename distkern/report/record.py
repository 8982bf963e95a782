"""What a run directory tells a report: one pass over its events, its job and its summary."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distkern.storage import RunDirectory, driver_of

from ..monitoring.event_checks import finite, usable
from ..monitoring.events import describe
from ..monitoring.run_state import RunFigures

MOST_INCIDENTS = 200
"""Incidents that are told one by one."""


@dataclass(frozen=True)
class Exchange:
    """Workers answered a message."""

    name: str
    end: float
    """Seconds since the epoch, less the time that no process was at work before."""
    seconds: float


@dataclass(frozen=True)
class Incident:
    """Something that befell the run."""

    kind: str
    """Name of the event's class."""
    at: float
    """Seconds since the epoch, less the time that no process was at work before."""
    n_centers: int
    """Centres selected by then."""
    text: str
    """What happened."""
    severe: bool
    """Whether it is a warning."""


@dataclass
class RunRecord:
    """Everything that is known of a run."""

    path: Path
    job: dict[str, Any]
    summary: dict[str, Any] | None
    identity: dict[str, Any]
    """What decides the model: its settings, the data, the software."""
    state: str
    """``finished``, ``running``, ``cut short``, or ``running or cut short`` where that cannot be told."""
    figures: RunFigures = field(default_factory=RunFigures)
    exchanges: list[Exchange] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    """The first of them."""
    incident_counts: Counter[str] = field(default_factory=Counter)
    """All of them, by kind."""
    cut_short: str | None = None
    """What ended it without a model, if that is the last thing that is known."""
    first: float | None = None
    last: float | None = None
    """Seconds since the epoch of the first and the last event."""
    away: float = 0.0
    """Seconds between the processes that drove the run."""

    @property
    def n_centers(self) -> int:
        """Centres of the model, or selected so far."""
        count = self.number("n_centers")
        return self.figures.n_centers if count is None else int(count)

    @property
    def stop_reason(self) -> str | None:
        """Why selection ended."""
        reason = (self.summary or {}).get("stop_reason")
        return reason if isinstance(reason, str) else self.figures.stop_reason

    def number(self, name: str) -> float | None:
        """Return a number of the summary; None where there is none."""
        return finite((self.summary or {}).get(name))


def read_run(run: RunDirectory) -> RunRecord:
    """Read what a run directory holds, of a run that is finished or not."""
    training = run.training or {}
    identity = training.get("identity")
    record = RunRecord(run.path, run.job, run.summary, identity if isinstance(identity, dict) else {}, "")
    for event in run.events():
        if usable(event):
            _take(record, event)
    record.state = _state(run, record)
    return record


def _take(record: RunRecord, event: dict[str, Any]) -> None:
    kind, figures = str(event.get("event")), record.figures
    timestamp = event.get("timestamp")
    if isinstance(timestamp, int | float):
        if kind == "RunStarted" and record.last is not None and figures.started is not None:
            record.away += max(0.0, float(timestamp) - record.last)
        record.first = float(timestamp) if record.first is None else record.first
        record.last = float(timestamp)
    figures.take(event)
    record.cut_short = None
    if kind == "ExchangeDone":
        seconds = event.get("seconds")
        if isinstance(seconds, int | float) and record.last is not None:
            record.exchanges.append(Exchange(str(event.get("name")), record.last - record.away, float(seconds)))
        return
    if kind == "RunCutShort":
        record.cut_short = str(event.get("message") or event.get("error"))
    said = describe(event)
    if said is None or kind in ("RunStarted", "RunEnded", "DashboardServed"):
        return
    record.incident_counts[kind] += 1
    if len(record.incidents) < MOST_INCIDENTS:
        level, text = said
        record.incidents.append(
            Incident(kind, (record.last or 0.0) - record.away, figures.n_centers, text, level >= logging.WARNING)
        )


def _state(run: RunDirectory, record: RunRecord) -> str:
    driver = driver_of(run.path)
    alive = None if driver is None else driver.alive
    if record.summary is not None and not alive:
        return "finished"
    if alive:
        return "running"
    if record.figures.stop_reason is not None:
        return "finished"
    return "cut short" if record.cut_short is not None or alive is False else "running or cut short"
