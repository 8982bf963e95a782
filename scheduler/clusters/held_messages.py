"""Messages and timers that dask holds back because a clock was set back.

Client, scheduler and workers of dask send messages in batches, and wait for the next batch until a moment of the time
of day (`distributed.batched`). Where the clock of a host is set back within the milliseconds between two batches, the
next one waits for as long as it was set back: the tasks are not sent, or not reported, while heartbeats go on. It still
does if the clock is set forward again meanwhile, since the timer of the wait has begun. The same holds for what dask
does every few seconds (`tornado.ioloop.PeriodicCallback`): the results of a worker that is retired are not copied to
others, for one, so that it does not end. Whoever waits for long asks all processes to send what they hold and to start
their timers anew. The questions take another way, on which no batch waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from time import monotonic, time
from typing import Any

WAIT_SECONDS = 30.0
"""Time that a wait lasts before it asks for messages that are held back, and between two questions."""

HELD_SECONDS = 5.0
"""A batch whose moment is farther away, ahead or past, is held back; dask's own waits are of milliseconds."""

ASKED_SECONDS = 10.0
"""Most time for an answer, which nobody waits for."""

logger = logging.getLogger(__name__)


class LongWait:
    """A wait that asks for messages that are held back, again and again while it lasts.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._due = monotonic() + WAIT_SECONDS

    def look(self) -> None:
        """Ask where the time has come."""
        if monotonic() > self._due:
            release_held_messages(self._client)
            self._due = monotonic() + WAIT_SECONDS


def release_held_messages(client: Any) -> None:
    """Ask this process, the scheduler and all workers to send what they hold back, without waiting for it.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    """

    async def release() -> None:
        try:
            release_batches([client.scheduler_comm])
            restart_timers(client._periodic_callbacks.values())
            await asyncio.wait_for(client._run_on_scheduler(_of_scheduler), ASKED_SECONDS)
            await asyncio.wait_for(client._run(_of_worker, on_error="ignore"), ASKED_SECONDS)
        except Exception:
            logger.info("the cluster was not asked for messages that it holds back", exc_info=True)

    if client.status == "running":
        asyncio.run_coroutine_threadsafe(release(), client.loop.asyncio_loop)


def release_batches(batches: Iterable[Any]) -> int:
    """Let batches that are held back be sent now; return their number.

    Parameters
    ----------
    batches : iterable of distributed.batched.BatchedSend or None
        Those of the calling process, whose event loop calls this.
    """
    held = [
        b
        for b in batches
        if b is not None and b.next_deadline is not None and abs(b.next_deadline - time()) > HELD_SECONDS
    ]
    for batch in held:
        batch.next_deadline = None
        batch.waker.set()
    if held:
        logger.warning("a clock was set back: %d batches of messages waited for it, and are sent now", len(held))
    return len(held)


def restart_timers(timers: Iterable[Any]) -> int:
    """Start timers anew that are due later than one period from now; return their number.

    Parameters
    ----------
    timers : iterable of tornado.ioloop.PeriodicCallback
        Those of the calling process, whose event loop calls this.
    """
    held = [timer for timer in timers if timer.is_running() and _is_held(timer)]
    for timer in held:
        timer.stop()
        timer.start()
    if held:
        logger.warning("a clock was set back: %d timers waited for it, and are started anew", len(held))
    return len(held)


def _is_held(timer: Any) -> bool:
    # The time of the event loop is none of the day, so it is that of the wait itself.
    due = timer._timeout.when() - timer.io_loop.asyncio_loop.time()
    return bool(due > timer.callback_time / 1000 * (1 + timer.jitter) + HELD_SECONDS)


def _of_scheduler(dask_scheduler: Any) -> None:
    release_batches([*dask_scheduler.client_comms.values(), *dask_scheduler.stream_comms.values()])
    restart_timers(list(dask_scheduler.periodic_callbacks.values()))


def _of_worker(dask_worker: Any) -> None:
    release_batches([dask_worker.batched_stream])
    restart_timers(list(dask_worker.periodic_callbacks.values()))
