"""A table of many small integers, few of which matter, and those by mixtures of them: one width and learnt metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import distkern
from benchmarks import command, generated

NOISE = 0.1
"""Standard deviation of the noise."""

MATTERING = 20
"""Columns that matter, the first ones."""

DIRECTIONS = 3
"""Mixtures of them that the target depends on."""

LARGEST = 9
"""Largest absolute value of a column."""

TEST_ROWS = 50_000

MAPS: tuple[dict[str, Any], ...] = (
    {"metric": "isotropic"},
    {"metric": "diagonal"},
    {"metric": "full", "metric_rank": 32},
)


def table(rows: int, features: int, seed: int = 0) -> generated.Pieces:
    """Yield pieces of uniform integers; the target is a smooth function of mixtures of the first columns."""
    # Orthonormal cosines: every column has a part.
    angles = np.pi * (np.arange(MATTERING)[:, None] + 0.5) * np.arange(1, DIRECTIONS + 1) / MATTERING
    mixing = np.sqrt(2 / MATTERING) * np.cos(angles)
    deviation = np.sqrt(((2 * LARGEST + 1) ** 2 - 1) / 12)
    for number, n in generated.numbered_pieces(rows):
        rng = np.random.default_rng([seed, number])
        X = rng.integers(-LARGEST, LARGEST + 1, (generated.PIECE, features), dtype=np.int8)
        mixed = X[:, :MATTERING] @ mixing / deviation
        signal = np.sin(1.5 * mixed[:, 0]) + mixed[:, 1] * np.tanh(mixed[:, 2]) + mixed[:, 1] / 2
        y = signal + NOISE * rng.standard_normal(generated.PIECE)
        yield X[:n], y[:n]


def run(
    rows: int, features: int, centers: int, workers: int, memory: str, folder: Path | None
) -> Iterator[dict[str, Any]]:
    """Train with one width, factors, and a matrix of few directions."""
    with TemporaryDirectory(dir=folder) as place:
        train, test = Path(place, "train.zarr"), Path(place, "test.zarr")
        generated.store(train, rows, table(rows, features), "regression")
        generated.store(test, TEST_ROWS, table(TEST_ROWS, features, seed=1), "regression")
        for chosen in MAPS:
            model = {"max_centers": centers, **chosen}
            out = Path(place, chosen["metric"])
            measured = command.on_workers(train, test, out, model, workers, memory)
            yield {"metric": chosen["metric"], **measured, "mattering first": _found(out)}


def _found(model: Path) -> int | None:
    """Return how many of the columns that matter are among as many with the largest importances."""
    importances = getattr(distkern.load_model(model), "feature_importances_", None)
    if importances is None:
        return None
    return int((np.argsort(-importances, kind="stable")[:MATTERING] < MATTERING).sum())
