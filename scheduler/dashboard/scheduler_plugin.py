"""The board: what a dask scheduler knows of the trainings of its clients, and shows.

A plugin of the scheduler, which drivers register. It keeps the figures of the last runs, also of those that are over,
and hangs them up in three places: the page ``/distkern`` of dask's dashboard, the metrics of the scheduler, and the
colours of dask's own plots. Each of these goes through parts of dask that may change; where one is missing the rest is
shown, and drivers are told what is not.

Out of scope: what is drawn (`page`), which metrics there are (`distkern.monitoring.prometheus`), how figures get here
(`publishing`).
"""

from __future__ import annotations

import json
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from time import time
from typing import Any

from distributed import SchedulerPlugin

from distkern.monitoring.run_state import OVER

from .colours import colour_tasks
from .shown_run import ShownRun

BOARD = "distkern-board"
"""Name of the plugin."""

SHOW = "distkern_show"
"""Name under which drivers reach it."""

DRIVER_GONE = "its driver is gone"
"""What cut a run short whose client left without a word."""

MAX_RUNS = 20
"""Runs that are kept; the ones that were heard of longest ago go first."""

logger = logging.getLogger(__name__)


class RunBoard(SchedulerPlugin):  # type: ignore[misc]  # distributed has no types
    """Keeps the figures of runs in the scheduler's process and shows them.

    Attributes
    ----------
    runs : dict
        Key to run, in the order in which they began.
    missing : list of str
        What cannot be shown here, and why.
    """

    name = BOARD
    idempotent = True

    def __init__(self) -> None:
        self.runs: dict[str, ShownRun] = {}
        self.missing: list[str] = []

    async def start(self, scheduler: Any) -> None:
        """Hang up everything that this scheduler has a place for.

        Parameters
        ----------
        scheduler : distributed.Scheduler
            The scheduler.
        """
        scheduler.handlers[SHOW] = self.show
        if self._try("the page /distkern", lambda: _add_page(scheduler, self)):
            self._try("its link in the navigation bar", lambda: _add_link(scheduler))
        self._try("the metrics", lambda: _add_metrics(self))
        self._try("the colours of tasks", colour_tasks)

    async def close(self) -> None:
        """Take the metrics down: another scheduler may start in this process."""
        _boards.discard(self)

    def show(self, update: str) -> dict[str, Any]:
        """Take what a driver has to tell.

        Parameters
        ----------
        update : str
            JSON with ``key``, ``title`` and ``changes`` of the figures, and the name of the ``client``.

        Returns
        -------
        dict
            Whether it was ``taken``, ``rounds`` and ``marks`` that are known of the run now, and what is ``missing``
            here.
        """
        told = json.loads(update)
        run = self.runs.get(told["key"])
        if run is None:
            run = self.runs[told["key"]] = ShownRun(told["key"], told["title"])
        taken = run.figures.apply(told["changes"])
        if taken:
            run.heard, run.changed = time(), run.changed + 1
        run.client = told.get("client")
        self._tidy(run)
        return {
            "taken": taken,
            "rounds": len(run.figures.series["n_centers"]),
            "marks": len(run.figures.marks),
            "missing": self.missing,
        }

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Take that the drivers of a client are gone; one that comes back tells what is right.

        Parameters
        ----------
        scheduler : distributed.Scheduler
            The scheduler.
        client : str
            Name of the client.
        """
        del scheduler
        for run in self.runs.values():
            if run.client == client and run.figures.state not in OVER:
                run.figures.failure, run.changed = DRIVER_GONE, run.changed + 1

    def _tidy(self, newest: ShownRun) -> None:
        """Drop an earlier process's view of the same run, and the runs that are too many."""
        for run in list(self.runs.values()):
            if run is not newest and newest.figures.run_id and run.figures.run_id == newest.figures.run_id:
                del self.runs[run.key]
        while len(self.runs) > MAX_RUNS:
            del self.runs[min(self.runs, key=lambda key: self.runs[key].heard)]

    def _try(self, what: str, hang_up: Callable[[], None]) -> bool:
        """Hang something up, or note that it is missing; tell which."""
        try:
            hang_up()
        except _SwitchedOff:
            logger.info("%s is not shown: the scheduler was started without a dashboard", what)
            return False
        except Exception as error:
            logger.info("cannot show %s", what, exc_info=True)
            self.missing.append(f"{what} ({type(error).__name__}: {error})")
            return False
        return True


class _SwitchedOff(Exception):
    """Somebody wants no dashboard."""


def _add_page(scheduler: Any, board: RunBoard) -> None:
    """Serve the page beside dask's own."""
    from distributed.dashboard.core import BokehApplication
    from distributed.dashboard.scheduler import template_variables
    from tornado.ioloop import IOLoop

    from .page import ROUTE, draw

    served = scheduler.http_application.applications
    prefixes = [app.prefix for app in served if hasattr(app, "app_paths")]
    if not prefixes:
        raise _SwitchedOff

    def document(server: Any, extra: dict[str, Any], doc: Any) -> None:
        draw(board, extra, doc)

    application = BokehApplication(
        {ROUTE: document}, scheduler, prefix=prefixes[0], template_variables=template_variables(scheduler)
    )
    scheduler.http_application.add_application(application)
    application.initialize(IOLoop.current())
    application.start()


def _add_link(scheduler: Any) -> None:
    """Put the page into the navigation bar of all pages; they share one list."""
    from distributed.dashboard.scheduler import template_variables

    from .page import ROUTE

    pages, name = template_variables(scheduler)["pages"], ROUTE.strip("/")
    if name not in pages:
        pages.insert(pages.index("info") if "info" in pages else len(pages), name)


_boards: weakref.WeakSet[RunBoard] = weakref.WeakSet()
_collecting = threading.Lock()
_collected = False


class _Collector:
    """Metrics of all boards of this process: a registry takes a metric's name once."""

    def collect(self) -> Iterator[Any]:
        from distkern.monitoring.prometheus import families

        shown = [run for board in list(_boards) for run in list(board.runs.values())]
        yield from families((run.run_id, run.title, run.figures) for run in shown)


def _add_metrics(board: RunBoard) -> None:
    """Add the board's runs to what ``/metrics`` exports."""
    import prometheus_client

    global _collected
    with _collecting:
        if not _collected:
            prometheus_client.REGISTRY.register(_Collector())
            _collected = True
        _boards.add(board)
