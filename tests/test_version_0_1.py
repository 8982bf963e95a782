"""Files of version 0.1 open in this version; ``data/version-0.1`` has the files, and describes how they were made."""

from __future__ import annotations

import json
import pickle
import runpy
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import distkern as dk
from distkern.cli.main import main
from distkern.estimators import ESTIMATORS
from distkern.former_names import NEW_NAMES
from distkern.monitoring.events import RoundDone
from distkern.monitoring.run_state import RunFigures
from distkern.storage import RunDirectory, open_arrays, read_predictions
from tests.former_versions import DATA, assert_predicts, enter_runs, stems

WRITTEN = DATA / "version-0.1"
WRITE = runpy.run_path(str(WRITTEN / "write.py"))
X, Y, NAMES, CODES = (WRITE[name] for name in ("X", "Y", "NAMES", "CODES"))


RUNS = stems(WRITTEN / "runs.zip", ".run")
KILLED = [name for name in RUNS if name in WRITE["KILLED"]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archives that no test changes anything in, each in a folder of its name."""
    place = tmp_path_factory.mktemp("written")
    for name in ("datasets", "models", "pickles"):
        shutil.unpack_archive(WRITTEN / f"{name}.zip", place / name)
    return place


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter_runs(WRITTEN, tmp_path, monkeypatch)


def tolerance_of(model: Any) -> float:
    return 1e-5 if model.get_params().get("dtype") == "float32" else 1e-12


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run a command with ``--json`` and return its exit code and what it prints."""
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


# --- datasets --------------------------------------------------------------------------------------------------------

DATASETS = {
    "regression": (X, Y[:, 0]),
    "several-targets": (X, Y),
    "string-labels": (X, NAMES[CODES]),
    "integer-labels": (X.astype(np.float32), 10 * CODES - 3),
    "true-or-false": (X, CODES > 0),
    "ingested": (X.round(3), NAMES[CODES]),
}


def test_every_dataset_is_read_here() -> None:
    assert {*DATASETS, "own-x", "own-y", "own-weights"} == set(stems(WRITTEN / "datasets.zip", ".zarr"))


@pytest.mark.parametrize("name", DATASETS)
def test_datasets(name: str, written: Path) -> None:
    rows, targets = DATASETS[name]
    data = dk.open_dataset(written / "datasets" / f"{name}.zarr")
    data.verify()
    assert data.X[:].tobytes() == rows.tobytes()
    np.testing.assert_array_equal(data.targets(), targets)
    assert data.targets().dtype.kind == targets.dtype.kind
    assert data.task == ("regression" if targets.dtype.kind == "f" else "classification")
    np.testing.assert_allclose(data.feature_mean, rows.mean(axis=0, dtype=np.float64), rtol=1e-9)
    names = {"regression": ("length", "width", "height"), "ingested": ("a", "b", "c")}
    assert data.feature_names == names.get(name)


def test_arrays_of_a_user(written: Path) -> None:
    arrays = open_arrays(*(str(written / "datasets" / f"own-{name}.zarr") for name in "xy"))
    weights = zarr.open_array(written / "datasets" / "own-weights.zarr", mode="r")
    settings = {"max_centers": 4, "sigma": 1.0}
    stored = dk.OROLSRegressor(**settings).fit(*arrays, sample_weight=weights)
    here = dk.OROLSRegressor(**settings).fit(X, Y[:, 0], sample_weight=WRITE["WEIGHTS"])
    np.testing.assert_allclose(stored.predict(X), here.predict(X), rtol=1e-9)


# --- models ----------------------------------------------------------------------------------------------------------

MODELS = stems(WRITTEN / "models.zip", ".model")


def test_there_is_a_model_of_every_estimator_of_the_time() -> None:
    assert len(set(MODELS) & {cls.__name__ for cls in ESTIMATORS}) == 19
    assert {"one-vs-rest", "one-vs-one", "dag", "widths", "refit"} <= set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, written: Path, tmp_path: Path) -> None:
    place = written / "models" / f"{name}.model"
    model = dk.load_model(place)
    assert type(model).__name__ == (WRITE["VARIANTS"][name][0] if name in WRITE["VARIANTS"] else name)
    assert_predicts(WRITE["predicted"](model), place.with_suffix(".npz"), tolerance_of(model))
    model.save(tmp_path / "again")
    again = dk.load_model(tmp_path / "again")
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize(("name", "model"), [("labels", "one-vs-rest"), ("values", "lambda-each")])
def test_predictions(name: str, model: str, written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = written / "models" / f"{name}.predictions"
    kept = read_predictions(place)
    found = {"predict": kept.prediction}
    if kept.probability is not None:
        found["predict_proba"] = kept.probability
    assert_predicts(found, written / "models" / f"{model}.npz")
    assert call(capsys, "info", str(place))[1]["n_rows"] == len(WRITE["TEST"])


# --- pickles ---------------------------------------------------------------------------------------------------------


def unpickled(written: Path, name: str) -> Any:
    return pickle.loads((written / "pickles" / f"{name}.pickle").read_bytes())


PICKLES = stems(WRITTEN / "pickles.zip", ".npz")


@pytest.mark.parametrize("name", PICKLES)
def test_pickled_models(name: str, written: Path) -> None:
    expected = written / "pickles" / f"{name}.npz"
    for kind in ("", ".used", ".stored"):
        if kind and not (written / "pickles" / f"{name}{kind}.pickle").exists():
            continue
        model = unpickled(written, f"{name}{kind}")
        assert_predicts(WRITE["predicted"](model), expected, tolerance_of(model))
        again = pickle.loads(pickle.dumps(model))
        assert_predicts(WRITE["predicted"](again), expected, tolerance_of(model))
        if kind != ".stored":
            # The lambda of a refit is chosen again, where a function is flat: rounding moves it by 1e-8.
            chosen = 1e-6 if name == "refit" else 1e-9
            assert_predicts(WRITE["continued"](model), expected, max(tolerance_of(model), chosen))


def test_other_pickles(written: Path) -> None:
    kernels = unpickled(written, "kernels")
    assert kernels == WRITE["KERNELS"]
    assert all(isinstance(kernel, dk.Kernel) for kernel in kernels)
    assert set(unpickled(written, "stop-reasons")) <= set(dk.StopReason)
    assert [type(item) for item in unpickled(written, "warnings")] == [dk.DistkernWarning, dk.ScaleWarning]
    for name, error in zip(WRITE["ERRORS"], unpickled(written, "errors"), strict=True):
        assert type(error) is getattr(dk, name)
        assert (error.kind, str(error)) == ("some-kind", f"what a {name} says")
    for estimator in unpickled(written, "unfitted"):
        parameters = type(estimator)().get_params()
        of_the_time = {"selection_rows": None, "candidates": 256, "panel": 16, "sigma": "median"}
        assert estimator.get_params() == parameters | {k: v for k, v in of_the_time.items() if k in parameters}
    search = unpickled(written, "unfitted-search")
    assert type(search) is dk.GridSearch
    best = search.fit(X, Y[:, 0]).best_params_
    assert best == unpickled(written, "search").best_params_


@pytest.mark.skipif(
    not hasattr(import_module("zarr.core.chunk_grids"), "RegularChunkGrid"),
    reason="this zarr does not open what zarr itself pickled then",
)
def test_a_pickled_dataset(written: Path) -> None:
    data = unpickled(written, "dataset")
    assert type(data) is dk.Dataset
    assert (data.n_rows, data.n_features, data.task) == (60, 3, "classification")
    assert data.class_labels.tolist() == sorted(NAMES.tolist())
    assert data.X.shape == X.shape


@pytest.mark.parametrize("former", NEW_NAMES)
def test_a_module_has_both_names(former: str) -> None:
    assert import_module(former) is import_module(NEW_NAMES[former])
    assert import_module(former).__spec__.name == NEW_NAMES[former]
    package, _, leaf = former.rpartition(".")
    assert getattr(sys.modules[package], leaf) is sys.modules[former]


def test_a_package_has_both_names_throughout() -> None:
    assert import_module("distkern.progress.terminal") is import_module("distkern.monitoring.progress.terminal")
    with pytest.raises(ModuleNotFoundError, match=r"monitoring\.progress\.no_such"):
        import_module("distkern.progress.no_such")


@pytest.mark.parametrize(
    "name",
    [
        "distkern.events.RoundDone",
        "distkern.figures.RunFigures",
        "distkern.kernel_base.Kernel",
        "distkern.kernels.Gaussian",
        "distkern.kernels.Laplacian",
        "distkern.kernels.Matern",
        "distkern.kernels.Wendland",
        "distkern.kernels.Polynomial",
        "distkern.kernels.Sigmoid",
        "distkern.kernels.Linear",
        "distkern.progress.Progress",
        "distkern.stopping.StopReason",
        "distkern.storage.DatasetWriter",
        "distkern.errors.DataError",
    ],
)
def test_names_in_the_documentation_of_the_time(name: str) -> None:
    module, _, leaf = name.rpartition(".")
    value = getattr(import_module(module), leaf)
    assert value is getattr(dk, leaf, value)


# --- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_records_of_runs(name: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory.open(f"{name}.run")
    finished = name not in (*KILLED, "python")
    assert (run.summary is not None) is finished
    events = list(run.events())
    names = [event["event"] for event in events]
    assert (names[-1] == "RunEnded") is finished
    state = RunFigures.of_records(events)
    assert (state.state == "done") is finished
    assert (state.state == "cut short") is (name == "python")
    assert len(state.series["seconds"]) == names.count(RoundDone.__name__)
    if name == "finished":
        assert (names.count("RunStarted"), state.n_centers, state.exchanges) == (1, 6, 29)
    code, printed = call(capsys, "info", f"{name}.run")
    assert (code, printed["kind"]) == (0, "run")
    assert main(["report", f"{name}.run", "--out", "report.html"]) == 0
    assert "</html>" in Path("report.html").read_text()


@pytest.mark.parametrize("name", sorted({*RUNS} - {*KILLED, "python"}))
def test_a_finished_run_is_returned(name: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    code, printed = call(capsys, "train", f"{name}.toml", "--resume", "auto")
    assert code == 0
    assert printed == RunDirectory.open(f"{name}.run").summary
    assert {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()} == before
    assert_predicts(WRITE["predicted"](dk.load_model(f"{name}.model")), Path(f"{name}.npz"))


@pytest.mark.parametrize("name", [*KILLED, "finished", "search", "refit"])
def test_a_run_is_resumed_by_its_own_version_only(name: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernel values have other last bits now, so a run cannot go on to the bits it would have had."""
    before = {path: path.read_bytes() for path in Path(f"{name}.run").glob("log-*.bin")}
    code, printed = call(capsys, "train", f"{name}.toml", "--resume")
    assert code == 6
    assert printed["error"]["kind"] == "changed"
    assert "begun by version 0.1 of distkern" in printed["error"]["message"]
    assert {path: path.read_bytes() for path in before} == before


def test_a_run_of_python_is_resumed_by_its_own_version_only(runs: Path) -> None:
    with np.load("python-rows.npz") as rows:
        data = rows["X"], rows["Y"]
    with pytest.raises(dk.RunError, match=r"resume it with that version"):
        dk.OROLSRegressor(**{**WRITE["SMALL"], "stop": None}, run_dir="python.run").fit(*data)
