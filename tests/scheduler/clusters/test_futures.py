"""Waits for tasks of a cluster whose scheduler is gone end with a typed error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.comm.core import CommClosedError

from distkern.errors import ClusterError
from distkern.scheduler.clusters import futures


class NoScheduler:
    """A client that is connected to nothing any more; its tasks never end."""

    status = "running"
    asynchronous = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = SimpleNamespace(asyncio_loop=loop)
        self.scheduler = self

    async def identity(self, **_: Any) -> Any:
        raise CommClosedError("Stream is closed")

    def add_done_callback(self, function: Any) -> None:
        """The task is not done."""


@pytest.fixture
def client() -> Iterator[NoScheduler]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield NoScheduler(loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_a_scheduler_that_is_gone_is_a_typed_error(client: NoScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(futures, "POLL_SECONDS", 0.01)
    with pytest.raises(ClusterError) as error:
        futures.most_in_flight(client)
    assert error.value.kind == "no-scheduler"
    with pytest.raises(ClusterError) as error:
        futures.wait_for(client, client, worker_wait=30.0)
    assert error.value.kind == "no-scheduler"
