"""distkern beside the methods that users would take instead: error, times, memory and size of the model.

Each training runs in a process of its own, whose peak memory is that of the data, the training and the predictions.
Boosted trees keep 15 % of the training rows to stop early; every other method trains on all of them. Packages that are
not installed are skipped by name.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks import command, datasets, ours
from benchmarks.baselines import SVM_ROWS, error_of, prepare
from benchmarks.datasets import Split
from distkern.scheduler.runtime.processes import peak_rss

STOPPING_SHARE = 0.15
"""Share of the training rows that boosted trees stop on."""

TREES = {"learning_rate": 0.05, "max_depth": 6}
"""Parameters of both kinds of boosted trees."""

MOST_TREES = 5000

WAITING = 50
"""Trees without a lower error after which boosting ends."""

PENALTY = 1e-4
"""Penalty of the ridge after Nystroem features."""

LEAST_ROWS = 4000
"""Least rows of a set that is compared, those of the test among them."""

LIMIT = 3600.0
"""Seconds after which a training is given up."""

Predict = Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True)
class Trained:
    """A trained model."""

    predict: Predict
    size: int
    """Bytes of the model."""


@dataclass(frozen=True)
class Method:
    """One method at one size."""

    name: str
    package: str
    """Package that must be installed."""
    train: Callable[[Split, int, int], Trained]
    """Takes a split, a size and a seed."""
    sizes: tuple[int, ...] = (0,)
    """Centres; 0 for a method without this choice."""


def _learnt(split: Split, centers: int, seed: int) -> Trained:
    return _own(split, max_centers=centers, metric="auto", kernel="auto", random_state=seed)


def _one_width(split: Split, centers: int, seed: int) -> Trained:
    parameters = {"sigma": prepare(split).sigma, "standardize": split.recipe.standardize}
    return _own(split, max_centers=centers, random_state=seed, **parameters)


def _own(split: Split, **parameters: Any) -> Trained:
    model = ours.estimator(classification=split.recipe.classification)(**parameters).fit(split.X, split.y)
    return Trained(model.predict, model.centers_.nbytes + model.coef_.nbytes)


def _nystroem(split: Split, centers: int, seed: int) -> Trained:
    features = Nystroem(gamma=1 / (2 * prepare(split).sigma ** 2), n_components=centers, random_state=seed)
    last = RidgeClassifier if split.recipe.classification else Ridge
    return _scaled(split, features, last(alpha=PENALTY))


def _exact_kernel(split: Split, _: int, seed: int) -> Trained:
    """Train a kernel machine on a part of the rows: its time grows with their square or faster."""
    rows = np.random.default_rng(seed).permutation(len(split.X))[:SVM_ROWS]
    gamma = 1 / (2 * prepare(split).sigma ** 2)
    machine = (
        SVC(C=10.0, gamma=gamma) if split.recipe.classification else KernelRidge(alpha=0.1, gamma=gamma, kernel="rbf")
    )
    return _scaled(split, machine, rows=rows)


def _scaled(split: Split, *steps: Any, rows: Any = slice(None)) -> Trained:
    """Train steps of scikit-learn on rows that are standardised where the set's width is meant for such rows."""
    scaling = [StandardScaler()] if split.recipe.standardize else []
    model = make_pipeline(*scaling, *steps).fit(split.X[rows], split.y[rows])
    return Trained(model.predict, len(pickle.dumps(model)))


def _xgboost(split: Split, _: int, seed: int) -> Trained:
    library = import_module("xgboost")
    (X, y, held, held_y), classes = _parts(split, seed)
    kind = library.XGBClassifier if split.recipe.classification else library.XGBRegressor
    model = kind(
        n_estimators=MOST_TREES, tree_method="hist", early_stopping_rounds=WAITING, random_state=seed, **TREES
    ).fit(X, y, eval_set=[(held, held_y)], verbose=False)
    size = len(model.get_booster().save_raw())
    return Trained(lambda rows: classes[model.predict(rows)] if classes is not None else model.predict(rows), size)


def _lightgbm(split: Split, _: int, seed: int) -> Trained:
    library = import_module("lightgbm")
    (X, y, held, held_y), classes = _parts(split, seed)
    kind = library.LGBMClassifier if split.recipe.classification else library.LGBMRegressor
    model = kind(n_estimators=MOST_TREES, num_leaves=63, random_state=seed, verbosity=-1, **TREES).fit(
        X, y, eval_X=held, eval_y=held_y, callbacks=[library.early_stopping(WAITING, verbose=False)]
    )
    size = len(model.booster_.model_to_string())
    return Trained(lambda rows: classes[model.predict(rows)] if classes is not None else model.predict(rows), size)


def _xrfm(split: Split, _: int, seed: int) -> Trained:
    """Train xRFM with its defaults; it takes a validation set."""
    library, torch = import_module("xrfm"), import_module("torch")
    torch.manual_seed(seed)
    (X, y, held, held_y), classes = _parts(split, seed)
    scaler = StandardScaler().fit(X)
    model = library.xRFM(device="cpu", tuning_metric="mse" if classes is None else "accuracy")
    kind = np.float32 if classes is None else np.int64
    model.fit(
        scaler.transform(X).astype(np.float32),
        y.astype(kind).reshape(-1, 1) if classes is None else y.astype(kind),
        scaler.transform(held).astype(np.float32),
        held_y.astype(kind).reshape(-1, 1) if classes is None else held_y.astype(kind),
    )

    def predict(rows: NDArray[Any]) -> NDArray[Any]:
        found = np.asarray(model.predict(scaler.transform(rows).astype(np.float32))).reshape(len(rows), -1)
        return found[:, 0] if classes is None else np.asarray(classes[found[:, 0].astype(np.intp)])

    return Trained(predict, len(pickle.dumps(model)))


def _parts(split: Split, seed: int) -> tuple[list[NDArray[Any]], NDArray[Any] | None]:
    """Return rows and targets that train and that stop, and the classes that codes stand for."""
    y, classes = split.y, None
    if split.recipe.classification:
        classes, y = np.unique(split.y, return_inverse=True)
    X, held, target, held_target = train_test_split(split.X, y, test_size=STOPPING_SHARE, random_state=seed)
    return [X, target, held, held_target], classes


METHODS = {
    method.name: method
    for method in (
        Method("distkern, learnt metric", "distkern", _learnt, (500, 1500, 5000)),
        Method("distkern, one width", "distkern", _one_width, (500, 1500)),
        Method("Nystroem + ridge", "sklearn", _nystroem, (500, 1500, 5000)),
        Method("exact kernel", "sklearn", _exact_kernel),
        Method("XGBoost", "xgboost", _xgboost),
        Method("LightGBM", "lightgbm", _lightgbm),
        Method("xRFM", "xrfm", _xrfm),
    )
}


def run(
    names: tuple[str, ...], methods: tuple[str, ...], sizes: tuple[int, ...], seeds: int
) -> Iterator[dict[str, Any]]:
    """Compare methods on sets of `LEAST_ROWS` rows or more.

    Parameters
    ----------
    names, methods : tuple of str
        Sets and methods; all if empty.
    sizes : tuple of int
        Numbers of centres; those of each method if empty.
    seeds : int
        Trainings of each size; figures are means.
    """
    for split in datasets.present(names):
        if len(split.X) + len(split.X_test) < LEAST_ROWS:
            continue
        for method in METHODS.values():
            if methods and method.name not in methods:
                continue
            most = len(split.X) // 2
            # On few rows the largest number of centres is half of them.
            for size in sorted({min(size, most) for size in (sizes or method.sizes)}) if method.sizes != (0,) else (0,):
                yield _compared(split, method, size, seeds)


def _compared(split: Split, method: Method, size: int, seeds: int) -> dict[str, Any]:
    row = {"set": split.recipe.name, "rows": len(split.X), "method": method.name, "centers": size or None}
    if find_spec(method.package) is None:
        return {**row, "outcome": "not installed"}
    found = []
    for seed in range(seeds):
        # In a process of its own, whose peak is that of this training.
        job = [split.recipe.name, method.name, str(size), str(seed)]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.peers", *job],
                cwd=command.ROOT,
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT,
            )
        except subprocess.TimeoutExpired:
            return {**row, "outcome": f"no result after {LIMIT:.0f} s"}
        if done.returncode:
            return {**row, "outcome": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]}
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return {**row, "outcome": "done", **{key: float(np.mean([one[key] for one in found])) for key in found[0]}}


def _measure(name: str, method: str, size: int, seed: int) -> dict[str, float]:
    (split,) = datasets.present((name,))
    started, spent = perf_counter(), process_time()
    trained = METHODS[method].train(split, size, seed)
    fitted, spent = perf_counter(), process_time() - spent
    predicted = trained.predict(split.X_test)
    ended = perf_counter()
    return {
        "error": error_of(split)(predicted),
        "fit s": fitted - started,
        "CPU s": spent,
        "predict us/row": 1e6 * (ended - fitted) / len(split.X_test),
        "peak MiB": peak_rss() / 2**20,
        "model KiB": trained.size / 1024,
    }


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
