"""What a training tells its subscribers while it runs.

An event is a frozen dataclass; a subscriber is any callable that takes one. The progress bar, the JSON lines
of a run directory and user callbacks are all ordinary subscribers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from time import time
from typing import Any, ClassVar

from ..errors import Cancelled, RunError
from ..redaction import redact
from ..text import counted, duration

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events."""

    level: ClassVar[int] = logging.INFO
    """Of `logging`: how serious the event is."""
    timestamp: float = field(default_factory=time)
    """Seconds since the epoch when the event was made."""

    def as_record(self) -> dict[str, Any]:
        """Return the event as a flat JSON-ready mapping, its type under ``event``."""
        return {"event": type(self).__name__, **asdict(self)}

    def describe(self) -> str | None:
        """Return the event as one line for people; None where it says only how far the run is."""
        return None


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """Shapes are known and the first exchange is about to start."""

    run_id: str
    """Name of this run, unique on the cluster."""
    n_rows: int
    """Rows of the training data."""
    n_features: int
    """Columns of X."""
    n_targets: int
    """Columns of the encoded target."""
    n_problems: int
    """Factor sets trained in lockstep: 1 for shared centres, one a class for one-vs-rest."""
    n_blocks: int
    """Blocks the rows are cut into."""
    max_centers: int
    """Most centres any problem may select."""
    workers: int
    """Workers at the start (1 for the serial executor)."""

    def describe(self) -> str:
        """Return the shapes."""
        return (
            f"training on {self.n_rows} rows x {self.n_features} features in {self.n_blocks} blocks; "
            f"targets {self.n_targets}, workers {self.workers}, centres at most {self.max_centers}"
        )


@dataclass(frozen=True, kw_only=True)
class RunResumed(Event):
    """What an earlier process recorded was taken over; training goes on from there."""

    run_id: str
    """Name of the run."""
    exchanges: int
    """Exchanges that need not be made again."""
    seconds: float
    """Seconds of training that they took."""

    def describe(self) -> str:
        """Return what need not be done again."""
        return f"resumed: {self.exchanges} exchanges, which took {duration(self.seconds)}, are not made again"


WAITING = "waiting"
"""Phase of threads that have nothing to do while an exchange goes on: for messages, for the driver, for others."""


@dataclass(frozen=True, kw_only=True)
class ExchangeDone(Event):
    """Workers have answered a message."""

    name: str
    """What the message asked for, as in the keys of the tasks."""
    seconds: float
    """Seconds it took."""
    exchanges: int = 1
    """Driver-workers-driver exchanges it took."""
    bytes_read: int = 0
    """Bytes of the arrays that were read for it."""
    part: str = "training"
    """What it belongs to: ``training``, or the ``search`` for settings before it."""
    busy: Mapping[str, float] = field(default_factory=dict)
    """Seconds of all workers' threads by what they did (``kernel-columns``, ``projection``, ``update``, ...), and
    `WAITING` for what is left of them; empty where nothing was measured."""
    memory: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Now and then, for each worker in bytes: ``resident`` set of its process, row matrices in memory (``cache``) and
    in ``scratch``, and the ``planned`` peak."""


@dataclass(frozen=True, kw_only=True)
class RoundDone(Event):
    """One panel was accepted."""

    round: int
    """Round number from 0."""
    n_centers: int
    """Centres selected so far (the largest count over problems)."""
    lambda_: float
    """Regularisation after the last step (the largest over problems)."""
    gcv: float
    """Generalised cross validation after the last step (mean over problems)."""
    residual_max: float
    """Largest absolute residual of any row before this round."""
    seconds: float
    """Seconds since the run started."""
    validation: float | None = None
    """Mean squared residual on the held-out rows, where there are any."""


@dataclass(frozen=True, kw_only=True)
class WorkerLost(Event):
    """A worker cannot be used any more; its blocks are placed elsewhere."""

    level = logging.WARNING

    worker: str
    """Address of the worker."""
    blocks: tuple[int, ...]
    """Blocks it looked after."""
    reason: str = "left"
    """``left`` (killed, or gone for another reason), ``retired``, ``paused`` by dask, or ``frozen`` (no answer)."""

    def describe(self) -> str:
        """Return which worker was lost, and why."""
        reason = _REASONS.get(self.reason, self.reason)
        return f"lost worker {self.worker} ({reason}); others take over {counted(len(self.blocks), 'block')}"


@dataclass(frozen=True, kw_only=True)
class WorkerRefused(Event):
    """A worker that joined is not used, since it differs from the driver."""

    level = logging.WARNING

    worker: str
    """Address of the worker."""
    what: str
    """What differs: distkern, Python, numpy or BLAS."""
    driver: str
    """Value in the driver."""
    found: str
    """Value in the worker."""

    def describe(self) -> str:
        """Return what differs."""
        return f"worker {self.worker} is not used: {self.what} is {self.found} there and {self.driver} here"


@dataclass(frozen=True, kw_only=True)
class WorkersAwaited(Event):
    """No worker can be used; the run waits for one."""

    level = logging.WARNING

    seconds: float
    """How long it will wait."""
    unusable: tuple[str, ...] = ()
    """Workers that are on the cluster and cannot be used."""

    def describe(self) -> str:
        """Return how long the run will wait."""
        why = f"{len(self.unusable)} are there" if self.unusable else "the cluster has none"
        return f"no worker can be used ({why}); waiting up to {self.seconds:g} s for one ([cluster] wait)"


@dataclass(frozen=True, kw_only=True)
class BlocksReplayed(Event):
    """Blocks were rebuilt from the run log."""

    worker: str
    """Address of the worker that rebuilt them."""
    blocks: tuple[int, ...]
    """Blocks that were rebuilt."""
    messages: int
    """Log messages replayed."""
    seconds: float = 0.0
    """Time it took, from the first task to the last."""

    def describe(self) -> str:
        """Return what was rebuilt."""
        blocks = counted(len(self.blocks), "block")
        return f"worker {self.worker} rebuilt {blocks} from {self.messages} messages in {duration(self.seconds)}"


@dataclass(frozen=True, kw_only=True)
class StorageRetried(Event):
    """Reads of an array failed and succeeded when they were tried again."""

    level = logging.WARNING

    array: str
    """Name of the array: X, y or sample_weight."""
    count: int
    """Attempts that failed, of all workers together."""

    def describe(self) -> str:
        """Return how many reads failed."""
        return f"reads of {self.array} failed {self.count} times and succeeded when tried again"


@dataclass(frozen=True, kw_only=True)
class ChunksAbsent(Event):
    """Chunks of a zarr array were never written and read as its fill value, as zarr defines it."""

    array: str
    """Name of the array: X, y or sample_weight."""
    count: int
    """Absent chunks."""
    chunks: tuple[tuple[int, ...], ...]
    """Positions of the first of them in the grid of chunks."""


@dataclass(frozen=True, kw_only=True)
class RunEnded(Event):
    """Selection is over and the model is ready."""

    n_centers: int
    """Centres of the returned model (the union over problems)."""
    stop_reason: str
    """Value of the `StopReason`."""
    seconds: float
    """Seconds since the run started."""

    def describe(self) -> str:
        """Return size, time and reason."""
        return f"{self.n_centers} centres in {duration(self.seconds)}, stopped: {self.stop_reason}"


@dataclass(frozen=True, kw_only=True)
class DashboardServed(Event):
    """The training is about to start on a cluster that has a dashboard."""

    address: str
    """Where a browser finds it."""

    def describe(self) -> str:
        """Return the address."""
        return f"dashboard at {self.address}"


@dataclass(frozen=True, kw_only=True)
class RunCutShort(Event):
    """The training ends without a model, since an error or an interrupt ended it; a run directory is kept."""

    level = logging.WARNING

    error: str
    """Class of the error."""
    message: str
    """What it says."""

    def describe(self) -> str:
        """Return the error."""
        return f"cut short: {self.message or self.error}"


EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in Event.__subclasses__()}
"""Every event by its name."""

_REASONS = {
    "left": "it was killed or left",
    "retired": "it retires",
    "paused": "dask paused it",
    "frozen": "it does not answer",
}


def describe(record: Mapping[str, Any]) -> tuple[int, str] | None:
    """Return level and line of a recorded event; None where it has none, is unknown or damaged."""
    kind = EVENTS.get(str(record.get("event")))
    if kind is None:
        return None
    try:
        event = kind(**{entry.name: record[entry.name] for entry in fields(kind) if entry.name in record})
        text = event.describe()
    except (TypeError, ValueError, OverflowError):
        # Recorded by another version, or damaged.
        return None
    return None if text is None else (kind.level, text)


Subscriber = Callable[[Event], None]


class EventBus:
    """Hands each event to all subscribers; a subscriber that fails is logged and dropped.

    A subscriber that raises `Cancelled` ends the training, and so does one that raises `RunError`, since what it was to
    keep would be lost.

    Parameters
    ----------
    subscribers : iterable of callable
        Called in order with each event.

    Attributes
    ----------
    muted : bool
        Whether events are kept back but for `RunStarted`, since what they tell was told before.
    """

    def __init__(self, subscribers: Iterable[Subscriber] = ()) -> None:
        self._subscribers = list(subscribers)
        self.muted = False

    def emit(self, event: Event) -> None:
        """Deliver `event`.

        Raises
        ------
        Cancelled, RunError
            A subscriber asks for the end, or cannot keep what it is there to keep.
        """
        if self.muted and not isinstance(event, RunStarted):
            return
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(event)
            except (Cancelled, RunError):
                raise
            except Exception:
                logger.exception("subscriber %r failed and gets no more events", subscriber)
                self._subscribers.remove(subscriber)

    def cut_short(self, error: BaseException) -> None:
        """Send every subscriber the event that `error` ends the training, whatever they make of it."""
        event = RunCutShort(error=type(error).__name__, message=redact(str(error)))
        for subscriber in tuple(self._subscribers):
            with suppress(Exception):
                subscriber(event)
