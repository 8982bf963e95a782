"""A run that was cut short anywhere goes on to the same bits, without making its exchanges again."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distkern.errors import Cancelled, DataError, DistkernError, RunError
from distkern.monitoring.events import Event, ExchangeDone, RoundDone, RunResumed
from distkern.scheduler.protocol.answer_codec import decode, encode
from distkern.scheduler.training.driver_loop import TrainingJob, TrainingResult
from distkern.scheduler.training.run import run_training
from distkern.scheduler.training.run_identity import identity_of
from distkern.scheduler.training.run_record import RunStore
from distkern.storage import (
    ArraySource,
    Journal,
    RunDirectory,
    ZarrSource,
    open_dataset,
    read_records,
    recorded,
    write_dataset,
)
from tests.markers import variants
from tests.scheduler.trainings import make_classes, make_data, make_job, make_source

X, Y = make_data(90, n_targets=2)
ROWS, LABELS = make_classes(90)
MANY_X, MANY_Y = make_data(900)  # far more rows than candidates

JOBS: dict[str, tuple[TrainingJob, ArraySource]] = {
    "regression": (make_job(), make_source(X, Y, rows=20)),
    "one-vs-rest": (make_job(classification=True, multiclass="one-vs-rest"), make_source(ROWS, LABELS, rows=20)),
    "residual": (make_job(criterion="residual", max_centers=60), make_source(MANY_X, MANY_Y, rows=200)),
    "validation": (make_job(stop="validation", max_centers=12), make_source(X, Y, rows=20)),
    "sample": (make_job(selection_rows=40, max_centers=10), make_source(X, Y, rows=20)),
    "sample, twice": (make_job(selection_rows=60, sigma=30.0, max_centers=16), make_source(X, Y, rows=20)),
    "widths": (make_job(sigma=(0.5, 1.0, 2.0), selection_rows=60), make_source(X, Y, rows=20)),
    "single": (make_job(dtype="float32", sigma="median", standardize=True, max_centers=12), make_source(X, Y, rows=20)),
}


def start(place: Path) -> RunDirectory:
    return RunDirectory.create(place, {"a": 1})


def cut(run: RunDirectory, n: int, place: Path) -> RunDirectory:
    """A copy of a run as it was after `n` exchanges, and with a torn record behind them."""
    shutil.copytree(run.path, place)
    (path,) = place.glob("log-*.bin")
    places = recorded(place)[0]
    content = path.read_bytes()
    end = places[n - 1].offset + places[n - 1].size if n else places[0].offset - 32
    path.write_bytes(content[:end] + content[end : end + 50])
    (place / "summary.json").unlink(missing_ok=True)
    return RunDirectory.open(place)


def assert_same(a: TrainingResult, b: TrainingResult) -> None:
    assert len(a.paths) == len(b.paths)
    for p, q in zip(a.paths, b.paths, strict=True):
        assert (p.n_centers, p.reason) == (q.n_centers, q.reason)
        for name in ("rows", "widths", "features", "u", "s", "z", "lambdas", "gcv"):
            assert getattr(p, name).tobytes() == getattr(q, name).tobytes(), name
    assert a.history.tobytes() == b.history.tobytes()
    assert a.target_means.tobytes() == b.target_means.tobytes()
    assert a.kernel == b.kernel
    for name in ("rounds", "kernel_columns", "passes", "n_rows"):
        assert a.summary[name] == b.summary[name]


def resumed(job: TrainingJob, source: Any, run: RunDirectory, **how: Any) -> tuple[TrainingResult, list[Event]]:
    events: list[Event] = []
    return run_training(job, source, run=run, subscribers=[events.append], **how), events


@pytest.mark.parametrize("name", variants(["one-vs-rest", "residual", "validation", "sample, twice", "single"], JOBS))
def test_a_serial_run_cut_after_any_exchange(name: str, tmp_path: Path) -> None:
    job, source = JOBS[name]
    run = start(tmp_path / "run")
    whole = run_training(job, source, run=run)
    assert_same(whole, run_training(job, source))
    n = len(recorded(run.path)[0])
    assert n == whole.summary["exchanges"]
    for k in range(n + 1) if name == "regression" else sorted({0, 1, 2, n // 2, n - 1, n}):
        again, events = resumed(job, source, cut(run, k, tmp_path / f"cut-{k}"))
        assert_same(whole, again)
        assert again.summary["exchanges"] == n
        assert sum(isinstance(event, ExchangeDone) for event in events) == n - k
        assert [event.exchanges for event in events if isinstance(event, RunResumed)] == ([k] if k else [])


@pytest.mark.parametrize(
    ("name", "factors"),
    variants(
        [("one-vs-rest", "workers"), ("residual", "driver")],
        itertools.product(["regression", "one-vs-rest", "residual", "sample", "widths"], ["driver", "workers"]),
    ),
)
def test_a_run_goes_on_elsewhere(name: str, factors: str, in_process_client: Any, tmp_path: Path) -> None:
    """Begun in this process and resumed on workers, and the other way round."""
    job, source = JOBS[name]
    run = start(tmp_path / "here")
    whole = run_training(job, source, run=run)
    there = start(tmp_path / "there")
    assert_same(whole, run_training(job, source, run=there, client=in_process_client, factors=factors))
    for k in (1, 6):
        on_workers = resumed(job, source, cut(run, k, tmp_path / f"a{k}"), client=in_process_client, factors=factors)
        assert_same(whole, on_workers[0])
        assert_same(whole, resumed(job, source, cut(there, k, tmp_path / f"b{k}"))[0])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_number_of_interruptions(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    job, source = JOBS[data.draw(st.sampled_from(["regression", "one-vs-rest", "residual"]))]
    whole = run_training(job, source)
    run = start(tmp_path_factory.mktemp("runs") / "run")
    while True:
        left = data.draw(st.integers(2, 12))

        def stop(event: Event) -> None:
            nonlocal left
            left -= isinstance(event, ExchangeDone)
            if left == 0:
                raise Cancelled("enough")

        try:
            again = run_training(job, source, run=run, subscribers=[stop])
        except Cancelled:
            continue
        assert_same(whole, again)
        return


@pytest.mark.parametrize(
    ("before", "after", "criterion"),
    variants(
        [(20, 33, "error-reduction"), (20, 7, "residual"), (16, 17, "residual"), (20, 19, "error-reduction")],
        (
            (*change, criterion)
            for change in [(7, 20), (20, 33), (20, 7), (16, 17), (20, 19)]
            for criterion in ["error-reduction", "residual"]
        ),
    ),
)
def test_another_number_of_centres(criterion: str, before: int, after: int, tmp_path: Path) -> None:
    """The path is nested: a finished run goes on to more centres, or back to fewer."""
    source = make_source(X, Y, rows=20)
    job = make_job(criterion=criterion, max_centers=before)
    run = start(tmp_path / "run")
    run_training(job, source, run=run)
    other = replace(job, max_centers=after)
    longer, events = resumed(other, source, run)
    assert_same(longer, run_training(other, source))
    if after > before:
        assert any(isinstance(event, RunResumed) and event.exchanges > 2 for event in events)
    assert_same(longer, resumed(other, source, RunDirectory.open(run.path))[0])
    assert_same(run_training(job, source), resumed(job, source, RunDirectory.open(run.path))[0])


def test_the_sample_of_a_longer_run(tmp_path: Path) -> None:
    """The final pass over all rows is made anew."""
    job, source = JOBS["sample"]
    run = start(tmp_path / "run")
    run_training(job, source, run=run)
    longer = replace(job, max_centers=17)
    assert_same(resumed(longer, source, run)[0], run_training(longer, source))


def test_an_older_driver_ends_when_a_newer_one_takes_over(tmp_path: Path) -> None:
    job, source = JOBS["regression"]
    run = start(tmp_path / "run")
    newer: list[RunStore] = []

    def take_over(event: Event) -> None:
        if isinstance(event, RoundDone) and not newer:
            newer.append(RunStore(RunDirectory.open(run.path), job, source))

    with pytest.raises(RunError) as caught:
        run_training(job, source, run=run, subscribers=[take_over])
    assert caught.value.kind == "superseded"
    newer[0].close()
    assert_same(run_training(job, source), resumed(job, source, RunDirectory.open(run.path))[0])


def test_workers_keep_to_the_newest_driver(in_process_client: Any, tmp_path: Path) -> None:
    """Two drivers of one run on one cluster: the older is refused, the newer finishes."""
    job, source = JOBS["regression"]
    run = start(tmp_path / "run")
    results: list[TrainingResult] = []

    def overtake(event: Event) -> None:
        if isinstance(event, RoundDone) and not results:
            results.append(run_training(job, source, run=RunDirectory.open(run.path), client=in_process_client))

    with pytest.raises(DistkernError):
        run_training(job, source, run=run, client=in_process_client, subscribers=[overtake], factors="workers")
    assert_same(results[0], run_training(job, source))


def test_another_machine_is_refused(tmp_path: Path) -> None:
    """A recorded message that is not the driver's own, as if another processor had computed what led to it."""
    job, source = JOBS["regression"]
    run = start(tmp_path / "run")
    run_training(job, source, run=run)
    places, notes = recorded(run.path)
    payload = places[4].read()
    assert payload is not None
    record = decode(payload)
    journal = Journal.claim(run.path)
    journal.begin(4, notes[0])
    journal.append(encode(replace(record, message=bytes(16))))
    journal.close()
    with pytest.raises(RunError, match=r"message 4 .* kind of processor") as caught:
        resumed(job, source, run)
    assert caught.value.kind == "differs"


@pytest.mark.parametrize("section", ["model", "data", "software"])
def test_what_differs_is_named(section: str, tmp_path: Path) -> None:
    job, source = JOBS["regression"]
    run = start(tmp_path / "run")
    run_training(job, source, run=run)
    training = run.training
    assert training is not None
    name = next(iter(training["identity"][section]))
    training["identity"][section][name] = "something else"
    run.write_training(training)
    with pytest.raises(RunError, match=f"{section}.{name} was 'something else'") as caught:
        resumed(job, source, run)
    assert caught.value.kind == "changed"


@pytest.mark.parametrize("damage", ["null", "[]", "{}", "", '{"identity": 3}', '{"identity": {"model": []}}'])
def test_a_damaged_description_is_refused(damage: str, tmp_path: Path) -> None:
    job, source = JOBS["regression"]
    run = start(tmp_path / "run")
    run_training(job, source, run=run)
    (run.path / "training.json").write_text(damage)
    with pytest.raises(RunError):
        resumed(job, source, run)


def test_identities(tmp_path: Path) -> None:
    job = make_job()
    a = identity_of(job, make_source(X, Y))
    assert a == identity_of(replace(job, max_centers=3), make_source(X.copy(), Y.copy()))
    assert a == identity_of(replace(job, refit="rkhs"), make_source(X, Y))
    assert a["model"] != identity_of(replace(job, stop="bic"), make_source(X, Y))["model"]
    assert a["data"] != identity_of(job, make_source(X, Y + 1))["data"]
    assert a["data"] != identity_of(job, make_source(X, Y, np.full(90, 2.0)))["data"]
    assert a["data"] != identity_of(job, make_source(X, Y, rows=20))["data"]
    for name, y in (("one", Y), ("two", Y + 1)):
        write_dataset(tmp_path / name, X, y, chunk_rows=30)
    one, two = (open_dataset(tmp_path / name) for name in ("one", "two"))
    assert identity_of(job, one.source())["data"] != identity_of(job, two.source())["data"]
    shutil.copytree(tmp_path / "one", tmp_path / "moved")
    moved = open_dataset(tmp_path / "moved")
    assert identity_of(job, one.source()) == identity_of(job, moved.source())
    assert identity_of(job, ZarrSource(one.X, one.y)) == identity_of(job, ZarrSource(two.X, two.y))


def test_a_full_disk_ends_the_training_and_keeps_the_run(tmp_path: Path) -> None:
    from tests.file_limits import largest_file

    job, source = JOBS["regression"]
    run = start(tmp_path / "run")
    with largest_file(30_000), pytest.raises(RunError, match="can be resumed when there is more room") as caught:
        run_training(job, source, run=run)
    assert caught.value.kind == "disk-full"
    kept = len(recorded(run.path)[0])
    assert kept > 0
    again, events = resumed(job, source, run)
    assert_same(again, run_training(job, source))
    assert [event.exchanges for event in events if isinstance(event, RunResumed)] == [kept]


def test_a_journal_that_cannot_be_claimed(tmp_path: Path) -> None:
    job, source = JOBS["regression"]
    run = start(tmp_path / "run")
    shutil.rmtree(run.path)
    with pytest.raises(RunError) as caught:
        run_training(job, source, run=run)
    assert caught.value.kind == "not-writable"


@pytest.mark.parametrize("kind", ["dataset", "zarr"])
def test_a_finished_run_whose_rows_changed_is_refused(kind: str, tmp_path: Path) -> None:
    """Nothing would have to be read again, and is, so that no model of other rows is given out."""
    write_dataset(tmp_path / "rows", X, Y, chunk_rows=30)
    dataset = open_dataset(tmp_path / "rows")
    source = dataset.source() if kind == "dataset" else ZarrSource(dataset.X, dataset.y)
    job = make_job()
    run = start(tmp_path / "run")
    whole = run_training(job, source, run=run)
    assert_same(whole, resumed(job, source, RunDirectory.open(run.path))[0])
    stored = zarr.open_array(tmp_path / "rows" / "X", mode="r+")
    stored[40, 1] = 9.0
    with pytest.raises(DataError, match="X") as caught:
        resumed(job, source, RunDirectory.open(run.path))
    assert caught.value.kind in ("changed", "corrupt")


def test_records_without_a_description_are_refused(tmp_path: Path) -> None:
    job, source = JOBS["regression"]
    run = start(tmp_path / "run")
    run_training(job, source, run=run)
    (run.path / "training.json").unlink()
    with pytest.raises(RunError, match=r"training\.json") as caught:
        resumed(replace(job, sigma=2.0), source, run)
    assert caught.value.kind == "corrupt"
    assert not (run.path / "training.json").exists()


@pytest.mark.parametrize("error", [Cancelled, Cancelled(), RunError("no room", kind="disk-full")])
def test_subscribers_that_may_end_a_training(error: Any) -> None:
    def stop(event: Event) -> None:
        raise error

    job, source = JOBS["regression"]
    with pytest.raises(DistkernError) as caught:
        run_training(job, source, subscribers=[stop])
    assert caught.value.exit_code in (6, 130)


def without_a_value(answer: Any, name: str) -> None:
    answer.problems[0].sums[name] = answer.problems[0].sums[name][:-1]


def with_other_rows(answer: Any) -> None:
    answer.problems[0].drawn = replace(answer.problems[0].drawn, rows=answer.problems[0].drawn.rows + 1)


def with_nan(answer: Any, part: str, name: str) -> None:
    getattr(getattr(answer.problems[0], part), name)[-1:] = np.nan


ODD_ANSWERS: dict[str, tuple[str, int, Any, str]] = {
    "no-statistics": ("regression", 0, lambda a: setattr(a, "load", None), "corrupt"),
    "moments": (
        "regression",
        0,
        lambda a: setattr(
            a, "load", replace(a.load, features=replace(a.load.features, mean=np.zeros(1), m2=np.zeros(1)))
        ),
        "corrupt",
    ),
    "no-problems": ("regression", 1, lambda a: a.problems.clear(), "corrupt"),
    "a-draw-of-other-rows": ("regression", 1, with_other_rows, "corrupt"),
    "a-sum-of-another-shape": ("regression", 2, lambda a: without_a_value(a, "gram"), "corrupt"),
    "a-sum-of-one-number": (
        "regression",
        2,
        lambda a: a.problems[0].sums.update(products=np.zeros((1, 1))),
        "corrupt",
    ),
    "a-sum-is-absent": ("regression", 2, lambda a: a.problems[0].sums.pop("cross"), "corrupt"),
    "no-sums": ("regression", 2, lambda a: a.problems[0].sums.clear(), "corrupt"),
    "no-number-in-a-sum": ("regression", 2, lambda a: a.problems[0].sums["gram"].fill(np.nan), "overflow"),
    "no-number-among-residuals": ("residual", 4, lambda a: with_nan(a, "leaders", "largest"), "overflow"),
    "no-number-at-a-candidate": ("residual", 5, lambda a: with_nan(a, "candidates", "values"), "overflow"),
}


@pytest.mark.parametrize("odd", ODD_ANSWERS)
def test_recorded_answers_that_do_not_fit(odd: str, tmp_path: Path) -> None:
    """Their checksums are right."""
    name, number, change, kind = ODD_ANSWERS[odd]
    job, source = JOBS[name]
    run = start(tmp_path / "run")
    run_training(job, source, run=run)
    payloads = list(read_records(recorded(run.path)[0]))
    kept, (note, *_) = [decode(payload) for payload in payloads], recorded(run.path)[1]
    change(kept[number].answer)
    (path,) = run.path.glob("log-*.bin")
    path.unlink()
    journal = Journal.claim(run.path)
    journal.begin(0, note)
    for record in kept:
        journal.append(encode(record))
    journal.close()
    with pytest.raises(DistkernError) as caught:
        run_training(job, source, run=RunDirectory.open(run.path))
    assert caught.value.kind == kind
    if kind == "corrupt":
        assert f"record {number} of the run in {run.path}" in str(caught.value)
