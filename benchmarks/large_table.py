"""A table of many rows whose target depends on few columns, and on the product of two: a learnt metric and XGBoost.

Both train from the same store: distkern by its command line on workers of bounded memory, XGBoost on all rows in the
memory of one process, with a look at the test error after every some trees.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import command, generated
from distkern.scheduler.runtime.processes import peak_rss
from distkern.storage import open_dataset

NOISE = 0.1
"""Standard deviation of the noise: no model has a lower error."""

TEST_ROWS = 200_000

LOOK = 25
"""Trees between two looks at the test error."""

PARAMETERS = {"objective": "reg:squarederror", "tree_method": "hist", "learning_rate": 0.1, "max_depth": 6}
"""Parameters of XGBoost."""


def table(rows: int, features: int, seed: int = 0) -> generated.Pieces:
    """Yield pieces of standard normal columns, of which the first five matter."""
    for number, n in generated.numbered_pieces(rows):
        rng = np.random.default_rng([seed, number])
        X = rng.standard_normal((generated.PIECE, features), dtype=np.float32)
        signal = np.sin(1.5 * X[:, 0]) * np.cos(X[:, 1]) + X[:, 2] * X[:, 3] / 2 + 0.3 * X[:, 4]
        y = signal + NOISE * rng.standard_normal(generated.PIECE, dtype=np.float32)
        yield X[:n], y[:n]


def run(
    rows: int, features: int, centers: int, workers: int, memory: str, target: float, folder: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Train distkern with one width and with a learnt metric, and XGBoost until its error is at most `target`."""
    with TemporaryDirectory(dir=folder) as place:
        train, test = Path(place, "train.zarr"), Path(place, "test.zarr")
        generated.store(train, rows, table(rows, features), "regression")
        generated.store(test, TEST_ROWS, table(TEST_ROWS, features, seed=1), "regression")
        for metric in ("isotropic", "diagonal"):
            yield _ours(Path(place), train, test, metric, centers, workers, memory)
        yield _xgboost(train, test, target)


def _ours(
    folder: Path, train: Path, test: Path, metric: str, centers: int, workers: int, memory: str
) -> dict[str, Any]:
    # Rows and targets are in single precision, and so is their noise.
    model = {"max_centers": centers, "metric": metric, "selection_rows": 50 * centers, "dtype": "float32"}
    if metric != "isotropic":
        model["kernel"] = "auto"
    return {"method": f"distkern, {metric}", **command.on_workers(train, test, folder / metric, model, workers, memory)}


def _xgboost(train: Path, test: Path, target: float) -> dict[str, Any]:
    if find_spec("xgboost") is None:
        return {"method": "xgboost", "outcome": "not installed"}
    # In a process of its own, whose peak is that of this training.
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.large_table", str(train), str(test), str(target)],
        cwd=command.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"method": "xgboost", "outcome": done.stderr.strip().splitlines()[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _boost(train: Path, test: Path, target: float) -> dict[str, Any]:
    """Train XGBoost on all rows of a store; the times include the read."""
    import xgboost

    started = perf_counter()
    rows = open_dataset(train)
    matrix = xgboost.DMatrix(np.asarray(rows.X[:]), rows.targets())
    held = open_dataset(test)
    X_test, y_test = np.asarray(held.X[:]), held.targets()
    unseen = xgboost.DMatrix(X_test)
    booster = xgboost.Booster(PARAMETERS, [matrix])
    looked = 0.0
    for tree in range(4000):
        booster.update(matrix, tree)
        if (tree + 1) % LOOK == 0:
            before = perf_counter()
            error = _rmse(booster.predict(unseen), y_test)
            looked += perf_counter() - before
            if error <= target:
                break
    return {
        "method": f"xgboost, {tree + 1} trees",
        "outcome": "done",
        "rmse": error,
        "s": perf_counter() - started - looked,
        "driver MiB": peak_rss() / 2**20,
    }


def _rmse(predicted: NDArray[Any], y: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(np.square(predicted - y))))


if __name__ == "__main__":
    print(json.dumps(_boost(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))))
