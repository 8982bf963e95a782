"""A worker's memory held by the operating system: an overrun is a MemoryError in one task, not a dead machine."""

from __future__ import annotations

import contextlib
from typing import Any

from distributed import WorkerPlugin

from ..planning.plan import BASELINE

SLACK = 128 << 20
"""Bytes beyond the plan: stacks and arenas that are reserved and never touched."""


class HoldMemory(WorkerPlugin):  # type: ignore[misc]  # distributed has no types
    """Limits the data segment of a worker process (``RLIMIT_DATA``), where the system has such a limit.

    Parameters
    ----------
    limit : int
        Bytes that trainings may take beside the interpreter's own.
    """

    name = "distkern-hold-memory"

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def setup(self, worker: Any) -> None:
        """Set the limit; a process that may not is left as it is."""
        try:
            import resource
        except ImportError:
            return
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = BASELINE + self.limit + SLACK
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
