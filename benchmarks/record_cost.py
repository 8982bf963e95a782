"""The cost of recording every exchange of a run: trainings with and without a run directory, interleaved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np

import distkern
from benchmarks import generated
from distkern.scheduler.training.run_record import RunStore


def run(rows: int, features: int, centers: int, repeats: int, folder: Path | None) -> Iterator[dict[str, Any]]:
    """Train several times with and without a record; yield the best times of both, and the time of the record."""
    X, y = generated.in_memory(generated.waves(rows, features))
    parameters = {"sigma": float(np.sqrt(features)), "max_centers": centers, "stop": None}
    inside = 0.0

    def timed(method: Any) -> Any:
        def call(*arguments: Any) -> Any:
            nonlocal inside
            started = perf_counter()
            result = method(*arguments)
            inside += perf_counter() - started
            return result

        return call

    plain, recorded, shares, nbytes = [], [], [], 0
    names = ("__init__", "begin", "append", "close")
    for _ in range(repeats):
        started = perf_counter()
        distkern.OROLSRegressor(**parameters).fit(X, y)
        plain.append(perf_counter() - started)
        inside = 0.0
        with TemporaryDirectory(prefix="distkern-record-", dir=folder) as name:
            place = Path(name, "run")
            with patch.multiple(RunStore, **{method: timed(getattr(RunStore, method)) for method in names}):
                started = perf_counter()
                distkern.OROLSRegressor(run_dir=place, **parameters).fit(X, y)
                recorded.append(perf_counter() - started)
            nbytes = sum(file.stat().st_size for file in place.glob("log-*.bin"))
        shares.append(inside / recorded[-1])
    yield {
        "rows": rows,
        "features": features,
        "centers": centers,
        "without s": min(plain),
        "with s": min(recorded),
        "with/without": min(recorded) / min(plain),
        "inside %": 100 * min(shares),
        "record MB": nbytes / 1e6,
    }
