"""The board: a plugin of the dask scheduler that keeps the state of trainings and shows it.

Drivers register it. It keeps the state of the last runs, ended ones included, and shows them in three places: the
page ``/distkern`` of dask's dashboard, the metrics of the scheduler, and the colours of dask's own plots. Each of these
uses parts of dask that may change; where one fails the others are shown, and the answer to drivers names it.

Covers neither drawing, see `page`, nor the list of metrics, see `distkern.monitoring.prometheus`, nor sending, see
`publisher`.
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
"""Name of the handler that drivers call."""

DRIVER_DISCONNECTED = "its driver disconnected"
"""Failure of a run whose client disconnected before the end."""

MAX_RUNS = 20
"""Most runs that are kept; those with the oldest update are dropped first."""

logger = logging.getLogger(__name__)


class RunBoard(SchedulerPlugin):  # type: ignore[misc]  # distributed has no types
    """Keeps the state of runs in the scheduler's process and shows it.

    Attributes
    ----------
    runs : dict
        Key to run, in the order in which they began.
    missing : list of str
        Parts that cannot be shown here, with the reasons.
    """

    name = BOARD
    idempotent = True

    def __init__(self) -> None:
        self.runs: dict[str, ShownRun] = {}
        self.missing: list[str] = []

    async def start(self, scheduler: Any) -> None:
        """Install all parts that this scheduler supports.

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
        """Remove the metrics: another scheduler may start in this process."""
        _boards.discard(self)

    def show(self, update: str) -> dict[str, Any]:
        """Apply an update of a driver.

        Parameters
        ----------
        update : str
            JSON with ``key``, ``title`` and ``changes`` of the run's state, and the name of the ``client``.

        Returns
        -------
        dict
            Whether the update was ``taken``, the numbers of ``rounds`` and ``marks`` of the run, and the parts that are
            ``missing`` here.
        """
        sent = json.loads(update)
        run = self.runs.get(sent["key"])
        if run is None:
            run = self.runs[sent["key"]] = ShownRun(sent["key"], sent["title"])
        taken = run.figures.apply(sent["changes"])
        if taken:
            run.updated, run.changed = time(), run.changed + 1
        run.client = sent.get("client")
        self._tidy(run)
        return {
            "taken": taken,
            "rounds": len(run.figures.series["n_centers"]),
            "marks": len(run.figures.marks),
            "missing": self.missing,
        }

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Mark the runs of a client that disconnected as cut short; a client that reconnects sends the state again.

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
                run.figures.failure, run.changed = DRIVER_DISCONNECTED, run.changed + 1

    def _tidy(self, newest: ShownRun) -> None:
        """Drop the state of the same run from an earlier process, and runs beyond `MAX_RUNS`."""
        for run in list(self.runs.values()):
            if run is not newest and newest.figures.run_id and run.figures.run_id == newest.figures.run_id:
                del self.runs[run.key]
        while len(self.runs) > MAX_RUNS:
            del self.runs[min(self.runs, key=lambda key: self.runs[key].updated)]

    def _try(self, what: str, install: Callable[[], None]) -> bool:
        """Install a part, or record that it is missing; return whether it was installed."""
        try:
            install()
        except _SwitchedOff:
            logger.info("%s is not shown: the scheduler was started without a dashboard", what)
            return False
        except Exception as error:
            logger.info("cannot show %s", what, exc_info=True)
            self.missing.append(f"{what} ({type(error).__name__}: {error})")
            return False
        return True


class _SwitchedOff(Exception):
    """The scheduler has no dashboard."""


def _add_page(scheduler: Any, board: RunBoard) -> None:
    """Serve the page with dask's own pages."""
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
    """Add the page to the navigation bar, whose list all pages share."""
    from distributed.dashboard.scheduler import template_variables

    from .page import ROUTE

    pages, name = template_variables(scheduler)["pages"], ROUTE.strip("/")
    if name not in pages:
        pages.insert(pages.index("info") if "info" in pages else len(pages), name)


_boards: weakref.WeakSet[RunBoard] = weakref.WeakSet()
_collecting = threading.Lock()
_collected = False


class _Collector:
    """Metrics of all boards of this process: a registry accepts the name of a metric only once."""

    def collect(self) -> Iterator[Any]:
        from distkern.monitoring.prometheus import families

        shown = [run for board in list(_boards) for run in list(board.runs.values())]
        yield from families((run.run_id, run.title, run.figures) for run in shown)


def _add_metrics(board: RunBoard) -> None:
    """Add the runs of the board to ``/metrics``."""
    import prometheus_client

    global _collected
    with _collecting:
        if not _collected:
            prometheus_client.REGISTRY.register(_Collector())
            _collected = True
        _boards.add(board)
