"""The linear methods over blocks: the same bits here and on workers, for stores, after losses, and with one order."""

from __future__ import annotations

import itertools
import os
import signal
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import distkern as dk
from distkern.scheduler.passes import ho_kashyap as ho_kashyap_pass
from distkern.storage import ArraySource
from tests.markers import marked, variants
from tests.scheduler.worker_clusters import cluster

METHODS = {
    "fisher": lambda **o: dk.FisherDiscriminant(**o),
    "mse": lambda **o: dk.MSEClassifier(**o),
    "lms": lambda **o: dk.WidrowHoffClassifier(passes=3, **o),
    "lms-row": lambda **o: dk.WidrowHoffClassifier(passes=2, schedule="row", normalized=True, **o),
    "ho-kashyap": lambda **o: dk.HoKashyapClassifier(max_iter=12, **o),
}


def rows(n: int = 700, n_classes: int = 3, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    X = rng.standard_normal((n, 4)) + 2 * rng.standard_normal((n_classes, 4))[y]
    X[:, 2] = X[:, 0]
    return X, y, rng.integers(0, 3, n).astype(float)


def assert_same_bits(ours: Any, theirs: Any) -> None:
    for name in ("coef_", "intercept_", "classes_", "separable_classes_", "n_iter_", "scalings_", "seen_"):
        if hasattr(ours, name):
            a, b = np.asarray(getattr(ours, name)), np.asarray(getattr(theirs, name))
            assert a.tobytes() == b.tobytes(), name
    assert ours.summary_["bytes_read"] == theirs.summary_["bytes_read"]
    assert ours.summary_["rounds"] == theirs.summary_["rounds"]


@pytest.mark.parametrize(
    ("method", "n_classes"),
    variants([("fisher", 3), ("mse", 2), ("lms-row", 2)], itertools.product(METHODS, [2, 3])),
)
def test_a_store_of_several_blocks_gives_the_same_bits_on_workers(
    in_process_client: Any, method: str, n_classes: int, tmp_path: Path
) -> None:
    X, y, weights = rows(n_classes=n_classes)
    store = dk.write_dataset(tmp_path / "store.zarr", X, y, chunk_rows=96, task="classification")
    assert len(store.source().boundaries) > 3
    here = METHODS[method]().fit(store, None, weights)
    there = METHODS[method](client=in_process_client).fit(store, None, weights)
    assert_same_bits(here, there)
    np.testing.assert_array_equal(here.predict(store)[...], there.predict(store)[...])
    np.testing.assert_array_equal(here.predict(X), here.predict(store)[...])


@pytest.mark.parametrize("method", variants(["mse"], METHODS))
def test_arrays_in_memory_give_the_same_bits_on_workers(in_process_client: Any, method: str) -> None:
    X, y, weights = rows(12_000)
    assert len(ArraySource(X, y).boundaries) > 3
    assert_same_bits(METHODS[method]().fit(X, y, weights), METHODS[method](client=in_process_client).fit(X, y, weights))


@pytest.mark.parametrize("method", variants(["fisher", "lms-row"], METHODS))
def test_rows_that_do_not_stay_in_memory_give_the_same_bits(in_process_client: Any, method: str) -> None:
    X, y, weights = rows(12_000)
    here = METHODS[method]().fit(X, y, weights)
    for where in (None, in_process_client):
        plan = METHODS[method](client=where).fit(X, y, weights).plan_
        limit = sum(size for name, size in plan.items() if name != "held_rows")
        tight = METHODS[method](client=where, memory_limit=limit).fit(X, y, weights)
        assert "held_rows" not in tight.plan_
        assert here.coef_.tobytes() == tight.coef_.tobytes()


@pytest.mark.parametrize("chunk", variants([64, 700], [7, 64, 100, 700]))
def test_chunks_change_rounding_only_and_not_even_that_for_widrow_hoff(chunk: int) -> None:
    X, y, _ = rows()
    arrays = zarr.array(X, chunks=(chunk, 4)), zarr.array(y, chunks=(chunk,))
    for name, method in METHODS.items():
        # Statistics of blocks scale the features; without them LMS sees the rows only.
        options = {"standardize": False, "learning_rate": 0.01} if name.startswith("lms") else {}
        whole, cut = method().set_params(**options).fit(X, y), method().set_params(**options).fit(*arrays)
        if name.startswith("lms"):
            assert whole.coef_.tobytes() == cut.coef_.tobytes()
        np.testing.assert_allclose(cut.coef_, whole.coef_, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["lms", "ho-kashyap"])
def test_rows_that_change_between_passes_are_refused(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = rows()

    class Changing(ArraySource):
        reads = 0

        def read_features(self, block: int) -> Any:
            Changing.reads += 1
            return super().read_features(block) + (Changing.reads > 7)

    source = Changing(X, y, classes=np.arange(3), boundaries=tuple(range(0, 701, 100)))
    model = METHODS[method]()
    with pytest.raises(dk.DataError, match="changed while the training ran") as error:
        model._train(source, None)
    assert error.value.kind == "changed"


@pytest.mark.parametrize("method", METHODS)
def test_planned_bytes_are_there_and_a_summary_says_what_was_done(method: str) -> None:
    X, y, _ = rows()
    model = METHODS[method]().fit(X, y)
    counts = {"n_rows", "n_features", "n_targets", "n_centers", "rounds", "exchanges", "kernel_columns", "passes"}
    peaks = {"planned_peak_bytes", "peak_rss_driver", "peak_rss_worker"}
    assert counts | peaks | {"bytes_read", "seconds"} == set(model.summary_)
    assert model.summary_["n_targets"] == 3
    assert model.summary_["bytes_read"] >= X.nbytes
    assert sum(model.plan_.values()) < model.summary_["planned_peak_bytes"]


@pytest.mark.parametrize(
    ("method", "d"),
    [
        *[("mse", 3), ("ho-kashyap", 60)],
        *marked(pytest.mark.slow, ("fisher", 60), ("lms", 60), ("lms-row", 3)),
        *marked(pytest.mark.nightly, ("fisher", 3), ("mse", 60), ("lms", 3), ("lms-row", 60), ("ho-kashyap", 3)),
    ],
)
def test_traced_peaks_are_within_the_plan(method: str, d: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 600_000 // d
    X, y = rng.standard_normal((n, d)).astype(np.float32), rng.integers(0, 3, n)
    store = dk.write_dataset(tmp_path / "store.zarr", X, y, chunk_rows=n // 11, task="classification")
    del X, y
    model = METHODS[method]()
    model.fit(store)
    tracemalloc.start()
    try:
        model.fit(store)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= sum(model.plan_.values())


@pytest.mark.cluster
def test_margins_of_a_lost_worker_are_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    X, y, weights = rows(2000)
    store = dk.write_dataset(tmp_path / "store.zarr", X, y, chunk_rows=128, task="classification")
    here = METHODS["ho-kashyap"]().fit(store, None, weights)
    iterate, calls = ho_kashyap_pass._iterate, []
    with cluster(2, processes=True) as client:

        def kill_in_the_fifth(*arguments: Any) -> Any:
            calls.append(None)
            if len(calls) == 5:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
            return iterate(*arguments)

        monkeypatch.setattr(ho_kashyap_pass, "_iterate", kill_in_the_fifth)
        there = METHODS["ho-kashyap"](client=client).fit(store, None, weights)
    assert len(calls) > 5
    assert here.coef_.tobytes() == there.coef_.tobytes()
