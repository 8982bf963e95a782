"""What worker processes are started with, wherever they run: their number, their memory, dask's settings for them."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import Any

from ..planning.plan import BASELINE

NANNY_BYTES = 128 << 20
"""Memory of the process that starts the workers of a batch job or a pod and restarts those that die."""

WORKER_SETTINGS: dict[str, Any] = {
    **{f"distributed.worker.memory.{name}": False for name in ("target", "spill", "pause", "terminate")},
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
}
"""dask's settings for workers of distkern's, which holds the memory itself: state above dask's thresholds would pause a
worker for ever, and the threshold of malloc makes temporary arrays slow."""

SLACK = 128 << 20
"""Bytes beyond the plan: stacks and arenas that are reserved and never touched."""

PROFILE_SETTINGS: dict[str, Any] = {} if sys.version_info >= (3, 12) else {"distributed.worker.profile.enabled": False}
"""No statistical profile before Python 3.12: there a collection of garbage while another thread's frames are sampled
can stop the whole process for ever (python/cpython#106883)."""


@dataclass(frozen=True)
class WorkerSize:
    """How many worker processes, and what each may take."""

    workers: int
    """Worker processes."""
    memory: int | None = None
    """Bytes that trainings may take of each beside the interpreter's own; dask's share of the machine if None."""
    threads: int = 1
    """Threads of each."""

    @property
    def limit(self) -> int | str:
        """Limit of a worker in bytes, as dask takes it."""
        return "auto" if self.memory is None else BASELINE + self.memory

    def together(self, processes: int) -> int:
        """Bytes that this many of them need in one batch job or pod, with the process that starts them."""
        if self.memory is None:
            raise ValueError("workers of a batch job or a pod need a memory limit")
        return processes * (BASELINE + self.memory) + NANNY_BYTES


def worker_settings() -> dict[str, Any]:
    """Return dask's settings for workers that distkern starts."""
    return {**WORKER_SETTINGS, **PROFILE_SETTINGS}


def inherited_settings() -> dict[str, str]:
    """Return `worker_settings` as environment variables of a worker that another process starts."""
    import dask

    settings: dict[str, Any] = {}
    dask.config.set(worker_settings(), config=settings)
    return {"DASK_INTERNAL_INHERIT_CONFIG": dask.config.serialize(settings)}


def hold_memory(client: Any, memory: int | None) -> None:
    """Have the operating system hold the memory of all workers, of those too that come later.

    Parameters
    ----------
    client : distributed.Client
        Of a cluster that distkern started.
    memory : int or None
        Bytes that trainings may take of each beside the interpreter's own; None holds nothing.
    """
    from distributed import WorkerPlugin

    if memory is None:
        return
    limit = BASELINE + memory + SLACK

    class HoldMemory(WorkerPlugin):  # type: ignore[misc]  # distributed has no types
        """Limits the data segment of a worker: an overrun is a MemoryError in one task, not a dead machine."""

        name = "distkern-hold-memory"

        def setup(self, worker: Any) -> None:
            try:
                import resource
            except ImportError:
                return
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            lower = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_DATA, (lower, hard))

    client.register_plugin(HoldMemory())
