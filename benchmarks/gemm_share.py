"""The rate of the selection as a share of the machine's rate of matrix products."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Any

import numpy as np

import distkern
from benchmarks import generated
from benchmarks.flops import FlopCounter, counted
from distkern.monitoring.events import Event, RunEnded, RunStarted


def gemm_rate(size: int, dtype: str, repeats: int = 3) -> float:
    """Return the operations in a second of a square matrix product on all cores, the best of several."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size)).astype(dtype) for _ in range(2))
    out = np.empty_like(a)
    np.matmul(a, b, out=out)
    times = []
    for _ in range(repeats):
        started = perf_counter()
        np.matmul(a, b, out=out)
        times.append(perf_counter() - started)
    return 2.0 * size**3 / min(times)


def measure(rows: int, features: int, centers: int, dtype: str, size: int) -> dict[str, Any]:
    """Measure the rate, train in this process, and compare the products of the training with the rate."""
    X, y = generated.in_memory(generated.waves(rows, features, dtype))
    events: list[Event] = []
    rate = gemm_rate(size, dtype)
    model = distkern.OROLSRegressor(
        sigma=float(np.sqrt(features)),
        max_centers=centers,
        stop=None,
        selection_rows=None,
        dtype=dtype,
        callbacks=[events.append],
    )
    counter = FlopCounter(rows, features, 1)
    with counted(counter):
        model.fit(X, y)
    rate = max(rate, gemm_rate(size, dtype))
    began = next(event for event in events if isinstance(event, RunStarted))
    ended = next(event for event in events if isinstance(event, RunEnded))
    seconds = ended.timestamp - began.timestamp
    kinds, total, m = counter.by_kind, counter.total, model.n_centers_
    return {
        "dtype": dtype,
        "rows": rows,
        "features": features,
        "centers": m,
        "GEMM GF/s": rate / 1e9,
        "selection s": seconds,
        "fit s": model.summary_["seconds"],
        "Gflop": total / 1e9,
        "share": total / seconds / rate,
        "flops/centre/2Mm": total / m / (2.0 * rows * (m + 1) / 2),
        **{f"{kind} %": 100 * value / total for kind, value in kinds.items()},
    }


def run(rows: int, features: int, centers: int, dtypes: Iterable[str], size: int) -> Iterator[dict[str, Any]]:
    """Measure in several precisions."""
    for dtype in dtypes:
        yield measure(rows, features, centers, dtype, size)
