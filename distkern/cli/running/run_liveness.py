"""Whether a run that is watched from outside has ended, goes on, or was left behind by its process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...text import duration

if TYPE_CHECKING:
    from distkern.storage import Driver

REMARK_SECONDS = 300.0
"""How long a run may tell of nothing before that is remarked on."""

GIVE_UP_SECONDS = 60.0
"""How long a run whose process is gone is waited for: another may go on with it."""

SUMMARY_SECONDS = 10.0
"""How long the summary of a run is waited for after its selection is over and its process is gone."""


@dataclass(frozen=True)
class RunStatus:
    """What can be said of a run."""

    ended: bool = False
    """It is over."""
    abandoned: bool = False
    """Its process is gone, and no other has gone on with it."""
    remark: str | None = None
    """What somebody who waits should know."""


class RunWatch:
    """Judges a run by its lock, its events and its summary.

    Parameters
    ----------
    now : float
        Seconds of any clock; later calls use the same.
    """

    def __init__(self, now: float) -> None:
        self._heard = now
        self._gone: float | None = None

    def hear(self, now: float) -> None:
        """Note that the run told of something."""
        self._heard = now
        self._gone = None

    def judge(self, driver: Driver | None, *, summary: bool, stopped: bool, now: float) -> RunStatus:
        """Say how the run is.

        Parameters
        ----------
        driver : Driver or None
            Who drives it.
        summary : bool
            Whether its summary is there.
        stopped : bool
            Whether its selection is over.
        now : float
            Seconds.
        """
        alive = None if driver is None else driver.alive
        if summary and not (driver is not None and driver.holds_lock):
            return RunStatus(ended=True)
        if alive is not False:
            self._gone = None
            return RunStatus(remark=self._silence(driver, now))
        self._gone = now if self._gone is None else self._gone
        gone = now - self._gone
        if stopped:
            return RunStatus(ended=gone >= SUMMARY_SECONDS)
        assert driver is not None
        remark = (
            f"its process ({_name(driver)}) is gone; waiting {duration(GIVE_UP_SECONDS)} for another to go on with it"
        )
        return RunStatus(abandoned=gone >= GIVE_UP_SECONDS, remark=remark)

    def _silence(self, driver: Driver | None, now: float) -> str | None:
        silent = now - self._heard
        if silent < REMARK_SECONDS:
            return None
        told = f"nothing was recorded for {duration(silent)}"
        if driver is None or driver.host is None:
            return told
        if driver.alive:
            return f"{told}; its process ({_name(driver)}) still runs"
        return f"{told}; whether its process ({_name(driver)}) still runs cannot be told from here"


def _name(driver: Driver) -> str:
    return f"number {driver.pid} on {driver.host}"
