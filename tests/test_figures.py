"""The figures of a run equal what its events say, live and from records."""

from __future__ import annotations

import json

import numpy as np
import pytest

from distkern.events import (
    BlocksReplayed,
    Event,
    ExchangeDone,
    RoundDone,
    RunEnded,
    RunResumed,
    RunStarted,
    StorageRetried,
    WorkerLost,
)
from distkern.figures import RunFigures


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


def test_sums_and_marks_say_what_befell_the_run() -> None:
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


def test_a_run_that_goes_on_counts_its_resumption_and_is_not_over() -> None:
    events = [*a_run(), started(max_centers=128), RunResumed(run_id="r1", exchanges=3, seconds=4.0), a_round(2, 6.0)]
    figures = RunFigures.of_records(event.as_record() for event in events)
    assert figures.resumed == 1
    assert figures.stop_reason is None
    assert figures.shapes["max_centers"] == 128
    assert figures.started == events[1].timestamp


@pytest.mark.parametrize("rate", [0.5, 3.0])
def test_the_time_left_is_right_where_a_step_costs_in_proportion_to_the_path(rate: float) -> None:
    figures = RunFigures()
    figures(started(max_centers=1000))
    assert figures.centers_per_second is None
    assert figures.seconds_left is None
    for number, count in enumerate(range(10, 510, 10)):
        figures(a_round(number, rate * count**2, n_centers=count))
    assert figures.seconds_left is not None
    np.testing.assert_allclose(figures.seconds_left, rate * (1000**2 - 500**2), rtol=0.15)


def test_unknown_and_broken_records_are_passed_over() -> None:
    figures = RunFigures.of_records([{}, {"event": "Other"}, {"event": 3, "timestamp": "soon"}])
    assert figures.as_json()["n_centers"] == 0
    assert figures.updated is None
