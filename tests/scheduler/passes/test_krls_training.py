"""The waves of kernel recursive least squares: same rows and bits wherever they run, one read of X, bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.errors import BudgetError, DataError, DistkernWarning
from distkern.scheduler.clusters.worker_queries import worker_facts
from distkern.scheduler.passes.block_tasks import LocalTasks
from distkern.scheduler.passes.fit import fit_by_passes
from distkern.scheduler.passes.krls import KRLSJob, Recursion, train_krls
from distkern.scheduler.passes.krls_plan import plan_krls
from distkern.scheduler.passes.krls_tasks import sum_rows
from distkern.scheduler.planning.workload import Workload
from distkern.scheduler.rows.block_reading import read_block
from distkern.scheduler.rows.label_encoding import KnownLabels
from distkern.scheduler.runtime.threads import single_threaded_blas
from distkern.storage import ArraySource, as_source, open_dataset, write_dataset
from tests.krls_references import sparsify
from tests.markers import marked, variants
from tests.scheduler.worker_clusters import cluster

GIB = 1 << 30
EDGE = 1e-9


def job(**changes: Any) -> KRLSJob:
    settings: dict[str, Any] = {
        "classification": False,
        "kernel": "gaussian",
        "sigma": 1.0,
        "nu": 0.1,
        "max_centers": None,
        "standardize": False,
        "dtype": "float64",
    }
    return KRLSJob(**{**settings, **changes})


def train(
    source: Any,
    client: Any = None,
    limit: int = 4 * GIB,
    before: Recursion | None = None,
    checked: bool = True,
    **changes: Any,
) -> tuple[Recursion, dict[str, Any]]:
    asked = job(**changes)
    facts = None if client is None else worker_facts(client)
    passes = 2 if asked.needs_statistics else 1
    plan_for = partial(plan_krls, Workload.of(source, 1, 1), facts, limit, passes)
    plan = plan_for(1 if asked.max_centers is None else min(asked.max_centers, source.n_rows))
    with fit_by_passes(plan, source, client, classification=asked.classification, advice="raise nu") as fit:
        recursion = train_krls(asked, fit, plan_for, before=before, checked=checked)
    return recursion, fit.summary()


def generated(n: int, d: int = 3, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(n)


def bits(recursion: Recursion) -> tuple[bytes, ...]:
    dictionary, sums = recursion.dictionary, recursion.sums
    parts = (dictionary.rows, dictionary.factor, sums.gram, sums.products, recursion.weights())
    return tuple(np.ascontiguousarray(part).tobytes() for part in parts)


def assert_literal(recursion: Recursion, X: Any) -> None:
    """Compare the dictionary with Algorithm 3 row by row, unless a row is on the very edge."""
    dictionary = recursion.dictionary
    scaled = dictionary.scaling.apply(X, np.dtype(np.float64))
    with single_threaded_blas():
        rows, deltas = sparsify(dictionary.kernel, scaled, dictionary.nu)
    assert np.abs(deltas - dictionary.nu).min() > EDGE, "a row is on the edge: take other data"
    assert dictionary.rows.tolist() == rows


@pytest.fixture(scope="module")
def threads() -> Iterator[Any]:
    with cluster(2, processes=False) as client:
        yield client


@given(st.integers(0, 10**6), st.integers(1, 400), st.lists(st.integers(1, 399), max_size=12), st.booleans())
def test_any_cut_into_blocks_gives_the_same_dictionary(seed: int, n: int, cuts: list[int], weighted: bool) -> None:
    X, y = generated(n, 2, seed)
    X[n // 2 :] = X[: n - n // 2]
    weights = np.random.default_rng(seed).integers(0, 3, n).astype(float) if weighted else np.ones(n)
    weights[:3] = 1.0
    if weights.sum() <= 2 or np.ptp(X[weights > 0], axis=0).max() == 0:
        return
    boundaries = (0, *sorted({cut for cut in cuts if cut < n}), n)
    whole, _ = train(ArraySource(X, y, weights, boundaries=(0, n)))
    cut, _ = train(ArraySource(X, y, weights, boundaries=boundaries))
    assert cut.dictionary.factor.tobytes() == whole.dictionary.factor.tobytes()
    np.testing.assert_array_equal(cut.dictionary.rows, whole.dictionary.rows)
    np.testing.assert_allclose(cut.sums.gram, whole.sums.gram, atol=1e-9 * np.abs(whole.sums.gram).max())
    assert weights[whole.dictionary.rows].all()


@pytest.mark.parametrize("changes", [{"sigma": "median", "standardize": True}, {"dtype": "float32"}], ids=str)
def test_the_same_bits_in_this_process_and_on_workers(changes: Any, threads: Any) -> None:
    X, y = generated(6000)
    source = ArraySource(X, y, boundaries=(*range(0, 6000, 450), 6000))
    here, summary = train(source, **changes)
    there, _ = train(source, threads, **changes)
    assert bits(here) == bits(there)
    assert len(here.dictionary) > 20
    assert summary["passes"] == (2 if changes.get("standardize") else 1)


def test_the_width_of_a_wave_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = generated(4000)
    source = ArraySource(X, y, boundaries=(*range(0, 4000, 130), 4000))
    found = []
    for in_flight in (1, 2, 6, 40):
        monkeypatch.setattr(LocalTasks, "in_flight", property(lambda self, n=in_flight: n))
        recursion, summary = train(source)
        found.append((bits(recursion), summary["rounds"]))
    assert len({part for part, _ in found}) == 1
    assert [rounds for _, rounds in found] == sorted((rounds for _, rounds in found), reverse=True)


@pytest.mark.cluster
def test_two_worker_processes_give_the_same_bits(tmp_path: Path) -> None:
    X, y = generated(20_000, 4)
    write_dataset(tmp_path / "set", X, y, chunk_rows=1000, task="regression")
    source = as_source(open_dataset(tmp_path / "set"))
    here, _ = train(source, sigma=2.5)
    with cluster(2, processes=True) as client:
        there, summary = train(source, client, sigma=2.5)
    assert bits(here) == bits(there)
    assert summary["peak_rss_worker"] > 0
    assert_literal(here, X)


class CountingSource(ArraySource):
    """Counts reads of features."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.reads: list[int] = []

    def read_features(self, block: int) -> Any:
        self.reads.append(block)
        return super().read_features(block)


@pytest.mark.parametrize(
    ("changes", "reads"),
    [
        ({}, 1),
        ({"classification": True}, 1),
        ({"kernel": "linear", "sigma": "median"}, 1),
        ({"standardize": True}, 2),
        ({"sigma": "median"}, 2),
    ],
    ids=str,
)
def test_every_block_is_read_as_often_as_the_summary_says(changes: Any, reads: int) -> None:
    X, y = generated(900)
    if changes.get("classification"):
        y = np.where(y > 0, "up", "down")
    source = CountingSource(X, y, boundaries=(*range(0, 900, 100), 900))
    recursion, summary = train(source, **changes)
    assert sorted(source.reads) == sorted(list(range(9)) * reads)
    assert summary["passes"] == reads
    if changes.get("classification"):
        assert recursion.classes is not None
        assert recursion.classes.tolist() == ["down", "up"]


def test_going_on_is_the_same_as_one_training() -> None:
    X, y = generated(1500)
    whole, _ = train(ArraySource(X, y))
    parts: Recursion | None = None
    for first, last in ((0, 1), (1, 400), (400, 401), (401, 1500)):
        source = ArraySource(X[first:last], y[first:last])
        parts, _ = train(source, before=parts, checked=False)
    assert parts is not None
    assert parts.n_rows == 1500
    assert parts.dictionary.factor.tobytes() == whole.dictionary.factor.tobytes()
    np.testing.assert_allclose(parts.weights(), whole.weights(), rtol=1e-8, atol=1e-8)


class ChangingSource(ArraySource):
    """Reads other numbers the second time."""

    def read_features(self, block: int) -> Any:
        rows = super().read_features(block)
        self.X[:, 0] += 1.0
        return rows


def test_rows_that_change_between_the_passes_are_refused() -> None:
    X, y = generated(100)
    with pytest.raises(DataError, match="changed while the training ran") as error:
        train(ChangingSource(X, y), standardize=True)
    assert error.value.kind == "changed"


def test_a_block_that_is_read_again_must_read_the_same() -> None:
    X, y = generated(50)
    block = read_block(ArraySource(X, y), 0, False)
    recursion, _ = train(ArraySource(X, y))
    with pytest.raises(DataError, match="rows 0 to 49 changed") as error:
        sum_rows(block, block.checksum + 1, recursion.dictionary.snapshot(), KnownLabels(1), 0, "float64")
    assert error.value.kind == "changed"


def test_a_dictionary_that_outgrows_the_memory_says_how_far_it_came() -> None:
    X, y = generated(3000, 12)
    source = ArraySource(X, y, boundaries=(*range(0, 3000, 250), 3000))
    limit = plan_krls(Workload.of(source, 1, 1), None, GIB, 1, 200).needed
    with pytest.raises(BudgetError, match=r"holds 200 centres after \d+ rows.* raise nu \(0.1\)") as error:
        train(source, limit=limit)
    assert error.value.kind == "memory"
    with pytest.warns(DistkernWarning, match="max_centers=150"):
        full, _ = train(source, limit=limit, max_centers=150)
    assert len(full.dictionary) == 150
    with pytest.raises(BudgetError, match="this process needs") as error:
        train(source, limit=limit, max_centers=300)
    assert error.value.kind == "memory"


def test_a_full_dictionary_sums_the_same_rows_everywhere(threads: Any) -> None:
    X, y = generated(2000)
    source = ArraySource(X, y, boundaries=(*range(0, 2000, 150), 2000))
    with pytest.warns(DistkernWarning, match=r"as far as delta=[0-9.]+ .* raise nu"):
        here, _ = train(source, max_centers=12)
    with pytest.warns(DistkernWarning):
        there, _ = train(source, threads, max_centers=12)
    assert bits(here) == bits(there)
    assert here.sums.largest > 0.1


@pytest.mark.parametrize(
    ("name", "nu"), [("pendigits", 0.1), *marked(pytest.mark.slow, ("pendigits", 0.02), ("magic", 0.1))]
)
def test_published_sets_have_the_dictionary_of_the_row_by_row_algorithm(name: str, nu: float, shared_data: Any) -> None:
    data = shared_data(name)
    X = np.concatenate([data[key] for key in ("X", "X_train", "X_test") if key in data]).astype(np.float64)
    y = np.zeros(len(X))
    source = ArraySource(X, y, boundaries=(*range(0, len(X), 1000), len(X)))
    recursion, _ = train(source, sigma="median", standardize=True, nu=nu)
    assert_literal(recursion, X)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("n_rows", variants([40_000], [40_000, 200_000]))
def test_many_rows_have_the_dictionary_of_the_row_by_row_algorithm(n_rows: int, tmp_path: Path, threads: Any) -> None:
    X, y = generated(n_rows, 8)
    write_dataset(tmp_path / "set", X, y, chunk_rows=4000, task="regression")
    source = as_source(open_dataset(tmp_path / "set"))
    here, _ = train(source, sigma=4.0, nu=0.05)
    assert_literal(here, X)
    assert bits(train(source, threads, sigma=4.0, nu=0.05)[0]) == bits(here)
    with cluster(2, processes=True) as client:
        assert bits(train(source, client, sigma=4.0, nu=0.05)[0]) == bits(here)


class EndlessSource(ArraySource):
    """The same rows again and again, as a source that is longer than memory."""

    def __init__(self, X: Any, y: Any, times: int) -> None:
        super().__init__(X, y)
        self._n = len(X)
        self.n_rows = times * self._n
        self.boundaries = tuple(range(0, self.n_rows + 1, self._n))

    def read_features(self, block: int) -> Any:
        return self.X.copy()

    def read_targets(self, block: int) -> Any:
        return self.y.copy()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows() -> None:
    X, y = generated(4000, 6)
    peaks, planned = [], []
    train(EndlessSource(X, y, 2), sigma=3.0)
    for times in (8, 64):
        tracemalloc.start()
        recursion, summary = train(EndlessSource(X, y, times), sigma=3.0)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        source = EndlessSource(X, y, times)
        planned.append(plan_krls(Workload.of(source, 1, 1), None, GIB, 1, len(recursion.dictionary)).needed)
        assert summary["n_rows"] == times * 4000
    # Sums wait for their neighbours, one a level of the tree.
    assert peaks[1] < 1.4 * peaks[0]
    assert all(peak < plan for peak, plan in zip(peaks, planned, strict=True))
    assert planned[0] < 8 * peaks[0]
