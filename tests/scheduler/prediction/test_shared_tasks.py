"""Tests of results that several blocks of a lazy dask array need: computed once, bounded, of the same bits."""

import collections
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest

from distkern import FisherDiscriminant, GridSearch, KRLSRegressor, LazyRowsWarning, LSSVMRegressor, OROLSRegressor
from distkern.scheduler import DaskArraySource, WorkerFacts
from distkern.scheduler.prediction.shared_tasks import SHARED_BYTES, LazyBlocks

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

N_ROWS, N_BLOCKS = 1600, 16
X = np.random.default_rng(0).normal(3.0, 2.0, size=(N_ROWS, 3))
Y = np.sin(X[:, 0])


class Counted:
    """A dask array that counts how often each chunk is computed."""

    def __init__(self, chunks):
        self.counts = collections.Counter()
        lock = threading.Lock()

        def read(rows, block_info=None):
            with lock:
                self.counts[block_info[0]["chunk-location"]] += 1
            return rows

        self.array = da.from_array(X, chunks=chunks).map_blocks(read, dtype=float, meta=np.empty((0, 0)))

    def most(self):
        found, _ = max(self.counts.values()), self.counts.clear()
        return found


def _scaled(raw):
    return (raw - raw.mean(0)) / raw.std(0)


def _twice(raw):
    centred = raw - raw.mean(0)
    return centred / centred.std(0)


ROWS, COLUMNS = (N_ROWS // N_BLOCKS, 3), (N_ROWS, 1)
CASES = {
    "plain": (ROWS, lambda raw: raw, 0),
    "scaled": (ROWS, _scaled, 1),
    "in two steps": (ROWS, _twice, 2),
    "columns": (COLUMNS, lambda raw: raw.rechunk(ROWS), 0),
    "scaled columns": (COLUMNS, lambda raw: _scaled(raw).rechunk(ROWS), 0),
    "other rows": ((70, 3), lambda raw: raw.rechunk(ROWS), 0),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("related", [False, True])
def test_each_chunk_is_computed_once_a_pass_and_once_before(name, related):
    chunks, build, before = CASES[name]
    counted = Counted(chunks)
    rows = build(counted.array)
    targets = rows[:, 0] * 2 if related else Y
    model = OROLSRegressor(sigma=2.0, max_centers=8).fit(rows, targets)
    assert counted.most() <= model.summary_["passes"] + before
    parts = [part for _, part, _ in model.iter_predictions(rows)]
    assert counted.most() <= 1 + before
    np.testing.assert_array_equal(np.concatenate(parts), model.predict(rows.compute()))


@pytest.mark.parametrize("name", CASES)
def test_sources_know_whether_results_are_kept(name):
    chunks, build, _ = CASES[name]
    counted = Counted(chunks)
    source = DaskArraySource(build(counted.array), Y)
    for _ in range(2):
        assert source.lazy_results == (0 if name == "plain" else SHARED_BYTES)
        assert bool(counted.counts) is (_ == 1)
        source.read_features(0)


@pytest.mark.parametrize("estimator", [OROLSRegressor, KRLSRegressor, LSSVMRegressor, FisherDiscriminant])
@pytest.mark.parametrize("facts", [None, WorkerFacts(2, 1, None, True), WorkerFacts(2, 1, None, False)])
def test_plans_count_the_results_that_are_kept(estimator, facts):
    model = estimator()
    work = model.shapes(DaskArraySource(_scaled(Counted(ROWS).array), Y))
    with_results, without = (model.plan(replace(work, lazy_results=size), facts) for size in (SHARED_BYTES, 0))
    assert work.lazy_results == SHARED_BYTES == with_results.terms["lazy_results"]
    assert with_results.driver_peak - without.driver_peak == SHARED_BYTES
    assert [process.fixed - SHARED_BYTES for process in with_results.processes] == [
        process.fixed for process in without.processes
    ]


@pytest.mark.parametrize("name", CASES)
def test_blocks_have_the_bits_of_the_whole_array(name):
    chunks, build, _ = CASES[name]
    rows = build(Counted(chunks).array)
    source = DaskArraySource(rows, rows[:, 1], abs(rows[:, 2]))
    whole = rows.compute()
    for block in (5, 0, N_BLOCKS - 1, 5):
        span = slice(*source.boundaries[block : block + 2])
        np.testing.assert_array_equal(source.read_features(block), whole[span])
        np.testing.assert_array_equal(source.read_targets(block), whole[span, 1])
        np.testing.assert_array_equal(source.read_weights(block), np.abs(whole[span, 2]))
    np.testing.assert_array_equal(source.read_targets(2), whole[source.boundaries[2] : source.boundaries[3], 1])


@pytest.mark.parametrize("scaled", [False, True])
def test_partitions_of_frames_are_computed_once_a_pass_and_twice_before(scaled):
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    counts, lock = collections.Counter(), threading.Lock()

    @dask.delayed
    def part(number):
        with lock:
            counts[number] += 1
        rows = slice(number * 100, (number + 1) * 100)
        return pandas.DataFrame(X[rows], columns=list("abc")).assign(y=Y[rows])

    frame = frames.from_delayed([part(number) for number in range(N_BLOCKS)], meta=part(0).compute(), verify_meta=False)
    if scaled:
        frame = frame.assign(**{name: (frame[name] - frame[name].mean()) / frame[name].std() for name in "abc"})
    counts.clear()
    model = OROLSRegressor(sigma=2.0, max_centers=8).fit(frame[list("abc")], frame["y"])
    assert max(counts.values()) <= model.summary_["passes"] + 1 + scaled
    counts.clear()
    list(model.iter_predictions(frame[list("abc")]))
    assert max(counts.values()) <= 2


def test_searches_and_streams_compute_each_chunk_a_bounded_number_of_times():
    counted = Counted(ROWS)
    search = GridSearch(OROLSRegressor(max_centers=4), {"sigma": [1.0, 2.0]}, folds=2).fit(_twice(counted.array), Y)
    assert counted.most() <= search.passes_ + search.best_estimator_.summary_["passes"] + 2
    rows = _scaled(counted.array)
    KRLSRegressor(sigma=2.0).partial_fit(rows, Y)
    assert counted.most() <= 3


@pytest.mark.parametrize(("name", "warned"), [("columns", True), ("scaled columns", True), ("scaled", False)])
def test_shared_results_that_are_too_large_are_not_kept_and_warned_of(monkeypatch, name, warned):
    chunks, build, _ = CASES[name]
    rows = build(Counted(chunks).array)
    monkeypatch.setattr(LazyBlocks.__init__, "__defaults__", (1000,))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        blocks = LazyBlocks({"X": rows}, {"X": [(rows.name, block, 0) for block in range(N_BLOCKS)]})
        found = np.concatenate([blocks.compute(block, ["X"])[0] for block in range(N_BLOCKS)])
    np.testing.assert_array_equal(found, rows.compute())
    assert [item.category for item in caught] == [LazyRowsWarning] * warned
    assert not warned or ("persist()" in str(caught[0].message) and f"up to {N_BLOCKS} times" in str(caught[0].message))


@pytest.mark.parametrize("value", [(len, "abc"), ["abc"], {"a": 3}, "abc"])
def test_a_kept_result_that_looks_like_a_task_stays_a_value(value):
    kept = dask.delayed(lambda: value, traverse=False)()

    def add(block, found):
        assert found == value
        return block + 1

    rows = da.from_array(X, chunks=ROWS).map_blocks(add, kept, dtype=float)
    source = DaskArraySource(rows, Y)
    np.testing.assert_array_equal(source.read_features(3), X[300:400] + 1)


def test_chunks_without_rows_are_passed_over():
    rows = da.concatenate([da.from_array(X[:100], chunks=50), da.empty((0, 3)), da.from_array(X[100:160], chunks=60)])
    source = DaskArraySource(_scaled(rows), da.from_array(Y[:160], chunks=160))
    assert source.boundaries == (0, 50, 100, 160)
    np.testing.assert_array_equal(source.read_features(2), _scaled(rows).compute()[100:])
    np.testing.assert_array_equal(source.read_targets(2), Y[100:160])
