"""The board shows the runs of all clients, and no trouble of it reaches a training."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import urllib.request
from collections.abc import Iterator
from time import monotonic
from typing import Any

import numpy as np
import pytest
import zarr
from prometheus_client.parser import text_string_to_metric_families

from distkern import OROLSClassifier, OROLSRegressor
from distkern.monitoring.events import ExchangeDone, MetricRoundDone, RoundDone, RunEnded, RunStarted, WorkerLost
from distkern.monitoring.run_state import RunFigures
from distkern.scheduler.dashboard.colours import TASK_COLOURS, TaskColour
from distkern.scheduler.dashboard.page import Page
from distkern.scheduler.dashboard.page_text import LONGEST_NAME, digits
from distkern.scheduler.dashboard.publisher import published
from distkern.scheduler.dashboard.scheduler_plugin import BOARD, MAX_RUNS, SHOW, RunBoard
from tests.markers import marked
from tests.scheduler.worker_clusters import cluster
from tests.waiting import wait_until


def started(run_id: str = "r", **changes: int) -> RunStarted:
    shapes = {"n_rows": 90, "n_features": 3, "n_targets": 1, "n_problems": 1, "n_blocks": 4, "max_centers": 64}
    return RunStarted(run_id=run_id, workers=2, **(shapes | changes))


def a_round(number: int, **changes: Any) -> RoundDone:
    figures = {"lambda_": 0.1, "gcv": 1 / (number + 1), "residual_max": 0.5, "seconds": float(number)}
    return RoundDone(round=number, n_centers=16 * (number + 1), **(figures | changes))


def figures_of(*events: Any) -> RunFigures:
    return RunFigures.of_records(event.as_record() for event in events)


def update(figures: RunFigures, key: str = "k", title: str = "a run", **known: int) -> str:
    return json.dumps({"key": key, "title": title, "changes": figures.changes(**known)})


# ---- the board alone


def test_a_board_takes_runs_in_portions_and_says_what_it_lacks() -> None:
    board, figures = RunBoard(), figures_of(started(), a_round(0))
    assert board.show(update(figures)) == {"taken": True, "rounds": 1, "marks": 0, "missing": []}
    figures(a_round(1))
    figures(WorkerLost(worker="tcp://a", blocks=(1,)))
    assert board.show(update(figures, rounds=1))["rounds"] == 2
    assert board.runs["k"].figures.as_json() == json.loads(json.dumps(figures.as_json()))
    fresh = RunBoard()
    assert fresh.show(update(figures, rounds=1)) == {"taken": False, "rounds": 0, "marks": 0, "missing": []}


def test_a_board_keeps_the_last_runs() -> None:
    board = RunBoard()
    for number in range(MAX_RUNS + 5):
        board.show(update(figures_of(started(f"run {number}")), key=str(number)))
    assert list(board.runs) == [str(number) for number in range(5, MAX_RUNS + 5)]


def test_a_resumed_run_replaces_the_state_of_an_earlier_process() -> None:
    board = RunBoard()
    board.show(update(figures_of(started("same")), key="first"))
    board.show(update(figures_of(), key="other"))
    board.show(update(figures_of(started("same")), key="second"))
    assert list(board.runs) == ["other", "second"]


def test_tasks_have_the_colour_of_their_phase_and_others_keep_theirs() -> None:
    colour = TaskColour(lambda message: f"old {message['key']}", lambda key: key.rsplit("-", 1)[0])
    assert colour({"key": "kernel-columns-1", "status": "OK"}) == TASK_COLOURS["kernel-columns"]
    assert colour({"key": "kernel-columns-1", "status": "error"}) == "old kernel-columns-1"
    assert colour({"key": "inc-1", "status": "OK"}) == "old inc-1"


# ---- the page, without a browser


def text_of(page: Page) -> str:
    return str(page._overview.text) + str(page._incidents.text)


def test_an_empty_page_says_so() -> None:
    page = Page(RunBoard())
    page.update()
    assert "No training of distkern" in text_of(page)
    assert len(page.root.children) == 1


def test_long_names_leave_room_in_plots_and_are_unique() -> None:
    board = RunBoard()
    titles = ["a run of a very long name that goes on to " + end for end in ("the first end", "the other, first end")]
    for number, title in enumerate(["plain", *titles, titles[0]]):
        board.show(update(figures_of(started(f"r{number}"), a_round(0)), key=str(number), title=title))
    page = Page(board)
    page.update()
    labels = page._choice.labels
    assert labels[0] == "plain"
    assert len(set(labels)) == 4
    assert max(map(len, labels)) <= LONGEST_NAME + 3
    assert all(title in text_of(page) for title in titles), "the cards have room"
    assert set(page._curves["gcv"]._lines.data["run"]) <= set(labels)
    assert set(page._time.plot.y_range.factors) <= set(labels)


def test_a_run_whose_driver_disconnected_is_over() -> None:
    board = RunBoard()
    page = Page(board)
    figures = figures_of(started(), a_round(0), a_round(1))
    board.show(json.dumps({**json.loads(update(figures)), "client": "c"}))
    done = figures_of(started("d"), a_round(0), RunEnded(n_centers=16, stop_reason="gcv-risen", seconds=1.0))
    board.show(json.dumps({**json.loads(update(done, key="d")), "client": "c"}))
    board.remove_client(None, "another")
    page.update()
    assert "time left" in text_of(page)
    board.remove_client(None, "c")
    board.runs["k"].updated -= 1000
    page.update()
    assert "cut short: its driver disconnected" in text_of(page)
    assert "silent" not in text_of(page)
    assert "time left" not in text_of(page)
    assert board.runs["d"].figures.state == "done"
    board.show(json.dumps({**json.loads(update(figures)), "client": "c"}))
    assert board.runs["k"].figures.state == "selecting", "its client has come back"


def test_a_page_follows_its_runs() -> None:
    board, figures = RunBoard(), figures_of(started(), a_round(0, gcv=0.75))
    board.show(update(figures))
    page = Page(board)
    page.update()
    assert page._curves["gcv"]._lines.data["y"] == [[0.75]]
    assert not page._curves["validation"].any
    before = text_of(page)
    figures(a_round(1, gcv=0.5, validation=0.25))
    figures(WorkerLost(worker="tcp://10.0.0.7:4000", blocks=(1, 2), reason="left"))
    memory = {"tcp://b": {"resident": 5 << 20, "cache": 1 << 20, "scratch": 0, "planned": 9 << 20}}
    figures(ExchangeDone(name="form-panel", seconds=0.5, busy={"projection": 0.75, "waiting": 0.25}, memory=memory))
    board.show(update(figures, rounds=1))
    page.update()
    assert page._curves["gcv"]._lines.data["y"] == [[0.75, 0.5]]
    assert page._curves["validation"]._lines.data["y"] == [[0.25]]
    assert page._curves["gcv"]._marks["WorkerLost"].data["x"] == [32.0]
    assert page._time._parts.data["share"] == [0.75, 0.25]
    assert page._memory._source.data["planned"] == [9 << 20]
    assert text_of(page) != before
    assert "lost worker tcp://10.0.0.7:4000 (it was killed or disconnected); reassigned 2 blocks" in text_of(page)


def test_a_second_run_appears_beside_the_first_and_runs_can_be_chosen() -> None:
    board = RunBoard()
    page = Page(board)
    page.update()
    board.show(update(figures_of(started("a"), a_round(0)), key="1", title="letter.run"))
    page.update()
    board.show(update(figures_of(started("b"), a_round(0), a_round(1)), key="2", title="letter.run"))
    page.update()
    lines = page._curves["gcv"]._lines
    assert lines.data["run"] == ["letter.run #1", "letter.run #2"]
    assert len(set(lines.data["colour"])) == 2
    page._choice.active = [1]
    assert lines.data["run"] == ["letter.run #2"]
    assert "letter.run #1" in text_of(page), "a run that is not drawn is still listed"


def test_a_session_begins_with_what_goes_on_and_the_last_runs() -> None:
    board = RunBoard()
    ended = RunEnded(n_centers=16, stop_reason="max-centers", seconds=1.0)
    for number in range(6):
        events = [started(str(number)), a_round(0)] + ([] if number == 1 else [ended])
        board.show(update(figures_of(*events), key=str(number), title=str(number)))
    page = Page(board)
    page.update()
    assert page._curves["gcv"]._lines.data["run"] == ["1", "4", "5"]


@pytest.mark.parametrize("value", [float("nan"), None, *marked(pytest.mark.nightly, 0.0, -1.0)])
def test_values_that_a_logarithmic_axis_cannot_show_are_left_out(value: Any) -> None:
    board = RunBoard()
    board.show(update(figures_of(started(), a_round(0), a_round(1, lambda_=value), a_round(2))))
    page = Page(board)
    page.update()
    assert page._curves["lambda_"]._lines.data["x"] == [[16.0, 48.0]]


@pytest.mark.slow
def test_long_paths_are_thinned_out_and_keep_their_ends() -> None:
    board = RunBoard()
    board.show(update(figures_of(started(), *(a_round(number) for number in range(5001)))))
    page = Page(board)
    page.update()
    (x,) = page._curves["gcv"]._lines.data["x"]
    assert len(x) <= 801
    assert (x[0], x[-1]) == (16.0, 16.0 * 5001)


def test_the_rounds_of_a_metric_are_shown_while_they_are_made() -> None:
    facts = {"kernel": "laplacian", "shape": "<b>", "round": 3, "factor": 2.0}
    rounds = [MetricRoundDone(error=error, rounds=number, **facts) for number, error in ((1, 0.5), (2, 0.75))]
    board = RunBoard()
    board.show(update(figures_of(*rounds)))
    page = Page(board)
    page.update()
    text = text_of(page)
    for part in ("learning a metric", ">2<", ">0.5<", "laplacian, &lt;b&gt; map 3"):
        assert part in text
    board.show(update(figures_of(*rounds, started(), a_round(0))))
    page.update()
    assert ">0.5<" in text_of(page)
    assert "map 3" not in text_of(page)


def test_names_are_shown_as_text() -> None:
    board = RunBoard()
    board.show(update(figures_of(started(), a_round(0)), title="<script>alert(1)</script>"))
    page = Page(board)
    page.update()
    assert "<script>" not in text_of(page)


# ---- on a cluster


def rows(n: int = 800, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    return zarr.array(X, chunks=(200, 3)), zarr.array(np.sin(2 * X[:, 0]) + X[:, 1], chunks=(200,))


def fit(client: Any, max_centers: int = 48, **settings: Any) -> OROLSRegressor:
    return OROLSRegressor(max_centers=max_centers, client=client, **settings).fit(*rows())


def board_of(client: Any) -> RunBoard:
    board = client.cluster.scheduler.plugins[BOARD]
    assert isinstance(board, RunBoard)
    return board


@pytest.fixture
def client() -> Iterator[Any]:
    with cluster(2, processes=False) as client:
        yield client


def scraped(client: Any, path: str = "metrics") -> str:
    port = client.cluster.scheduler.http_server.port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def samples(text: str) -> dict[tuple[str, str], float]:
    """Values by metric and run, of those that have no further label."""
    return {
        (sample.name, sample.labels["run"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("distkern_") and sample.labels.keys() == {"run"}
    }


def test_runs_of_a_cluster_are_on_its_board_and_stay_there(client: Any) -> None:
    first = fit(client)
    second = fit(client, stop="validation")
    one, other = board_of(client).runs.values()
    assert board_of(client).missing == []
    for run, model in ((one, first), (other, second)):
        figures = run.figures
        assert (run.title, figures.state) == ("OROLSRegressor", "done")
        assert figures.summary["n_centers"] == model.n_centers_
        assert figures.series["gcv"]
        assert figures.shapes["n_rows"] == 800
        assert {"kernel-columns", "waiting"} <= figures.busy.keys()
        assert set(figures.memory) >= set(client.scheduler_info()["workers"])
    assert other.figures.series["validation"][-1] > 0
    assert '<a href="distkern">' in scraped(client, "status")
    assert scraped(client, "distkern")


@pytest.mark.slow
def test_a_dashboard_behind_a_prefix_has_the_page_there_too() -> None:
    with cluster(1, processes=False, scheduler_kwargs={"http_prefix": "/here"}) as client:
        fit(client)
        assert board_of(client).missing == []
        assert "Bokeh" in scraped(client, "here/distkern")


def test_numbers_have_four_digits() -> None:
    assert [digits(value) for value in (None, float("nan"), [0.5, 2.0], 12345.678)] == ["", "", "2", "1.235e+04"]


def test_metrics_equal_the_summary_of_the_run(client: Any) -> None:
    with cluster(1, processes=False) as closed:
        fit(closed, 16)
        ended = {run.run_id for run in board_of(closed).runs.values()}
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 4))
    y = zarr.array((X[:, 0] * X[:, 1] > 0).astype(np.int64), chunks=(300,))
    model = OROLSClassifier(max_centers=300, client=client).fit(zarr.array(X, chunks=(300, 4)), y)
    (run,) = board_of(client).runs.values()
    found = samples(scraped(client))
    summary = model.summary_
    assert len(model.history_) == model.n_centers_
    expected = {
        "distkern_centers": model.n_centers_,
        "distkern_gcv": model.gcv_,
        "distkern_lambda": model.lambda_,
        "distkern_exchanges_total": summary["exchanges"],
        "distkern_read_bytes_total": summary["bytes_read"],
        "distkern_run_seconds": summary["seconds"],
        "distkern_run_rows": summary["n_rows"],
        "distkern_run_features": summary["n_features"],
        "distkern_max_centers": 300,
        "distkern_run_running": 0,
        "distkern_workers_lost_total": 0,
    }
    assert {name: found[name, run.run_id] for name in expected} == expected
    assert found["distkern_steps_total", run.run_id] >= model.n_centers_
    by_message = {
        (sample.labels["run"], sample.labels["message"]): sample.value
        for family in text_string_to_metric_families(scraped(client))
        for sample in family.samples
        if sample.name == "distkern_messages_total"
    }
    assert ended
    assert run.run_id in {name for name, _ in by_message}
    assert not ended & {name for name, _ in by_message}
    assert by_message[run.run_id, "load-blocks"] == 1


@pytest.mark.parametrize("factors", ["workers", *marked(pytest.mark.nightly, "driver")])
def test_events_alone_add_up_to_the_same_exchanges_and_bytes(client: Any, factors: str) -> None:
    figures = RunFigures()
    model = fit(client, factors=factors, callbacks=[figures])
    assert figures.exchanges == model.summary_["exchanges"]
    assert figures.bytes_read == model.summary_["bytes_read"]
    assert figures.summary == {}


@pytest.mark.slow
def test_a_search_is_shown_as_such_and_counts_for_itself(client: Any) -> None:
    events: list[Any] = []
    model = fit(client, 16, sigma="cv", folds=2, callbacks=[events.append])
    (run,) = board_of(client).runs.values()
    assert run.figures.search_exchanges > 0
    assert [type(event).__name__ for event in events[:2]] == ["DashboardServed", "ExchangeDone"]
    assert events[1].part == "search"
    assert run.figures.exchanges == model.summary_["exchanges"]
    planned = {
        memory["planned"] for event in events if isinstance(event, ExchangeDone) for memory in event.memory.values()
    }
    assert model.summary_["planned_peak_bytes"] == max(planned) > min(planned)


@pytest.mark.slow
def test_the_rounds_of_a_metric_are_on_the_board_and_in_the_metrics(client: Any) -> None:
    model = fit(client, 16, metric="diagonal", metric_rounds=1)
    (run,) = board_of(client).runs.values()
    errors = [made["error"] for made in model.metric_rounds_]
    assert (run.figures.metric_rounds, run.figures.metric_error) == (len(errors), min(errors))
    assert [value for (name, _), value in samples(scraped(client)).items() if name == "distkern_metric_error"] == [
        pytest.approx(min(errors))
    ]


def test_a_training_that_is_cut_short_is_shown_as_such(client: Any) -> None:
    def stop(event: Any) -> None:
        if isinstance(event, RoundDone):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        OROLSRegressor(max_centers=48, client=client, run_dir=None, callbacks=[_Raising(stop)]).fit(*rows())
    (run,) = board_of(client).runs.values()
    assert run.figures.state == "cut short"
    found = samples(scraped(client))
    assert found["distkern_run_running", run.run_id] == 0
    assert found["distkern_run_cut_short", run.run_id] == 1
    assert len(run.figures.series["gcv"]) == 1


class _Raising:
    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, event: Any) -> None:
        self._function(event)


class Without:
    """A scheduler that lacks one attribute."""

    def __init__(self, scheduler: Any, *names: str) -> None:
        self._scheduler = scheduler
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name in self._names:
            raise AttributeError(f"no {name} here")
        return getattr(self._scheduler, name)


class NoPageBoard(RunBoard):
    """Finds no web application to add its page to."""

    async def start(self, scheduler: Any) -> None:
        await super().start(Without(scheduler, "http_application"))


class NoBoard(RunBoard):
    """Cannot be reached."""

    async def start(self, scheduler: Any) -> None:
        await super().start(Without(scheduler, "handlers"))


@pytest.mark.slow
def test_without_a_place_for_the_page_a_warning_says_so_once_and_the_rest_is_shown(
    client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client.register_plugin(NoPageBoard())
    with caplog.at_level(logging.WARNING, "distkern"):
        models = [fit(client) for _ in range(2)]
    assert all(model.n_centers_ == 48 for model in models)
    (warning,) = [record.getMessage() for record in caplog.records if record.name.startswith("distkern")]
    assert "the page /distkern" in warning
    assert "no http_application here" in warning
    assert "the metrics" not in warning
    assert '<a href="distkern">' not in scraped(client, "status"), "no link that leads nowhere"
    assert len(board_of(client).runs) == 2
    assert {run.run_id for run in board_of(client).runs.values()} <= {run for _, run in samples(scraped(client))}


def test_a_scheduler_without_a_dashboard_is_no_cause_for_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            1,
            processes=False,
            dashboard_address="127.0.0.1:0",  # of the HTTP server, which serves no dashboard
            scheduler_kwargs={"dashboard": False},
            silence_logs=50,
        ) as local,
        Client(local, set_as_default=False) as client,
        caplog.at_level(logging.WARNING, "distkern"),
    ):
        fit(client)
        assert board_of(client).missing == []
        assert len(board_of(client).runs) == 1
    assert [record for record in caplog.records if record.name.startswith("distkern")] == []


def test_without_a_board_a_warning_says_so_and_the_model_is_the_same(
    client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    expected = fit(None)
    broken = NoBoard()
    scheduler = client.cluster.scheduler
    scheduler.plugins[BOARD] = broken  # as if it were registered, but nothing leads to it
    with caplog.at_level(logging.WARNING, "distkern"):
        model = fit(client)
    assert model.coef_.tobytes() == expected.coef_.tobytes()
    (warning,) = [record.getMessage() for record in caplog.records if record.name.startswith("distkern")]
    assert "the training goes on" in warning
    assert broken.runs == {}


def test_a_scheduler_that_forgot_everything_gets_everything(client: Any) -> None:
    scheduler = client.cluster.scheduler
    with published(client, "a run") as shown:
        shown(started())
        shown(a_round(0))
        wait_until(lambda: BOARD in scheduler.plugins and scheduler.plugins[BOARD].runs)
        scheduler.remove_plugin(BOARD)
        del scheduler.handlers[SHOW]
        shown(a_round(1))
        wait_until(lambda: BOARD in scheduler.plugins and scheduler.plugins[BOARD].runs)
        shown(a_round(2))
    (run,) = board_of(client).runs.values()
    assert run.figures.series["n_centers"] == [16, 32, 48]
    assert run.figures.shapes["max_centers"] == 64


def test_a_client_that_was_closed_is_no_trouble(client: Any) -> None:
    from distributed import Client

    other = Client(client.cluster, set_as_default=False)
    with published(other, "a run") as shown:
        shown(started())
        other.close()
        before = monotonic()
        for number in range(3):
            shown(a_round(number))
    assert monotonic() - before < 5


@pytest.mark.slow
def test_a_board_that_hangs_holds_nothing_up(client: Any) -> None:
    scheduler, held = client.cluster.scheduler, threading.Event()

    async def never(update: str) -> Any:
        while not held.is_set():
            await asyncio.sleep(0.01)

    scheduler.plugins[BOARD] = RunBoard()
    scheduler.handlers[SHOW] = never
    try:
        with published(client, "a run") as shown:
            before = monotonic()
            for number in range(100):
                shown(a_round(number))
            assert monotonic() - before < 1
    finally:
        held.set()
