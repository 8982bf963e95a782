"""Sending of a training's state to the board in the scheduler, without delaying the training.

The driver adds up events. From time to time the event loop of the client sends the changes, one message at a time. An
error there does not end the training; one warning names the parts that are not shown. The board is `scheduler_plugin`,
the sums are `distkern.monitoring.run_state`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import uuid
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from time import monotonic, time
from typing import Any

from distkern.monitoring.events import Event
from distkern.monitoring.run_state import RunFigures
from distkern.storage import RunDirectory
from distkern.text import plain

SEND_SECONDS = 0.5
"""Least time between two messages of a run."""

RETRY_SECONDS = 5.0
"""Least time to the next message after one that failed."""

SHOW_SECONDS = 10.0
"""Most time for an answer of the scheduler."""

LAST_SECONDS = 2.0
"""Most time that a training waits at its end for its last message."""

logger = logging.getLogger(__name__)

_warned: weakref.WeakSet[Any] = weakref.WeakSet()


class Publisher:
    """A subscriber that shows a run on the board of its cluster.

    Parameters
    ----------
    client : distributed.Client or None
        The cluster; nothing is shown without one.
    title : str
        Name of the run for users.
    figures : RunFigures, optional
        State of the run after earlier processes; empty by default.
    """

    def __init__(self, client: Any, title: str, figures: RunFigures | None = None) -> None:
        self._client = client
        self._title = title
        self._key = uuid.uuid4().hex
        self._figures = RunFigures() if figures is None else figures
        self._lock = threading.Lock()
        self._news = False
        self._pump: Future[None] | None = None
        self._due = 0.0
        self._known = (0, 0)
        self._registered = False
        self._last = False

    def __call__(self, event: Event) -> None:
        """Add an event, which is sent with the next message."""
        if self._client is None:
            return
        with self._lock:
            self._figures(event)
            self._send_soon()

    def conclude(self, summary: Mapping[str, Any]) -> None:
        """Add the summary of the run.

        Parameters
        ----------
        summary : mapping
            The summary, as ``train --json`` prints it.
        """
        if self._client is None:
            return
        with self._lock:
            self._figures.conclude(plain(summary))
            self._send_soon()

    def give_up(self, error: BaseException) -> None:
        """Add the error that ended the training.

        Parameters
        ----------
        error : BaseException
            The error.
        """
        if self._client is None:
            return
        with self._lock:
            self._figures.failure = getattr(error, "kind", type(error).__name__)
            self._figures.updated = time()
            self._send_soon()

    def close(self) -> None:
        """Send the last changes, within `LAST_SECONDS`."""
        with self._lock:
            self._last, pump = True, self._pump
        if pump is not None:
            try:
                pump.result(LAST_SECONDS)
            except Exception:
                pump.cancel()
                logger.info("the last figures of a run were not sent", exc_info=True)

    def _send_soon(self) -> None:
        """Start sending, where it has not started; the caller holds the lock."""
        self._news = True
        if self._pump is not None and not self._pump.done():
            return
        if self._client.status != "running":
            return
        sending = self._send()
        try:
            self._pump = asyncio.run_coroutine_threadsafe(sending, self._client.loop.asyncio_loop)
        except RuntimeError:  # the loop is closed
            sending.close()

    async def _send(self) -> None:
        while True:
            while not self._last and (wait := self._due - monotonic()) > 0:
                await asyncio.sleep(min(wait, 0.1))
            with self._lock:
                if not self._news:
                    self._pump = None
                    return
                self._news = False
                changes = self._figures.changes(*self._known)
            self._due = monotonic() + SEND_SECONDS
            try:
                await asyncio.wait_for(self._show(changes), SHOW_SECONDS)
            except Exception as error:
                self._due = monotonic() + RETRY_SECONDS
                self._known, self._registered = (0, 0), False
                self._warn(f"the scheduler cannot show them ({type(error).__name__}: {error})")
                with self._lock:
                    self._pump = None
                return

    async def _show(self, changes: dict[str, Any]) -> None:
        """Send changes; a scheduler without the board, or without the run, gets everything."""
        from .scheduler_plugin import SHOW, RunBoard

        for attempt in range(2):
            if not self._registered:
                await self._client.register_plugin(RunBoard())
                self._registered = True
            sent = {"key": self._key, "title": self._title, "client": self._client.id, "changes": changes}
            update = json.dumps(sent)
            answer = await getattr(self._client.scheduler, SHOW)(update=update)
            if isinstance(answer, Mapping):
                self._known = answer["rounds"], answer["marks"]
                if answer["missing"]:
                    self._warn("; ".join(answer["missing"]))
                if answer["taken"]:
                    return
            else:
                self._registered = False  # another scheduler has started
            if attempt:
                raise LookupError("its board does not take them")
            with self._lock:
                changes = self._figures.changes()

    def _warn(self, what: str) -> None:
        """Warn of what is not shown, once for all trainings of a client."""
        if self._client in _warned:
            logger.info("trainings are not shown on dask's dashboard as they should be: %s", what)
            return
        _warned.add(self._client)
        logger.warning("the training goes on, but dask's dashboard does not show it as it should; not shown: %s", what)


@contextmanager
def published(client: Any, title: str, run: RunDirectory | None = None) -> Iterator[Publisher]:
    """Show a run on the board of a cluster within the context; the board keeps it afterwards.

    Parameters
    ----------
    client : distributed.Client or None
        The cluster; nothing is shown without one.
    title : str
        Name of the run for users, where it has no directory; otherwise the name of the directory.
    run : RunDirectory, optional
        Directory of the run, with the events of earlier processes; none by default.

    Yields
    ------
    Publisher
        A subscriber of the run's events.
    """
    figures = None
    if run is not None and client is not None:
        title, figures = run.name, RunFigures.of_records(run.events())
    publisher = Publisher(client, title, figures)
    try:
        yield publisher
    except BaseException as error:
        publisher.give_up(error)
        raise
    finally:
        publisher.close()
