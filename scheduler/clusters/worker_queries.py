"""What a cluster looks like from a client."""

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

SCHEDULER_SECONDS = 60.0
"""How long the scheduler may take to say which workers it has."""

PEAKS_SECONDS = 10.0
"""How long workers may take to tell how much memory they took."""

HUSH_SECONDS = 2.0
"""How long workers may hold up the end of their cluster."""


def worker_facts(client: Any) -> WorkerFacts:
    """Ask the scheduler for its workers."""
    workers = workers_of(client)
    limits = [int(w["memory_limit"]) for w in workers.values() if w.get("memory_limit")]
    return WorkerFacts(
        n_workers=max(1, len(workers)),
        threads=max((w["nthreads"] for w in workers.values()), default=1),
        memory_limit=min(limits, default=None),
        in_process=_inproc(workers),
    )


def workers_of(client: Any) -> dict[str, Any]:
    """Ask the scheduler for its workers, by address.

    `client.scheduler_info` would not do: a client asks for no workers at all now and then, on its own, and that answer
    may take the place of the one that was wanted.

    Raises
    ------
    ClusterError
        ``no-scheduler``: it does not answer.
    """
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


def peak_of_workers(client: Any, workers: list[str] | None = None) -> int:
    """Largest resident set of any worker process so far, in bytes; 0 for workers in this process, or without answer."""
    if _inproc(workers_of(client)):
        return 0
    answers = ask_workers(client, peak_rss, PEAKS_SECONDS, workers) or {}
    return max(answers.values(), default=0)


def hush_workers(client: Any) -> None:
    """Have worker processes that are about to be closed log nothing more.

    A worker whose heartbeat meets the scheduler's end writes a traceback, and nobody can do anything about it.
    """
    if client.status == "running":
        ask_workers(client, partial(logging.disable, logging.CRITICAL), HUSH_SECONDS)


def ask_workers(
    client: Any, function: Callable[[], Any], seconds: float, workers: list[str] | None = None
) -> dict[str, Any] | None:
    """Call a function on the event loops of some or all workers; return the answers of those that are there by address.

    None where a worker keeps its answer back for so many seconds.
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
