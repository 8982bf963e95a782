"""Events, and the bus that sends them to subscribers."""

from __future__ import annotations

import json
import logging
from dataclasses import FrozenInstanceError, fields

import pytest

from distkern.errors import Cancelled
from distkern.monitoring.events import (
    BlocksReplayed,
    ChunksAbsent,
    DashboardServed,
    Event,
    EventBus,
    ExchangeDone,
    MetricRoundDone,
    RoundDone,
    RunCutShort,
    RunEnded,
    RunResumed,
    RunStarted,
    StorageRetried,
    WorkerLost,
    WorkerRefused,
    WorkersAwaited,
)

EVENTS = [
    RunStarted(run_id="a1", n_rows=9, n_features=2, n_targets=1, n_problems=1, n_blocks=3, max_centers=5, workers=1),
    RoundDone(round=0, n_centers=4, lambda_=0.5, gcv=0.25, residual_max=1.0, seconds=0.1),
    RoundDone(round=1, n_centers=8, lambda_=0.5, gcv=0.25, residual_max=1.0, seconds=0.2, validation=0.125),
    MetricRoundDone(kernel="laplacian", shape="full", round=2, factor=2.0, error=0.25, rounds=7),
    WorkerLost(worker="tcp://here:1", blocks=(0, 2), reason="frozen"),
    WorkerRefused(worker="tcp://here:3", what="numpy", driver="2.0", found="2.1"),
    WorkersAwaited(seconds=60.0, unusable=("tcp://here:3",)),
    BlocksReplayed(worker="tcp://here:2", blocks=(0, 2), messages=17, seconds=0.5),
    ExchangeDone(
        name="kernel-columns", seconds=0.1, busy={"update": 0.1}, memory={"tcp://a": {"resident": 5, "scratch": 0}}
    ),
    RunResumed(run_id="a1", exchanges=12, seconds=3.5),
    StorageRetried(array="X", count=2),
    ChunksAbsent(array="X", count=3, chunks=((0, 0), (1, 0))),
    DashboardServed(address="http://here:8787/status"),
    RunCutShort(error="MemoryError", message="no room"),
    RunEnded(n_centers=8, stop_reason="max-centers", seconds=0.3),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_a_record_is_flat_json(event: Event) -> None:
    record = event.as_record()
    assert record["event"] == type(event).__name__
    assert set(record) == {"event", *(field.name for field in fields(event))}
    nested = {name for name, value in record.items() if isinstance(value, dict)}
    assert nested <= {"busy", "memory"}
    restored = json.loads(json.dumps(record, allow_nan=False))
    assert restored.keys() == record.keys()
    assert restored["timestamp"] == event.timestamp


def test_every_kind_of_event_is_tested() -> None:
    assert set(Event.__subclasses__()) == {type(event) for event in EVENTS}


def test_events_are_frozen_and_stamped() -> None:
    first, second = EVENTS[1], RunEnded(n_centers=1, stop_reason="x", seconds=0.0)
    with pytest.raises(FrozenInstanceError):
        first.timestamp = 0.0  # type: ignore[misc]
    assert first.timestamp <= second.timestamp


def test_the_bus_sends_every_event_to_every_subscriber_in_order() -> None:
    received: list[tuple[str, Event]] = []
    bus = EventBus([lambda e: received.append(("a", e)), lambda e: received.append(("b", e))])
    bus.emit(EVENTS[0])
    bus.emit(EVENTS[1])
    assert received == [("a", EVENTS[0]), ("b", EVENTS[0]), ("a", EVENTS[1]), ("b", EVENTS[1])]


def test_a_muted_bus_sends_only_the_start() -> None:
    received: list[Event] = []
    bus = EventBus([received.append])
    bus.muted = True
    for event in EVENTS:
        bus.emit(event)
    assert received == [EVENTS[0]]
    bus.muted = False
    bus.emit(EVENTS[1])
    assert received == EVENTS[:2]


def test_a_subscriber_may_cancel_the_training() -> None:
    def cancel(event: Event) -> None:
        raise Cancelled("enough", kind="interrupted")

    with pytest.raises(Cancelled, match="enough"):
        EventBus([cancel]).emit(EVENTS[1])


def test_a_subscriber_that_fails_is_logged_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    received: list[Event] = []
    calls = []

    def broken(event: Event) -> None:
        calls.append(event)
        raise ValueError("no space left")

    bus = EventBus([broken, received.append])
    with caplog.at_level(logging.ERROR, logger="distkern.monitoring.events"):
        for event in EVENTS[:3]:
            bus.emit(event)
    assert received == EVENTS[:3]
    assert calls == EVENTS[:1]
    assert len(caplog.records) == 1
    assert "gets no more events" in caplog.text
    assert "no space left" in caplog.text


def test_an_interrupt_is_raised() -> None:
    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        EventBus([interrupt]).emit(EVENTS[0])


def test_a_bus_without_subscribers() -> None:
    bus = EventBus()
    bus.emit(EVENTS[0])
    assert bus._subscribers == []
