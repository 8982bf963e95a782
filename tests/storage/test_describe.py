import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from distkern.cli.main import main
from distkern.errors import DataError
from distkern.storage import Journal, PredictionWriter, RunDirectory, describe, write_dataset, write_model
from tests.locations import ROOT


def test_describe_every_kind(tmp_path: Path) -> None:
    X = np.arange(12.0).reshape(6, 2)
    write_dataset(tmp_path / "d", X, list("abcabc"), chunk_rows=4, feature_names=["u", "v"])
    write_model(tmp_path / "m", {"method": "orols"}, {"centers": X})
    run = RunDirectory.create(tmp_path / "r", {"a": 1})
    run.record({"n": 1})
    run.record({"n": 2})
    with PredictionWriter(tmp_path / "p", 6) as writer:
        writer.append(X[:, 0])
    zarr.create_array(tmp_path / "z", data=X, chunks=(3, 1), zarr_format=2)
    facts = {name: describe(tmp_path / name) for name in "dmrpz"}
    json.dumps(facts, allow_nan=False)
    assert [facts[name]["kind"] for name in "dmrpz"] == [
        "dataset",
        "model",
        "run",
        "predictions",
        "zarr-array",
    ]
    assert facts["d"]["n_rows"] == 6
    assert facts["d"]["n_chunks"] == 2
    assert facts["d"]["class_labels"] == ["a", "b", "c"]
    assert facts["d"]["class_counts"] == [2, 2, 2]
    assert facts["d"]["feature_names"] == ["u", "v"]
    assert facts["d"]["bytes"] == 6 * 2 * 8 + 6 * 4
    assert facts["m"]["arrays"] == {"centers": {"shape": [6, 2], "dtype": "float64"}}
    assert facts["r"]["n_events"] == 2
    assert facts["r"]["last_event"] == {"n": 2}
    assert facts["p"]["complete"] is True
    assert facts["z"]["chunks"] == [3, 1]
    assert facts["z"]["zarr_format"] == 2


def test_a_learnt_metric_names_the_leading_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shares = np.arange(12.0) / 66
    meta = {"kernel": {"name": "laplacian"}, "metric_rounds": [{}, {}], "feature_names": [f"f_{i}" for i in range(12)]}
    write_model(tmp_path / "m", meta, {"feature_importances": shares, "metric": shares})
    found = describe(tmp_path / "m")["metric"]
    assert (found["kind"], found["kernel"], found["rounds"]) == ("diagonal", "laplacian", 2)
    assert list(found["importances"].items()) == [(f"f_{i}", i / 66) for i in range(11, 1, -1)]
    arrays = {"feature_importances": shares, "metric": np.eye(12), "feature_directions": np.eye(12)[:3]}
    write_model(tmp_path / "n", meta | {"feature_names": None}, arrays)
    found = describe(tmp_path / "n")["metric"]
    assert (found["kind"], found["directions"], next(iter(found["importances"]))) == ("full", 3, "feature 11")
    write_model(tmp_path / "o", {}, {"feature_importances": shares, "metric": np.ones(12)})
    assert describe(tmp_path / "o")["metric"]["kind"] == "isotropic"
    assert main(["info", str(tmp_path / "m")]) == 0
    shown = capsys.readouterr().out
    assert "metric.importances.f_11 " in shown
    assert [line.split() for line in shown.splitlines() if "metric rounds" in line] == [["meta.metric", "rounds", "2"]]


@pytest.mark.parametrize(
    ("name", "kind"), [("none", "missing"), ("x.csv", "unknown-store"), ("group", "unknown-store")]
)
def test_describe_refuses(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "x.csv").write_text("a\n")
    zarr.open_group(tmp_path / "group", mode="w", zarr_format=2)
    with pytest.raises(DataError) as caught:
        describe(tmp_path / name)
    assert caught.value.kind == kind


def test_room_does_not_import_dask() -> None:
    program = "import sys, distkern.storage; print({'dask', 'distributed'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "set()"


def test_the_state_of_a_run(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "r", {})

    def state() -> str:
        return str(describe(run.path)["state"])

    assert state() == "running or cut short"
    journal = Journal.claim(run.path)
    journal.begin(0, {})
    assert state() == "running"
    journal.close()
    assert state() == "cut short"
    run.write_summary({"stop_reason": "max-centers"})
    assert state() == "finished"
    elsewhere = RunDirectory.create(tmp_path / "elsewhere", {})
    elsewhere.record({"event": "RunCutShort", "error": "Cancelled", "message": "interrupted"})
    assert describe(elsewhere.path)["state"] == "cut short"
