"""Figures of a run, from live events and from records."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.monitoring.events import (
    BlocksReplayed,
    DashboardServed,
    Event,
    ExchangeDone,
    MetricRoundDone,
    RoundDone,
    RunCutShort,
    RunEnded,
    RunResumed,
    RunStarted,
    StorageRetried,
    WorkerLost,
)
from distkern.monitoring.run_state import CUT_SHORT, LEARNING, RunFigures


def started(**changes: int) -> RunStarted:
    shapes = {"n_rows": 90, "n_features": 3, "n_targets": 2, "n_problems": 1, "n_blocks": 4, "max_centers": 64}
    return RunStarted(run_id="r1", workers=2, **(shapes | changes))


def a_round(number: int, seconds: float, n_centers: int | None = None) -> RoundDone:
    count = 16 * (number + 1) if n_centers is None else n_centers
    return RoundDone(round=number, n_centers=count, lambda_=0.1, gcv=1.0 / count, residual_max=0.5, seconds=seconds)


def a_run() -> list[Event]:
    return [
        ExchangeDone(name="load-blocks", seconds=0.5),
        started(),
        a_round(0, 1.0),
        WorkerLost(worker="tcp://a", blocks=(1, 2)),
        BlocksReplayed(worker="tcp://b", blocks=(1, 2), messages=7),
        ExchangeDone(name="form-panel", seconds=0.25),
        ExchangeDone(name="form-panel", seconds=0.5),
        a_round(1, 3.0),
        StorageRetried(array="X", count=3),
        RunEnded(n_centers=32, stop_reason="max-centers", seconds=4.0),
    ]


def test_live_events_and_their_records_make_the_same_figures() -> None:
    live = RunFigures()
    for event in a_run():
        live(event)
    recorded = RunFigures.of_records(json.loads(json.dumps(event.as_record())) for event in a_run())
    ours, theirs = live.as_json(), recorded.as_json()
    for figures in (ours, theirs):
        figures.pop("started"), figures.pop("updated")
        for mark in figures["marks"]:
            mark.pop("timestamp")
    assert json.loads(json.dumps(ours)) == json.loads(json.dumps(theirs))


def test_sums_and_marks_of_a_run() -> None:
    figures = RunFigures.of_records(event.as_record() for event in a_run())
    assert figures.run_id == "r1"
    assert figures.series["n_centers"] == [16, 32]
    assert figures.exchange_seconds == {"load-blocks": 0.5, "form-panel": 0.75}
    assert figures.exchange_counts == {"load-blocks": 1, "form-panel": 2}
    assert figures.exchanges == 3
    assert (figures.replayed_blocks, figures.storage_retries) == (2, 3)
    assert [(mark.kind, mark.n_centers) for mark in figures.marks] == [
        ("WorkerLost", 16),
        ("BlocksReplayed", 16),
        ("StorageRetried", 32),
    ]
    assert figures.marks[0].what["blocks"] == (1, 2)
    assert (figures.stop_reason, figures.seconds, figures.seconds_left) == ("max-centers", 4.0, 0.0)


def test_a_resumed_run_counts_its_resumption_and_is_not_over() -> None:
    events = [*a_run(), started(max_centers=128), RunResumed(run_id="r1", exchanges=3, seconds=4.0), a_round(2, 6.0)]
    figures = RunFigures.of_records(event.as_record() for event in events)
    assert figures.resumed == 1
    assert figures.stop_reason is None
    assert figures.shapes["max_centers"] == 128
    assert figures.started == events[1].timestamp


@pytest.mark.parametrize("rate", [0.5, 3.0])
def test_the_time_left_where_the_time_of_a_step_grows_with_the_path(rate: float) -> None:
    figures = RunFigures()
    figures(started(max_centers=1000))
    assert figures.centers_per_second is None
    assert figures.seconds_left is None
    for number, count in enumerate(range(10, 510, 10)):
        figures(a_round(number, rate * count**2, n_centers=count))
    assert figures.seconds_left is not None
    np.testing.assert_allclose(figures.seconds_left, rate * (1000**2 - 500**2), rtol=0.15)


def test_unknown_and_broken_records_are_skipped() -> None:
    figures = RunFigures.of_records([{}, {"event": "Other"}, {"event": 3, "timestamp": "soon"}])
    assert figures.as_json()["n_centers"] == 0
    assert figures.updated is None


def costly(name: str, **changes: Any) -> ExchangeDone:
    costs: dict[str, Any] = {
        "busy": {"kernel columns": 0.2, "waiting": 0.3},
        "memory": {"tcp://a": {"resident": 7, "cache": 3, "scratch": 0, "planned": 9}},
    }
    return ExchangeDone(name=name, seconds=0.5, **(costs | changes))


def test_costs_add_up_by_phase_and_the_latest_memory_is_kept() -> None:
    figures = RunFigures()
    figures(costly("load-blocks", bytes_read=100))
    figures(costly("form-panel", exchanges=2, busy={"update": 0.5, "waiting": 0.25}, memory={}))
    assert figures.busy == {"kernel columns": 0.2, "waiting": 0.55, "update": 0.5}
    assert figures.memory == {"tcp://a": {"resident": 7, "cache": 3, "scratch": 0, "planned": 9}}
    figures(costly("form-panel", memory={"tcp://b": {"resident": 5}}))
    assert (figures.memory, figures.peak_resident) == ({"tcp://b": {"resident": 5}}, 7)
    assert (figures.exchanges, figures.bytes_read) == (4, 100)


def test_a_search_has_its_own_counts() -> None:
    figures = RunFigures()
    assert figures.state == "starting"
    figures(costly("load-blocks", part="search", bytes_read=50))
    assert figures.state == "searching"
    assert (figures.exchanges, figures.bytes_read, figures.search_exchanges) == (0, 0, 1)
    assert figures.search_seconds == 0.5
    figures(costly("load-blocks", bytes_read=60))
    figures(started())
    assert (figures.state, figures.exchanges, figures.bytes_read) == ("starting", 1, 60)
    figures(a_round(0, 1.0))
    assert figures.state == "selecting"


def a_metric_round(rounds: int, error: float, **changes: Any) -> MetricRoundDone:
    facts = {"kernel": "laplacian", "shape": "full", "round": 2, "factor": 2.0}
    return MetricRoundDone(error=error, rounds=rounds, **(facts | changes))


def test_the_rounds_of_a_metric_precede_a_search_and_the_training() -> None:
    figures = RunFigures()
    assert not figures.begun
    for rounds, error in ((1, 0.5), (2, 0.25), (3, 0.375)):
        figures(a_metric_round(rounds, error))
    assert (figures.state, figures.metric_rounds, figures.metric_error) == (LEARNING, 3, 0.25)
    assert figures.metric_tried == "laplacian, full map 2"
    assert figures.begun
    figures(costly("load-blocks", part="search"))
    assert figures.state == "searching"
    figures(costly("load-blocks"))
    assert (figures.state, figures.metric_rounds) == ("starting", 3)


def test_a_process_that_begins_the_rounds_again_forgets_those_of_the_last_one() -> None:
    figures = RunFigures()
    for rounds, error in ((1, 0.25), (2, 0.125), (1, 0.5)):
        figures(a_metric_round(rounds, error))
    assert (figures.metric_rounds, figures.metric_error) == (1, 0.5)


@pytest.mark.parametrize(
    "damage", [{"error": None}, {"error": "low"}, {"rounds": 1e300}, {"kernel": 3}, {"shape": None}, {"factor": []}]
)
def test_damaged_rounds_of_a_metric_are_skipped(damage: dict[str, Any]) -> None:
    whole = a_metric_round(1, 0.25).as_record()
    assert RunFigures.of_records([whole]).metric_rounds == 1
    assert RunFigures.of_records([whole | damage]).metric_rounds == 0
    (name,) = damage
    assert RunFigures.of_records([{key: value for key, value in whole.items() if key != name}]).metric_rounds == 0


def test_the_summary_replaces_the_figures_of_the_events() -> None:
    figures = RunFigures.of_records(event.as_record() for event in a_run())
    figures.conclude({"n_centers": 20, "gcv": 0.5, "exchanges": 9, "bytes_read": 7, "seconds": 6, "stop_reason": "x"})
    assert (figures.exchanges, figures.bytes_read, figures.seconds, figures.stop_reason) == (9, 7, 6.0, "x")
    assert figures.summary["n_centers"] == 20
    assert figures.n_centers == 32, "the path is longer than the model"
    figures(started())
    assert figures.state != "done"
    assert figures.summary == {}


@given(st.data())
def test_changes_in_any_portions_make_the_same_figures(data: st.DataObject) -> None:
    ours, theirs = RunFigures(), RunFigures()
    for event in [*a_run(), costly("form-panel"), a_round(2, 9.0)]:
        ours(event)
        if data.draw(st.booleans()):
            behind = data.draw(st.integers(0, 2))
            known = (max(0, len(part) - behind) for part in (theirs.series["n_centers"], theirs.marks))
            assert theirs.apply(json.loads(json.dumps(ours.changes(*known))))
    theirs.apply(json.loads(json.dumps(ours.changes(len(theirs.series["n_centers"]), len(theirs.marks)))))
    assert json.loads(json.dumps(theirs.as_json())) == json.loads(json.dumps(ours.as_json()))


def test_changes_with_missing_rounds_or_marks_are_refused() -> None:
    figures = RunFigures.of_records(event.as_record() for event in a_run())
    fresh = RunFigures()
    assert not fresh.apply(figures.changes(rounds=1))
    assert not fresh.apply(figures.changes(marks=1))
    assert fresh == RunFigures()


def test_a_run_is_cut_short_until_it_is_resumed() -> None:
    figures = RunFigures()
    for event in (started(), a_round(0, 1.0), a_round(1, 2.0)):
        figures(event)
    assert figures.seconds_left
    figures(RunCutShort(error="Cancelled", message="interrupted"))
    assert (figures.state, figures.failure, figures.seconds_left) == (CUT_SHORT, "Cancelled", None)
    figures(DashboardServed(address="http://h:1"))
    assert (figures.state, figures.failure) == ("selecting", None)


@pytest.mark.parametrize(
    "changes",
    [{"busy": [1, 2]}, {"busy": {"read": "long"}}, {"memory": "x"}, {"memory": {"a": 3}}, {"bytes_read": "all"}],
    ids=str,
)
def test_damaged_records_are_skipped(changes: dict[str, Any]) -> None:
    record = ExchangeDone(name="load-blocks", seconds=0.5).as_record()
    figures = RunFigures.of_records([record, {**record, **changes}])
    assert figures.exchanges == 1
