"""Telling the scheduler's board how a training is getting on, without ever holding it up.

Events are added up where they arise; now and then what is new is sent from the client's event loop, never more than
one message at a time. Whatever goes wrong there, the training goes on: a warning says once what is not shown.
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
"""How long the scheduler may take to answer one."""

LAST_SECONDS = 2.0
"""How long a training that is over waits for its last message to be sent."""

logger = logging.getLogger(__name__)

_warned: weakref.WeakSet[Any] = weakref.WeakSet()


class Publisher:
    """A subscriber that shows a run on the board of its cluster.

    Parameters
    ----------
    client : distributed.Client or None
        The cluster; nothing is shown without one.
    title : str
        What people know the run by.
    figures : RunFigures, optional
        What earlier processes came to.
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
        """Take an event; it is sent with others, soon."""
        if self._client is None:
            return
        with self._lock:
            self._figures(event)
            self._tell()

    def conclude(self, summary: Mapping[str, Any]) -> None:
        """Take what the run came to.

        Parameters
        ----------
        summary : mapping
            As ``train --json`` prints it.
        """
        if self._client is None:
            return
        with self._lock:
            self._figures.conclude(plain(summary))
            self._tell()

    def give_up(self, error: BaseException) -> None:
        """Take that the training was cut short.

        Parameters
        ----------
        error : BaseException
            What ended it.
        """
        if self._client is None:
            return
        with self._lock:
            self._figures.failure = getattr(error, "kind", type(error).__name__)
            self._figures.updated = time()
            self._tell()

    def close(self) -> None:
        """Send what is left, if that can be done at once."""
        with self._lock:
            self._last, pump = True, self._pump
        if pump is not None:
            try:
                pump.result(LAST_SECONDS)
            except Exception:
                pump.cancel()
                logger.info("the last figures of a run were not sent", exc_info=True)

    def _tell(self) -> None:
        """Have news sent; under the lock."""
        self._news = True
        if self._pump is not None and not self._pump.done():
            return
        if self._client.status != "running":
            return
        sending = self._send()
        try:
            self._pump = asyncio.run_coroutine_threadsafe(sending, self._client.loop.asyncio_loop)
        except RuntimeError:  # the loop was closed meanwhile
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
        """Send changes; a scheduler that does not know the board, or the run, is told everything."""
        from .scheduler_plugin import SHOW, RunBoard

        for attempt in range(2):
            if not self._registered:
                await self._client.register_plugin(RunBoard())
                self._registered = True
            told = {"key": self._key, "title": self._title, "client": self._client.id, "changes": changes}
            update = json.dumps(told)
            answer = await getattr(self._client.scheduler, SHOW)(update=update)
            if isinstance(answer, Mapping):
                self._known = answer["rounds"], answer["marks"]
                if answer["missing"]:
                    self._warn("; ".join(answer["missing"]))
                if answer["taken"]:
                    return
            else:
                self._registered = False  # another scheduler is there
            if attempt:
                raise LookupError("its board does not take them")
            with self._lock:
                changes = self._figures.changes()

    def _warn(self, what: str) -> None:
        """Say once for all trainings of a client what is not shown."""
        if self._client in _warned:
            logger.info("trainings are not shown on dask's dashboard as they should be: %s", what)
            return
        _warned.add(self._client)
        logger.warning("the training goes on, but dask's dashboard does not show it as it should; not shown: %s", what)


@contextmanager
def published(client: Any, title: str, run: RunDirectory | None = None) -> Iterator[Publisher]:
    """Show a run on the board of a cluster for as long as the context lasts; what was shown stays there.

    Parameters
    ----------
    client : distributed.Client or None
        The cluster; nothing is shown without one.
    title : str
        What people know the run by, where it has no directory whose name says so.
    run : RunDirectory, optional
        The run, with what earlier processes recorded of it.

    Yields
    ------
    Publisher
        A subscriber of the run's events.
    """
    figures = None
    if run is not None and client is not None:
        title, figures = run.path.name, RunFigures.of_records(run.events())
    publisher = Publisher(client, title, figures)
    try:
        yield publisher
    except BaseException as error:
        publisher.give_up(error)
        raise
    finally:
        publisher.close()
