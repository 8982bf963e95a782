"""Wendland's kernel: time that predictions save by skipping distant centres, and the kernel's share of a training."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from time import process_time, thread_time
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import distkern
from benchmarks.datasets import data_folder
from distkern.kernels import near_sums as compact_support
from distkern.kernels.radial import Wendland

Array = NDArray[np.float64]

RADII = {
    "raetsch_banana": (0.5, 1.0, 2.0, 4.0),
    "skin": (0.1, 0.3, 1.0, 2.0),
    "kin40k": (3.0, 4.0, 8.0, 16.0),
}
"""Radii on standardised features, for sets of 2, 3 and 8 features."""

TRAINED, TESTED = 20_000, 20_000
"""Largest numbers of training and test rows."""

REPEATS = 5


def load(name: str) -> tuple[Array, NDArray[Any], Array, NDArray[Any]]:
    """Load a set, split at random."""
    with np.load(data_folder() / f"{name}.npz", allow_pickle=False) as archive:
        X, y = archive["X"].astype(np.float64), archive["y"]
    rows = np.random.default_rng(0).permutation(len(y))
    train = min(TRAINED, len(y) * 3 // 4)
    first, second = rows[:train], rows[train : train + TESTED]
    return X[first], y[first], X[second], y[second]


def measure(name: str, radius: float, centers: int) -> dict[str, Any]:
    """Train on one set, then predict with and without the search for near centres, interleaved; CPU seconds."""
    X, y, X_test, y_test = load(name)
    regression = np.issubdtype(y.dtype, np.floating)
    cls = distkern.OROLSRegressor if regression else distkern.OROLSClassifier
    model = cls(kernel=distkern.Wendland(radius), max_centers=centers)
    with _Stopwatch() as kernel_seconds:
        started = process_time()
        model.fit(X, y)
        seconds = process_time() - started
    kernel = model._model.prepare()
    sample = kernel.kernel.block(kernel.scaling.apply(X_test[::100], np.dtype(np.float64)), kernel.centers)
    times: dict[int, list[float]] = {0: [], 99: []}
    outputs = {}
    for most_features in [0, 99] * REPEATS:
        with mock.patch.object(compact_support, "TREE_FEATURES", most_features):
            started = process_time()
            outputs[most_features] = model.predict(X_test) if regression else model.decision_function(X_test)
            times[most_features].append(process_time() - started)
    wrong = model.predict(X_test) - y_test if regression else model.predict(X_test) != y_test
    return {
        "set": name,
        "features": X.shape[1],
        "radius": radius,
        "centers": model.n_centers_,
        "error": float(np.sqrt(np.mean(np.square(wrong, dtype=np.float64)))) if regression else float(np.mean(wrong)),
        "density": float(np.count_nonzero(sample) / sample.size),
        "dense_cpu_ms": 1e3 * min(times[0]),
        "near_cpu_ms": 1e3 * min(times[99]),
        "gain": min(times[0]) / min(times[99]),
        "difference": float(np.abs(outputs[99] - outputs[0]).max()),
        "kernel_share_of_fit": kernel_seconds.total / seconds,
    }


class _Stopwatch:
    """Sums the CPU seconds that all threads spend in kernel blocks."""

    def __enter__(self) -> _Stopwatch:
        self.total, lock, plain = 0.0, Lock(), Wendland.block

        def timed(kernel: Wendland, *args: Any, **kwargs: Any) -> Any:
            started = thread_time()
            result = plain(kernel, *args, **kwargs)
            with lock:
                self.total += thread_time() - started
            return result

        self._patch = mock.patch.object(Wendland, "block", timed)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


def run(names: tuple[str, ...], centers: int) -> Iterator[dict[str, Any]]:
    """Measure every set that is present."""
    for name, radii in RADII.items():
        if (not names or name in names) and (data_folder() / f"{name}.npz").exists():
            for radius in radii:
                yield measure(name, radius, centers)
