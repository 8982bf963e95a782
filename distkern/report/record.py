"""The record of a run for its report: one pass over the events, the job and the summary of a run directory."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distkern.scheduler import LearntMetric, read_metric
from distkern.storage import RunDirectory

from ..monitoring.event_checks import finite, usable
from ..monitoring.events import describe
from ..monitoring.run_state import RunFigures

MOST_INCIDENTS = 200
"""Most incidents in the list of a report."""


@dataclass(frozen=True)
class Exchange:
    """An exchange of the run."""

    name: str
    end: float
    """Seconds since the epoch, less `RunRecord.away` at that time."""
    seconds: float


@dataclass(frozen=True)
class Incident:
    """An incident of the run."""

    kind: str
    """Name of the event's class."""
    at: float
    """Seconds since the epoch, less `RunRecord.away` at that time."""
    n_centers: int
    """Centres selected before it."""
    text: str
    """Description."""
    severe: bool
    """Whether its level is at least a warning."""


@dataclass
class RunRecord:
    """A run for its report."""

    path: Path | str
    """Directory, or URL."""
    job: dict[str, Any]
    summary: dict[str, Any] | None
    identity: dict[str, Any]
    """Settings, data and software that decide the model."""
    state: str
    """``finished``, ``running``, ``cut short``, or ``running or cut short`` where it is not known."""
    figures: RunFigures = field(default_factory=RunFigures)
    exchanges: list[Exchange] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    """The first `MOST_INCIDENTS` incidents."""
    incident_counts: Counter[str] = field(default_factory=Counter)
    """Number of all incidents by kind."""
    metric: LearntMetric | None = None
    """Learnt metric, after its rounds."""
    metric_rounds: list[dict[str, Any]] = field(default_factory=list)
    """Events of the rounds."""
    cut_short: str | None = None
    """Error that ended the run without a model, if that is its last event."""
    first: float | None = None
    last: float | None = None
    """Seconds since the epoch of the first and the last event."""
    away: float = 0.0
    """Seconds between the driver processes of the run, in which none of them was at work."""

    @property
    def n_centers(self) -> int:
        """Centres of the model, or selected so far."""
        count = self.number("n_centers")
        return self.figures.n_centers if count is None else int(count)

    @property
    def stop_reason(self) -> str | None:
        """Stop reason."""
        reason = (self.summary or {}).get("stop_reason")
        return reason if isinstance(reason, str) else self.figures.stop_reason

    def number(self, name: str) -> float | None:
        """Return a number of the summary; None where there is none."""
        return finite((self.summary or {}).get(name))


def read_run(run: RunDirectory) -> RunRecord:
    """Read the directory of a run, finished or not."""
    training = run.training or {}
    identity = training.get("identity")
    record = RunRecord(run.path, run.job, run.summary, identity if isinstance(identity, dict) else {}, "")
    for event in run.events():
        if usable(event):
            _take(record, event)
    record.metric = read_metric(run)
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
    if kind == "MetricRoundDone":
        # A process that resumes the run during the rounds begins with the first one again.
        record.metric_rounds = [*(record.metric_rounds if event["rounds"] > 1 else []), event]
        return
    if kind == "RunCutShort":
        record.cut_short = str(event.get("message") or event.get("error"))
    described = describe(event)
    if described is None or kind in ("RunStarted", "RunEnded", "DashboardServed"):
        return
    record.incident_counts[kind] += 1
    if len(record.incidents) < MOST_INCIDENTS:
        level, text = described
        record.incidents.append(
            Incident(kind, (record.last or 0.0) - record.away, figures.n_centers, text, level >= logging.WARNING)
        )


def _state(run: RunDirectory, record: RunRecord) -> str:
    driver = run.driver()
    alive = None if driver is None else driver.alive
    if record.summary is not None and not alive:
        return "finished"
    if alive:
        return "running"
    if record.figures.stop_reason is not None:
        return "finished"
    return "cut short" if record.cut_short is not None or alive is False else "running or cut short"
