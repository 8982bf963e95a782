"""Sparse rows: the bits of dense ones, in memory that does not grow with the columns, or a refusal with its size."""

from __future__ import annotations

import tracemalloc
from copy import copy
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

import distkern as dk
from distkern.storage import ArraySource, source_in_memory
from tests.estimators.fits import assert_equal_models
from tests.scheduler.worker_clusters import cluster

Array = NDArray[Any]
FORMATS = ("csr", "csc", "coo", "lil", "dok", "bsr")


def data(n: int = 150, d: int = 12, dtype: str = "f8") -> tuple[Any, Array]:
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((n, d)) < 0.3, rng.standard_normal((n, d)), 0.0).astype(dtype)
    return sp.csr_array(dense), np.sin(2 * dense[:, 0]) + dense[:, 1] + 0.05 * rng.standard_normal(n)


def wide(n: int, d: int, each: int = 5, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.standard_normal(n * each), rng.integers(0, d, n * each), each * np.arange(n + 1)), (n, d))


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_has_the_bits_of_dense_rows(kind: str) -> None:
    X, y = data()
    dense = dk.OROLSRegressor(max_centers=15).fit(X.toarray(), y)
    rows = X.asformat(kind)
    model = dk.OROLSRegressor(max_centers=15).fit(rows, y)
    assert_equal_models(model, dense)
    np.testing.assert_array_equal(model.predict(rows), dense.predict(X.toarray()))


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "?"])
def test_everything_a_model_does_takes_them(dtype: str) -> None:
    X, y = data(dtype="f4" if dtype == "f4" else "f8")
    X = X.astype(dtype)
    D, labels, weights = X.toarray(), np.where(y > 0.2, "high", "low"), np.random.default_rng(1).uniform(0.5, 2, 150)
    given, dense = (dk.OROLSRegressor(max_centers=12).fit(rows, y, sample_weight=weights) for rows in (X, D))
    assert_equal_models(given, dense)
    np.testing.assert_array_equal(given.predict_interval(X), dense.predict_interval(D))
    np.testing.assert_array_equal(given.predict(X, return_std=True)[1], dense.predict(D, return_std=True)[1])
    np.testing.assert_array_equal(given.transform(X), dense.transform(D))
    assert given.score(X, y) == dense.score(D, y)
    parts = [values for _, values, _ in given.iter_predictions(X)]
    np.testing.assert_array_equal(np.concatenate(parts), dense.predict(D))
    assert given.append(X[:40], y[:40]) == dense.append(D[:40], y[:40])
    for model in (
        dk.NPDClassifier(max_centers=10, fit_intercept=False),
        dk.OROLSClassifier(max_centers=10, class_weight="balanced"),
    ):
        given, dense = (clone(model).fit(rows, labels) for rows in (X, D))
        np.testing.assert_array_equal(given.predict_proba(X), dense.predict_proba(D))
    found = dk.GridSearch(dk.OROLSRegressor(max_centers=5), {"sigma": [1.0, 2.0]}, folds=3).fit(X, y)
    np.testing.assert_array_equal(found.predict(X), found.predict(D))


def test_the_users_matrix_is_not_changed() -> None:
    X, y = data()
    twice = sp.csr_array((np.r_[1.0, 2.0, 3.0], np.r_[1, 1, 0], np.r_[0, 2, 3]), (2, 3))
    source = source_in_memory(twice, np.zeros(2))
    np.testing.assert_array_equal(source.read_features(0), [[0, 3, 0], [3, 0, 0]])
    assert twice.nnz == 3
    np.testing.assert_array_equal(source.read_rows(np.array([1, 0])), [[3, 0, 0], [0, 3, 0]])
    assert source_in_memory(X, y).boundaries == ArraySource(X.toarray(), y).boundaries
    assert source_in_memory(X, y).fingerprint() == source_in_memory(X.tocoo(), y).fingerprint()
    assert source_in_memory(X, y).fingerprint() != source_in_memory(2 * X, y).fingerprint()


def test_wide_rows_take_bounded_memory() -> None:
    n, d = 900, 20_000  # 137 MiB as a dense array
    X = wide(n, d)
    y = np.random.default_rng(1).standard_normal(n)
    model = dk.OROLSRegressor(sigma=3.0, max_centers=8, candidates=16, panel=4, selection_rows=60, intervals=False)
    tracemalloc.start()
    try:
        model.fit(X, y).predict(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 << 20


def test_what_is_too_wide_is_refused_with_its_bytes() -> None:
    X = wide(300, 3_000_000)
    with pytest.raises(dk.BudgetError, match=r"needs \d+\.?\d* GiB .* limit is 1\.0 GiB.*fewer max_centers") as caught:
        dk.OROLSRegressor(max_centers=50, memory_limit="1GiB").fit(X, np.arange(300.0))
    assert caught.value.kind == "memory"


def test_other_methods_still_refuse_them() -> None:
    X, y = data()
    for model in (dk.KRLSRegressor(), dk.LSSVMRegressor()):
        with pytest.raises(dk.DataError, match="sparse"):
            model.fit(X, y)


@pytest.mark.cluster
def test_workers_have_the_bits_of_one_process() -> None:
    X, y = data()
    here = dk.OROLSRegressor(max_centers=12).fit(X, y)
    with cluster(2, processes=True) as client:
        there = copy(here).set_params(client=client).fit(X, y)
    assert_equal_models(there, here)
