"""Waiting for the workers that a command begins with."""

from __future__ import annotations

import logging
from time import monotonic, sleep
from typing import Any

from distkern.errors import ClusterError

from .clients import default_worker_wait
from .worker_queries import workers_of

logger = logging.getLogger(__name__)

ARRIVAL_SECONDS = 0.25
"""How often the scheduler is asked for its workers."""


def await_workers(client: Any, least: int, seconds: float | None = None) -> None:
    """Wait until a cluster has as many workers as a command begins with.

    Parameters
    ----------
    client : distributed.Client
        Of the cluster.
    least : int
        Workers to wait for.
    seconds : float, optional
        How long; what is configured (``distkern.worker-wait``) if not given.

    Raises
    ------
    ClusterError
        ``no-workers``: fewer came.
    """
    seconds = default_worker_wait() if seconds is None else seconds
    begun, told = monotonic(), False
    while (here := len(workers_of(client))) < least:
        if monotonic() - begun > seconds:
            raise ClusterError(
                f"{here} of {least} workers came within {seconds:g} s: look at what the others print, raise wait "
                "under [cluster], or begin with fewer (min_workers under [cluster])",
                kind="no-workers",
            )
        if not told and monotonic() - begun > 1:
            told = True
            logger.warning("waiting up to %g s for %d workers, %d are here", seconds, least, here)
        sleep(ARRIVAL_SECONDS)
