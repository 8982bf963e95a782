import json
from pathlib import Path

import numpy as np
import pytest

from distkern.errors import RunError
from distkern.storage import RunDirectory, is_run, write_model

JOB = {"model": {"method": "orols", "sigma": 2.0}}


def test_life_of_a_run(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "r", JOB)
    assert is_run(tmp_path / "r")
    assert run.summary is None
    assert list(run.events()) == []
    run.record({"event": "RoundDone", "gcv": np.float64(0.5), "picks": np.array([3, 1]), "name": "ä\n"})
    run.record({"event": "RunEnded"})
    assert len((tmp_path / "r" / "events.jsonl").read_text().splitlines()) == 2
    again = RunDirectory.open(tmp_path / "r")
    assert again.job == JOB
    assert list(again.events()) == [
        {"event": "RoundDone", "gcv": 0.5, "picks": [3, 1], "name": "ä\n"},
        {"event": "RunEnded"},
    ]
    again.write_summary({"n_centers": np.int64(7)})
    again.write_summary({"n_centers": np.int64(8)})
    assert run.summary == {"n_centers": 8}
    assert sorted(path.name for path in run.path.iterdir()) == ["events.jsonl", "job.json", "summary.json"]
    assert "done" in repr(run)


def test_torn_line_costs_one_event(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "r", JOB)
    run.record({"n": 1})
    with (run.path / "events.jsonl").open("a") as stream:
        stream.write('{"n": 2, "tor')
    RunDirectory.open(run.path).record({"n": 3})
    assert [event["n"] for event in run.events()] == [1, 3]


def test_overwrite(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "r", JOB).record({"n": 1})
    with pytest.raises(RunError, match="--overwrite") as caught:
        RunDirectory.create(tmp_path / "r", JOB)
    assert caught.value.kind == "exists"
    assert list(RunDirectory.create(tmp_path / "r", {}, overwrite=True).events()) == []
    write_model(tmp_path / "m", {}, {})
    with pytest.raises(RunError) as caught:
        RunDirectory.create(tmp_path / "m", JOB, overwrite=True)
    assert caught.value.kind == "foreign"


def test_open_errors(tmp_path: Path) -> None:
    write_model(tmp_path / "m", {}, {})
    for name, text in [
        ("torn", "{"),
        ("jobless", "{}"),
        ("newer", json.dumps({"format_version": 9, "job": {}})),
    ]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.json").write_text(text)
    for name, kind in [
        ("none", "missing"),
        ("m", "not-a-run"),
        ("torn", "corrupt"),
        ("jobless", "corrupt"),
        ("newer", "newer-version"),
    ]:
        with pytest.raises(RunError) as caught:
            RunDirectory.open(tmp_path / name)
        assert caught.value.kind == kind


def test_directory_taken_away(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "r", JOB)
    run.path.rename(tmp_path / "moved")
    assert list(run.events()) == []
    for action in (lambda: run.record({}), lambda: run.write_summary({})):
        with pytest.raises(RunError) as caught:
            action()
        assert caught.value.kind == "not-writable"
