"""Shows a training while it runs: a live bar on a terminal, a log line now and then elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from distkern.cli.terminal import Terminal
from distkern.events import (
    BlocksReplayed,
    Event,
    RoundDone,
    RunEnded,
    RunStarted,
    StorageRetried,
    Subscriber,
    WorkerLost,
    WorkerRefused,
    WorkersAwaited,
)

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

logger = logging.getLogger(__name__)

LOG_INTERVAL = 60.0
"""Least seconds between two log lines on the progress of a run."""


@contextmanager
def show_progress(terminal: Terminal) -> Iterator[Subscriber]:
    """Yield the subscriber that suits the terminal: a bar, log lines, or nothing where it is quiet.

    Parameters
    ----------
    terminal : Terminal
        Says whether standard error can redraw a line and whether anything is wanted on it.

    Yields
    ------
    callable
        Takes each event of a training.
    """
    if terminal.quiet:
        yield _ignore
    elif terminal.live:
        with _bar(terminal) as bar:
            yield LiveProgress(bar)
    else:
        yield LogProgress()


def _ignore(event: Event) -> None:
    del event


def _bar(terminal: Terminal) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("centres"),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        console=terminal.messages,
        transient=True,
    )


class LiveProgress:
    """A bar of centres against the limit, with GCV and lambda beside it.

    Parameters
    ----------
    bar : rich.progress.Progress
        Started and stopped by the caller.
    """

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def __call__(self, event: Event) -> None:
        """Redraw the bar after `event`."""
        if isinstance(event, RunStarted):
            self._remove()
            self._task = self._bar.add_task("training", total=event.max_centers, state="")
        elif isinstance(event, RoundDone) and self._task is not None:
            self._bar.update(self._task, completed=event.n_centers, state=_state(event))
        elif isinstance(event, RunEnded):
            self._remove()
        else:
            _log_incident(event)

    def _remove(self) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None


class LogProgress:
    """A log line at the start and the end of a run and at most once a minute in between.

    Parameters
    ----------
    interval : float
        Least seconds between two lines.
    clock : callable
        Returns seconds.
    """

    def __init__(self, interval: float = LOG_INTERVAL, clock: Callable[[], float] = monotonic) -> None:
        self._interval = interval
        self._clock = clock
        self._last = clock()
        self._limit = 0

    def __call__(self, event: Event) -> None:
        """Log `event` if it is due."""
        if isinstance(event, RunStarted):
            self._last = self._clock()
            self._limit = event.max_centers
            logger.info(
                "training on %d rows x %d features in %d blocks; targets %d, workers %d, centres at most %d",
                event.n_rows,
                event.n_features,
                event.n_blocks,
                event.n_targets,
                event.workers,
                event.max_centers,
            )
        elif isinstance(event, RoundDone):
            now = self._clock()
            if now - self._last >= self._interval:
                self._last = now
                logger.info(
                    "%d of %d centres after %.0f s, %s",
                    event.n_centers,
                    self._limit,
                    event.seconds,
                    _state(event),
                )
        elif isinstance(event, RunEnded):
            logger.info("%d centres in %.1f s, stopped: %s", event.n_centers, event.seconds, event.stop_reason)
        else:
            _log_incident(event)


def _state(event: RoundDone) -> str:
    state = f"gcv {event.gcv:.4g}  lambda {event.lambda_:.3g}"
    return state if event.validation is None else f"{state}  held out {event.validation:.4g}"


_REASONS = {
    "left": "it was killed or left",
    "retired": "it retires",
    "paused": "dask paused it",
    "frozen": "it does not answer",
}


def _log_incident(event: Event) -> None:
    if isinstance(event, WorkerLost):
        logger.warning(
            "lost worker %s (%s); its %d blocks move to others",
            event.worker,
            _REASONS.get(event.reason, event.reason),
            len(event.blocks),
        )
    elif isinstance(event, BlocksReplayed):
        logger.info(
            "worker %s rebuilt %d blocks from %d messages in %.1f s",
            event.worker,
            len(event.blocks),
            event.messages,
            event.seconds,
        )
    elif isinstance(event, WorkerRefused):
        logger.warning(
            "worker %s is not used: %s is %s there and %s here", event.worker, event.what, event.found, event.driver
        )
    elif isinstance(event, WorkersAwaited):
        logger.warning(
            "no worker can be used (%s); waiting up to %g s for one ([cluster] wait)",
            f"{len(event.unusable)} are there" if event.unusable else "the cluster has none",
            event.seconds,
        )
    elif isinstance(event, StorageRetried):
        logger.warning("reads of %s failed %d times and succeeded when tried again", event.array, event.count)
