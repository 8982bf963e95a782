from __future__ import annotations

import logging

import pytest
from rich.console import Console
from rich.progress import Progress

from distkern.cli.progress import LiveProgress, LogProgress, show_progress
from distkern.cli.terminal import Terminal
from distkern.events import (
    BlocksReplayed,
    RoundDone,
    RunEnded,
    RunStarted,
    StorageRetried,
    WorkerLost,
    WorkerRefused,
    WorkersAwaited,
)

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


def test_the_log_has_start_end_and_at_most_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    show = LogProgress(clock=clock)
    with caplog.at_level(logging.INFO, "distkern.cli"):
        show(START)
        for second in range(1, 601):
            clock.now = second
            show(at(second))
        show(END)
    assert len(caplog.messages) == 12
    assert "1000 rows x 4 features" in caplog.messages[0]
    assert "10 of 50 centres after 60 s, gcv 0.25  lambda 0.001  held out 0.5" in caplog.messages[1]
    assert "stopped: max-centers" in caplog.messages[-1]


@pytest.mark.parametrize("kind", ["log", "live"])
def test_incidents_are_logged(caplog: pytest.LogCaptureFixture, kind: str) -> None:
    bar = Progress(console=Console(quiet=True))
    show = LogProgress() if kind == "log" else LiveProgress(bar)
    with caplog.at_level(logging.INFO, "distkern.cli"):
        show(WorkerLost(worker="tcp://a:1", blocks=(1, 2), reason="frozen"))
        show(BlocksReplayed(worker="tcp://b:1", blocks=(1, 2), messages=7, seconds=1.25))
        show(WorkerRefused(worker="tcp://c:1", what="numpy", driver="2.0", found="2.1"))
        show(WorkersAwaited(seconds=60.0))
        show(WorkersAwaited(seconds=60.0, unusable=("tcp://a:1",)))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING", "WARNING", "WARNING"]
    lost, replayed, refused, nobody, unusable = caplog.messages
    assert "tcp://a:1 (it does not answer); its 2 blocks" in lost
    assert "from 7 messages in 1.2 s" in replayed
    assert "tcp://c:1 is not used: numpy is 2.1 there and 2.0 here" in refused
    assert "the cluster has none" in nobody
    assert "up to 60 s" in nobody
    assert "1 are there" in unusable
    assert not any("\n" in message for message in caplog.messages)


def test_the_bar_follows_the_run() -> None:
    bar = Progress(console=Console(quiet=True))
    show = LiveProgress(bar)
    show(at(1.0))
    show(START)
    show(at(2.0, centers=20))
    (task,) = bar.tasks
    assert (task.completed, task.total) == (20, 50)
    assert "lambda 0.001" in task.fields["state"]
    show(START)
    assert len(bar.tasks) == 1
    show(END)
    assert not bar.tasks


def test_retries_are_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    with terminal.log_records(), show_progress(terminal) as show:
        show(StorageRetried(array="X", count=7))
    assert "reads of X failed 7 times" in capsys.readouterr().err


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(Terminal(-1)) as show:
        for event in (START, at(1.0), END):
            show(event)
    assert capsys.readouterr() == ("", "")


def test_off_a_terminal_there_are_no_control_codes(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    with terminal.log_records(), show_progress(terminal) as show:
        for event in (START, at(1.0), END):
            show(event)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 2
    assert "\x1b" not in captured.err
    assert "\r" not in captured.err
