"""Queries of a client to the scheduler and the workers of its cluster: workers, memory, logs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

from distkern.errors import ClusterError

from ..planning.limits import WorkerFacts
from ..runtime.processes import peak_rss
from .client_choice import require_usable

SCHEDULER_SECONDS = 60.0
"""Most time for the scheduler's list of workers."""

PEAKS_SECONDS = 10.0
"""Most time for the peak memory of workers."""

SILENCE_SECONDS = 2.0
"""Most time to silence the logs of workers at the end of their cluster."""


def worker_facts(client: Any) -> WorkerFacts:
    """Return the number, threads and memory of the workers of a cluster."""
    workers = workers_of(client)
    limits = [int(w["memory_limit"]) for w in workers.values() if w.get("memory_limit")]
    return WorkerFacts(
        n_workers=max(1, len(workers)),
        threads=max((w["nthreads"] for w in workers.values()), default=1),
        memory_limit=min(limits, default=None),
        in_process=_inproc(workers),
    )


def workers_of(client: Any) -> dict[str, Any]:
    """Return the workers of the scheduler by address.

    `client.scheduler_info` is not reliable: from time to time a client itself requests an empty list of workers, which
    may replace the full one.

    Raises
    ------
    JobError, ClusterError
        As `require_usable`; ``no-scheduler``: the scheduler does not answer.
    """
    require_usable(client)
    question = None
    try:
        question = asyncio.run_coroutine_threadsafe(client.scheduler.identity(n_workers=-1), client.loop.asyncio_loop)
        workers: dict[str, Any] = question.result(SCHEDULER_SECONDS)["workers"]
    except (OSError, AttributeError, RuntimeError, CancelledError) as error:
        if question is not None:
            question.cancel()
        raise ClusterError(
            f"the dask scheduler does not answer ({type(error).__name__}: {error}): is it still running?",
            kind="no-scheduler",
        ) from error
    return workers


def require_requested_workers(client: Any) -> None:
    """Refuse a cluster without workers that starts them for waiting tasks only: a training waits for workers first.

    Raises
    ------
    ClusterError
        ``no-workers``: it was made so by ``adapt(minimum=0)``, and has requested none.
    """
    cluster = client.cluster
    adaptive = getattr(cluster, "_adaptive", None)
    if adaptive is None or adaptive.minimum > 0 or getattr(adaptive, "state", "running") == "stopped":
        return
    if not getattr(cluster, "plan", ()):
        raise ClusterError(
            "the cluster has no workers, and adapts to waiting tasks with minimum=0, but a training assigns its rows "
            "to workers before it starts tasks: call cluster.adapt(minimum=n) or cluster.scale(n) first",
            kind="no-workers",
        )


def peak_of_workers(client: Any, workers: list[str] | None = None) -> int:
    """Return the largest resident set of the worker processes so far; 0 for workers in this process, or no answer."""
    if _inproc(workers_of(client)):
        return 0
    answers = ask_workers(client, peak_rss, PEAKS_SECONDS, workers) or {}
    return max(answers.values(), default=0)


def silence_worker_logs(client: Any) -> None:
    """Switch off the logs of worker processes that are about to be closed.

    A worker that sends a heartbeat to a closed scheduler would log a traceback.
    """
    if client.status == "running":
        ask_workers(client, partial(logging.disable, logging.CRITICAL), SILENCE_SECONDS)


def ask_workers(
    client: Any, function: Callable[[], Any], seconds: float, workers: list[str] | None = None
) -> dict[str, Any] | None:
    """Call a function on the event loops of some or all workers; return the answers by address.

    None where a worker does not answer within `seconds`.
    """
    how = {"workers": workers, "on_error": "ignore", "callback_timeout": seconds}
    try:
        answers: dict[str, Any] = client.sync(client._run, function, **how)
    except (TimeoutError, OSError):
        return None
    return answers


def _inproc(addresses: Iterable[str]) -> bool:
    found = list(addresses)
    return bool(found) and all(address.startswith("inproc://") for address in found)
