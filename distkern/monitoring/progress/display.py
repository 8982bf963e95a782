"""The base class of displays, and the subscriber that shows the events of a run on one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..event_checks import usable
from ..events import Event, RunCutShort, describe
from ..run_state import RunFigures

_LAST = ("RunEnded", "RunCutShort")


class Display:
    """Base class of displays; it shows nothing."""

    def show(self, figures: RunFigures, dashboard: str | None) -> None:
        """Show the figures, where the last time is long enough ago, and the address of dask's dashboard, if any."""

    def say(self, level: int, text: str) -> None:
        """Write a line that stays visible; its level is one of `logging`."""

    def note(self, text: str | None) -> None:
        """Set the remark on the state of the run, also the same one again; None removes it."""

    def close(self) -> None:
        """Stop redrawing and restore the terminal; a second call does nothing."""


class RunDisplay:
    """Subscriber that shows the events of a run on a display.

    Parameters
    ----------
    display : Display
        The display.

    Attributes
    ----------
    figures : RunFigures
        Figures of the run so far.
    dashboard : str or None
        Address of dask's dashboard, where there is one.
    """

    def __init__(self, display: Display) -> None:
        self.display = display
        self.dashboard: str | None = None
        self.figures = RunFigures()

    def __call__(self, event: Event) -> None:
        """Show an event of a training that runs in this process."""
        if isinstance(event, RunCutShort):
            # The caller reports the error itself.
            self.display.close()
            self.figures(event)
        else:
            self.take(event.as_record())

    def take(self, record: Mapping[str, Any], *, show: bool = True) -> None:
        """Show a recorded event.

        Parameters
        ----------
        record : mapping
            Result of `Event.as_record`.
        show : bool, default True
            Whether to show the figures too; lines that stay are written in any case.
        """
        if not usable(record):
            return
        kind = record.get("event")
        if self._begins_another(record):
            self.figures = RunFigures()
        self.figures.take(record)
        message = describe(record)
        if kind == "DashboardServed":
            # A search and the training after it both send this event.
            address = str(record.get("address"))
            message = None if address == self.dashboard else message
            self.dashboard = address
        if message is not None:
            self.display.say(*message)
        if kind in _LAST:
            self.display.close()
        elif show:
            self.display.show(self.figures, self.dashboard)

    def _begins_another(self, record: Mapping[str, Any]) -> bool:
        """Return whether an event is of another run; a search and the rounds of a metric precede the name of theirs."""
        known = self.figures
        if record.get("event") == "RunStarted":
            return known.run_id not in ("", record.get("run_id"))
        over = known.stop_reason is not None or known.failure is not None
        return over and (record.get("part") == "search" or record.get("event") == "MetricRoundDone")
