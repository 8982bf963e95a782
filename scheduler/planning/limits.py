"""What plans count on where nobody says: the workers of a cluster, and the memory that a process may take."""

from __future__ import annotations

from dataclasses import dataclass

from .memory import BASELINE, SHARE_OF_AVAILABLE, available_memory


@dataclass(frozen=True)
class WorkerFacts:
    """What a plan needs to know of the processes of a cluster."""

    n_workers: int
    """Workers now, 1 at least."""
    threads: int
    """Most threads of a worker."""
    memory_limit: int | None
    """dask's smallest limit for a worker in bytes, None where there is none."""
    in_process: bool
    """Whether all workers live in this process."""


def default_limit(facts: WorkerFacts | None = None) -> int:
    """Bytes that a process may take beside its baseline where nothing is said.

    Parameters
    ----------
    facts : WorkerFacts, optional
        Workers that hold the rows; this process if not given. Workers without a limit of dask's share what this
        machine has left, if they are yet to be started here.
    """
    if facts is None:
        return int(SHARE_OF_AVAILABLE * available_memory())
    each = facts.memory_limit or available_memory() // facts.n_workers
    return max(int(SHARE_OF_AVAILABLE * each) - BASELINE, 1)


FAN_IN = 16
"""Most workers whose answers one task sums, and most that the driver fetches from one by one."""
