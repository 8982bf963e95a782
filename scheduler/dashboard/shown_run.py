"""One run as the dashboard shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import time

from distkern.monitoring.run_state import RunFigures


@dataclass
class ShownRun:
    """One run on the board."""

    key: str
    """Names the run during the life of its driver."""
    title: str
    """Name of the run for users."""
    figures: RunFigures = field(default_factory=RunFigures)
    updated: float = field(default_factory=time)
    """Time of the last update, in seconds since the epoch."""
    changed: int = 0
    """Number of updates."""
    client: str | None = None
    """Name of the driver's client on the scheduler."""

    @property
    def run_id(self) -> str:
        """Name of the run on the cluster; its key before the run has one."""
        return self.figures.run_id or self.key
