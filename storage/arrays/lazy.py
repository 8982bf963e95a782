"""Frames of dask, the client that is current, and where collections are computed, without an import of dask.

A thread that runs the event loop of a client would block it, and a task that waits for other tasks while it occupies a
thread of its worker may wait for ever. Neither waits for a client here: the threads of this process compute instead.
"""

from __future__ import annotations

import sys
from typing import Any

from distkern.errors import DataError, JobError
from distkern.redaction import displayed_cause, redact


def current_client() -> Any | None:
    """Return the dask client that is current in this process, None if there is none; never imports dask."""
    module = sys.modules.get("distributed")
    if module is None:
        return None
    try:
        return module.default_client()
    except ValueError:
        return None


def occupies_worker() -> bool:
    """Return whether this thread runs a dask task, and is one of the threads of its worker."""
    pool, worker = (sys.modules.get(f"distributed.{name}") for name in ("threadpoolexecutor", "worker"))
    if pool is None or worker is None or not getattr(pool.thread_state, "proceed", False):
        return False
    # The thread of an actor takes the place of no task.
    return hasattr(worker.thread_state, "key") and not getattr(worker.thread_state, "actor", False)


def compute_options(*collections: Any) -> dict[str, Any]:
    """Return the options of dask's ``compute`` and ``persist`` for a wait in this thread, or on behalf of it.

    Parameters
    ----------
    *collections
        Collections to compute.

    Raises
    ------
    JobError
        ``asynchronous-client``, ``occupied-worker``: this thread cannot wait for the client that holds their chunks.
    """
    client = current_client()
    asynchronous = client is not None and client.asynchronous
    if not (asynchronous or occupies_worker()):
        return {}
    tasks = [task for collection in collections for task in dict(collection.__dask_graph__()).values()]
    if any(type(task).__name__ == "Future" for task in tasks):
        if asynchronous:
            raise asynchronous_client("the dask client of persisted chunks")
        raise JobError(
            "chunks of a dask collection are on workers, and this dask task would occupy one while it waits for them: "
            "make the call within `with distributed.worker_client():`",
            kind="occupied-worker",
        )
    return {"scheduler": "threads"}


def asynchronous_client(what: str) -> JobError:
    """Return the error for a client whose event loop runs in the calling thread; `what` is the subject of "is"."""
    return JobError(
        f"{what} is asynchronous, and waiting would block its event loop: make the call in another thread, for example "
        "await asyncio.to_thread(model.fit, X, y)",
        kind="asynchronous-client",
    )


def is_dask_frame(value: Any) -> bool:
    """Return whether `value` is a dask DataFrame."""
    module = sys.modules.get("dask.dataframe")
    return module is not None and isinstance(value, module.DataFrame)


def is_dask_series(value: Any) -> bool:
    """Return whether `value` is a dask Series or Index."""
    module = sys.modules.get("dask.dataframe")
    return module is not None and isinstance(value, (module.Series, module.Index))


def partitions(frame: Any) -> list[Any]:
    """Return the partitions of a frame or Series of dask; tasks are not fused, so those of X and y stay the same."""
    return list(frame.optimize(fuse=False).to_delayed(optimize_graph=False))


def computed_partition(part: Any, what: str) -> Any:
    """Return the values of a partition, or of a block of an array.

    Raises
    ------
    DataError
        ``unreadable``.
    """
    try:
        return part.compute(**compute_options(part))
    except (ArithmeticError, LookupError, TypeError, ValueError) as cause:
        if isinstance(cause, DataError):
            raise
        raise DataError(
            f"{what} cannot be computed: {type(cause).__name__}: {redact(str(cause))}", kind="unreadable"
        ) from displayed_cause(cause)
