"""What plans count on where nobody says: the workers of a cluster, and the memory that a process may take."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import psutil

from .plan import BASELINE

SHARE_OF_AVAILABLE = 0.7
"""What a training without a stated limit takes at most of the memory that it finds."""

FAN_IN = 16
"""Most workers whose answers one task sums, and most that the driver fetches from one by one."""


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


def available_memory(control_group: str | Path = "/sys/fs/cgroup") -> int:
    """Bytes this process may take now: what the machine has left, and its control group (a container, a batch job).

    Parameters
    ----------
    control_group : path-like
        Where the system shows the group's limits.
    """
    available = [psutil.virtual_memory().available]
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        path = Path(control_group, limit)
        with contextlib.suppress(OSError, ValueError):
            most = int(path.read_text())
            taken = int(Path(control_group, used).read_text()) - _cached_files(path.with_name("memory.stat"))
            available.append(most - taken)
    return max(0, min(available))


def _cached_files(stat: Path) -> int:
    """Bytes of a control group's files in memory that the system gives up on demand."""
    try:
        counts = dict(line.split() for line in stat.read_text().splitlines())
        return int(counts.get("total_inactive_file", counts.get("inactive_file", 0)))
    except (OSError, ValueError):
        return 0
