"""Defaults of plans: the workers of a cluster, and the memory that a process may take."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import psutil

from .plan import BASELINE

SHARE_OF_AVAILABLE = 0.7
"""Largest share of the available memory for a training without a given limit."""

FAN_IN = 8
"""Most workers whose answers one task sums, and most results that the driver fetches in an exchange."""


@dataclass(frozen=True)
class WorkerFacts:
    """Number, threads and memory of the processes of a cluster."""

    n_workers: int
    """Number of workers now, at least 1."""
    threads: int
    """Most threads of a worker."""
    memory_limit: int | None
    """dask's smallest memory limit of a worker in bytes, None where there is none."""
    in_process: bool
    """Whether all workers are threads of this process."""


def subtree_size(count: int, fan_in: int = FAN_IN) -> int:
    """Return the workers below each child of a tree's root but the last: a power of `fan_in`, which is 2 at least.

    It is the smallest one of which at most `fan_in` children hold `count` workers.
    """
    size = 1
    while size * fan_in < count:
        size *= fan_in
    return size


def results_fetched(n_workers: int) -> int:
    """Return how many results the driver fetches in an exchange: of workers, or of trees that sum their answers."""
    return -(-n_workers // subtree_size(n_workers))


def default_limit(facts: WorkerFacts | None = None) -> int:
    """Return the default of the bytes that a process may take beside its baseline.

    Parameters
    ----------
    facts : WorkerFacts, optional
        Workers that hold the rows; this process by default. Workers without a limit of dask share the available memory
        of this machine, on which they are assumed to start.
    """
    if facts is None:
        return int(SHARE_OF_AVAILABLE * available_memory())
    each = facts.memory_limit or available_memory() // facts.n_workers
    return max(int(SHARE_OF_AVAILABLE * each) - BASELINE, 1)


def available_memory(control_group: str | Path = "/sys/fs/cgroup") -> int:
    """Return the bytes available to this process now, in the machine and in its control group (container, batch job).

    Parameters
    ----------
    control_group : path-like
        Folder with the limits of the group.
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
    """Return the bytes of cached files of a control group, which the system frees on demand."""
    try:
        counts = dict(line.split() for line in stat.read_text().splitlines())
        return int(counts.get("total_inactive_file", counts.get("inactive_file", 0)))
    except (OSError, ValueError):
        return 0
