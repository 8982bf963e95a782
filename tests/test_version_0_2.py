"""Files with what version 0.2 added open in this version; ``data/version-0.2`` describes how they were written."""

from __future__ import annotations

import json
import pickle
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

import distkern as dk
from distkern.cli.main import main
from distkern.storage import RunDirectory, read_predictions
from tests.former_versions import DATA, assert_predicts, enter_runs, stems

WRITTEN = DATA / "version-0.2"
WRITE = runpy.run_path(str(WRITTEN / "write.py"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models and datasets, in which no test changes anything."""
    place = tmp_path_factory.mktemp("written")
    for name in ("models", "datasets"):
        shutil.unpack_archive(WRITTEN / f"{name}.zip", place)
    return place


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter_runs(WRITTEN, tmp_path, monkeypatch)


def test_every_model_is_read_here() -> None:
    assert stems(WRITTEN / "models.zip", ".model") == sorted(WRITE["VARIANTS"])
    assert {*WRITE["RUNS"], "appended"} <= set(stems(WRITTEN / "runs.zip", ".run"))


@pytest.mark.parametrize("name", WRITE["VARIANTS"])
def test_models(name: str, written: Path, tmp_path: Path) -> None:
    expected = written / f"{name}.npz"
    stored = dk.load_model(written / f"{name}.model")
    assert type(stored).__name__ == WRITE["VARIANTS"][name][0]
    assert_predicts(WRITE["predicted"](name, stored), expected)
    assert_predicts(WRITE["predicted"](name, pickle.loads((written / f"{name}.pickle").read_bytes())), expected)
    stored.save(tmp_path / "again")
    assert_predicts(WRITE["predicted"](name, dk.load_model(tmp_path / "again")), expected)


def test_rows_are_appended_to_a_pickled_model(written: Path) -> None:
    model = pickle.loads((written / "intervals.pickle").read_bytes())
    model.append(WRITE["NEW"], WRITE["NEW_Y"])
    assert_predicts({"predict": model.predict(WRITE["TEST"])}, written / "appended.npz", 1e-8)


def test_predictions_with_intervals(written: Path) -> None:
    kept = read_predictions(written / "intervals.predictions")
    with np.load(written / "intervals.npz") as expected:
        np.testing.assert_allclose(kept.prediction, expected["predict"], rtol=1e-12)
        assert kept.interval is not None
        np.testing.assert_allclose(kept.interval, expected["interval"], rtol=1e-9)


def test_a_raw_table(written: Path) -> None:
    data = dk.open_dataset(written / "table.zarr")
    data.verify()
    np.testing.assert_allclose(data.targets(), WRITE["Y"])
    encoder = dk.TableEncoder(task="regression").fit(WRITE["frame"](WRITE["X"]), WRITE["Y"])
    assert data.feature_names == tuple(encoder.get_feature_names_out())


@pytest.mark.parametrize("name", [*WRITE["RUNS"], "appended"])
def test_a_finished_run_is_returned(name: str, runs: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    before = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    assert main(["info", f"{name}.run"]) == 0
    assert main(["report", f"{name}.run", "--out", str(tmp_path_factory.mktemp("report") / "report.html")]) == 0
    assert main(["train", f"{name}.toml", "--resume", "auto"]) == 0
    assert {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()} == before
    assert_predicts({"predict": dk.load_model(f"{name}.model").predict(WRITE["TEST"])}, Path(f"{name}.npz"))


@pytest.mark.parametrize("name", WRITE["RUNS"])
def test_a_killed_run_goes_on_or_names_its_version(name: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["train", f"{name}-killed.toml", "--resume", "--json"])
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    if code:
        assert printed["error"]["kind"] == "changed"
        assert "train anew" in printed["error"]["message"]
        return
    model = dk.load_model(f"{name}-killed.model")
    assert model.predict(WRITE["TEST"]).tobytes() == np.load(f"{name}.npz")["predict"].tobytes()
    assert RunDirectory.open(f"{name}-killed.run").summary == printed


def test_rows_are_appended_to_a_run(runs: Path) -> None:
    assert main(["train", "finished.toml", "--append", "new.zarr"]) == 0
    predicted = dk.load_model("finished.model").predict(WRITE["TEST"])
    assert_predicts({"predict": predicted}, Path("appended.npz"), 1e-9)
