"""The client of a call: the one that was given, or else the current one, if the calling thread can wait for it.

Covers the choice only; clients are made in `clients`. Which threads cannot wait is in `distkern.storage.arrays.lazy`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distkern.errors import ClusterError
from distkern.storage.arrays.lazy import asynchronous_client, current_client, occupies_worker

from ..runtime.read_ahead import step_aside

logger = logging.getLogger(__name__)


def require_usable(client: Any) -> None:
    """Refuse a client that the calling thread cannot wait for.

    Parameters
    ----------
    client : distributed.Client
        The client.

    Raises
    ------
    JobError
        ``asynchronous-client``: its event loop runs in this thread.
    ClusterError
        ``client-closed``: it is closed.
    """
    if client.status in ("closing", "closed"):
        raise ClusterError(
            "the dask client is closed: give a client of a running cluster, or client=None to train in this process",
            kind="client-closed",
        )
    if client.asynchronous:
        raise asynchronous_client("the dask client")


def found_client() -> Any | None:
    """Return the current client, None where there is none or this thread cannot wait for it."""
    client = current_client()
    if client is None:
        return None
    if client.asynchronous:
        logger.warning(
            "the current dask client is asynchronous, so this process works alone: make the call in another thread "
            "(asyncio.to_thread) to use its workers"
        )
        return None
    if occupies_worker():
        logger.info("this dask task works alone, as it was given no client")
        return None
    return client


def predicting_client(given: Any) -> Any | None:
    """Return the client of a prediction: the given or else the current one, None where it is not running any more.

    Raises
    ------
    JobError
        As `require_usable`, for a client that was given.
    """
    client = found_client() if given is None else given
    if client is not None and client.status != "running":
        logger.info("the client is %s: predicting in this process", client.status)
        return None
    if given is not None:
        require_usable(given)
    return client


@contextmanager
def outside_pool(client: Any) -> Iterator[None]:
    """Let the worker of this dask task start another one within the context, as dask does where a task waits.

    Parameters
    ----------
    client : distributed.Client or None
        Client to wait for; nothing happens without one, or outside tasks.
    """
    if client is None or not occupies_worker():
        yield
        return
    from distributed import rejoin

    thread = threading.get_ident()
    step_aside()
    try:
        yield
    finally:
        # A generator may be closed by another thread.
        if thread == threading.get_ident():
            rejoin()
