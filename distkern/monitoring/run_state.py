"""What a run came to so far, kept up to date by its events.

The dashboard, the metrics, the report and ``distkern info --follow`` all show these numbers, so they cannot disagree;
they are made from live events and from the ``events.jsonl`` of a run directory alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .event_checks import usable
from .events import Event, describe

__all__ = ["CUT_SHORT", "OVER", "Mark", "RunFigures"]

CUT_SHORT = "cut short"
"""State of a run that ended without a model."""

OVER = ("done", CUT_SHORT)
"""States of a run that no process is at work on."""

_SHAPES = ("n_rows", "n_features", "n_targets", "n_problems", "n_blocks", "max_centers", "workers")
_SERIES = ("n_centers", "lambda_", "gcv", "residual_max", "validation", "seconds")


@dataclass(frozen=True)
class Mark:
    """Something that befell a run, and where on its path."""

    kind: str
    """Name of the event's class: `WorkerLost`, `BlocksReplayed`, `StorageRetried`, ..."""
    n_centers: int
    """Centres selected when it happened."""
    timestamp: float
    """Seconds since the epoch."""
    what: dict[str, Any]
    """The event's fields."""

    @property
    def text(self) -> str:
        """The event in one line."""
        described = describe({"event": self.kind, **self.what})
        return self.kind if described is None else described[1]


@dataclass
class RunFigures:
    """The state of one run.

    Attributes
    ----------
    series : dict
        One list a figure of `RoundDone`, all of one length: an entry a round.
    exchange_seconds, exchange_counts : dict
        Driver's waiting time and number of messages, by what they asked for.
    busy : dict
        Seconds of all workers' threads, by what they did; `WAITING` for what is left of them. Empty where nothing was
        measured.
    memory : dict
        Of each worker, as of the last `ExchangeDone` that told: bytes by kind.
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
    """Largest resident set of any worker that was told of, in bytes."""
    bytes_read: int = 0
    """Bytes of the arrays that the training read from the store."""
    exchanges: int = 0
    """Exchanges of the training so far, those that a resumed process did not make again included."""
    search_exchanges: int = 0
    """Exchanges of a search for settings before the training."""
    search_seconds: float = 0.0
    """Seconds that these took; the seconds by message and by phase hold the search's too."""
    marks: list[Mark] = field(default_factory=list)
    resumed: int = 0
    """Times that another process went on with the run."""
    replayed_blocks: int = 0
    storage_retries: int = 0
    stop_reason: str | None = None
    """Why selection ended; None while it goes on or where it was cut short."""
    seconds: float | None = None
    """Seconds of training at the end."""
    failure: str | None = None
    """What cut the training short, as far as its driver could still tell: the kind or the class of the error. None as
    soon as the training goes on."""
    summary: dict[str, Any] = field(default_factory=dict)
    """What the run came to, once that is known: ``n_centers``, ``lambda``, ``gcv``, ... of the model."""

    @classmethod
    def of_records(cls, records: Iterable[Mapping[str, Any]]) -> RunFigures:
        """Return the figures of recorded events, in their order; those that are unknown or damaged are passed over.

        Parameters
        ----------
        records : iterable of mapping
            As `Event.as_record` makes them.
        """
        figures = cls()
        for record in records:
            if usable(record):
                figures.take(record)
        return figures

    def __call__(self, event: Event) -> None:
        """Take an event of a running training."""
        self.take(event.as_record())

    def take(self, record: Mapping[str, Any]) -> None:
        """Take an event's record.

        Parameters
        ----------
        record : mapping
            As `Event.as_record` makes it.
        """
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
        """Return a figure of the series after the last round; None where there is none."""
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
    def state(self) -> str:
        """What the run is at: ``starting``, ``searching``, ``selecting`` centres, ``done``, or ``cut short``."""
        if self.failure is not None:
            return CUT_SHORT
        if self.summary or self.stop_reason is not None:
            return "done"
        if self.series["n_centers"]:
            return "selecting"
        return "searching" if self.search_exchanges and not self.exchanges else "starting"

    @property
    def workers_lost(self) -> int:
        """Times that a worker could not be used any more."""
        return sum(mark.kind == "WorkerLost" for mark in self.marks)

    def changes(self, rounds: int = 0, marks: int = 0) -> dict[str, Any]:
        """Return what somebody lacks who knows so many rounds and marks; everything by default.

        Parameters
        ----------
        rounds, marks : int
            How many are known already.

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
        """Take what `changes` of another object returned; return whether it joins on to what is known.

        Parameters
        ----------
        changes : mapping
            As it was returned, or through JSON.
        """
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
        """Take what the run came to; it stands over what the events added up to.

        Parameters
        ----------
        summary : mapping
            As ``train --json`` prints it, and ``summary.json`` of a run directory has it.
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
        """Pace over the last quarter of the rounds; None before two rounds are done."""
        centers, seconds = self.series["n_centers"], self.series["seconds"]
        if len(centers) < 2:
            return None
        first = max(0, len(centers) - 1 - max(1, len(centers) // 4))
        elapsed = seconds[-1] - seconds[first]
        return float((centers[-1] - centers[first]) / elapsed) if elapsed > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the largest number of centres if the pace falls as the path grows; None where unknown.

        A step costs time in proportion to the centres before it, so the time of a path grows with its square.
        """
        limit, now, pace = self.shapes.get("max_centers", 0), self.n_centers, self.centers_per_second
        if self.stop_reason is not None:
            return 0.0
        if self.failure is not None or not pace or not now or limit < now:
            return None
        return (limit - now) / pace * (1 + limit / now) / 2

    def as_json(self) -> dict[str, Any]:
        """Return JSON-ready values of everything, the derived figures included."""
        return {
            **asdict(self),
            "n_centers": self.n_centers,
            "centers_per_second": self.centers_per_second,
            "seconds_left": self.seconds_left,
        }


_SMALL = tuple(f.name for f in fields(RunFigures) if f.name not in ("series", "marks"))
"""What does not grow with a run."""
