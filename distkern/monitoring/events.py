"""Events of a training, and the bus that sends them to subscribers.

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
    """Severity of the event, a level of `logging`."""
    timestamp: float = field(default_factory=time)
    """Seconds since the epoch when the event was made, by default now."""

    def as_record(self) -> dict[str, Any]:
        """Return the event as a flat JSON-ready mapping, its type under ``event``."""
        return {"event": type(self).__name__, **asdict(self)}

    def describe(self) -> str | None:
        """Return the event as one line for users; None where it only reports progress."""
        return None


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """The shapes are known and the first exchange starts."""

    run_id: str
    """Name of the run, unique on the cluster."""
    n_rows: int
    """Rows of the training data."""
    n_features: int
    """Columns of X."""
    n_targets: int
    """Columns of the encoded target."""
    n_problems: int
    """Number of problems trained together: 1 for shared centres, one for each class for one-vs-rest."""
    n_blocks: int
    """Number of blocks of the rows."""
    max_centers: int
    """Most centres that a problem may select."""
    workers: int
    """Workers at the start (1 for the serial executor)."""
    selected_centers: int = 0
    """Most centres that are selected one after another, where others are drawn; 0, the default, for all of them."""

    def describe(self) -> str:
        """Return the shapes."""
        return (
            f"training on {self.n_rows} rows x {self.n_features} features in {self.n_blocks} blocks; "
            f"targets {self.n_targets}, workers {self.workers}, centres at most {self.max_centers}"
        )


@dataclass(frozen=True, kw_only=True)
class RunResumed(Event):
    """The training continues from the record of an earlier process."""

    run_id: str
    """Name of the run."""
    exchanges: int
    """Exchanges that the record answers."""
    seconds: float
    """Seconds of training that they took."""

    def describe(self) -> str:
        """Return the exchanges that are not repeated."""
        return f"resumed: {self.exchanges} exchanges, which took {duration(self.seconds)}, are not made again"


WAITING = "waiting"
"""Phase of threads that wait during an exchange: for a message, for the driver, or for other workers."""


@dataclass(frozen=True, kw_only=True)
class ExchangeDone(Event):
    """Workers have answered a message."""

    name: str
    """Name of the message, as in the keys of the tasks."""
    seconds: float
    """Seconds it took."""
    exchanges: int = 1
    """Number of exchanges between driver and workers, default 1."""
    bytes_read: int = 0
    """Bytes of the arrays that were read for the answer, default 0."""
    part: str = "training"
    """``training``, the default, or the ``search`` for settings before it."""
    busy: Mapping[str, float] = field(default_factory=dict)
    """Seconds of all workers' threads by phase (``kernel-columns``, ``projection``, ``update``, ...), and the rest as
    `WAITING`; empty, the default, where nothing was measured."""
    memory: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """In some of the events, the bytes of each worker: ``resident`` set of its process, row matrices in memory
    (``cache``) and in ``scratch``, and the ``planned`` peak; empty by default."""


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
    """Mean squared residual on the held-out rows, where there are any; default None."""


@dataclass(frozen=True, kw_only=True)
class MetricRoundDone(Event):
    """One round of a learnt metric, on a sample of the rows."""

    kernel: str
    """Name of the kernel."""
    shape: str
    """``isotropic``, ``diagonal`` or ``full``: shape of the map."""
    round: int
    """Number of the map: 0 for the standardised features."""
    factor: float
    """Width, in multiples of the median distance."""
    error: float
    """Squared error on the rows held out, over that of their mean."""
    rounds: int
    """Rounds so far."""


@dataclass(frozen=True, kw_only=True)
class WorkerLost(Event):
    """A worker is not usable any more; its blocks are reassigned."""

    level = logging.WARNING

    worker: str
    """Address of the worker."""
    blocks: tuple[int, ...]
    """Blocks that it owned."""
    reason: str = "left"
    """``left`` (killed or disconnected; the default), ``retired``, ``paused`` by dask, ``frozen`` (no answer), or
    ``stuck`` (no progress)."""

    def describe(self) -> str:
        """Return the worker, the reason and the number of its blocks."""
        reason = _REASONS.get(self.reason, self.reason)
        return f"lost worker {self.worker} ({reason}); reassigned {counted(len(self.blocks), 'block')}"


@dataclass(frozen=True, kw_only=True)
class WorkerRefused(Event):
    """A worker that joined is not used, because it differs from the driver."""

    level = logging.WARNING

    worker: str
    """Address of the worker."""
    what: str
    """Name of the difference: distkern, Python, numpy or BLAS."""
    driver: str
    """Value in the driver."""
    found: str
    """Value in the worker."""

    def describe(self) -> str:
        """Return the difference."""
        return f"worker {self.worker} is not used: {self.what} is {self.found} there and {self.driver} here"


@dataclass(frozen=True, kw_only=True)
class WorkersAwaited(Event):
    """No worker is usable; the run waits for one."""

    level = logging.WARNING

    seconds: float
    """Most seconds that the run waits."""
    unusable: tuple[str, ...] = ()
    """Workers of the cluster that are not usable, default ()."""

    def describe(self) -> str:
        """Return why the run waits, and for how long."""
        why = f"{len(self.unusable)} on the cluster" if self.unusable else "the cluster has none"
        return f"no worker is usable ({why}); waiting up to {self.seconds:g} s for one ([cluster] wait)"


@dataclass(frozen=True, kw_only=True)
class BlocksReplayed(Event):
    """Blocks were rebuilt from the run log."""

    worker: str
    """Address of the worker that rebuilt them."""
    blocks: tuple[int, ...]
    """Blocks that were rebuilt."""
    messages: int
    """Messages of the log that were replayed."""
    seconds: float = 0.0
    """Time from the first task to the last, default 0.0."""

    def describe(self) -> str:
        """Return worker, blocks, messages and time."""
        blocks = counted(len(self.blocks), "block")
        return f"worker {self.worker} rebuilt {blocks} from {self.messages} messages in {duration(self.seconds)}"


@dataclass(frozen=True, kw_only=True)
class StorageRetried(Event):
    """Reads of an array failed, and succeeded when they were repeated."""

    level = logging.WARNING

    array: str
    """Name of the array: X, y or sample_weight."""
    count: int
    """Failed attempts of all workers together."""

    def describe(self) -> str:
        """Return how many reads failed."""
        return f"reads of {self.array} failed {self.count} times and succeeded when repeated"


@dataclass(frozen=True, kw_only=True)
class ChunksAbsent(Event):
    """Chunks of a zarr array are absent; they are read as its fill value."""

    array: str
    """Name of the array: X, y or sample_weight."""
    count: int
    """Number of absent chunks."""
    chunks: tuple[tuple[int, ...], ...]
    """Positions of the first absent chunks in the grid of chunks."""


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
        """Return number of centres, time and stop reason."""
        return f"{self.n_centers} centres in {duration(self.seconds)}, stopped: {self.stop_reason}"


@dataclass(frozen=True, kw_only=True)
class DashboardServed(Event):
    """A training starts on a cluster that has a dashboard."""

    address: str
    """URL of the dashboard."""

    def describe(self) -> str:
        """Return the address."""
        return f"dashboard at {self.address}"


@dataclass(frozen=True, kw_only=True)
class RunCutShort(Event):
    """An error or an interrupt ended the training without a model; the run directory is kept."""

    level = logging.WARNING

    error: str
    """Class of the error."""
    message: str
    """Message of the error."""

    def describe(self) -> str:
        """Return the error."""
        return f"cut short: {self.message or self.error}"


EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in Event.__subclasses__()}
"""Classes of events by their names."""

_REASONS = {
    "left": "it was killed or disconnected",
    "retired": "dask retired it",
    "paused": "dask paused it",
    "frozen": "it does not answer",
    "stuck": "its work makes no progress",
}


def describe(record: Mapping[str, Any]) -> tuple[int, str] | None:
    """Return level and line of a recorded event; None where the event has no line, is unknown or is damaged."""
    kind = EVENTS.get(str(record.get("event")))
    if kind is None:
        return None
    try:
        event = kind(**{entry.name: record[entry.name] for entry in fields(kind) if entry.name in record})
        text = event.describe()
    except (TypeError, ValueError, OverflowError):
        # Another version wrote the record, or it is damaged.
        return None
    return None if text is None else (kind.level, text)


Subscriber = Callable[[Event], None]


class EventBus:
    """Sends each event to all subscribers; the error of a subscriber is logged, and it gets no more events.

    A subscriber that raises `Cancelled` ends the training. `RunError` ends it too: the subscriber cannot write the
    record of the run.

    Parameters
    ----------
    subscribers : iterable of callable, default ()
        Functions that take an event, in the order of the calls.

    Attributes
    ----------
    muted : bool
        Whether only `RunStarted` is sent: during a resumption the other events are in the record already.
    """

    def __init__(self, subscribers: Iterable[Subscriber] = ()) -> None:
        self._subscribers = list(subscribers)
        self.muted = False

    def emit(self, event: Event) -> None:
        """Send `event` to all subscribers.

        Raises
        ------
        Cancelled, RunError
            A subscriber ends the training, see the class.
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
        """Send every subscriber the event that `error` ends the training; their own errors are ignored."""
        event = RunCutShort(error=type(error).__name__, message=redact(str(error)))
        for subscriber in tuple(self._subscribers):
            with suppress(Exception):
                subscriber(event)
