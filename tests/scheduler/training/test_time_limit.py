"""Selection that ends in time: with a model, with a run that goes on, and with the same bits in the end."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distkern.errors import RunError
from distkern.monitoring.events import Event, ExchangeDone, RoundDone, RunEnded
from distkern.scheduler.search.search import search_settings
from distkern.scheduler.training.driver_loop import TrainingJob, TrainingResult
from distkern.scheduler.training.run import run_training
from distkern.scheduler.training.run_identity import identity_of
from distkern.scheduler.training.time_limit import NOTHING, REFIT_SHARE, SPARE, TimeLimit, WorkAfter
from distkern.selection.stopping import StopReason
from distkern.storage import ArraySource, RunDirectory, recorded
from tests.markers import variants
from tests.scheduler.trainings import assert_same_bits, make_classes, make_data, make_job, make_source

X, Y = make_data(90, n_targets=2)
MANY_X, MANY_Y = make_data(900)  # far more rows than candidates
ROWS, LABELS = make_classes(90)

JOBS: dict[str, tuple[TrainingJob, ArraySource]] = {
    "regression": (make_job(), make_source(X, Y, rows=20)),
    "gcv": (make_job(stop="gcv"), make_source(X, Y, rows=20)),
    "one-vs-rest": (make_job(classification=True, multiclass="one-vs-rest"), make_source(ROWS, LABELS, rows=20)),
    "residual": (make_job(criterion="residual", max_centers=60), make_source(MANY_X, MANY_Y, rows=200)),
    "loo": (
        make_job(classification=True, multiclass="one-vs-rest", criterion="loo-error", max_centers=6),
        make_source(ROWS, LABELS, rows=20),
    ),
    "validation": (make_job(stop="validation", max_centers=12), make_source(X, Y, rows=20)),
    "sample": (make_job(selection_rows=40, max_centers=10), make_source(X, Y, rows=20)),
    "single": (make_job(dtype="float32", sigma="median", standardize=True), make_source(X, Y, rows=20)),
}


class Clock:
    """Moves by a second an exchange."""

    def __init__(self, speed: float = 1.0) -> None:
        self.now = 0.0
        self.speed = speed

    def __call__(self) -> float:
        return self.now

    def advance(self, event: Event) -> None:
        self.now += self.speed * isinstance(event, ExchangeDone)


def limited(
    job: TrainingJob, source: ArraySource, seconds: float, run: RunDirectory | None = None, **how: Any
) -> tuple[TrainingResult, list[Event]]:
    """Train with a clock on which every exchange takes a second."""
    clock, events = Clock(), list[Event]()
    limit = TimeLimit(seconds, clock)
    return run_training(job, source, run=run, limit=limit, subscribers=[clock.advance, events.append], **how), events


@cache
def whole_path(name: str) -> TrainingResult:
    """The training of a job without a limit."""
    return run_training(*JOBS[name])


def make_run(place: Path) -> RunDirectory:
    return RunDirectory.create(place, {})


@pytest.mark.parametrize("name", JOBS)
def test_the_model_is_a_prefix_of_the_whole_path(name: str) -> None:
    job, source = JOBS[name]
    whole = whole_path(name)
    short, events = limited(job, source, 0.45 * whole.summary["exchanges"])
    assert short.reason is StopReason.TIME_LIMIT
    assert [event.stop_reason for event in events if isinstance(event, RunEnded)] == ["time-limit"]
    for ours, theirs in zip(short.paths, whole.paths, strict=True):
        m = len(ours.rows)
        assert 0 < m <= len(theirs.rows)
        assert ours.rows.tobytes() == theirs.rows[:m].tobytes()
        if name != "sample":  # whose factors are those of the centres over all rows
            assert ours.u.tobytes() == theirs.u[: m + 1, : m + 1].tobytes()
            assert ours.weights(m).tobytes() == theirs.weights(m).tobytes()
    assert sum(len(path.rows) for path in short.paths) < sum(len(path.rows) for path in whole.paths)
    assert short.summary["exchanges"] < whole.summary["exchanges"]


@pytest.mark.parametrize("name", variants(["gcv", "loo", "sample"], JOBS))
def test_a_limit_that_is_not_hit_changes_no_bit(name: str) -> None:
    job, source = JOBS[name]
    assert_same_bits(limited(job, source, 1000.0)[0], whole_path(name))


@pytest.mark.parametrize(
    ("name", "share"),
    variants(
        [(name, (0.0, 0.4)[name in ("gcv", "validation", "loo", "single")]) for name in JOBS],
        itertools.product(JOBS, (0.0, 0.4)),
    ),
)
def test_a_run_goes_on_by_pieces_to_the_same_bits(name: str, share: float, tmp_path: Path) -> None:
    """Every process has its time anew, and makes progress even where that is none."""
    job, source = JOBS[name]
    whole = whole_path(name)
    seconds = max(share * whole.summary["exchanges"], 1e-9)
    place = make_run(tmp_path / "run").path
    kept, pieces = -1, 0
    while True:
        result, _ = limited(job, source, seconds, RunDirectory.open(place))
        pieces += 1
        if result.reason is not StopReason.TIME_LIMIT:
            break
        assert len(recorded(place)[0]) > kept
        kept = len(recorded(place)[0])
    assert pieces > 1
    assert_same_bits(result, whole)
    assert result.summary["exchanges"] == whole.summary["exchanges"]
    # And again, all of it from the record.
    assert_same_bits(limited(job, source, seconds, RunDirectory.open(place))[0], whole)


@pytest.mark.parametrize(
    ("name", "factors"),
    variants(
        [("sample", "workers")],
        itertools.product(["regression", "one-vs-rest", "residual", "sample"], ["driver", "workers"]),
    ),
)
def test_begun_here_and_resumed_on_workers(name: str, factors: str, in_process_client: Any, tmp_path: Path) -> None:
    job, source = JOBS[name]
    whole = whole_path(name)
    for number, (before, after) in enumerate(
        [({}, {"client": in_process_client}), ({"client": in_process_client}, {})]
    ):
        run = make_run(tmp_path / str(number))
        short, _ = limited(job, source, 8.0, run, **{**before, "factors": factors})
        assert short.reason is StopReason.TIME_LIMIT
        again, _ = limited(job, source, 1000.0, RunDirectory.open(run.path), **{**after, "factors": factors})
        assert_same_bits(again, whole)


def test_one_path_that_is_cut_short_is_enough() -> None:
    """Also where another one ended by itself, with as many centres."""
    labels = np.where(ROWS[:, 0] > np.median(ROWS[:, 0]), "z-far", LABELS)
    labels = np.where(labels == np.unique(labels)[1], "a-first", labels)
    job = make_job(classification=True, multiclass="one-vs-rest", stop="gcv", patience=3, panel=1, max_centers=9)
    ties = 0
    for seconds in range(30, 34):
        result, _ = limited(job, make_source(ROWS, labels, rows=20), float(seconds))
        assert result.reason is StopReason.TIME_LIMIT
        longest = [path.reason for path in result.paths if len(path.rows) == max(len(p.rows) for p in result.paths)]
        ties += longest[0] is not StopReason.TIME_LIMIT
    assert ties


def test_another_limit_on_centres_after_a_limit_on_time(tmp_path: Path) -> None:
    job, source = JOBS["sample"]
    run = make_run(tmp_path / "run")
    limited(job, source, 6.0, run)
    longer = replace(job, max_centers=17)
    result, _ = limited(longer, source, 7.0, RunDirectory.open(run.path))
    assert result.reason is StopReason.TIME_LIMIT
    result, _ = limited(longer, source, 1000.0, RunDirectory.open(run.path))
    assert_same_bits(result, run_training(longer, source))


def test_what_is_read_from_the_record_takes_no_time(tmp_path: Path) -> None:
    """A finished run gives its model, however short the time."""
    job, source = JOBS["regression"]
    run = make_run(tmp_path / "run")
    whole = run_training(job, source, run=run)
    assert_same_bits(limited(job, source, 1e-9, RunDirectory.open(run.path))[0], whole)


def test_rounds_are_reported_as_without_a_limit() -> None:
    job, source = JOBS["regression"]
    _, events = limited(job, source, 14.0)
    whole: list[Event] = []
    run_training(job, source, subscribers=[whole.append])
    ours, theirs = (
        [(e.round, e.n_centers) for e in events_ if isinstance(e, RoundDone)] for events_ in (events, whole)
    )
    assert ours == theirs[: len(ours)]
    assert ours


def test_no_part_of_an_identity() -> None:
    job, source = JOBS["regression"]
    assert not any("seconds" in name for section in identity_of(job, source).values() for name in section)


@pytest.mark.slow
def test_paths_that_were_cut_short_are_not_compared() -> None:
    job, source = JOBS["regression"]
    clock = Clock()
    jobs = [replace(job, sigma=sigma) for sigma in (0.5, 1.0)]
    with pytest.raises(RunError, match=r"max_seconds=9 .* cannot be compared") as caught:
        search_settings(jobs, 3, source, limit=TimeLimit(9.0, clock), subscribers=[clock.advance])
    assert caught.value.kind == "time-limit"
    found = search_settings(jobs, 3, source, limit=TimeLimit(1000.0, Clock()))
    assert found.errors.tobytes() == search_settings(jobs, 3, source).errors.tobytes()


def ended(limit: TimeLimit, clock: Clock, after: WorkAfter, exchanges: list[float], n_centers: int = 10) -> int:
    """Return the number of exchanges before selection ends."""
    for number, seconds in enumerate(exchanges):
        if limit.ends(after, [n_centers]):
            return number
        clock.now += seconds
        limit(ExchangeDone(name="step", seconds=seconds))
    return len(exchanges)


@pytest.mark.parametrize(
    ("after", "rest"),
    [
        (NOTHING, 0.0),
        (WorkAfter(reads=1), 10.0),
        (WorkAfter(reads=2), 20.0),
        (WorkAfter(reads=1, refit_rows=4.0), 10.0 + 4 * 20 * REFIT_SHARE),
    ],
)
def test_the_rest_is_done_in_time(after: WorkAfter, rest: float) -> None:
    """Reading takes 10 s, an exchange 1 s; what is left when selection ends is enough, and not twice too much."""
    clock = Clock()
    limit = TimeLimit(100.0, clock)
    made = ended(limit, clock, after, [10.0] + [1.0] * 200)
    assert limit.passed
    assert clock.now + rest <= 100.0 * (1 - SPARE)
    assert 100.0 - clock.now <= 2 * (rest + 1.0 + 100 * SPARE) + 4 * REFIT_SHARE * made * (after.refit_rows > 0)


def test_predicted_times_are_taken_a_quarter_longer() -> None:
    clock = Clock()
    assert ended(TimeLimit(100.0, clock), clock, NOTHING, [8.0] * 20) == 11  # 88 + 1.25 * 8 + 2 = 100


def test_slower_exchanges_are_foreseen_and_old_ones_forgotten() -> None:
    clock = Clock()
    slow = ended(TimeLimit(100.0, clock), clock, NOTHING, [1.0] * 10 + [30.0] + [1.0] * 200)
    assert 10 < slow < 200
    clock = Clock()
    limit = TimeLimit(300.0, clock)
    assert ended(limit, clock, NOTHING, [1.0, 90.0] + [1.0] * 300) > 190


def test_a_refit_in_the_norm_of_the_kernel_takes_the_longer_the_more_centres() -> None:
    few, many = TimeLimit(60.0, Clock()), TimeLimit(60.0, Clock())
    after = WorkAfter(norm_refit=True)
    assert not few.ends(after, [10])
    assert many.ends(after, [20_000])


def test_no_limit_never_ends() -> None:
    limit = TimeLimit(None, Clock())
    assert not limit.ends(WorkAfter(reads=10**9), [10**6])
    assert limit.left is None
    assert TimeLimit(5.0, Clock()).left == 5.0
