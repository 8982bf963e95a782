"""The status of a run of another process: in work, ended, or abandoned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...text import duration

if TYPE_CHECKING:
    from distkern.storage import Driver

REMARK_SECONDS = 300.0
"""Seconds without an event before a remark."""

GIVE_UP_SECONDS = 60.0
"""Seconds to wait for a resume after the driver process exited."""

SUMMARY_SECONDS = 10.0
"""Seconds to wait for the summary after the end of the selection, when the driver process exited."""


@dataclass(frozen=True)
class RunStatus:
    """Status of a run."""

    ended: bool = False
    """Whether the run has ended, default False."""
    abandoned: bool = False
    """Whether its process exited, and no other resumed it; default False."""
    remark: str | None = None
    """Text for users who wait, default None."""


class RunWatch:
    """Determines the status of a run from its lock, its events and its summary.

    Parameters
    ----------
    now : float
        Seconds of a clock; later calls use the same clock.
    """

    def __init__(self, now: float) -> None:
        self._last_event = now
        self._exited_at: float | None = None

    def record_event(self, now: float) -> None:
        """Record that the run has a new event."""
        self._last_event = now
        self._exited_at = None

    def status(self, driver: Driver | None, *, summary: bool, stopped: bool, now: float) -> RunStatus:
        """Return the status of the run.

        Parameters
        ----------
        driver : Driver or None
            The driver process.
        summary : bool
            Whether the run has a summary.
        stopped : bool
            Whether its selection has ended.
        now : float
            Seconds.
        """
        alive = None if driver is None else driver.alive
        if summary and not (driver is not None and driver.holds_lock):
            return RunStatus(ended=True)
        if alive is not False:
            self._exited_at = None
            return RunStatus(remark=self._silence(driver, now))
        self._exited_at = now if self._exited_at is None else self._exited_at
        seconds = now - self._exited_at
        if stopped:
            return RunStatus(ended=seconds >= SUMMARY_SECONDS)
        assert driver is not None
        remark = f"{_name(driver)} exited; waiting {duration(GIVE_UP_SECONDS)} for a resume"
        return RunStatus(abandoned=seconds >= GIVE_UP_SECONDS, remark=remark)

    def _silence(self, driver: Driver | None, now: float) -> str | None:
        silent = now - self._last_event
        if silent < REMARK_SECONDS:
            return None
        remark = f"no event for {duration(silent)}"
        if driver is None or driver.host is None:
            return remark
        if driver.alive:
            return f"{remark}; {_name(driver)} is running"
        return f"{remark}; this machine cannot check whether {_name(driver)} is running"


def _name(driver: Driver) -> str:
    return f"driver process {driver.pid} on {driver.host}"
