"""``distkern metrics`` exports what ``train --json`` printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Call, job_text
from prometheus_client.parser import text_string_to_metric_families

from distkern.storage import RunDirectory

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
    (here / "distkern.prom").write_text("old")
    done = call("metrics", "m.run", "--out", "distkern.prom")
    assert (done.code, done.out) == (0, "")
    assert (here / "distkern.prom").read_text() == call("metrics", "m.run").out
    assert [path.name for path in here.glob("distkern.prom*")] == ["distkern.prom"]


def test_a_run_that_goes_on_has_its_last_figures(call: Call, trained: dict[str, object], here: Path) -> None:
    assert trained["exchanges"]
    run = RunDirectory.open(here / "m.run")
    run.restart()
    events = list(run.events())
    kinds = [event["event"] for event in events]
    events = events[: kinds.index("RoundDone", kinds.index("RoundDone") + 1) + 1]
    (here / "m.run" / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    found = values(call("metrics", "m.run").out)
    assert found["distkern_run_running"] == 1
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
