"""Planned and measured peaks of memory of trainings by the command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import command, generated


def measure(
    folder: Path, rows: int, features: int, centers: int, workers: int, budget: str | None, dtype: str
) -> dict[str, Any]:
    """Train once; with `workers` 0 in the command's own process, which has no budget of a worker."""
    store = folder / f"waves-{rows}.zarr"
    if not store.exists():
        generated.store(store, rows, generated.waves(rows, features, "float32"), "regression")
    trained = command.train(
        folder,
        {
            "data": {"train": str(store)},
            "model": {
                "sigma": float(np.sqrt(features)),
                "max_centers": centers,
                "stop": "none",
                "dtype": dtype,
            },
            "cluster": {"workers": workers, "memory": budget} if workers else {},
        },
    )
    planned, worker, driver = (
        trained.value(name) for name in ("planned_peak_bytes", "peak_rss_worker", "peak_rss_driver")
    )
    holder = worker or driver
    return {
        "rows": rows,
        "features": features,
        "centers": centers,
        "dtype": dtype,
        "workers": workers,
        "budget": budget if workers else None,
        "outcome": trained.outcome(),
        "s": trained.value("seconds"),
        "planned MiB": _mebibytes(planned),
        "worker MiB": _mebibytes(worker),
        "driver MiB": _mebibytes(driver),
        "measured/planned": holder / planned if planned else None,
    }


def run(
    sizes: Iterable[int],
    features: int,
    centers: int,
    workers: int,
    budgets: Iterable[str | None],
    dtype: str,
    folder: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Train at every size and budget."""
    with TemporaryDirectory(dir=folder) as place:
        for rows in sizes:
            for budget in budgets:
                yield measure(Path(place), rows, features, centers, workers, budget, dtype)


def _mebibytes(value: int | None) -> float | None:
    return None if value is None else value / (1 << 20)
