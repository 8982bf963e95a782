"""Write one of everything that users keep: datasets, models, predictions, runs and pickles.

``python write.py FOLDER`` leaves four archives in FOLDER. It uses public names only, so it runs with any version.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

import distkern as dk
from distkern.cli.main import main
from distkern.estimators import ESTIMATORS

Array = NDArray[Any]

N_ROWS = 60
X = np.random.default_rng(1).uniform(-2, 2, (N_ROWS, 3))
Y = np.sin(X @ np.array([[1.0, 0.5], [-1.0, 2.0], [0.3, 0.1]])) + 0.01 * X[:, :2]
CODES = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int) + (X[:, 1] > 1)
NAMES = np.array(["beech", "fir", "ash"])
WEIGHTS = np.random.default_rng(2).uniform(0.5, 2.0, N_ROWS)
TEST = np.random.default_rng(3).uniform(-2, 2, (20, 3))

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "one-vs-rest": ("OROLSClassifier", {"multiclass": "one-vs-rest"}),
    "one-vs-one": ("OROLSClassifier", {"multiclass": "one-vs-one"}),
    "dag": ("OROLSClassifier", {"multiclass": "dag"}),
    "widths": ("OROLSRegressor", {"sigma": [0.8, 1.6]}),
    "widths-classes": ("OROLSClassifier", {"sigma": [0.8, 1.6]}),
    "width-by-cv": ("OROLSRegressor", {"sigma": "cv", "folds": 3}),
    "refit": ("OROLSRegressor", {"refit": "rkhs"}),
    "sample": ("OROLSRegressor", {"selection_rows": 30}),
    "float32": ("OROLSClassifier", {"dtype": "float32"}),
    "lambda-each": ("OROLSRegressor", {"regularization": "gcv-per-target", "targets": 2}),
    "npd-widths": ("NPDClassifier", {"sigma": [0.8, 1.6]}),
    "polynomial": ("OROLSRegressor", {"kernel": dk.Polynomial(2, 0.5), "standardize": False}),
    "matern": ("OROLSRegressor", {"kernel": "matern"}),
    "wendland": ("NPDRegressor", {"kernel": dk.Wendland(3.0, 1)}),
    "sigmoid": ("OROLSRegressor", {"kernel": dk.Sigmoid(0.3, 0.1)}),
    "laplacian": ("OROLSRegressor", {"kernel": dk.Laplacian(2.0)}),
    "linear": ("OROLSRegressor", {"kernel": dk.Linear()}),
    "validation": ("OROLSRegressor", {"stop": "validation"}),
    "residual": ("OROLSRegressor", {"criterion": "residual"}),
    "residual-below": ("OROLSRegressor", {"tol": 10.0}),
}

KERNELS = (
    dk.Gaussian(1.5),
    dk.Laplacian(0.5),
    dk.Matern(1.25),
    dk.Wendland(2.0, 2),
    dk.Polynomial(3, 1.0),
    dk.Sigmoid(0.3, 0.1),
    dk.Linear(),
)
ERRORS = ("JobError", "DataError", "BudgetError", "ClusterError", "RunError", "StoreError", "Cancelled")

SMALL = {"sigma": 1.0, "max_centers": 6, "candidates": 16, "panel": 1, "standardize": False, "stop": "none"}
JOBS: dict[str, dict[str, Any]] = {
    "finished": SMALL,
    "killed": SMALL,
    "residual": {**SMALL, "criterion": "residual", "max_centers": 30},
    "loo": {"method": "loo-forward", "sigma": 1.0, "max_centers": 12, "multiclass": "one-vs-rest"},
    "pairs": {**SMALL, "multiclass": "one-vs-one"},
    "refit": {**SMALL, "refit": "rkhs", "selection_rows": 40},
    "search": {**SMALL, "sigma": "cv", "folds": 3},
    "killed-search": {**SMALL, "sigma": "cv", "folds": 3},
}
"""By name, the model that each run was asked for."""

KILLED = ("killed", "residual", "loo", "pairs", "killed-search")
"""The runs whose driver was killed, so that no model is left."""


def write_datasets() -> None:
    """Dataset stores of every kind, two users' own zarr arrays, and what is in them."""
    dk.write_dataset("regression.zarr", X, Y[:, 0], chunk_rows=16, feature_names=["length", "width", "height"])
    dk.write_dataset("several-targets.zarr", X, Y, task="regression")
    dk.write_dataset("string-labels.zarr", X, NAMES[CODES], chunk_rows=25)
    dk.write_dataset("integer-labels.zarr", X.astype(np.float32), 10 * CODES - 3, chunk_rows=25, task="classification")
    dk.write_dataset("true-or-false.zarr", X, CODES > 0)
    rows = [",".join([*(f"{value:.3f}" for value in row), name]) for row, name in zip(X, NAMES[CODES], strict=True)]
    Path("rows.csv").write_text("\n".join(["a,b,c,tree", *rows, "1,,2,fir"]) + "\n")
    command("ingest", "rows.csv", "--target", "tree", "--missing", "drop", "--out", "ingested.zarr")
    Path("rows.csv").unlink()
    for name, values, chunks in (
        ("own-x.zarr", X, (20, 2)),
        ("own-y.zarr", Y[:, 0], (13,)),
        ("own-weights.zarr", WEIGHTS, (60,)),
    ):
        zarr.create_array(name, shape=values.shape, dtype=values.dtype, chunks=chunks, zarr_format=2)[:] = values
    np.savez_compressed("rows.npz", X=X, Y=Y, labels=NAMES[CODES], codes=CODES, weights=WEIGHTS)


def write_models() -> None:
    """A store of every estimator, with its predictions, and predictions of a dataset in a store."""
    for name, model in fitted():
        model.save(f"{name}.model")
        np.savez_compressed(f"{name}.npz", **predicted(model))
    dk.write_dataset("test.zarr", TEST, np.zeros(len(TEST)), task="regression")
    command("predict", "one-vs-rest.model", "test.zarr", "--out", "labels.predictions", "--proba")
    command("predict", "lambda-each.model", "test.zarr", "--out", "values.predictions")
    shutil.rmtree("test.zarr")


def write_pickles() -> None:
    """Every estimator, fitted, with its predictions; kernels, stop reasons, errors, a dataset, a search."""
    for name, model in fitted():
        keep(name, model)
        expected = predicted(model)
        if "predict_proba" in expected:
            # Calibrations are made when they are first needed; a model from a store comes with them.
            keep(f"{name}.used", model)
            model.save("stored")
            keep(f"{name}.stored", dk.load_model("stored"))
            shutil.rmtree("stored")
        np.savez_compressed(f"{name}.npz", **expected, **continued(model))
    keep("kernels", KERNELS)
    keep("stop-reasons", list(dk.StopReason))
    keep("errors", [getattr(dk, name)(f"what a {name} says", kind="some-kind") for name in ERRORS])
    keep("warnings", [dk.DistkernWarning("of distkern"), dk.ScaleWarning("of scale")])
    keep("unfitted-search", grid_search())
    keep("search", grid_search().fit(X, Y[:, 0]))
    keep("unfitted", [cls() for cls in ESTIMATORS])
    keep("dataset", dk.write_dataset("rows.zarr", X, NAMES[CODES], chunk_rows=16))
    np.savez_compressed("search.npz", **predicted(grid_search().fit(X, Y[:, 0])))
    shutil.rmtree("rows.zarr")


def write_runs() -> None:
    """Runs of the command line and of Python: finished ones, and ones that ended half-way."""
    dk.write_dataset("rows.zarr", X, NAMES[CODES], chunk_rows=16)
    for name, model in JOBS.items():
        sections = {
            "data": {"train": "rows.zarr", "test": "rows.zarr"},
            "model": model,
            "output": {"model": f"{name}.model", "run": f"{name}.run"},
        }
        Path(f"{name}.toml").write_text(toml(sections))
        command("train", f"{name}.toml")
        np.savez_compressed(f"{name}.npz", **predicted(dk.load_model(f"{name}.model")))
        if name in KILLED:
            cut_short(Path(f"{name}.run"))
            shutil.rmtree(f"{name}.model")
    settings = {**SMALL, "stop": None}
    np.savez_compressed("python.npz", **predicted(dk.OROLSRegressor(**settings).fit(X, Y)))
    try:
        dk.OROLSRegressor(**settings, run_dir="python.run", callbacks=[cancel_after(3)]).fit(X, Y)
    except dk.Cancelled:
        np.savez_compressed("python-rows.npz", X=X, Y=Y)


def fitted() -> list[tuple[str, Any]]:
    """Return a model of every estimator and of the variants of OROLS and NPD, by name."""
    kinds = [(cls.__name__, cls.__name__, {}) for cls in ESTIMATORS]
    kinds += [(name, cls, dict(settings)) for name, (cls, settings) in VARIANTS.items()]
    return [(name, fit(getattr(dk, cls), settings)) for name, cls, settings in kinds]


def fit(cls: Any, settings: dict[str, Any]) -> Any:
    """Train on the targets that the estimator takes."""
    n_targets = settings.pop("targets", 0)
    binary = cls.__name__ in ("LOOForwardClassifier", "FisherDiscriminant")
    values = Y[:, :n_targets] if n_targets else Y[:, 0]
    labels = NAMES[np.minimum(CODES, 1)] if binary else NAMES[CODES]
    few = {"max_centers": 5} if "max_centers" in cls().get_params() else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dk.DistkernWarning)
        return cls(**few, **settings).fit(X, values if cls.__name__.endswith("Regressor") else labels)


def grid_search() -> dk.GridSearch:
    """Return a search over widths."""
    return dk.GridSearch(dk.OROLSRegressor(max_centers=4), {"sigma": [0.5, 1.0]}, folds=3)


def predicted(model: Any) -> dict[str, Array]:
    """Return what a model says of `TEST`, by method."""
    names = [name for name in ("predict", "decision_function", "predict_proba") if hasattr(model, name)]
    return {"rows": TEST, **{name: getattr(model, name)(TEST) for name in names}}


def continued(model: Any) -> dict[str, Array]:
    """Return what a fitted model, which this may change, can do that one from a store cannot."""
    made = {}
    if hasattr(model, "truncate") and model.n_centers_ > 2:
        made["truncated"] = model.truncate(2).predict(TEST)
    if hasattr(model, "partial_fit"):
        labels = model.classes_[CODES[:20]] if hasattr(model, "classes_") else Y[:20, 0]
        made["continued"] = model.partial_fit(X[:20] + 0.1, labels).predict(TEST)
    return made


def cancel_after(rounds: int) -> Callable[[Any], None]:
    """Return a callback that ends a training after some rounds."""

    def watch(event: Any) -> None:
        if type(event).__name__ == "RoundDone" and event.round + 1 == rounds:
            raise dk.Cancelled("enough rounds")

    return watch


def cut_short(run: Path) -> None:
    """Leave what a driver leaves that is killed: two thirds of its record, torn, and of its events."""
    (run / "summary.json").unlink()
    for path in max(run.glob("log-*.bin")), run / "events.jsonl":
        content = path.read_bytes()
        path.write_bytes(content[: 2 * len(content) // 3])


def toml(sections: dict[str, dict[str, Any]]) -> str:
    """Write a job file; JSON values are TOML for what jobs hold."""
    lines = []
    for section, values in sections.items():
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def keep(name: str, value: Any) -> None:
    """Pickle."""
    Path(f"{name}.pickle").write_bytes(pickle.dumps(value, protocol=4))


def command(*arguments: str) -> None:
    """Run a command of distkern in this process."""
    assert main(arguments) == 0, arguments


def write_all(folder: Path) -> None:
    """Write the archives."""
    folder = folder.absolute()
    for write in (write_datasets, write_models, write_pickles, write_runs):
        with tempfile.TemporaryDirectory() as scratch:
            os.chdir(scratch)
            write()
            shutil.make_archive(str(folder / write.__name__.removeprefix("write_")), "zip", scratch)
            os.chdir(folder)


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
