"""Liveness of workers: a stopped process keeps its connections, so only its silence shows that it is frozen.

A heartbeat of a worker, with the scheduler's date, is a sign of life. After some time without one the driver pings the
worker through the scheduler; a worker that does not answer the ping is frozen. Pings run on the event loop of the
client, so no thread waits for them. Silence counts only while this process itself runs: otherwise a driver that was
stopped, or a scheduler that was busy, would count its own pause as silence of the workers.

Covers detection only; `..execution.worker_pool` reassigns the blocks of a frozen worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic
from typing import Any

PING_AFTER_SECONDS = 2.0
"""Seconds without a heartbeat before a ping; workers send one every 0.5 s, and every 2 s with 200 workers."""

FROZEN_AFTER_SECONDS = 5.0
"""Seconds without an answer to a ping before a worker counts as frozen.

A healthy worker answers within milliseconds during any task that does not hold Python's interpreter lock.
"""

LONGEST_LOOK_SECONDS = 2.0
"""Most seconds of silence that one look adds: a longer time between two looks is a pause of this process itself."""

Ping = Callable[[str], "Future[bool]"]
"""Pings a worker; the result is whether it answered."""


def ping_through(client: Any) -> Ping:
    """Return a function that pings workers of a client through its scheduler."""

    async def ask(worker: str) -> bool:
        answers = await client.scheduler.broadcast(msg={"op": "identity"}, workers=[worker], on_error="ignore")
        return worker in answers

    return lambda worker: asyncio.run_coroutine_threadsafe(ask(worker), client.loop.asyncio_loop)


@dataclass
class _Pulse:
    seen: float
    """Time of the last heartbeat, by the scheduler's clock."""
    alive: float
    """Running time of this process at the last sign of life."""
    ping: Future[bool] | None = None
    asked: float | None = None
    """Running time of this process at the first ping since the last sign of life."""


class Liveness:
    """Signs of life of the workers of a cluster.

    Parameters
    ----------
    ping : callable
        Pings a worker without waiting.
    clock : callable
        Returns seconds; the monotonic clock by default.
    """

    def __init__(self, ping: Ping, clock: Callable[[], float] = monotonic) -> None:
        self._ping = ping
        self._clock = clock
        self._looked = clock()
        self._running = 0.0
        self._pulses: dict[str, _Pulse] = {}
        self.frozen: set[str] = set()
        """Workers that did not answer in time, at the last look."""

    def look(self, last_seen: Mapping[str, float]) -> None:
        """Compare the times of the last heartbeats, and ping silent workers.

        Parameters
        ----------
        last_seen : mapping
            Address of each worker on the cluster to the time of its last heartbeat.
        """
        now = self._clock()
        self._running += min(now - self._looked, LONGEST_LOOK_SECONDS)
        self._looked = now
        for worker in set(self._pulses) - set(last_seen):
            self._cancel(self._pulses.pop(worker))
        for worker, seen in last_seen.items():
            pulse = self._pulses.setdefault(worker, _Pulse(seen, self._running))
            answered = self._answered(pulse)
            if answered or seen != pulse.seen:
                pulse.seen, pulse.alive, pulse.asked = seen, self._running, None
            elif pulse.ping is None and self._running - pulse.alive >= PING_AFTER_SECONDS:
                pulse.ping = self._ping(worker)
                pulse.asked = self._running if pulse.asked is None else pulse.asked
        self.frozen = {
            worker
            for worker, pulse in self._pulses.items()
            if pulse.asked is not None and self._running - pulse.asked >= FROZEN_AFTER_SECONDS
        }

    def close(self) -> None:
        """Cancel the pings."""
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
