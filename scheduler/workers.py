"""What a cluster looks like from a client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


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


def worker_facts(client: Any) -> WorkerFacts:
    """Ask the scheduler for its workers."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    limits = [int(w["memory_limit"]) for w in workers.values() if w.get("memory_limit")]
    return WorkerFacts(
        n_workers=max(1, len(workers)),
        threads=max((w["nthreads"] for w in workers.values()), default=1),
        memory_limit=min(limits, default=None),
        in_process=_inproc(workers),
    )


def in_process(client: Any) -> bool:
    """Whether all workers of a client live in this process."""
    return _inproc(client.scheduler_info(n_workers=-1)["workers"])


def _inproc(addresses: Iterable[str]) -> bool:
    found = list(addresses)
    return bool(found) and all(address.startswith("inproc://") for address in found)
