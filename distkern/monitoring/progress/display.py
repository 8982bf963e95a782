"""What a display is, and the subscriber that tells it of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..event_checks import usable
from ..events import Event, RunCutShort, describe
from ..run_state import RunFigures

_LAST = ("RunEnded", "RunCutShort")


class Display:
    """Where a run is shown; this one shows nothing."""

    def show(self, figures: RunFigures, dashboard: str | None) -> None:
        """Show how far the run is, where it is time to, and the address of dask's dashboard, if there is one."""

    def say(self, level: int, text: str) -> None:
        """Write a line that is to stay; its level is one of `logging`."""

    def note(self, text: str | None) -> None:
        """Set a remark on the state of the run, which may be given again and again; None takes it away."""

    def close(self) -> None:
        """Stop redrawing and leave the place as it was found; idempotent."""


class RunDisplay:
    """Shows the events of a run on a display, one by one.

    Parameters
    ----------
    display : Display
        Where.

    Attributes
    ----------
    figures : RunFigures
        The run so far.
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
            # The error itself is about to be seen.
            self.display.close()
            self.figures(event)
        else:
            self.take(event.as_record())

    def take(self, record: Mapping[str, Any], *, show: bool = True) -> None:
        """Show a recorded event.

        Parameters
        ----------
        record : mapping
            As `Event.as_record` makes it.
        show : bool
            Whether to show more than what is to stay.
        """
        if not usable(record):
            return
        kind = record.get("event")
        if self._begins_another(record):
            self.figures = RunFigures()
        self.figures.take(record)
        said = describe(record)
        if kind == "DashboardServed":
            # A search and the training after it both tell of it.
            address = str(record.get("address"))
            said = None if address == self.dashboard else said
            self.dashboard = address
        if said is not None:
            self.display.say(*said)
        if kind in _LAST:
            self.display.close()
        elif show:
            self.display.show(self.figures, self.dashboard)

    def _begins_another(self, record: Mapping[str, Any]) -> bool:
        """Tell whether an event is of another run than those before; a search comes before its run has a name."""
        known = self.figures
        if record.get("event") == "RunStarted":
            return known.run_id not in ("", record.get("run_id"))
        over = known.stop_reason is not None or known.failure is not None
        return over and record.get("part") == "search"
