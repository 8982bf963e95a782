"""Events of exchanges: how much they say does not grow with the number of workers."""

from __future__ import annotations

from typing import Any

import pytest

from distkern.monitoring.events import EventBus, ExchangeDone
from distkern.scheduler.execution import layers
from distkern.scheduler.execution.executor import Executor
from distkern.scheduler.execution.layers import AnnouncingExecutor
from distkern.scheduler.protocol.answers import Answer
from distkern.scheduler.protocol.messages import Columns, KernelColumns
from distkern.scheduler.runtime.timings import Costs, ProcessMemory


class ManyWorkers(Executor):
    """Answers with the memory of many workers."""

    n_workers = n_threads = 100
    exchanges = 0

    def __init__(self, n_workers: int) -> None:
        self._memory = {f"worker-{number}": ProcessMemory(1, 2, 3) for number in range(n_workers)}

    def exchange(self, message: Any) -> Answer:
        return Answer(costs=Costs({"reading": 1.0}, dict(self._memory)))


@pytest.mark.parametrize(("n_workers", "seconds"), [(10, 2.0), (50, 2.0), (1000, 40.0)])
def test_memory_is_sent_less_often_with_many_workers(
    n_workers: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(layers, "monotonic", lambda: now[0])
    events: list[Any] = []
    bus = EventBus([events.append])
    executor = AnnouncingExecutor(ManyWorkers(n_workers), bus)
    sent = []
    for _ in range(100):
        executor.exchange(KernelColumns((Columns.__new__(Columns),)))  # type: ignore[arg-type]
        now[0] += 1.0
    for number, event in enumerate(events):
        assert isinstance(event, ExchangeDone)
        if event.memory:
            assert len(event.memory) == n_workers
            sent.append(number)
    assert len(sent) == pytest.approx(100 / seconds, abs=2)
