"""The state of a run: its figures, computed from its events.

The dashboard, the metrics, the report and ``distkern info --follow`` all show these figures, so they agree. Live events
and the ``events.jsonl`` of a run directory give the same figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .event_checks import usable
from .events import Event, describe

__all__ = ["CUT_SHORT", "LEARNING", "OVER", "Mark", "RunFigures"]

CUT_SHORT = "cut short"
"""State of a run that ended without a model."""

OVER = ("done", CUT_SHORT)
"""States of a run without a driver process."""

LEARNING = "learning a metric"
"""State of a run during the rounds of its metric."""

_SHAPES = ("n_rows", "n_features", "n_targets", "n_problems", "n_blocks", "max_centers", "workers", "selected_centers")
_SERIES = ("n_centers", "lambda_", "gcv", "residual_max", "validation", "seconds")


@dataclass(frozen=True)
class Mark:
    """An incident of a run, and its place on the path."""

    kind: str
    """Name of the event's class: `WorkerLost`, `BlocksReplayed`, `StorageRetried`, ..."""
    n_centers: int
    """Centres selected before it."""
    timestamp: float
    """Seconds since the epoch."""
    what: dict[str, Any]
    """Fields of the event."""

    @property
    def text(self) -> str:
        """The incident in one line."""
        described = describe({"event": self.kind, **self.what})
        return self.kind if described is None else described[1]


@dataclass
class RunFigures:
    """The state of one run.

    Attributes
    ----------
    series : dict
        A list for each figure of `RoundDone`, with an entry for each round.
    exchange_seconds, exchange_counts : dict
        Seconds that the driver waited, and number of messages, by name of the message.
    busy : dict
        Seconds of all workers' threads by phase, the rest as `WAITING`; empty where nothing was measured.
    memory : dict
        Bytes of each worker by kind, from the last `ExchangeDone` that has them.
    """

    run_id: str = ""
    started: float | None = None
    """Seconds since the epoch of the first start."""
    updated: float | None = None
    """Seconds since the epoch of the last event."""
    shapes: dict[str, int] = field(default_factory=dict)
    series: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _SERIES})
    exchange_seconds: dict[str, float] = field(default_factory=dict)
    exchange_counts: dict[str, int] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    peak_resident: int = 0
    """Largest measured resident set of a worker, in bytes."""
    bytes_read: int = 0
    """Bytes of the arrays that the training has read."""
    exchanges: int = 0
    """Exchanges of the training so far, over all processes of the run."""
    search_exchanges: int = 0
    """Exchanges of a search for settings before the training."""
    search_seconds: float = 0.0
    """Seconds of these exchanges, which the seconds by message and by phase include."""
    metric_rounds: int = 0
    """Rounds of a learnt metric before the training."""
    metric_error: float | None = None
    """Lowest error of these rounds; None without rounds."""
    metric_tried: str = ""
    """Kernel and map of the last of these rounds."""
    marks: list[Mark] = field(default_factory=list)
    resumed: int = 0
    """Times that another process resumed the run."""
    replayed_blocks: int = 0
    storage_retries: int = 0
    stop_reason: str | None = None
    """Stop reason; None during the selection, and where the run was cut short."""
    seconds: float | None = None
    """Seconds of training at the end."""
    failure: str | None = None
    """Kind or class of the error that cut the training short, where its driver recorded one; None again after the next
    event."""
    summary: dict[str, Any] = field(default_factory=dict)
    """Summary of the finished run: ``n_centers``, ``lambda``, ``gcv``, ... of the model."""

    @classmethod
    def of_records(cls, records: Iterable[Mapping[str, Any]]) -> RunFigures:
        """Return the figures of recorded events, in their order; unknown and damaged records are skipped.

        Parameters
        ----------
        records : iterable of mapping
            Results of `Event.as_record`.
        """
        figures = cls()
        for record in records:
            if usable(record):
                figures.take(record)
        return figures

    def __call__(self, event: Event) -> None:
        """Add an event of a running training."""
        self.take(event.as_record())

    def take(self, record: Mapping[str, Any]) -> None:
        """Add a recorded event, a result of `Event.as_record`."""
        timestamp = record.get("timestamp")
        if isinstance(timestamp, int | float):
            self.updated = float(timestamp)
        self.failure = None
        match record.get("event"):
            case "RunStarted":
                self.run_id = str(record.get("run_id", ""))
                self.started = self.updated if self.started is None else self.started
                self.shapes = {name: int(record[name]) for name in _SHAPES if name in record}
                self.stop_reason = self.seconds = None
                self.summary = {}
            case "ExchangeDone":
                self._take_exchange(record)
            case "MetricRoundDone":
                self._take_metric_round(record)
            case "RoundDone":
                for name, values in self.series.items():
                    values.append(record.get(name))
            case "RunEnded":
                self.stop_reason = str(record.get("stop_reason"))
                self.seconds = float(record.get("seconds", 0.0))
            case "RunCutShort":
                self.failure = str(record.get("error"))
            case "RunResumed" | "WorkerLost" | "WorkerRefused" | "WorkersAwaited" | "BlocksReplayed" | "StorageRetried":
                self._take_incident(record)

    def _take_exchange(self, record: Mapping[str, Any]) -> None:
        name = str(record.get("name", ""))
        self.exchange_seconds[name] = self.exchange_seconds.get(name, 0.0) + float(record.get("seconds", 0.0))
        self.exchange_counts[name] = self.exchange_counts.get(name, 0) + 1
        if record.get("part") == "search":
            self.search_exchanges += int(record.get("exchanges", 1))
            self.search_seconds += float(record.get("seconds", 0.0))
        else:
            self.exchanges += int(record.get("exchanges", 1))
            self.bytes_read += int(record.get("bytes_read", 0))
        for phase, seconds in (record.get("busy") or {}).items():
            self.busy[phase] = self.busy.get(phase, 0.0) + seconds
        if memory := record.get("memory"):
            self.memory = {worker: dict(found) for worker, found in memory.items()}
            residents = (found.get("resident", 0) for found in self.memory.values())
            self.peak_resident = max(self.peak_resident, *residents)

    def _take_metric_round(self, record: Mapping[str, Any]) -> None:
        error = float(record["error"])
        # A process that resumes the run during the rounds begins with the first one again.
        lowest = self.metric_error if int(record["rounds"]) > 1 else None
        self.metric_rounds = int(record["rounds"])
        self.metric_error = error if lowest is None else min(error, lowest)
        self.metric_tried = f"{record['kernel']}, {record['shape']} map {record['round']}"

    def _take_incident(self, record: Mapping[str, Any]) -> None:
        kind = str(record["event"])
        if kind == "RunResumed":
            self.resumed += 1
        elif kind == "BlocksReplayed":
            self.replayed_blocks += len(record.get("blocks", ()))
        elif kind == "StorageRetried":
            self.storage_retries += int(record.get("count", 0))
        what = {name: value for name, value in record.items() if name not in ("event", "timestamp")}
        self.marks.append(Mark(kind, self.n_centers, self.updated or 0.0, what))

    def latest(self, name: str) -> Any:
        """Return the last value of a series; None before the first round."""
        values = self.series.get(name)
        return values[-1] if values else None

    @property
    def training_seconds(self) -> float | None:
        """Seconds of training so far."""
        seconds: float | None = self.latest("seconds") if self.seconds is None else self.seconds
        return seconds

    @property
    def n_centers(self) -> int:
        """Centres selected so far."""
        return int(self.latest("n_centers") or 0)

    @property
    def weight_passes(self) -> int:
        """Passes of conjugate gradients so far."""
        return self.exchange_counts.get("solve-weights", 0)

    @property
    def state(self) -> str:
        """State of the run: ``starting``, `LEARNING`, ``searching``, ``selecting``, ``done``, or `CUT_SHORT`."""
        if self.failure is not None:
            return CUT_SHORT
        if self.summary or self.stop_reason is not None:
            return "done"
        if self.series["n_centers"]:
            return "selecting"
        if self.exchanges:
            return "starting"
        return "searching" if self.search_exchanges else LEARNING if self.metric_rounds else "starting"

    @property
    def begun(self) -> bool:
        """Whether there are figures to show: shapes, or rounds or exchanges before the training."""
        return bool(self.shapes or self.search_exchanges or self.metric_rounds)

    @property
    def workers_lost(self) -> int:
        """Number of failed, retired and paused workers."""
        return sum(mark.kind == "WorkerLost" for mark in self.marks)

    def changes(self, rounds: int = 0, marks: int = 0) -> dict[str, Any]:
        """Return the changes for a copy that has some rounds and marks already.

        Parameters
        ----------
        rounds, marks : int, default 0
            Rounds and marks that the copy has.

        Returns
        -------
        dict
            JSON values for `apply`; lists are copied.
        """
        return {
            **{name: copy(getattr(self, name)) for name in _SMALL},
            "first_round": rounds,
            "series": {name: values[rounds:] for name, values in self.series.items()},
            "first_mark": marks,
            "marks": [asdict(mark) for mark in self.marks[marks:]],
        }

    def apply(self, changes: Mapping[str, Any]) -> bool:
        """Apply the `changes` of another object, also after JSON; return False where rounds or marks are missing."""
        first_round, first_mark = changes["first_round"], changes["first_mark"]
        if first_round > len(self.series["n_centers"]) or first_mark > len(self.marks):
            return False
        for name, values in self.series.items():
            values[first_round:] = changes["series"][name]
        self.marks[first_mark:] = [Mark(**mark) for mark in changes["marks"]]
        for name in _SMALL:
            setattr(self, name, changes[name])
        return True

    def conclude(self, summary: Mapping[str, Any]) -> None:
        """Set the summary of a finished run; its numbers replace those of the events.

        Parameters
        ----------
        summary : mapping
            The output of ``train --json``, or ``summary.json`` of a run directory.
        """
        self.summary = {str(name): value for name, value in summary.items()}
        for name in ("exchanges", "bytes_read"):
            if isinstance(value := summary.get(name), int):
                setattr(self, name, value)
        if isinstance(seconds := summary.get("seconds"), int | float):
            self.seconds = float(seconds)
        if summary.get("stop_reason") is not None:
            self.stop_reason = str(summary["stop_reason"])

    @property
    def centers_per_second(self) -> float | None:
        """Centres per second over the last quarter of the rounds; None before the second round."""
        centers, seconds = self.series["n_centers"], self.series["seconds"]
        if len(centers) < 2:
            return None
        first = max(0, len(centers) - 1 - max(1, len(centers) // 4))
        elapsed = seconds[-1] - seconds[first]
        return float((centers[-1] - centers[first]) / elapsed) if elapsed > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the largest number of centres; None where unknown.

        The time of a step is in proportion to the centres before it, so the time of a path grows with its square.
        """
        limit = self.shapes.get("selected_centers", 0) or self.shapes.get("max_centers", 0)
        now, pace = self.n_centers, self.centers_per_second
        if self.stop_reason is not None:
            return 0.0
        if self.failure is not None or not pace or not now or limit < now:
            return None
        return (limit - now) / pace * (1 + limit / now) / 2

    def as_json(self) -> dict[str, Any]:
        """Return all figures as JSON values, the derived ones included."""
        return {
            **asdict(self),
            "n_centers": self.n_centers,
            "centers_per_second": self.centers_per_second,
            "seconds_left": self.seconds_left,
        }


_SMALL = tuple(f.name for f in fields(RunFigures) if f.name not in ("series", "marks"))
"""Fields whose size does not grow with a run."""
