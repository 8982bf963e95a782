"""Which workers still answer: a stopped process keeps its connections, so only its silence tells.

A worker's heartbeat, which the scheduler dates, is a sign of life. One that has given none for a while is pinged
through the scheduler, and is frozen if that stays without an answer. Pings run on the client's event loop: nobody
waits for them. Silence counts only while this process is awake itself, lest a driver that was stopped, or a
scheduler that was busy, takes its own absence for that of the workers.

Out of scope: what is done about a frozen worker (`workforce`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic
from typing import Any

PING_AFTER_SECONDS = 2.0
"""Seconds without a heartbeat after which a worker is pinged; dask's beat is 0.5 s, and 2 s with 200 workers."""

FROZEN_AFTER_SECONDS = 5.0
"""Seconds without an answer to a ping after which a worker counts as frozen.

A healthy worker answers within milliseconds whatever its tasks do, unless one of them keeps Python's interpreter lock.
"""

LONGEST_NAP_SECONDS = 2.0
"""Most seconds of silence that one look may add: more between two looks is this process's own absence."""

Ping = Callable[[str], "Future[bool]"]
"""Asks a worker for a sign of life; the result says whether it gave one."""


def ping_through(client: Any) -> Ping:
    """Ping workers of a client through its scheduler."""

    async def ask(worker: str) -> bool:
        answers = await client.scheduler.broadcast(msg={"op": "identity"}, workers=[worker], on_error="ignore")
        return worker in answers

    return lambda worker: asyncio.run_coroutine_threadsafe(ask(worker), client.loop.asyncio_loop)


@dataclass
class _Pulse:
    seen: float
    """The scheduler's date of the last heartbeat."""
    heard: float
    """When this process last knew of a sign of life."""
    ping: Future[bool] | None = None
    asked: float | None = None
    """When the first ping since the last sign of life was sent."""


class Liveness:
    """Signs of life of the workers of a cluster.

    Parameters
    ----------
    ping : callable
        Pings a worker without waiting.
    clock : callable
        Returns seconds.
    """

    def __init__(self, ping: Ping, clock: Callable[[], float] = monotonic) -> None:
        self._ping = ping
        self._clock = clock
        self._looked = clock()
        self._awake = 0.0
        self._pulses: dict[str, _Pulse] = {}
        self.frozen: set[str] = set()
        """Workers that did not answer in time, as of the last look."""

    def look(self, last_seen: Mapping[str, float]) -> None:
        """Take the dates of the workers' last heartbeats, and ping the silent.

        Parameters
        ----------
        last_seen : mapping
            Address of each worker on the cluster to the scheduler's date.
        """
        now = self._clock()
        self._awake += min(now - self._looked, LONGEST_NAP_SECONDS)
        self._looked = now
        for worker in set(self._pulses) - set(last_seen):
            self._cancel(self._pulses.pop(worker))
        for worker, seen in last_seen.items():
            pulse = self._pulses.setdefault(worker, _Pulse(seen, self._awake))
            answered = self._answered(pulse)
            if answered or seen != pulse.seen:
                pulse.seen, pulse.heard, pulse.asked = seen, self._awake, None
            elif pulse.ping is None and self._awake - pulse.heard >= PING_AFTER_SECONDS:
                pulse.ping = self._ping(worker)
                pulse.asked = self._awake if pulse.asked is None else pulse.asked
        self.frozen = {
            worker
            for worker, pulse in self._pulses.items()
            if pulse.asked is not None and self._awake - pulse.asked >= FROZEN_AFTER_SECONDS
        }

    def close(self) -> None:
        """Forget the pings that are under way."""
        for pulse in self._pulses.values():
            self._cancel(pulse)
        self._pulses = {}

    @staticmethod
    def _answered(pulse: _Pulse) -> bool:
        if pulse.ping is None or not pulse.ping.done():
            return False
        ping, pulse.ping = pulse.ping, None
        return not ping.cancelled() and ping.exception() is None and ping.result()

    @staticmethod
    def _cancel(pulse: _Pulse) -> None:
        if pulse.ping is not None:
            pulse.ping.cancel()
