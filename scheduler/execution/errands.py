"""What one task after another does with some blocks of one worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Errand:
    """Blocks of one worker on their way through steps (place, replay, message) in order."""

    worker: str
    blocks: tuple[int, ...]
    steps: Iterator[tuple[str, tuple[Any, ...]]] = field(default_factory=lambda: iter(()))
    """Name and call of each task that is still to come."""
    replayed: int = 0
    """Messages of the log that were replayed on the way."""
    began: float = 0.0
    """When the first step of catching up was sent."""
    caught_up: float = 0.0
    """When the last of those was done."""
    last: bool = True
    """Whether the task under way is the last, whose result is the answer."""

    @property
    def workers(self) -> set[str]:
        """Workers that the errand cannot do without."""
        return {self.worker}
