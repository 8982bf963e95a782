"""Waits for tasks end with a typed error where the scheduler is gone, or where memory is short again and again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.comm.core import CommClosedError
from distributed.protocol import deserialize, serialize

from distkern.errors import BudgetError, ClusterError
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


class NoRoom:
    """A result that a worker has no memory to send."""

    def __reduce__(self) -> Any:
        raise MemoryError("no room")


def test_a_result_that_a_worker_cannot_send_for_want_of_memory_is_known_by_the_text_of_dask() -> None:
    with pytest.raises(TypeError) as error:
        deserialize(*serialize(NoRoom(), on_error="message"))
    assert futures.ran_out_of_memory(error.value)
    assert futures.ran_out_of_memory(MemoryError())
    with pytest.raises(TypeError) as error:
        deserialize(*serialize(lambda: (yield), serializers=["error"], on_error="message"))
    assert not futures.ran_out_of_memory(error.value)


class Short:
    """A function that runs out of memory at first."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __call__(self) -> int:
        self.times -= 1
        if self.times >= 0:
            raise MemoryError("no room")
        return 1


def test_memory_that_is_short_for_a_while_delays_a_task_and_short_for_long_ends_it(in_process_client: Any) -> None:
    client, most = in_process_client, futures.MAX_MEMORY_ERRORS
    future = futures.submit(client, "short", Short(most))
    assert futures.fetch(client, future, 30.0, "count") == 1
    with pytest.raises(BudgetError, match=f"ran out of memory {most + 1} times and could not count") as error:
        futures.fetch(client, futures.submit(client, "short", Short(most + 1)), 30.0, "count")
    assert error.value.kind == "out-of-memory"


def test_a_result_that_a_worker_no_longer_has_is_an_error_of_the_cluster(in_process_client: Any) -> None:
    client = in_process_client
    first = futures.submit(client, "first", list)
    futures.wait_for(client, first, 30.0)
    for worker in client.cluster.workers.values():
        worker.data.pop(first.key, None)
    with pytest.raises(ClusterError, match=r"could not count.*first-") as error:
        futures.fetch(client, futures.submit(client, "second", len, first), 30.0, "count")
    assert error.value.kind == "workers-dying"


def test_a_key_error_of_a_task_itself_is_raised_as_it_is(in_process_client: Any) -> None:
    with pytest.raises(KeyError, match="column"):
        futures.fetch(in_process_client, futures.submit(in_process_client, "look", {}.__getitem__, "column"), 30.0, "")
