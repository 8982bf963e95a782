"""A model of very many centres from one store: drawn centres and conjugate gradients, on workers of bounded memory.

Compared with the centres that are selected one after another alone, and with as many centres that are all drawn at
random, by the same solver with the best of its lambdas in hindsight. The first two train by the command line, the last
in this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest import mock

import numpy as np

import distkern as dk
from benchmarks import command, generated
from distkern.arrays import Array
from distkern.models.kernel_model import KernelModel
from distkern.scheduler import WorkerFacts, plan_job, workload
from distkern.scheduler.training import large_models, solver
from distkern.selection.penalised_fit import PenalisedFit
from distkern.storage import open_dataset

TEST_ROWS = 50_000

NOISE = 0.1
"""Standard deviation of the noise: no model has a lower error."""

SIGMA = 2.0
"""Width of the kernel, in standard deviations of a feature."""

LATENT = 4
"""Dimensions of the surface near which the rows lie: in twenty free dimensions nothing fine can be learnt."""


def scales(rows: int, features: int, seed: int = 0) -> generated.Pieces:
    """Yield pieces of a regression with waves of three lengths along a curved surface, and a tenth of noise."""
    shape = np.random.default_rng(99)
    map_, phases = 0.7 * shape.standard_normal((LATENT, features)), shape.uniform(0, 6, features)
    directions = shape.standard_normal((LATENT, 3))
    directions /= np.linalg.norm(directions, axis=0)
    for number, n in generated.numbered_pieces(rows):
        rng = np.random.default_rng([seed, 1, number])
        z = rng.standard_normal((generated.PIECE, LATENT))
        X = np.sin(z @ map_ + phases) + 0.02 * rng.standard_normal((generated.PIECE, features))
        u = z @ directions
        signal = np.sin(2 * u[:, 0]) + 0.5 * np.sin(4 * u[:, 1])
        signal += 0.3 * np.sin(8 * u[:, 2]) * np.exp(-np.square(u[:, 0]))
        y = signal + NOISE * rng.standard_normal(generated.PIECE)
        yield X[:n].astype(np.float32), y[:n].astype(np.float32)


def run(
    rows: int, features: int, centers: int, few: int, workers: int, memory: str, folder: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Train with many centres, with the first of them only, and with many that are drawn at random."""
    with TemporaryDirectory(dir=folder) as place:
        train, test = Path(place, "train.zarr"), Path(place, "test.zarr")
        generated.store(train, rows, scales(rows, features), "regression")
        generated.store(test, TEST_ROWS, scales(TEST_ROWS, features, seed=1), "regression")
        model = {"sigma": SIGMA, "dtype": "float32", "stop": "none"}
        settings = {
            f"{centers} centres": {"max_centers": centers, "solver": "conjugate-gradients"},
            f"{few} selected centres": {"max_centers": few, "solver": "factors"},
        }
        for name, own in settings.items():
            found = command.on_workers(train, test, Path(place, name), {**model, **own}, workers, memory)
            planned = _driver_peak(train, {**model, **own}, workers)
            yield {"method": name, **found, "planned driver MiB": planned / (1 << 20)}
        yield from _random_centers(train, test, centers)


def _driver_peak(train: Path, model: dict[str, Any], workers: int) -> int:
    """Return the planned peak of the driver's process."""
    source = open_dataset(train).source()
    job = dk.OROLSRegressor(**model).training_job()
    facts = WorkerFacts(workers, 1, None, in_process=False)
    return plan_job(job, workload(job, source), facts, memory_limit=1 << 40).driver_peak


def _random_centers(train: Path, test: Path, centers: int) -> Iterator[dict[str, Any]]:
    """Draw all centres but two at random, and evaluate the model of every lambda."""
    fits: list[PenalisedFit] = []
    draw, fit = large_models.CenterDraw, large_models.fit_weights

    def uniform(rows: Any, model: Any, *rest: Any) -> Any:
        return draw(rows, None, *rest)

    def keep(*arguments: Any, **options: Any) -> PenalisedFit:
        fits.append(fit(*arguments, **options))
        return fits[-1]

    started = perf_counter()
    with (
        mock.patch.object(solver, "SELECTED_CENTERS", 2),
        mock.patch.object(large_models, "CenterDraw", uniform),
        mock.patch.object(large_models, "fit_weights", keep),
    ):
        model = dk.OROLSRegressor(
            sigma=SIGMA, dtype="float32", stop=None, max_centers=centers, solver="conjugate-gradients"
        ).fit(open_dataset(train))
    seconds = perf_counter() - started
    held = open_dataset(test)
    X, y = np.asarray(held.X[:]), held.targets()
    mean = model.intercept_ - model._result.paths[0].solved[0]
    errors = [_error(model._model, weights, mean, X, y) for weights in fits[0].all_weights]
    best = int(np.argmin(errors))
    yield {
        "method": f"{centers} random centres, lambda {fits[0].tried[best, 0]:.2g} of {len(errors)}",
        "outcome": "done",
        "rmse": errors[best],
        "s": seconds,
    }


def _error(model: KernelModel, weights: Array, mean: Array, X: Array, y: Array) -> float:
    prepared = replace(model, coef=weights[1:], intercept=weights[0] + mean).prepare()
    parts = [prepared.evaluate(X[start : start + 1000])[:, 0] for start in range(0, len(X), 1000)]
    return float(np.sqrt(np.mean(np.square(np.concatenate(parts) - y))))
