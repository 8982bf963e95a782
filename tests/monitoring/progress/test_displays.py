"""Displays of a run: lines for a log, a picture that is redrawn for a terminal, one output for a notebook."""

from __future__ import annotations

import io
import logging
import threading
from dataclasses import replace
from time import sleep
from typing import Any

import pytest
from rich.console import Console

import distkern as dk
from distkern.cli.console.terminal import Terminal
from distkern.cli.running.progress import show_progress
from distkern.monitoring.events import (
    BlocksReplayed,
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
    describe,
)
from distkern.monitoring.progress import LineDisplay, NotebookDisplay, Progress, RunDisplay, TerminalDisplay
from distkern.monitoring.progress.messages import line
from distkern.monitoring.progress.rich_view import picture
from distkern.monitoring.run_state import RunFigures

START = RunStarted(
    run_id="r", n_rows=1000, n_features=4, n_targets=3, n_problems=1, n_blocks=2, max_centers=50, workers=1
)
END = RunEnded(n_centers=50, stop_reason="max-centers", seconds=700.0)


def at(seconds: float, centers: int = 10) -> RoundDone:
    return RoundDone(
        round=0, n_centers=centers, lambda_=1e-3, gcv=0.25, residual_max=1.0, seconds=seconds, validation=0.5
    )


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Lines:
    def __init__(self) -> None:
        self.said: list[tuple[int, str]] = []

    def __call__(self, level: int, text: str) -> None:
        self.said.append((level, text))

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.said]


def test_lines_report_start_and_end_and_once_a_minute_the_state() -> None:
    clock, lines = Clock(), Lines()
    show = RunDisplay(LineDisplay(lines, clock=clock))
    show(START)
    for second in range(1, 601):
        clock.now = second
        show(at(second))
    show(END)
    assert len(lines.said) == 12
    assert "1000 rows x 4 features" in lines.texts[0]
    assert "10 of 50 centres after 1 min, gcv 0.25  lambda 0.001  held out 0.5" in lines.texts[1]
    assert lines.texts[-1] == "50 centres in 11 min 40 s, stopped: max-centers"


def test_the_state_has_pace_and_time_left() -> None:
    figures = RunFigures()
    for event in (START, at(1.0, 10), at(3.0, 20)):
        figures(event)
    assert line(figures).startswith("20 of 50 centres after 3.0 s, gcv 0.25")
    assert "5 centres/s  at most 10 s left" in line(figures)  # 30 centres to go, the last as dear as 2.5 of these


def test_passes_for_the_weights_are_counted() -> None:
    figures = RunFigures()
    for event in (
        replace(START, selected_centers=20),
        at(1.0),
        at(3.0, 20),
        ExchangeDone(name="solve-weights", seconds=1),
    ):
        figures(event)
    assert figures.seconds_left == 0.0
    assert "20 of 50 centres" in line(figures)
    assert "pass 1 for the weights" in line(figures)
    console = Console(file=io.StringIO(), width=120)
    console.print(picture(figures, None))
    assert "pass 1 for the weights" in console.file.getvalue()


SEARCH = ExchangeDone(name="score-folds", seconds=4.0, exchanges=3, part="search")


def test_a_search_is_reported_like_a_training() -> None:
    clock, lines = Clock(), Lines()
    show = RunDisplay(LineDisplay(lines, clock=clock))
    show(DashboardServed(address="http://h:1/status"))
    for second in range(1, 601):
        clock.now = second
        show(SEARCH)
    show(DashboardServed(address="http://h:1/status"))
    assert lines.texts[0] == "dashboard at http://h:1/status"
    assert lines.texts[1] == "searching for settings: 180 exchanges in 4 min"
    assert len(lines.said) == 11
    show(START)
    show(SEARCH)
    assert show.figures.search_exchanges == 1803, "the search belongs to the run"
    show(END)
    clock.now += 100
    show(ExchangeDone(name="calibration-rows", seconds=1.0))
    assert lines.texts[-1].startswith("50 centres in"), "nothing more of what is over"
    show(SEARCH)
    assert lines.texts[-1] == "searching for settings: 3 exchanges in 4.0 s"
    show.take({**SEARCH.as_record(), "exchanges": 1})
    assert (show.figures.search_exchanges, show.figures.stop_reason) == (4, None)


def metric_round(rounds: int) -> MetricRoundDone:
    return MetricRoundDone(kernel="laplacian", shape="full", round=3, factor=2.0, error=1 / rounds, rounds=rounds)


def test_the_rounds_of_a_metric_are_reported_like_a_training() -> None:
    clock, lines = Clock(), Lines()
    show = RunDisplay(LineDisplay(lines, clock=clock))
    for second in range(1, 121):
        clock.now = second
        show(metric_round(second))
    assert lines.texts == [
        "learning a metric: 60 rounds, lowest error 0.01667, last laplacian, full map 3",
        "learning a metric: 120 rounds, lowest error 0.008333, last laplacian, full map 3",
    ]
    show(START)
    assert show.figures.metric_rounds == 120, "the rounds belong to the run"
    show(END)
    show(metric_round(1))
    assert (show.figures.metric_rounds, show.figures.stop_reason) == (1, None)


def test_a_line_a_minute_without_events() -> None:
    clock, lines = Clock(), Lines()
    display = LineDisplay(lines, clock=clock)
    show = RunDisplay(display)
    for second in range(200):
        clock.now = second
        display.tick()
    assert lines.texts == [f"getting ready; nothing new for {text}" for text in ("1 min", "2 min", "3 min")]
    show(START)
    show(at(1.0))
    clock.now = 300
    display.tick()
    assert lines.texts[-1].startswith("10 of 50 centres after 1.0 s")
    assert lines.texts[-1].endswith("; nothing new for 1 min 41 s")
    show(END)
    clock.now = 1000
    display.tick()
    assert lines.texts[-1].startswith("50 centres in")


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (WorkerLost(worker="tcp://a:1", blocks=(1, 2), reason="frozen"), "WARNING", "tcp://a:1 (it does not answer)"),
        (BlocksReplayed(worker="b", blocks=(1, 2), messages=7, seconds=1.25), "INFO", "2 blocks from 7 messages"),
        (WorkerRefused(worker="c", what="numpy", driver="2.0", found="2.1"), "WARNING", "numpy is 2.1 there and 2.0"),
        (WorkersAwaited(seconds=60.0), "WARNING", "the cluster has none); waiting up to 60 s"),
        (WorkersAwaited(seconds=60.0, unusable=("a",)), "WARNING", "1 on the cluster"),
        (StorageRetried(array="X", count=7), "WARNING", "reads of X failed 7 times"),
        (DashboardServed(address="http://h:1/status"), "INFO", "dashboard at http://h:1/status"),
        (RunResumed(run_id="r", exchanges=4, seconds=90.0), "INFO", "4 exchanges, which took 1 min 30 s"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Event) else "",
)
@pytest.mark.parametrize("kind", ["lines", "terminal"])
def test_incidents_are_reported_at_once(event: Event, level: str, text: str, kind: str) -> None:
    lines = Lines()
    display = LineDisplay(lines) if kind == "lines" else TerminalDisplay(Console(quiet=True), lines)
    RunDisplay(display)(event)
    display.close()
    ((found, said),) = lines.said
    assert logging.getLevelName(found) == level
    assert text in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "record", [{}, {"event": "WorkerLost"}, {"event": "RunEnded", "n_centers": 3, "seconds": "soon"}, {"event": 3}]
)
def test_records_of_another_version_are_skipped(record: dict[str, Any]) -> None:
    assert describe(record) is None


def drawn(*events: Event, width: int = 100, dashboard: str | None = None) -> str:
    figures = RunFigures()
    for event in events:
        figures(event)
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(picture(figures, dashboard, now=figures.updated))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_picture_has_all_figures() -> None:
    text = drawn(START, at(1.0, 10), at(3.0, 20), dashboard="http://h:1/status")
    for part in ("20/50 centres", "3.0 s, at most 10 s left", "gcv 0.25", "lambda 0.001", "held out 0.5"):
        assert part in text
    assert "centres/s 5" in text
    assert "dashboard http://h:1/status" in text


def test_a_search_is_in_the_picture() -> None:
    text = drawn(SEARCH)
    assert "searching for settings" in text
    assert "4.0 s" in text
    stream = io.StringIO()
    show = Progress("terminal", file=Screen(stream))
    show(SEARCH)
    show(RunCutShort(error="Cancelled", message=""))
    assert "searching for settings" in stream.getvalue()


def test_the_rounds_of_a_metric_are_in_the_picture() -> None:
    assert "learning a metric" in drawn(metric_round(1), metric_round(4))
    assert "4 rounds, lowest error 0.25, last laplacian, full map 3" in drawn(metric_round(1), metric_round(4))
    stream = io.StringIO()
    show = Progress("terminal", file=Screen(stream))
    show(metric_round(1))
    show(RunCutShort(error="Cancelled", message=""))
    assert "1 round, lowest error 1" in stream.getvalue()


def test_the_picture_before_the_first_round() -> None:
    assert "getting ready" in drawn()
    assert "centres" not in drawn(ExchangeDone(name="load-blocks", seconds=1.0))


def test_output_of_the_program_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output of `python train.py > results` is no terminal, whatever standard error is."""
    stream = io.StringIO()
    show = Progress("terminal", file=Screen(stream))
    show(START)
    print("result 1")
    show(END)
    assert capsys.readouterr().out == "result 1\n"
    assert "result 1" not in stream.getvalue()


@pytest.mark.parametrize("width", [40, 60, 200])
def test_the_picture_fits_its_terminal(width: int) -> None:
    lines = drawn(START, at(1.0, 10), at(3.0, 20), width=width, dashboard="http://127.0.0.1:8787/status").splitlines()
    assert all(len(text) <= width for text in lines)
    assert "20/50" in lines[0]


def test_a_terminal_is_restored() -> None:
    stream = io.StringIO()
    show = Progress("terminal", file=Screen(stream))
    show(START)
    show(at(2.0, centers=20))
    assert "\x1b[?25l" in stream.getvalue()
    assert "\x1b[?25h" not in stream.getvalue()
    show(END)
    assert stream.getvalue().count("\x1b[?25h") == 1
    assert stream.getvalue().count("stopped: max-centers") == 1


class Screen(io.TextIOWrapper):
    """A terminal of which only the text is kept."""

    def __init__(self, stream: io.StringIO) -> None:
        super().__init__(io.BytesIO())
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(text)

    def isatty(self) -> bool:
        return True


def test_a_failed_training_restores_the_terminal() -> None:
    def fail(event: Event) -> None:
        if isinstance(event, RoundDone):
            raise dk.Cancelled("enough")

    stream = io.StringIO()
    show = Progress("terminal", file=Screen(stream))
    with pytest.raises(dk.Cancelled):
        dk.OROLSRegressor(max_centers=40, callbacks=[fail, show]).fit(*rows())
    assert stream.getvalue().count("\x1b[?25h") == 1
    assert "enough" not in stream.getvalue()  # the error says it


def test_a_follower_reports_the_error_that_ended_a_run() -> None:
    lines = Lines()
    show = RunDisplay(LineDisplay(lines))
    show.take(RunCutShort(error="KeyboardInterrupt", message="").as_record())
    show.take(RunCutShort(error="MemoryError", message="no room").as_record())
    assert lines.said == [(logging.WARNING, "cut short: KeyboardInterrupt"), (logging.WARNING, "cut short: no room")]


def test_events_after_a_run_that_was_cut_short_belong_to_another() -> None:
    lines = Lines()
    show = RunDisplay(LineDisplay(lines, interval=0.0))
    for event in (START, at(1.0, 20), RunCutShort(error="Cancelled", message=""), SEARCH):
        show(event)
    assert lines.texts[-1] == "searching for settings: 3 exchanges in 4.0 s"
    assert show.figures.n_centers == 0


def test_every_subscriber_receives_that_the_run_is_cut_short() -> None:
    received: list[Event] = []

    def refuse(event: Event) -> None:
        raise dk.Cancelled("no")

    EventBus([refuse, received.append]).cut_short(OSError("password=hunter2"))
    (event,) = received
    assert isinstance(event, RunCutShort)
    assert event.error == "OSError"
    assert "hunter2" not in event.message


def rows() -> tuple[Any, Any]:
    import numpy as np

    X = np.random.default_rng(0).uniform(-2, 2, (200, 2))
    return X, np.sin(2 * X[:, 0])


class Handle:
    def __init__(self) -> None:
        self.updates: list[Any] = []

    def update(self, shown: Any) -> None:
        self.updates.append(shown)


def test_a_notebook_gets_one_output_that_is_replaced() -> None:
    shown: list[Any] = []
    handle = Handle()

    def display(item: Any, *, display_id: bool) -> Handle:
        assert display_id
        shown.append(item)
        return handle

    clock = Clock()
    show = RunDisplay(NotebookDisplay(display, clock))
    show(START)
    for number in range(1, 41):
        clock.now = number / 10
        show(at(clock.now, centers=number))
    assert len(shown) == 1
    assert 6 <= len(handle.updates) <= 9  # twice a second at most, for four seconds
    show(WorkerLost(worker="tcp://a:1", blocks=(0,)))
    show(END)
    bundle = handle.updates[-1]._repr_mimebundle_(include=[], exclude=[])
    assert "stopped: max-centers" in bundle["text/html"]
    assert "lost worker tcp://a:1" in bundle["text/html"]
    show(RunStarted(**{**START.__dict__, "run_id": "next"}))
    assert len(shown) == 2


def test_the_callback_detects_that_it_writes_to_a_file(tmp_path: Any) -> None:
    with (tmp_path / "log").open("w+") as stream:
        dk.OROLSRegressor(max_centers=40, stop="none", callbacks=[dk.Progress(file=stream)]).fit(*rows())
        stream.seek(0)
        text = stream.read()
    first, last = text.splitlines()
    assert "training on 200 rows x 2 features" in first
    assert "40 centres in" in last
    assert "\x1b" not in text
    assert "\r" not in text


def test_an_unknown_place_is_refused() -> None:
    with pytest.raises(dk.JobError, match="where='paper': it must be one of auto, terminal, notebook, lines"):
        dk.Progress("paper")


def test_two_runs_one_after_another_are_shown_apart() -> None:
    lines = Lines()
    show = RunDisplay(LineDisplay(lines, interval=0.0))
    for event in (START, at(1.0, 40), END):
        show(event)
    show(RunStarted(**{**START.__dict__, "run_id": "next"}))
    show(at(1.0, 10))
    assert lines.texts[-1].startswith("10 of 50 centres")
    assert show.figures.series["n_centers"] == [10]


def test_a_remark_is_repeated_only_after_the_interval() -> None:
    clock, lines = Clock(), Lines()
    display = LineDisplay(lines, clock=clock)
    for second in range(130):
        clock.now = second
        display.note("nothing new")
    assert len(lines.said) == 3
    display.note(None)
    display.note("nothing new")
    assert len(lines.said) == 4


# The command line.


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(Terminal(-1)) as show:
        for event in (START, at(1.0), END):
            show(event)
    assert capsys.readouterr() == ("", "")


def test_off_a_terminal_there_are_no_control_codes(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    with terminal.log_records(), show_progress(terminal) as show:
        for event in (START, at(1.0), StorageRetried(array="X", count=7), END):
            show(event)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 3
    assert "reads of X failed 7 times" in captured.err
    assert "\x1b" not in captured.err
    assert "\r" not in captured.err


def test_a_log_reports_a_long_exchange(capsys: pytest.CaptureFixture[str]) -> None:
    terminal, received = Terminal(), ""
    with terminal.log_records(), show_progress(terminal, interval=0.05) as show:
        show(START)
        while "; nothing new for" not in received:
            sleep(0.01)
            received += capsys.readouterr().err
    assert not any(thread.name == "distkern-progress" for thread in threading.enumerate())
