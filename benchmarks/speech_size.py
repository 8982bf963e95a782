"""A set of the size of a speech corpus: frames of 39 features, 144 classes, two workers of 2 GiB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.naive_bayes import GaussianNB

from benchmarks import command, generated, ours
from benchmarks.generated import Mixture
from distkern.storage import Dataset

Predict = Callable[[NDArray[Any]], NDArray[Any]]

SIGMA = 5.0
"""Width of the kernel on raw rows; the median distance would be too wide, because most features are noise."""

RIDGE = 1e-6
"""Penalty of the linear model, times the number of rows."""


def linear(train: Dataset, classes: int) -> Predict:
    """Fit one-hot targets by least squares, with normal equations that are summed piece by piece."""
    d = train.n_features + 1
    gram, products = np.zeros((d, d)), np.zeros((d, classes))

    def add(X: NDArray[Any], y: NDArray[Any]) -> None:
        rows = _with_constant(X)
        targets = np.zeros((len(y), classes))
        targets[np.arange(len(y)), y] = 1.0
        gram[...] += rows.T @ rows
        products[...] += rows.T @ targets

    generated.rows_of(train, add)
    weights = np.linalg.solve(gram + RIDGE * train.n_rows * np.eye(d), products)
    return lambda X: np.asarray((_with_constant(X) @ weights).argmax(axis=1))


def naive_bayes(train: Dataset, classes: int) -> Predict:
    """Train Gaussian naive Bayes, piece by piece."""
    model = GaussianNB()
    generated.rows_of(train, lambda X, y: model.partial_fit(X, y, classes=np.arange(classes)))
    return lambda X: np.asarray(model.predict(X))


def error_on(test: Dataset, predict: Predict) -> float:
    """Return the fraction of wrong predictions on the rows of a store."""
    wrong = [0]

    def add(X: NDArray[Any], y: NDArray[Any]) -> None:
        wrong[0] += int(np.count_nonzero(predict(X) != y))

    generated.rows_of(test, add)
    return wrong[0] / test.n_rows


def run(
    rows: int,
    test_rows: int,
    centers: int,
    mixture: Mixture,
    *,
    sigma: float = SIGMA,
    workers: int = 2,
    memory: str = "2GiB",
    selection_rows: int | None = 100_000,
    all_rows: bool = True,
    folder: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Measure the best possible rule, two plain classifiers, and distkern with centres from all rows and a sample."""
    with TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        train = generated.store(place / "train.zarr", rows, mixture.draw(rows), "classification")
        test = generated.store(place / "test.zarr", test_rows, mixture.draw(test_rows, 1), "classification")
        yield _row("best possible", rows, None, error_on(test, mixture.best_guess))
        for title, learn in (("linear", linear), ("GaussianNB", naive_bayes)):
            started = perf_counter()
            predict = learn(train, mixture.classes)
            seconds = perf_counter() - started
            yield _row(title, rows, None, error_on(test, predict), seconds)
        for sample in [None] * all_rows + ([] if selection_rows is None else [min(selection_rows, rows)]):
            yield _distkern(place, rows, centers, sigma, workers, memory, sample)


def _distkern(
    place: Path, rows: int, centers: int, sigma: float, workers: int, memory: str, selection_rows: int | None
) -> dict[str, Any]:
    title = "distkern" if selection_rows is None else f"distkern, centres chosen on {selection_rows} rows"
    if selection_rows is not None and not ours.takes("selection_rows"):
        return _row(title, rows, None, None, outcome="this version has no selection_rows")
    trained = command.train(
        place,
        {
            "data": {"train": "train.zarr", "test": "test.zarr"},
            "model": {
                "sigma": sigma,
                "standardize": False,
                "max_centers": centers,
                "stop": "none",
                "dtype": "float32",
                "multiclass": "shared",
                "selection_rows": selection_rows,
            },
            "cluster": {"workers": workers, "memory": memory} if workers else {},
        },
    )
    test = trained.value("test")
    return _row(
        title,
        rows,
        trained.value("n_centers"),
        test["error"] if test else None,
        trained.value("seconds"),
        wall=trained.seconds,
        outcome=trained.outcome(),
        peaks=tuple(trained.value(name) for name in ("planned_peak_bytes", "peak_rss_worker", "peak_rss_driver")),
    )


def _row(
    method: str,
    rows: int,
    centers: int | None,
    error: float | None,
    seconds: float | None = None,
    *,
    wall: float | None = None,
    outcome: str = "done",
    peaks: tuple[int | None, ...] = (None, None, None),
) -> dict[str, Any]:
    planned, worker, driver = (None if peak is None else peak / (1 << 20) for peak in peaks)
    return {
        "method": method,
        "rows": rows,
        "centers": centers,
        "error": error,
        "s": seconds,
        "wall s": wall,
        "planned MiB": planned,
        "worker MiB": worker,
        "driver MiB": driver,
        "outcome": outcome,
    }


def _with_constant(X: NDArray[Any]) -> NDArray[np.float64]:
    return np.column_stack([np.ones(len(X)), X.astype(np.float64)])
