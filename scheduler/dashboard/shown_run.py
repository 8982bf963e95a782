"""One run as the dashboard shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import time

from distkern.monitoring.run_state import RunFigures


@dataclass
class ShownRun:
    """One run on the board."""

    key: str
    """Names the run as long as its driver lives."""
    title: str
    """What people know it by."""
    figures: RunFigures = field(default_factory=RunFigures)
    heard: float = field(default_factory=time)
    """Seconds since the epoch of the last update."""
    changed: int = 0
    """Counts updates."""
    client: str | None = None
    """Name of the driver's client on the scheduler."""

    @property
    def run_id(self) -> str:
        """Name of the run on the cluster, its key before it has one."""
        return self.figures.run_id or self.key
