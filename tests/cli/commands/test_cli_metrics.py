"""``distkern metrics`` exports what ``train --json`` printed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from distkern.storage import Journal, RunDirectory
from tests.cli.command_line import Call, job_text

JSON_NAMES = {
    "distkern_run_rows": "n_rows",
    "distkern_run_features": "n_features",
    "distkern_centers": "n_centers",
    "distkern_lambda": "lambda",
    "distkern_gcv": "gcv",
    "distkern_run_seconds": "seconds",
    "distkern_exchanges_total": "exchanges",
    "distkern_read_bytes_total": "bytes_read",
}


def values(text: str) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.keys() == {"run"}
    }


@pytest.fixture
def trained(call: Call, blobs: Path) -> dict[str, object]:
    """The JSON object of a training with a run directory."""
    job = job_text(
        data={"train": "blobs.zarr"},
        model={"method": "orols", "sigma": 2.0, "max_centers": 60},
        output={"model": "m.model", "run": "m.run"},
    )
    (blobs / "job.toml").write_text(job)
    done = call("train", "job.toml", "--json")
    assert done.code == 0, done.err
    record: dict[str, object] = json.loads(done.out.splitlines()[-1])
    return record


def test_metrics_of_a_run_equal_its_json(call: Call, trained: dict[str, object]) -> None:
    done = call("metrics", "m.run")
    assert done.code == 0, done.err
    found = values(done.out)
    assert {name: found[name] for name in JSON_NAMES} == {name: trained[key] for name, key in JSON_NAMES.items()}
    families = {family.name: family for family in text_string_to_metric_families(done.out)}
    (reason,) = families["distkern_stop_reason_info"].samples
    assert reason.labels["reason"] == trained["stop_reason"]
    (info,) = families["distkern_run_info"].samples
    assert info.labels["title"] == "m.run"


def test_the_file_is_the_same_and_replaced_in_one_step(call: Call, trained: dict[str, object], here: Path) -> None:
    assert trained["exchanges"]
    (here / "distkern.prom").write_text("# HELP distkern_gcv An earlier export.\n")
    done = call("metrics", "m.run", "--out", "distkern.prom")
    assert (done.code, done.out) == (0, "")
    assert (here / "distkern.prom").read_text() == call("metrics", "m.run").out
    assert [path.name for path in here.glob("distkern.prom*")] == ["distkern.prom"]


def test_a_run_in_work_has_its_last_figures(call: Call, trained: dict[str, object], here: Path) -> None:
    assert trained["exchanges"]
    run = RunDirectory.open(here / "m.run")
    run.restart()
    events = list(run.events())
    kinds = [event["event"] for event in events]
    events = events[: kinds.index("RoundDone", kinds.index("RoundDone") + 1) + 1]
    (here / "m.run" / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    journal = Journal.claim(run.path)
    journal.begin(0, {})
    found = values(call("metrics", "m.run").out)
    assert (found["distkern_run_running"], found["distkern_run_cut_short"]) == (1, 0)
    assert "distkern_run_left_seconds" in found
    journal.close()
    killed = values(call("metrics", "m.run").out)
    assert (killed["distkern_run_running"], killed["distkern_run_cut_short"]) == (0, 1)
    assert "distkern_run_left_seconds" not in killed
    last = [event for event in events if event["event"] == "RoundDone"][-1]
    assert found["distkern_centers"] == found["distkern_steps_total"] == last["n_centers"]
    assert found["distkern_gcv"] == last["gcv"]


def test_a_place_without_a_run_and_a_file_that_cannot_be_written(
    call: Call, trained: dict[str, object], here: Path
) -> None:
    assert trained["exchanges"]
    assert call("metrics", "nowhere.run").code == 6
    done = call("metrics", "m.run", "--out", "no/such/folder/x.prom")
    assert done.code == 6
    assert "no/such/folder/x.prom" in done.err
    assert "--out" in done.err


@pytest.mark.parametrize("kind", ["text", "directory", "pipe", "link"])
def test_what_holds_no_metrics_is_not_replaced(call: Call, trained: dict[str, object], here: Path, kind: str) -> None:
    assert trained["exchanges"]
    place = here / "mine"
    if kind == "directory":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to("job.toml")
    else:
        place.write_text("[data]\n")

    def state() -> tuple[object, ...]:
        found = place.lstat()
        return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, (here / "job.toml").read_text()

    before = state()
    done = call("metrics", "m.run", "--out", "mine")
    assert done.code == 6
    assert "mine exists and holds no metrics" in done.err
    assert state() == before


def test_a_link_to_metrics_stays_one(call: Call, trained: dict[str, object], here: Path) -> None:
    assert trained["exchanges"]
    (here / "real.prom").touch()
    (here / "link.prom").symlink_to("real.prom")
    assert call("metrics", "m.run", "--out", "link.prom").code == 0
    assert (here / "link.prom").is_symlink()
    assert values((here / "real.prom").read_text())["distkern_centers"] == trained["n_centers"]
