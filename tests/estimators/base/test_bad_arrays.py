"""Bad arrays handed to estimators: each is refused with its kind and its place, whatever container it comes in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import zarr
from sklearn.base import is_classifier

import distkern as dk
from tests.estimators.fits import fitted

Array = np.ndarray[Any, Any]

N = 24
X = np.random.default_rng(0).standard_normal((N, 2))
Y = X[:, 0] - 0.3
LABELS = (Y > 0).astype(int)
HOLE = np.where(np.arange(2 * N).reshape(N, 2) == 7, np.nan, X)
REGRESSOR, CLASSIFIER = dk.OROLSRegressor, dk.OROLSClassifier


@dataclass(frozen=True)
class Bad:
    """Arguments of `fit`, and what is said about them."""

    arguments: Callable[[], tuple[Any, ...]]
    kind: str
    words: tuple[str, ...]
    cls: Any = REGRESSOR


def stored(values: Any, **options: Any) -> zarr.Array[Any]:
    values = np.asarray(values)
    array = zarr.create_array(
        zarr.storage.MemoryStore(), shape=values.shape, dtype=values.dtype, **{"chunks": values.shape, **options}
    )
    array[...] = values
    return array


def unknown(values: Any) -> Any:
    """A dask array whose chunk sizes are not known."""
    array = da.from_array(values, chunks=5)
    return array[da.from_array(np.ones(len(values), dtype=bool), chunks=5)]


def put(values: Any, row: int, value: Any) -> Any:
    changed = np.array(values)
    changed[row] = value
    return changed


def objects(*values: Any) -> Any:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(columns)


FEATURES: dict[str, Bad] = {
    "nothing": Bad(lambda: (None, Y), "invalid-input", ("X is None",)),
    "a word": Bad(lambda: ("data.csv", Y), "invalid-input", ("data.csv",)),
    "one number": Bad(lambda: (3.0, Y), "invalid-input", ("X is 3.0",)),
    "one dimension": Bad(lambda: (X[:, 0], Y), "invalid-input", ("(24,)", "Reshape")),
    "three dimensions": Bad(lambda: (X[:, :, None], Y), "invalid-input", ("(24, 2, 1)",)),
    "no rows": Bad(lambda: (X[:0], Y[:0]), "invalid-input", ("0 sample",)),
    "one row": Bad(lambda: (X[:1], Y[:1]), "invalid-input", ("1 sample",)),
    "two rows": Bad(lambda: (X[:2], Y[:2]), "too-few-rows", ("2 rows", "at least 3")),
    "no columns": Bad(lambda: (X[:, :0], Y), "invalid-input", ("0 feature",)),
    "rows of different lengths": Bad(
        lambda: ([[1.0, 2.0], [3.0]], [1.0, 2.0]), "shape-mismatch", ("row 0 has 2", "row 1")
    ),
    "text": Bad(lambda: (X.astype(str).astype(object) + "a", Y), "not-numeric", ("a'", "row 0", "column 0")),
    "objects that are no numbers": Bad(
        lambda: (objects(*[[1, {}]] * N).reshape(N, 1), Y), "not-numeric", ("[1, {}] (list)", "row 0")
    ),
    "complex numbers": Bad(lambda: (X + 1j, Y), "not-numeric", ("X has dtype complex128",)),
    "dates": Bad(lambda: (X.astype("datetime64[s]"), Y), "not-numeric", ("X has dtype datetime64",)),
    "records": Bad(lambda: (np.zeros((N, 1), dtype=[("a", "f8")]), Y), "not-numeric", ("X has dtype",)),
    "a sparse matrix with a hole": Bad(
        lambda: (scipy.sparse.csr_matrix(HOLE), Y), "not-finite", ("X holds nan", "row 3", "column 1")
    ),
    "a sparse matrix of complex numbers": Bad(
        lambda: (scipy.sparse.coo_array(X + 1j), Y), "not-numeric", ("X has dtype complex128",)
    ),
    "NaN": Bad(lambda: (HOLE, Y), "not-finite", ("X holds NaN", "row 3", "column 1")),
    "infinity in float32": Bad(lambda: (put(X, 5, np.inf).astype("f4"), Y), "not-finite", ("X holds inf", "row 5")),
    "minus infinity in integers' company": Bad(
        lambda: ([[1, 2], [3, -np.inf], [4, 5]], Y[:3]), "not-finite", ("row 1",)
    ),
    "a frame with a hole": Bad(lambda: (frame(a=X[:, 0], b=HOLE[:, 1]), Y), "not-finite", ("row 3", "column 1")),
    "a frame with text beside numbers": Bad(
        lambda: (frame(a=X[:, 0], b=["p", 1.0] * (N // 2)), Y), "not-numeric", ("'p'", "row 0", "column 'b'")
    ),
    "a frame with durations": Bad(
        lambda: (frame(a=X[:, 0], b=pd.timedelta_range("1D", periods=N)), Y), "not-numeric", ("column 'b'", "timedelta")
    ),
    "a frame with pandas' missing value": Bad(
        lambda: (frame(a=pd.array([1, None] * (N // 2), dtype="Int64"), b=X[:, 1]), Y), "not-finite", ("NaN", "row 1")
    ),
    "columns that are all constant": Bad(lambda: (np.ones((N, 3)), Y), "constant-features", ("3 features",)),
    "masked numbers": Bad(lambda: (np.ma.masked_invalid(HOLE), Y), "not-finite", ("row 3", "column 1")),
    "an iterator": Bad(lambda: (iter(X), Y), "invalid-input", ("iterator",)),
    "a set": Bad(lambda: ({1, 2}, Y), "invalid-input", ()),
}

TARGETS: dict[str, Bad] = {
    "no target": Bad(lambda: (X, None), "invalid-input", ("y",)),
    "another length": Bad(lambda: (X, Y[1:]), "shape-mismatch", ("24", "23")),
    "one number for all": Bad(lambda: (X, 3.0), "shape-mismatch", ("y has shape ()",)),
    "three dimensions of targets": Bad(lambda: (X, Y[:, None, None]), "shape-mismatch", ("(24, 1, 1)",)),
    "no columns of targets": Bad(lambda: (X, np.empty((N, 0))), "shape-mismatch", ("(24, 0)",)),
    "text for a regressor": Bad(lambda: (X, np.full(N, "a")), "not-numeric", ("y has dtype",)),
    "dates for a regressor": Bad(
        lambda: (X, LABELS.astype("datetime64[s]")), "not-numeric", ("y has dtype datetime64",)
    ),
    "complex targets": Bad(lambda: (X, Y + 1j), "not-numeric", ("y has dtype complex128",)),
    "NaN in y": Bad(lambda: (X, put(Y, 4, np.nan)), "not-finite", ("y holds NaN", "row 4")),
    "infinity in y": Bad(lambda: (X, put(Y, 4, -np.inf)), "not-finite", ("y holds -inf", "row 4")),
    "None in y": Bad(lambda: (X, objects(*Y[:-1], None)), "not-finite", ("y holds None", "row 23")),
    "NaN among several targets": Bad(
        lambda: (X, np.column_stack([Y, put(Y, 9, np.nan)])), "not-finite", ("y holds NaN", "row 9", "column 1")
    ),
    "targets of different lengths": Bad(
        lambda: (X, [[1.0]] * (N - 1) + [[1.0, 2.0]]), "shape-mismatch", ("y is no array",)
    ),
    "sparse targets": Bad(lambda: (X, scipy.sparse.csr_matrix(Y[:, None])), "invalid-input", ("y is sparse",)),
    "one class": Bad(lambda: (X, np.full(N, "p")), "one-class", ("one class", "'p'"), CLASSIFIER),
    "one class with weight": Bad(lambda: (X, LABELS, LABELS), "one-class", ("one class", "(1)"), CLASSIFIER),
    "numbers for a classifier": Bad(lambda: (X, Y), "invalid-target", ("continuous",), CLASSIFIER),
    "NaN as label": Bad(lambda: (X, put(LABELS.astype(float), 4, np.nan)), "not-finite", ("row 4",), CLASSIFIER),
    "None as label": Bad(
        lambda: (X, objects(*["p", "q"] * (N // 2 - 1), "p", None)), "missing-label", ("row 23",), CLASSIFIER
    ),
    "labels of two types": Bad(lambda: (X, objects(*["p", 1] * (N // 2))), "mixed-labels", ("int", "str"), CLASSIFIER),
    "two columns of labels": Bad(
        lambda: (X, np.column_stack([LABELS, LABELS])), "shape-mismatch", ("2 columns",), CLASSIFIER
    ),
    "bytes that are no text": Bad(
        lambda: (X, np.where(LABELS, b"\xff", b"a")), "invalid-target", ("bytes",), CLASSIFIER
    ),
    "dates as labels": Bad(lambda: (X, LABELS.astype("datetime64[s]")), "not-numeric", ("datetime64",), CLASSIFIER),
    "a list as label": Bad(lambda: (X, objects(*[[1], [2]] * (N // 2))), "mixed-labels", ("list",), CLASSIFIER),
    "another number of labels": Bad(lambda: (X, LABELS[1:]), "shape-mismatch", ("24", "23"), CLASSIFIER),
    "no label": Bad(lambda: (X, None), "invalid-input", ("y",), CLASSIFIER),
}

WEIGHTS: dict[str, Bad] = {
    "a weight below zero": Bad(lambda: (X, Y, put(np.ones(N), 6, -1.0)), "invalid-weights", ("-1.0", "row 6")),
    "a weight that is NaN": Bad(lambda: (X, Y, put(np.ones(N), 6, np.nan)), "invalid-weights", ("nan", "row 6")),
    "a weight without end": Bad(lambda: (X, Y, put(np.ones(N), 6, np.inf)), "invalid-weights", ("inf", "row 6")),
    "another number of weights": Bad(lambda: (X, Y, np.ones(7)), "shape-mismatch", ("24 rows", "sample_weight has 7")),
    "two columns of weights": Bad(lambda: (X, Y, np.ones((N, 2))), "shape-mismatch", ("sample_weight has shape",)),
    "weight for one row": Bad(lambda: (X, Y, np.eye(N)[3]), "too-few-rows", ("1 of 24 rows can train",)),
    "no weight at all": Bad(lambda: (X, Y, np.zeros(N)), "too-few-rows", ("sample_weight is zero",)),
    "weights that sum to little": Bad(lambda: (X, Y, np.full(N, 1e-200)), "underflow", ("2.4e-199", "1e-100")),
    "weight for hardly more than one row": Bad(
        lambda: (X, Y, put(np.full(N, 1e-9), 3, 1.0)), "weight-sum", ("count as 1.001", "more than 2")
    ),
    "weights that sum to too much": Bad(lambda: (X, Y, np.full(N, 1e200)), "overflow", ("sample_weight", "1e+100")),
    "words as weights": Bad(lambda: (X, Y, np.full(N, "heavy")), "not-numeric", ("sample_weight",)),
    "complex weights": Bad(lambda: (X, Y, np.ones(N) + 1j), "not-numeric", ("sample_weight", "complex")),
    "objects as weights": Bad(
        lambda: (X, Y, objects(*[None] * N)), "not-finite", ("sample_weight holds None", "row 0")
    ),
}

CONTAINERS: dict[str, Bad] = {
    "zarr: NaN": Bad(lambda: (stored(HOLE, chunks=(5, 1)), Y), "not-finite", ("X holds NaN", "row 3", "column 1")),
    "zarr: no rows": Bad(lambda: (stored(X[:0], chunks=(1, 2)), Y[:0]), "too-few-rows", ("X has 0 rows",)),
    "zarr: no columns": Bad(lambda: (stored(X[:, :0], chunks=(5, 1)), Y), "zero-features", ("X has 0 features",)),
    "zarr: one dimension": Bad(lambda: (stored(X[:, 0]), Y), "shape-mismatch", ("X has shape (24,)",)),
    "zarr: complex": Bad(lambda: (stored(X + 1j), Y), "not-numeric", ("X has dtype complex128",)),
    "zarr: dates": Bad(lambda: (stored(X.astype("datetime64[s]")), Y), "not-numeric", ("X has dtype datetime64",)),
    "zarr: dates as targets": Bad(
        lambda: (stored(X), stored(LABELS.astype("datetime64[s]"))), "not-numeric", ("y has dtype datetime64",)
    ),
    "zarr: y in memory of another length": Bad(lambda: (stored(X), Y[1:]), "shape-mismatch", ("24 rows", "y has 23")),
    "zarr: no y": Bad(lambda: (stored(X), None), "target", ("y is missing",)),
    "zarr: text as targets": Bad(lambda: (stored(X), np.full(N, "a")), "not-numeric", ("y",)),
    "zarr: weights of another length": Bad(
        lambda: (stored(X), stored(Y), stored(np.ones(7))), "shape-mismatch", ("sample_weight has 7",)
    ),
    "zarr: a weight below zero": Bad(
        lambda: (stored(X, chunks=(5, 2)), Y, stored(put(np.ones(N), 16, -1.0))), "invalid-weights", ("-1.0", "row 16")
    ),
    "zarr: one class": Bad(lambda: (stored(X), np.full(N, 3)), "one-class", ("one class", "3"), CLASSIFIER),
    "zarr: numbers for a classifier": Bad(
        lambda: (stored(X), stored(Y)), "continuous-target", ("continuous",), CLASSIFIER
    ),
    "dask: unknown chunk sizes": Bad(lambda: (unknown(X), Y), "unknown-chunks", ("X is", "compute_chunk_sizes")),
    "dask: unknown chunk sizes of y": Bad(
        lambda: (da.from_array(X), unknown(Y)), "unknown-chunks", ("y is", "compute_chunk_sizes")
    ),
    "dask: NaN": Bad(
        lambda: (da.from_array(HOLE, chunks=(5, 1)), Y), "not-finite", ("X holds NaN", "row 3", "column 1")
    ),
    "dask: no rows": Bad(lambda: (da.from_array(X[:0]), Y[:0]), "too-few-rows", ("X has 0 rows",)),
    "dask: no columns": Bad(lambda: (da.from_array(X[:, :0]), Y), "zero-features", ("X has 0 features",)),
    "dask: one dimension": Bad(lambda: (da.from_array(X[:, 0]), Y), "shape-mismatch", ("(24,)", "two dimensions")),
    "dask: complex": Bad(lambda: (da.from_array(X + 1j), Y), "not-numeric", ("X has dtype complex128",)),
    "dask: text": Bad(lambda: (da.from_array(X.astype("U8")), Y), "not-numeric", ("X has dtype",)),
    "dask: objects": Bad(
        lambda: (da.from_array(X.astype(object), chunks=5), Y), "not-numeric", ("X has dtype object",)
    ),
    "dask: another length": Bad(lambda: (da.from_array(X), Y[1:]), "shape-mismatch", ("24 rows", "y has 23")),
    "dask: no y": Bad(lambda: (da.from_array(X), None), "target", ("y",)),
    "dask: a weight below zero": Bad(
        lambda: (da.from_array(X), Y, put(np.ones(N), 9, -1.0)), "invalid-weights", ("-1.0", "row 9")
    ),
    "dask: two columns of weights": Bad(
        lambda: (da.from_array(X), Y, np.ones((N, 1))), "shape-mismatch", ("sample_weight has shape",)
    ),
    "dask: words as weights": Bad(lambda: (da.from_array(X), Y, np.full(N, "a")), "not-numeric", ("sample_weight",)),
    "dask: one number for all": Bad(lambda: (da.from_array(X), 3.0), "shape-mismatch", ("y has shape ()",)),
    "dask: one class": Bad(lambda: (da.from_array(X), np.full(N, 3)), "one-class", ("one class", "3"), CLASSIFIER),
    "dask: a graph that fails": Bad(
        lambda: (da.from_array(X, chunks=6).map_blocks(lambda block: 1 // 0, dtype=float), Y),
        "unreadable",
        ("division",),
    ),
}

FITS = {**FEATURES, **TARGETS, **WEIGHTS, **CONTAINERS}

ROWS: dict[str, tuple[Callable[[], Any], str, tuple[str, ...]]] = {
    "too few features": (lambda: X[:, :1], "feature-count", ("1 features", "2 features")),
    "too many features": (lambda: np.ones((3, 5)), "feature-count", ("5 features", "2 features")),
    "one dimension": (lambda: X[0], "invalid-input", ("(2,)", "Reshape")),
    "no rows": (lambda: X[:0], "invalid-input", ("0 sample",)),
    "NaN": (lambda: HOLE, "not-finite", ("X holds NaN", "row 3", "column 1")),
    "text": (lambda: np.full((3, 2), "a"), "not-numeric", ("'a'", "row 0", "column 0")),
    "a sparse matrix with a hole": (lambda: scipy.sparse.csr_matrix(HOLE), "not-finite", ("row 3", "column 1")),
    "a sparse matrix of other columns": (lambda: scipy.sparse.coo_array(np.ones((3, 5))), "feature-count", ("5", "2")),
    "a sparse matrix without rows": (lambda: scipy.sparse.csr_matrix((0, 2)), "invalid-input", ("0 sample",)),
    "zarr: too many features": (lambda: stored(np.ones((3, 5))), "feature-count", ("5 features", "2")),
    "zarr: one dimension": (lambda: stored(X[:, 0]), "feature-count", ("(24,)",)),
    "zarr: NaN": (lambda: stored(HOLE, chunks=(5, 1)), "not-finite", ("X holds NaN", "row 3", "column 1")),
    "zarr: text": (lambda: stored(X.astype("datetime64[s]")), "not-numeric", ("X has dtype datetime64",)),
    "dask: too many features": (lambda: da.ones((3, 5)), "feature-count", ("5", "2")),
    "dask: one dimension": (lambda: da.ones(5), "feature-count", ("(5,)",)),
}


def test_there_are_enough_of_them() -> None:
    assert len(FITS) == len(FEATURES) + len(TARGETS) + len(WEIGHTS) + len(CONTAINERS)
    assert len(FITS) + len(ROWS) >= 80


@pytest.mark.parametrize("name", FITS)
def test_fit_refuses(name: str, tmp_path: Path) -> None:
    case = FITS[name]
    assert is_classifier(case.cls()) == (case.cls is CLASSIFIER)
    model = case.cls(max_centers=5, run_dir=tmp_path / "run")
    started = monotonic()
    with pytest.raises(dk.DataError) as caught:
        model.fit(*case.arguments())
    assert monotonic() - started < 10
    assert caught.value.kind == case.kind, caught.value
    for word in case.words:
        assert word in str(caught.value)
    assert not hasattr(model, "coef_")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ROWS)
def test_predict_refuses(name: str) -> None:
    make, kind, words = ROWS[name]
    model = fitted(REGRESSOR)
    with pytest.raises(dk.DataError) as caught:
        np.asarray(model.predict(make()))
    assert caught.value.kind == kind, caught.value
    for word in words:
        assert word in str(caught.value)
