"""Time by phase adds up to the time that passed, whatever nests in what, and takes no part in any answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import pytest

from distkern.monitoring.events import WAITING, EventBus, ExchangeDone
from distkern.scheduler.execution.executor import THIS_PROCESS, Executor, SerialExecutor
from distkern.scheduler.protocol.answers import Answer
from distkern.scheduler.protocol.messages import Message
from distkern.scheduler.runtime.spillable_matrix import MemoryBudget
from distkern.scheduler.runtime.threads import tile_pool
from distkern.scheduler.runtime.timings import (
    KERNEL_COLUMNS,
    PROJECTION,
    READ,
    REPLAY,
    SCRATCH,
    UPDATE,
    Costs,
    MemoryProbe,
    ProcessMemory,
    Stopwatch,
    busy,
    resident_bytes,
)
from distkern.scheduler.training.driver_loop import train
from distkern.scheduler.training.run import run_training
from distkern.storage import RunDirectory
from tests.scheduler.trainings import assert_same_bits, make_data, make_job, make_source


def test_a_phase_takes_its_time_from_the_one_it_begins_in() -> None:
    watch, started = Stopwatch(), perf_counter()
    with watch.running("other"):
        sleep(0.01)
        with busy(UPDATE):
            sleep(0.01)
            with busy(SCRATCH):
                sleep(0.02)
    elapsed = perf_counter() - started
    assert set(watch.seconds) == {"other", UPDATE, SCRATCH}
    assert all(watch.seconds[name] >= 0.01 for name in ("other", UPDATE))
    assert watch.seconds[SCRATCH] >= 0.02
    assert sum(watch.seconds.values()) <= elapsed


def test_a_phase_ends_with_an_exception() -> None:
    watch = Stopwatch()
    with watch.running("other"):
        with pytest.raises(ZeroDivisionError), busy(UPDATE):
            raise ZeroDivisionError
        sleep(0.01)
    assert watch.seconds["other"] >= 0.01 > watch.seconds[UPDATE]


def test_phases_outside_a_stopwatch_count_nowhere() -> None:
    with busy(UPDATE):
        sleep(0.001)
    watch = Stopwatch()
    with watch.running("other"):
        pass
    assert set(watch.seconds) == {"other"}


def test_a_replay_is_one_phase() -> None:
    watch = Stopwatch()
    with watch.running(REPLAY), busy(UPDATE), busy(SCRATCH):
        sleep(0.001)
    assert set(watch.seconds) == {REPLAY}


def test_a_stopwatch_within_another_pauses_it() -> None:
    outer, inner = Stopwatch(), Stopwatch()
    with outer.running("outer"), inner.running("inner"):
        sleep(0.01)
    assert inner.seconds["inner"] >= 0.01 > outer.seconds["outer"]


def test_threads_add_up() -> None:
    watch = Stopwatch()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(watch.timed(lambda item: sleep(0.01) or 2 * item, READ), range(8))) == list(
            range(0, 16, 2)
        )
    assert watch.seconds[READ] >= 0.08


def test_costs_merge() -> None:
    a = Costs({"read": 1.0}, {"w": ProcessMemory(1, 2, 3)})
    b = Costs({"read": 0.5, "draw": 0.25}, {"v": ProcessMemory(4, 5, 6)})
    assert a.merge(b) == Costs({"read": 1.5, "draw": 0.25}, {"w": ProcessMemory(1, 2, 3), "v": ProcessMemory(4, 5, 6)})
    assert a == Costs({"read": 1.0}, {"w": ProcessMemory(1, 2, 3)})


def test_the_resident_set_of_this_process() -> None:
    assert 1 << 20 < resident_bytes() < 1 << 40


def test_memory_is_not_looked_at_for_every_message() -> None:
    probe = MemoryProbe()
    (found,) = probe.look("w", 3, 5).values()
    assert (found.cache, found.scratch, found.resident > 1 << 20) == (3, 5, True)
    assert probe.look("w", 3, 5) == {}


def exchanges_of(**changes: Any) -> list[ExchangeDone]:
    events: list[Any] = []
    X, y = make_data(300)
    run_training(make_job(**changes), make_source(X, y), subscribers=[events.append])
    return [event for event in events if isinstance(event, ExchangeDone)]


@pytest.mark.parametrize("criterion", ["error-reduction", "residual"])
def test_the_phases_of_an_exchange_add_up_to_the_time_of_all_threads(criterion: str) -> None:
    exchanges, threads = exchanges_of(criterion=criterion), tile_pool()[1]
    assert {KERNEL_COLUMNS, PROJECTION, UPDATE, READ, WAITING} <= {phase for e in exchanges for phase in e.busy}
    for exchange in exchanges:
        total = sum(exchange.busy.values())
        assert all(seconds >= 0 for seconds in exchange.busy.values())
        if exchange.busy[WAITING] > 0:
            assert total == pytest.approx(threads * exchange.seconds, abs=1e-5)


def test_events_report_memory_now_and_then() -> None:
    exchanges = exchanges_of()
    assert list(exchanges[0].memory) == [THIS_PROCESS]
    memory = exchanges[0].memory[THIS_PROCESS]
    assert memory.keys() == {"resident", "cache", "scratch", "planned"}
    assert memory["cache"] > 0 == memory["scratch"]
    assert sum(bool(exchange.memory) for exchange in exchanges) < len(exchanges)


def test_scratch_and_memory_are_reported_apart() -> None:
    X, y = make_data(300)
    seen: list[Costs] = []

    class Looking(Executor):
        def exchange(self, message: Message) -> Answer:
            answer = super().exchange(message)
            seen.append(answer.costs)
            return answer

    train(make_job(), make_source(X, y), Looking(SerialExecutor(make_source(X, y), budget=MemoryBudget(0))), EventBus())
    memory = seen[0].memory[THIS_PROCESS]
    assert (memory.cache, memory.scratch >= 300 * 2 * 8) == (0, True)
    assert sum(costs.busy.get(SCRATCH, 0.0) for costs in seen) > 0


def test_a_resumed_run_reports_its_replay_and_has_the_same_bits(tmp_path: Path) -> None:
    X, y = make_data(300)
    whole = run_training(make_job(), make_source(X, y))
    stopped: list[Any] = []

    def stop(event: Any) -> None:
        stopped.append(event)
        if len(stopped) == 8:
            raise KeyboardInterrupt

    run = RunDirectory.create(tmp_path / "run", {})
    with pytest.raises(KeyboardInterrupt):
        run_training(make_job(), make_source(X, y), subscribers=[stop], run=run)
    events: list[Any] = []
    resumed = run_training(make_job(), make_source(X, y), subscribers=[events.append], run=run)
    assert_same_bits(resumed, whole)
    phases = {phase for event in events if isinstance(event, ExchangeDone) for phase in event.busy}
    assert REPLAY in phases
