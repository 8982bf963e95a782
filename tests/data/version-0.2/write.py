"""Write what version 0.2 added to what users keep: models, predictions, datasets and runs.

``python write.py FOLDER`` leaves three archives in FOLDER. It uses public names only, so it runs with later versions.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import distkern as dk
from distkern.cli.main import main

Array = NDArray[Any]

N_ROWS = 90
X = np.random.default_rng(1).uniform(-2, 2, (N_ROWS, 3))
Y = np.sin(X @ np.array([1.0, -1.0, 0.3])) + 0.05 * np.random.default_rng(4).standard_normal(N_ROWS)
NAMES = np.array(["ash", "beech", "fir"])
LABELS = NAMES[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)]
TEST = np.random.default_rng(3).uniform(-2, 2, (20, 3))
NEW = np.random.default_rng(5).uniform(-2, 2, (30, 3))
NEW_Y = np.sin(NEW @ np.array([1.0, -1.0, 0.3]))

FEW = {"sigma": 1.5, "max_centers": 8}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "defaults": ("OROLSRegressor", {}),
    "diagonal": ("OROLSRegressor", {"metric": "diagonal", "metric_rounds": 2, "max_centers": 8}),
    "full": ("OROLSClassifier", {"metric": "full", "metric_rank": 2, "metric_rounds": 2, "max_centers": 8}),
    "laplacian-l1": ("OROLSRegressor", {**FEW, "kernel": "laplacian-l1"}),
    "exponent": ("OROLSRegressor", {"kernel": dk.Laplacian(1.5, exponent=1.4), "max_centers": 8}),
    "logistic": ("OROLSClassifier", {**FEW, "loss": "logistic"}),
    "huber": ("OROLSRegressor", {**FEW, "loss": "huber"}),
    "quantile": ("OROLSRegressor", {**FEW, "loss": "quantile", "quantile": 0.8}),
    "gaussians": ("OROLSClassifier", {**FEW, "probabilities": "gaussian"}),
    "intervals": ("OROLSRegressor", {**FEW, "intervals": True}),
    "npd-intervals": ("NPDRegressor", {**FEW, "intervals": True}),
    "no-intercept": ("OROLSRegressor", {**FEW, "fit_intercept": False}),
    "balanced": ("OROLSClassifier", {**FEW, "class_weight": "balanced"}),
    "conjugate-gradients": ("OROLSRegressor", {**FEW, "solver": "conjugate-gradients"}),
    "table": ("OROLSRegressor", FEW),
    "appended": ("OROLSRegressor", FEW),
}
"""By name, the estimator and the parameters of each model."""

SLOW = {**FEW, "candidates": 16, "panel": 2, "stop": "none"}
RUNS: dict[str, dict[str, Any]] = {
    "finished": {**SLOW, "intervals": True},
    "metric": {**SLOW, "metric": "diagonal", "metric_rounds": 2},
    "loss": {**SLOW, "loss": "huber"},
    "many": {**SLOW, "solver": "conjugate-gradients"},
}
"""By name, the model that each run was asked for; each is also kept as its driver leaves it when it is killed."""


def frame(X: Array) -> pd.DataFrame:
    """Return raw columns: numbers with a gap, names and days."""
    columns = {"length": X[:, 0], "tree": NAMES[(X[:, 1] > 0).astype(int)], "day": pd.Timestamp("2026-01-01")}
    made = pd.DataFrame(columns)
    made["day"] += pd.to_timedelta(np.arange(len(X)), unit="D")
    made.loc[3, "length"] = np.nan
    return made


def rows_of(name: str) -> Any:
    """Return the rows that the model of that name predicts."""
    return frame(TEST) if name == "table" else TEST


def fitted(name: str) -> Any:
    """Train the model of that name."""
    cls, settings = VARIANTS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dk.DistkernWarning)
        rows = frame(X) if name == "table" else X
        model = getattr(dk, cls)(**settings).fit(rows, LABELS if cls.endswith("Classifier") else Y)
        if name == "appended":
            model.append(NEW, NEW_Y)
    return model


def predicted(name: str, model: Any) -> dict[str, Array]:
    """Return what a model says of its test rows, by method."""
    rows = rows_of(name)
    names = [method for method in ("predict", "decision_function", "predict_proba") if hasattr(model, method)]
    made = {method: getattr(model, method)(rows) for method in names}
    if name in ("intervals", "npd-intervals"):
        made["deviations"] = model.predict(rows, return_std=True)[1]
        made["interval"] = model.predict_interval(rows, coverage=0.8)
    if name in ("diagonal", "full"):
        made["importances"] = model.feature_importances_
    return made


def write_models() -> None:
    """A store and a pickle of every model, with its predictions, and predictions with intervals in a store."""
    for name in VARIANTS:
        model = fitted(name)
        np.savez_compressed(f"{name}.npz", **predicted(name, model))
        model.save(f"{name}.model")
        Path(f"{name}.pickle").write_bytes(pickle.dumps(model, protocol=4))
    dk.write_dataset("test.zarr", TEST, np.zeros(len(TEST)), task="regression")
    command("predict", "intervals.model", "test.zarr", "--out", "intervals.predictions", "--interval", "0.8")
    shutil.rmtree("test.zarr")


def write_datasets() -> None:
    """A raw table with its schema."""
    frame(X).assign(target=Y).to_csv("rows.csv", index=False)
    command("ingest", "rows.csv", "--target", "target", "--out", "table.zarr", "--task", "regression")
    Path("rows.csv").unlink()


def write_runs() -> None:
    """Runs that ended, runs whose driver was killed, and one that rows were appended to."""
    dk.write_dataset("rows.zarr", X, Y, chunk_rows=30, task="regression")
    dk.write_dataset("new.zarr", NEW, NEW_Y, chunk_rows=30, task="regression")
    for name, model in RUNS.items():
        for kind in ("", "-killed"):
            output = {"model": f"{name}{kind}.model", "run": f"{name}{kind}.run"}
            sections = {"data": {"train": "rows.zarr"}, "model": model, "output": output}
            Path(f"{name}{kind}.toml").write_text(toml(sections))
            command("train", f"{name}{kind}.toml")
        np.savez_compressed(f"{name}.npz", predict=dk.load_model(f"{name}.model").predict(TEST))
        cut_short(Path(f"{name}-killed.run"))
        shutil.rmtree(f"{name}-killed.model")
    Path("appended.toml").write_text(Path("finished.toml").read_text().replace("finished", "appended"))
    command("train", "appended.toml")
    command("train", "appended.toml", "--append", "new.zarr")
    np.savez_compressed("appended.npz", predict=dk.load_model("appended.model").predict(TEST))


def cut_short(run: Path) -> None:
    """Leave what a driver leaves that is killed: half of its record, torn, and of its events."""
    (run / "summary.json").unlink()
    for path in run.glob("sums-*"):
        shutil.rmtree(path)
    for path in max(run.glob("log-*.bin")), run / "events.jsonl":
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])


def toml(sections: dict[str, dict[str, Any]]) -> str:
    """Write a job file; JSON values are TOML for what jobs hold."""
    lines = []
    for section, values in sections.items():
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def command(*arguments: str) -> None:
    """Run a command of distkern in this process."""
    assert main(arguments) == 0, arguments


def write_all(folder: Path) -> None:
    """Write the archives."""
    folder = folder.absolute()
    for write in (write_models, write_datasets, write_runs):
        with tempfile.TemporaryDirectory() as scratch:
            os.chdir(scratch)
            write()
            shutil.make_archive(str(folder / write.__name__.removeprefix("write_")), "zip", scratch)
            os.chdir(folder)


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
