"""Training time against the number of workers and the number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import distkern
from benchmarks import generated
from distkern.scheduler import local_client
from distkern.storage import Dataset


def by_workers(
    rows: int, features: int, centers: int, workers: Iterable[int], *, client: Any = None, folder: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Train on one store with several numbers of one-thread worker processes, or on a given client."""
    with TemporaryDirectory(dir=folder) as place:
        data = _store(Path(place), rows, features)
        first = None
        for n in [_size(client)] if client is not None else workers:
            row = _train(data, centers, n, client)
            first = first or row
            yield row | {
                "time ratio": row["s"] / first["s"],
                "workers ratio": n / first["workers"],
                "same centres": row["centers digest"] == first["centers digest"],
            }


def by_rows(
    sizes: Iterable[int], features: int, centers: int, workers: int, *, client: Any = None, folder: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Train on stores of several sizes; `workers` 0 is this process."""
    first = None
    for rows in sizes:
        with TemporaryDirectory(dir=folder) as place:
            n = workers if client is None else _size(client)
            row = _train(_store(Path(place), rows, features), centers, n, client)
        first = first or row
        yield row | {"time ratio": row["s"] / first["s"], "rows ratio": rows / first["rows"]}


def _store(folder: Path, rows: int, features: int) -> Dataset:
    return generated.store(folder / "waves.zarr", rows, generated.waves(rows, features, "float32"), "regression")


def _train(data: Dataset, centers: int, workers: int, client: Any) -> dict[str, Any]:
    found: AbstractContextManager[Any] = nullcontext(client)
    if client is None and workers:
        found = local_client(workers)
    with found as usable:
        model = distkern.OROLSRegressor(
            sigma=float(np.sqrt(data.n_features)),
            max_centers=centers,
            stop=None,
            dtype="float32",
            factors="workers",
            client=usable,
        ).fit(data)
    summary = model.summary_
    return {
        "rows": data.n_rows,
        "features": data.n_features,
        "centers": model.n_centers_,
        "workers": workers,
        "s": summary["seconds"],
        "ms/exchange": 1000 * summary["seconds"] / summary["exchanges"],
        "exchanges": summary["exchanges"],
        "centers digest": sha256(model.center_indices_.tobytes()).hexdigest()[:12],
    }


def _size(client: Any) -> int:
    return len(client.nthreads())
