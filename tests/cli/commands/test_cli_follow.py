"""`distkern info RUN --follow`: the events of a run that another process trains, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distkern.cli.commands.follow import Follower
from distkern.cli.running.run_liveness import GIVE_UP_SECONDS, REMARK_SECONDS, SUMMARY_SECONDS, RunWatch
from distkern.errors import RunError
from distkern.monitoring.events import Event, MetricRoundDone, RoundDone, RunEnded, RunStarted, WorkerLost
from distkern.monitoring.progress import Display, LineDisplay
from distkern.storage import Driver, Journal, RunDirectory, describe
from tests.cli.command_line import Call, environment, job_text

HERE = Driver("here", 7, holds_lock=True)


def started(run_id: str = "r") -> RunStarted:
    shapes = {"n_rows": 90, "n_features": 3, "n_targets": 2, "n_problems": 1, "n_blocks": 4, "max_centers": 64}
    return RunStarted(run_id=run_id, workers=2, **shapes)


def a_round(number: int) -> RoundDone:
    count = 16 * (number + 1)
    return RoundDone(round=number, n_centers=count, lambda_=0.1, gcv=0.5, residual_max=1.0, seconds=1.0 + number)


END = RunEnded(n_centers=32, stop_reason="max-centers", seconds=4.0)


class Scene:
    """A clock for a follower, and the steps of the run: one during each wait."""

    def __init__(self, run: RunDirectory, *steps: Callable[[], object]) -> None:
        self.now = 0.0
        self.run = run
        self.steps = list(steps)
        self.lines: list[str] = []
        self.received: list[str] = []

    def wait(self, seconds: float) -> None:
        # A step is followed by time for a probe.
        self.now += max(seconds, 2.0)
        if self.steps:
            self.steps.pop(0)()
        assert self.now < 10_000, "it does not end"

    def record(self, *events: Event) -> Callable[[], None]:
        return lambda: [self.run.record(event.as_record()) for event in events] and None

    def follow(self, display: Display | None = None) -> Follower:
        shown = LineDisplay(lambda level, text: self.lines.append(text), 60.0, lambda: self.now)
        follower = Follower(
            self.run,
            shown if display is None else display,
            lambda record: self.received.append(record["event"]),
            lambda: self.now,
            self.wait,
        )
        follower.run()
        return follower


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", {"data": {}})


@pytest.fixture
def journal(run: RunDirectory) -> Iterator[Journal]:
    """The lock of a process that trains."""
    claimed = Journal.claim(run.path)
    claimed.begin(0, {})
    yield claimed
    claimed.close()


def finish(scene: Scene, journal: Journal) -> Callable[[], None]:
    def end() -> None:
        scene.record(END)()
        journal.close()
        scene.run.write_summary({"stop_reason": "max-centers"})

    return end


def test_recorded_events_are_shown_first_and_then_new_ones(run: RunDirectory, journal: Journal) -> None:
    scene = Scene(run)
    scene.record(started(), a_round(0), a_round(1), WorkerLost(worker="tcp://a", blocks=(1,)))()
    scene.steps = [
        lambda: scene.lines.append("|"),
        scene.record(WorkerLost(worker="tcp://b", blocks=(1,))),
        finish(scene, journal),
    ]
    figures = scene.follow().figures
    before, after = scene.lines[: scene.lines.index("|")], scene.lines[scene.lines.index("|") + 1 :]
    assert "90 rows x 3 features" in before[0]
    assert "lost worker tcp://a" in before[1]
    assert before[2].startswith("so far 32 of 64 centres")
    assert "lost worker tcp://b" in after[0]
    assert after[1] == "32 centres in 4.0 s, stopped: max-centers"
    assert figures.n_centers == 32
    assert scene.received == ["RunStarted", "RoundDone", "RoundDone", "WorkerLost", "WorkerLost", "RunEnded"]


def test_the_rounds_of_a_metric_are_shown_before_the_training(run: RunDirectory, journal: Journal) -> None:
    scene = Scene(run)
    facts = {"kernel": "gaussian", "shape": "diagonal", "factor": 1.0}
    scene.record(*(MetricRoundDone(round=n, error=1 / n, rounds=n, **facts) for n in (1, 2)))()
    described = describe(run.path)
    assert (described["state"], described["metric"]) == ("learning a metric", {"rounds": 2, "lowest_error": 0.5})
    scene.steps = [scene.record(started(), a_round(0)), finish(scene, journal)]
    scene.follow()
    assert scene.lines[0] == "so far learning a metric: 2 rounds, lowest error 0.5, last gaussian, diagonal map 2"
    assert describe(run.path)["metric"] == described["metric"]


def test_a_line_a_minute_during_rounds(run: RunDirectory, journal: Journal) -> None:
    scene = Scene(run)
    scene.record(started())()
    scene.steps = [scene.record(a_round(n)) for n in range(90)] + [finish(scene, journal)]
    scene.follow()
    assert sum(" of 64 centres" in line for line in scene.lines) == 3  # 180 s


def test_a_process_that_exited_is_reported_and_ends_the_wait(run: RunDirectory, journal: Journal) -> None:
    scene = Scene(run)
    scene.record(started(), a_round(0))()
    scene.steps = [journal.close]
    with pytest.raises(RunError, match=r"unfinished at 16 centres.*--resume") as caught:
        scene.follow()
    assert caught.value.kind == "abandoned"
    assert GIVE_UP_SECONDS <= scene.now < GIVE_UP_SECONDS + 20
    remarks = [line for line in scene.lines if "exited" in line]
    assert len(remarks) == 1
    assert f"driver process {os.getpid()} on" in remarks[0]


def test_a_run_that_another_process_resumes_is_followed(run: RunDirectory, journal: Journal) -> None:
    scene = Scene(run)
    scene.record(started(), a_round(0))()
    later: list[Journal] = []

    def resume() -> None:
        with (run.path / "events.jsonl").open("ab") as stream:
            stream.write(b'{"event": "RoundDo')  # torn by the kill
        later.append(Journal.claim(run.path))
        later[0].begin(0, {})
        scene.record(started(), a_round(1))()

    def idle() -> None:
        pass

    scene.steps = [journal.close, idle, idle, resume, *[idle] * 60, lambda: finish(scene, later[0])()]
    assert scene.follow().figures.n_centers == 32
    assert any("exited" in line for line in scene.lines)


def test_a_run_that_is_started_again_is_followed_from_its_beginning(run: RunDirectory, journal: Journal) -> None:
    scene = Scene(run)
    scene.record(started(), a_round(0), a_round(1), a_round(2))()
    later: list[Journal] = []

    def replace() -> None:
        journal.close()
        RunDirectory.create(run.path, {"data": {}}, overwrite=True)
        later.append(Journal.claim(run.path))
        scene.record(started("s"), a_round(0))()

    scene.steps = [replace, lambda: finish(scene, later[0])()]
    assert scene.follow().figures.series["n_centers"] == [16]
    assert "the run was started again from the beginning" in scene.lines


def test_a_run_that_is_removed(run: RunDirectory, journal: Journal) -> None:
    import shutil

    scene = Scene(run, lambda: shutil.rmtree(run.path))
    with pytest.raises(RunError) as caught:
        scene.follow()
    assert caught.value.kind == "missing"


def test_a_run_that_has_ended_is_shown_at_once(run: RunDirectory, journal: Journal) -> None:
    scene = Scene(run)
    scene.record(started(), a_round(1), END)()
    finish(scene, journal)()
    scene.follow()
    assert scene.now == 0.0


# The status of a run.


def test_a_summary_ends_a_run_without_a_driver() -> None:
    live = RunWatch(0.0)
    assert live.status(Driver("h", 1, holds_lock=False), summary=True, stopped=True, now=0.0).ended
    assert live.status(None, summary=True, stopped=False, now=0.0).ended
    assert not live.status(HERE, summary=True, stopped=True, now=0.0).ended


def test_the_wait_for_a_summary_ends() -> None:
    import socket

    live, exited = RunWatch(0.0), Driver(socket.gethostname(), 1, holds_lock=False)
    assert not live.status(exited, summary=False, stopped=True, now=0.0).ended
    assert live.status(exited, summary=False, stopped=True, now=SUMMARY_SECONDS).ended


def test_a_new_event_begins_the_wait_for_a_resume_again() -> None:
    import socket

    live, exited = RunWatch(0.0), Driver(socket.gethostname(), 1, holds_lock=False)
    assert not live.status(exited, summary=False, stopped=False, now=1.0).abandoned
    live.record_event(GIVE_UP_SECONDS)
    assert not live.status(exited, summary=False, stopped=False, now=GIVE_UP_SECONDS + 2).abandoned
    assert live.status(exited, summary=False, stopped=False, now=2 * GIVE_UP_SECONDS + 2).abandoned


@pytest.mark.parametrize(
    ("driver", "remark"),
    [
        (None, "no event for 5 min"),
        (HERE, "driver process 7 on here is running"),
        (Driver("elsewhere", 7, holds_lock=False), "cannot check whether driver process 7 on elsewhere is running"),
        (Driver("elsewhere", 7, holds_lock=None), "this machine cannot check"),
    ],
)
def test_a_remark_after_a_time_without_events(driver: Driver | None, remark: str) -> None:
    live = RunWatch(0.0)
    assert live.status(driver, summary=False, stopped=False, now=REMARK_SECONDS - 1).remark is None
    status = live.status(driver, summary=False, stopped=False, now=REMARK_SECONDS)
    assert status.remark is not None
    assert remark in status.remark
    assert not status.ended
    assert not status.abandoned
    live.record_event(REMARK_SECONDS)
    assert live.status(driver, summary=False, stopped=False, now=REMARK_SECONDS + 1).remark is None


# The command.


@pytest.fixture
def finished(call: Call, blobs: Path) -> Path:
    sections = {
        "data": {"train": "blobs.zarr", "test": "blobs-test.zarr"},
        "model": {"sigma": 2.0, "max_centers": 30},
        "output": {"run": "blobs.run"},
    }
    (blobs / "job.toml").write_text(job_text(**sections))
    assert call("train", "job.toml").code == 0
    return blobs / "blobs.run"


def test_the_command_shows_a_finished_run(call: Call, finished: Path) -> None:
    done = call("info", "blobs.run", "--follow")
    assert done.code == 0, done.err
    assert done.err == ""
    assert "400 rows x 4 features" in done.out
    summary = json.loads((finished / "summary.json").read_text())
    assert f"{summary['test']['error']:.6g}" in done.out
    assert "\x1b" not in done.out


def test_the_command_prints_events_as_json(call: Call, finished: Path) -> None:
    done = call("info", "blobs.run", "--follow", "--json")
    assert done.code == 0
    printed = [json.loads(line) for line in done.out.splitlines()]
    assert printed == list(RunDirectory.open(finished).events())


def test_a_quiet_command_only_waits(call: Call, finished: Path) -> None:
    assert call("info", "blobs.run", "--follow", "-q") == call("info", "blobs.run", "--follow", "--quiet")
    assert call("info", "blobs.run", "--follow", "-q").out == ""


def test_only_runs_can_be_followed(call: Call, blobs: Path) -> None:
    done = call("info", "blobs.zarr", "--follow")
    assert done.code == 6
    assert "not a run directory" in done.err


@pytest.mark.slow
def test_a_run_of_another_process_is_followed_through_kill_and_resume(here: Path) -> None:
    import numpy as np

    from distkern.storage import write_dataset

    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (20_000, 5))
    write_dataset(here / "waves.zarr", X, np.sin(3 * X[:, 0]) * X[:, 1], chunk_rows=4096, task="regression")
    sections = {
        "data": {"train": "waves.zarr"},
        "model": {"sigma": 1.0, "max_centers": 1500, "stop": "none", "selection_rows": "none"},
        "output": {"run": "waves.run"},
    }
    (here / "job.toml").write_text(job_text(**sections))

    def command(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-u", "-m", "distkern", *arguments],
            cwd=here,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A shell's background jobs ignore the signal of Ctrl-C, and so would their children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    with command("train", "job.toml", "-q") as train:
        events = here / "waves.run" / "events.jsonl"
        wait_for(lambda: events.exists() and "RoundDone" in events.read_text())
        with command("info", "waves.run", "--follow") as follow, command("info", "waves.run", "--follow") as left:
            assert follow.stdout is not None
            assert left.stdout is not None
            assert "20000 rows" in follow.stdout.readline()
            assert "20000 rows" in left.stdout.readline()
            left.send_signal(signal.SIGINT)
            said, _ = left.communicate(timeout=30)
            assert left.returncode == 130
            assert "stopped following" in said
            train.kill()
            train.communicate()
            lines = iter(follow.stdout.readline, "")
            assert any(f"driver process {train.pid} on" in line for line in lines)
            with command("train", "job.toml", "-q", "--resume", "--set", "model.max_centers=100") as again:
                out, _ = again.communicate(timeout=120)
                assert again.returncode == 0, out
            said, _ = follow.communicate(timeout=60)
            assert follow.returncode == 0, said
            assert "resumed:" in said
            assert "stopped: max-centers" in said


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
