"""Messages and timers that wait for a moment an hour ahead, as after a clock was set back, go on when asked for."""

from __future__ import annotations

import asyncio
from threading import Event
from time import time
from typing import Any

import pytest
from distributed.batched import BatchedSend
from tornado.ioloop import IOLoop, PeriodicCallback

from distkern.scheduler.clusters import futures, held_messages
from tests.waiting import wait_until

HOUR = 3600.0


go_on = Event()


def wait() -> bool:
    return go_on.wait(timeout=30)


class Wire:
    """A connection that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def closed(self) -> bool:
        return False

    async def write(self, messages: list[Any], **_: Any) -> int:
        self.written += messages
        return len(messages)


@pytest.mark.parametrize("ahead", [HOUR, -10.0], ids=["clock set back", "and set forward again"])
def test_a_batch_that_waits_for_an_hour_is_sent_at_once(ahead: float) -> None:
    """The background task of dask sends the batch, as soon as it is asked to."""

    async def send() -> list[Any]:
        wire, batch = Wire(), BatchedSend(interval="1 ms")
        batch.next_deadline = time() + HOUR
        batch.start(wire)
        batch.send("late")
        await asyncio.sleep(0.05)
        assert wire.written == []
        batch.next_deadline = time() + ahead
        assert held_messages.release_batches([None, batch]) == 1
        await asyncio.sleep(0.05)
        assert held_messages.release_batches([batch]) == 0
        batch.send("soon")
        await asyncio.sleep(0.05)
        batch.abort = lambda: None
        batch.please_stop = True
        batch.waker.set()
        await asyncio.sleep(0.05)
        return wire.written

    assert asyncio.run(send()) == ["late", "soon"]


def test_a_timer_that_waits_for_an_hour_goes_on_at_once() -> None:
    """The timer was set while the clock was an hour back; the wait is not shortened when it is set forward again."""

    async def wait() -> tuple[list[int], int]:
        calls: list[int] = []
        clock = IOLoop.current()
        timers = [PeriodicCallback(lambda n=n: calls.append(n), 10) for n in range(3)]  # type: ignore[misc]
        now, clock.time = clock.time, lambda: now() - HOUR  # type: ignore[method-assign]
        timers[0]._next_timeout, timers[0].io_loop = now(), clock
        timers[0]._running = True
        timers[0]._schedule_next()
        clock.time = now  # type: ignore[method-assign]
        timers[1].start()
        await asyncio.sleep(0.1)
        assert set(calls) == {1}
        restarted = held_messages.restart_timers(timers)
        await asyncio.sleep(0.1)
        for timer in timers:
            timer.stop()
        return calls, restarted

    calls, restarted = asyncio.run(wait())
    assert restarted == 1
    assert set(calls) == {0, 1}


def test_client_scheduler_and_workers_are_asked(in_process_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(held_messages, "release_batches", asked.extend)
    monkeypatch.setattr(held_messages, "restart_timers", asked.extend)
    client, cluster = in_process_client, in_process_client.cluster
    held_messages.release_held_messages(client)
    expected = {
        id(batch)
        for batch in [
            client.scheduler_comm,
            *cluster.scheduler.client_comms.values(),
            *cluster.scheduler.stream_comms.values(),
            *(worker.batched_stream for worker in cluster.workers.values()),
            *client._periodic_callbacks.values(),
            *cluster.scheduler.periodic_callbacks.values(),
            *(timer for worker in cluster.workers.values() for timer in worker.periodic_callbacks.values()),
        ]
    }
    wait_until(lambda: expected <= {id(batch) for batch in asked})


def test_a_wait_asks_for_messages_again_and_again(in_process_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(futures, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(held_messages, "WAIT_SECONDS", 0.1)
    calls: list[Any] = []

    def ask(client: Any) -> None:
        calls.append(client)
        if len(calls) == 3:
            go_on.set()

    monkeypatch.setattr(held_messages, "release_held_messages", ask)
    assert futures.fetch(in_process_client, futures.submit(in_process_client, "wait", wait), 30.0, "wait")
    assert calls[:3] == [in_process_client] * 3


def test_a_client_that_is_closed_is_left_alone() -> None:
    class Closed:
        status = "closed"

    held_messages.release_held_messages(Closed())
