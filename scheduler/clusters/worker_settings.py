"""Settings of worker processes of all kinds of clusters: their number, their memory, and dask's settings for them."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..planning.plan import BASELINE

NANNY_BYTES = 128 << 20
"""Memory of the process that starts the workers of a batch job or a pod, and restarts them after a failure."""

WORKER_SETTINGS: dict[str, Any] = {
    **{f"distributed.worker.memory.{name}": False for name in ("target", "spill", "pause", "terminate")},
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
}
"""dask's settings for workers that distkern starts. distkern limits the memory itself: state above dask's thresholds
would pause a worker for ever, and dask's threshold of malloc makes temporary arrays slow."""

SLACK = 128 << 20
"""Bytes beyond the plan: stacks and arenas that are reserved and never used."""

ABSENT_FOLDER = "/nonexistent"
"""Home directory of users that have none, as of the user nobody."""

PROFILE_SETTINGS: dict[str, Any] = {} if sys.version_info >= (3, 12) else {"distributed.worker.profile.enabled": False}
"""No statistical profile before Python 3.12: there a garbage collection while another thread's frames are sampled can
stop the process for ever (python/cpython#106883)."""


@dataclass(frozen=True)
class WorkerSize:
    """Number of worker processes, and the memory and threads of each."""

    workers: int
    """Number of worker processes."""
    memory: int | None = None
    """Bytes that trainings may take in each worker beside the interpreter; None for dask's share of the machine."""
    threads: int = 1
    """Threads of each worker."""

    @property
    def limit(self) -> int | str:
        """Memory limit of a worker for dask: bytes, or "auto"."""
        return "auto" if self.memory is None else BASELINE + self.memory

    def together(self, processes: int) -> int:
        """Return the bytes of this many workers in one batch job or pod, with the process that starts them."""
        if self.memory is None:
            raise ValueError("workers of a batch job or a pod need a memory limit")
        return processes * (BASELINE + self.memory) + NANNY_BYTES


def worker_settings() -> dict[str, Any]:
    """Return dask's settings for workers that distkern starts."""
    return {**WORKER_SETTINGS, **PROFILE_SETTINGS}


def provide_user_folder() -> None:
    """Set HOME for this process and its workers where the user has no such directory: dask's dashboard looks for one.

    Containers may run under a number that is no user of the system, without the variable HOME.
    """
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = ABSENT_FOLDER


def inherited_settings() -> dict[str, str]:
    """Return `worker_settings` as environment variables of a worker that another process starts."""
    import dask

    settings: dict[str, Any] = {}
    dask.config.set(worker_settings(), config=settings)
    return {"DASK_INTERNAL_INHERIT_CONFIG": dask.config.serialize(settings)}


def hold_memory(client: Any, memory: int | None) -> None:
    """Let the operating system limit the memory of all workers, including those that join later.

    Parameters
    ----------
    client : distributed.Client
        Client of a cluster that distkern started.
    memory : int or None
        Bytes that trainings may take in each worker beside the interpreter; None for no limit.
    """
    from distributed import WorkerPlugin

    if memory is None:
        return
    limit = BASELINE + memory + SLACK

    class HoldMemory(WorkerPlugin):  # type: ignore[misc]  # distributed has no types
        """Limits the data segment of a worker: an overrun is a MemoryError in one task, and the machine is safe."""

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
