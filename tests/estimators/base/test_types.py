"""Every container x type x entry: the values of plain numpy arrays, or a `DataError` that names what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
import zarr

import distkern as dk
from distkern.storage import ingest
from tests.markers import marked, variants

Array = np.ndarray[Any, Any]

N = 24
ROW = 17
"""Row of the one bad entry, which is in the second column and the second block."""

_X = np.round(np.random.default_rng(0).standard_normal((N, 2)) * 4)
_Y = _X[:, 0] - 0.3 * _X[:, 1]
_LABELS = (_Y > 0).astype(np.int64)


def put(values: Array, value: Any) -> Array:
    changed = np.array(values)
    changed[ROW, 1] = value
    return changed


def masked(values: Array) -> Any:
    array = np.ma.array(values.copy(), mask=np.zeros(values.shape, bool))
    array[(ROW, 1) if values.ndim == 2 else ROW] = np.ma.masked
    array.data[(ROW, 1) if values.ndim == 2 else ROW] = 99
    return array


VALUES: dict[str, Any] = {
    **{name: _X.astype(name) for name in ("float64", "float32", "float16", "int8", "int64", ">f8", ">i4")},
    "uint8": np.abs(_X).astype(np.uint8),
    "bool": _X > 0,
    "longdouble": _X.astype(np.longdouble),
    "objects": _X.astype(object),
}
"""Types whose numbers are trained on."""

DTYPES: dict[str, Any] = {
    "text": np.full((N, 2), "many"),
    "StringDType": np.full((N, 2), "many", dtype=np.dtypes.StringDType()),
    "datetime64": _X.astype("datetime64[s]"),
    "timedelta64": _X.astype("timedelta64[s]"),
    "complex": _X + 1j,
}
"""Types that are refused."""

ENTRIES_OF_X: dict[str, Any] = {
    "NaN": put(_X, np.nan),
    "NaN in float32": put(_X.astype("f4"), np.nan),
    "infinity": put(_X, np.inf),
    "None": put(_X.astype(object), None),
    "NA": put(_X.astype(object), pd.NA),
    "masked": masked(_X),
}
"""Types with one bad entry."""

TYPES = {**VALUES, **DTYPES, **ENTRIES_OF_X}


def stored(values: Any, chunk: int = 12) -> Any:
    array = zarr.create_array(
        zarr.storage.MemoryStore(), shape=values.shape, dtype=values.dtype, chunks=(chunk, *values.shape[1:])
    )
    array[...] = values
    return array


def frame(values: Any) -> pd.DataFrame:
    return pd.DataFrame({"a": values[:, 0], "b": values[:, 1]})


def lazy(values: Any) -> Any:
    return da.from_array(values, chunks=(12, *values.shape[1:]), asarray=False)


X_CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda values: values,
    "list": lambda values: [list(row) for row in values],
    "masked": np.ma.array,
    "pandas": frame,
    "dask": lazy,
    "dask frame": lambda values: dd.from_pandas(frame(values), npartitions=2),
    "xarray": lambda values: xr.DataArray(values, dims=("row", "feature")),
    "xarray on dask": lambda values: xr.DataArray(lazy(values), dims=("row", "feature")),
    "zarr": stored,
}


def possible(container: str, kind: str) -> bool:
    """Return whether a container can hold a type."""
    dtype = TYPES[kind].dtype
    if container == "zarr":
        return dtype.kind not in "O" and dtype != np.longdouble and not np.ma.isMaskedArray(TYPES[kind])
    if container in ("pandas", "dask frame"):
        # pandas itself turns what is masked into NaN, and texts into its own.
        return dtype != np.dtypes.StringDType() and dtype.byteorder != ">" and dtype != np.longdouble
    return not (container == "masked" and kind == "StringDType") and not ("dask" in container and kind == "StringDType")


def accepted(entry: str, container: str, kind: str) -> bool:
    """Return whether the numbers are used: what is declared as objects in a lazy container may be anything."""
    return kind in VALUES and not (kind == "objects" and "dask" in container and entry != "write_dataset")


@cache
def regressor() -> Any:
    return dk.OROLSRegressor(max_centers=3, sigma=2.0).fit(_X, _Y)


@cache
def classifier() -> Any:
    return dk.OROLSClassifier(max_centers=3, sigma=2.0).fit(_X, _LABELS)


def searched(X: Any, y: Any) -> Any:
    return dk.GridSearch(dk.OROLSRegressor(max_centers=2, sigma=2.0), {"sigma": [2.0]}, folds=2).fit(X, y)


X_ENTRIES: dict[str, Callable[[Any, Path], Any]] = {
    "fit": lambda X, _: dk.OROLSRegressor(max_centers=3, sigma=2.0).fit(X, _Y).predict(_X),
    "partial_fit": lambda X, _: dk.KRLSRegressor(nu=0.1, sigma=2.0).partial_fit(X, _Y).predict(_X),
    "search": lambda X, _: searched(X, _Y).predict(_X),
    "predict": lambda X, _: regressor().predict(X),
    "predict labels": lambda X, _: classifier().predict(X),
    "predict_proba": lambda X, _: classifier().predict_proba(X),
    "decision_function": lambda X, _: classifier().decision_function(X),
    "iter_predictions": lambda X, _: np.concatenate([part for _, part, _ in regressor().iter_predictions(X)]),
    "score": lambda X, _: regressor().score(X, _Y),
    "score of labels": lambda X, _: classifier().score(X, _LABELS),
    "transform": lambda X, _: regressor().transform(X),
    "write_dataset": lambda X, tmp: dk.write_dataset(tmp / "d", X, _Y).X[:].astype(float),
}


@cache
def expected(entry: str, kind: str, tmp: Path) -> Any:
    return np.asarray(X_ENTRIES[entry](TYPES[kind].astype(np.float64), tmp / f"{entry} {kind}"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("types")


FITS = ("fit", "partial_fit", "search", "transform", "write_dataset")
"""Entries that take longer: a sample of their cases always, and all of them at night."""


def feature_cases() -> list[Any]:
    pairs = [(container, kind) for container in X_CONTAINERS for kind in TYPES if possible(container, kind)]
    encoded = {("pandas", kind) for kind in ("text", "datetime64")}
    encoded |= {("dask frame", kind) for kind in ("text", "datetime64", "objects", "None", "NA")}
    """Columns that a fit and a store encode as those of a raw table, see `test_raw_frames`."""
    others = [entry for entry in X_ENTRIES if entry not in FITS]
    always = [(others[place % len(others)], *pair) for place, pair in enumerate(pairs)]
    # 7 and the number of entries have no common factor, so every entry meets every container and type.
    always += [(FITS[place % len(FITS)], *pair) for place, pair in enumerate(pairs) if place % 7 == 0]
    every = [(entry, *pair) for entry in X_ENTRIES for pair in pairs]
    fits = ("fit", "partial_fit", "search", "write_dataset")
    kept = [[case for case in cases if case[0] not in fits or case[1:] not in encoded] for cases in (always, every)]
    return variants(*kept)


@pytest.mark.filterwarnings("ignore:X ", "ignore:.*converting a masked element", "ignore:.*Zarr V3 specification")
@pytest.mark.parametrize(("entry", "container", "kind"), feature_cases())
def test_features(entry: str, container: str, kind: str, tmp_path: Path, folder: Path) -> None:
    X = X_CONTAINERS[container](TYPES[kind])
    if accepted(entry, container, kind):
        found = np.asarray(X_ENTRIES[entry](X, tmp_path))
        np.testing.assert_allclose(found, expected(entry, kind, folder), rtol=1e-9, atol=1e-12)
        return
    with pytest.raises(dk.DataError) as caught:
        np.asarray(X_ENTRIES[entry](X, tmp_path))
    said = str(caught.value)
    assert "X" in said
    if kind in ENTRIES_OF_X and kind not in ("None", "NA"):
        assert f"row {ROW} (counted" in said or container == "dask frame", said
        assert "column 1" in said or "column 'b'" in said, said
    elif "frame" in container or container == "pandas":
        assert "column '" in said, said
    else:
        assert "dtype" in said or " holds " in said, said
    assert not (tmp_path / "d").exists()


LABELS: dict[str, Any] = {
    "bool": _LABELS > 0,
    **{name: _LABELS.astype(name) for name in ("int8", "int64", "uint8", "float32", "float64", ">i4")},
    "text": np.array(["no", "yes"])[_LABELS],
    "text objects": np.array(["no", "yes"])[_LABELS].astype(object),
    "StringDType": np.array(["no", "yes"])[_LABELS].astype(np.dtypes.StringDType()),
    "bool objects": (_LABELS > 0).astype(object),
    "nullable bool": pd.array(_LABELS > 0, dtype="boolean"),
    "nullable integers": pd.array(_LABELS, dtype="Int64"),
    "nullable text": pd.array(np.array(["no", "yes"])[_LABELS].astype(object), dtype="string"),
    "category": pd.Categorical(np.array(["no", "yes"])[_LABELS], categories=["yes", "never", "no"]),
}


def hole(values: Any, value: Any) -> Any:
    changed = np.array(values, dtype=object)
    changed[ROW] = value
    return changed


BAD_LABELS: dict[str, Any] = {
    "None": hole(LABELS["text"], None),
    "NA": hole(LABELS["text"], pd.NA),
    "NA among bools": hole(LABELS["bool"], pd.NA),
    "NaN": hole(LABELS["text"], np.nan),
    "NaN among floats": hole(LABELS["float64"], np.nan).astype(float),
    "StringDType with NA": hole(LABELS["text"], None).astype(np.dtypes.StringDType(na_object=None)),
    "nullable bool with NA": pd.array(hole(LABELS["bool"], pd.NA), dtype="boolean"),
    "nullable integers with NA": pd.array(hole(LABELS["int64"], pd.NA), dtype="Int64"),
    "masked": masked(LABELS["int64"]),
    "dates": LABELS["int64"].astype("datetime64[s]"),
    "durations": LABELS["int64"].astype("timedelta64[s]"),
    "duration objects": LABELS["int64"].astype("timedelta64[s]").astype(object),
    "complex": LABELS["int64"] + 1j,
    "two types": hole(LABELS["text"], 3),
}

Y_CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda values: values if isinstance(values, np.ndarray) else np.asarray(values),
    "list": list,
    "masked": lambda values: np.ma.array(values) if not np.ma.isMaskedArray(values) else values,
    "pandas": pd.Series,
    "dask": lazy,
    "dask series": lambda values: dd.from_pandas(pd.Series(values), npartitions=2),
    "xarray": lambda values: xr.DataArray(values, dims="row"),
    "zarr": stored,
}


def can_hold(container: str, values: Any) -> bool:
    if not isinstance(values, np.ndarray):
        return container in ("numpy", "list", "pandas", "dask series")
    if values.dtype.kind == "T":
        return container in ("numpy", "list", "zarr") and not (container == "zarr" and None in values.tolist())
    if np.ma.isMaskedArray(values):
        return container in ("numpy", "list", "masked", "dask")
    if container == "dask series" and (values.dtype.kind in "Mmc" or values.dtype == object):
        return False  # dask itself makes texts of objects
    return container != "zarr" or values.dtype.kind != "O"


Y_ENTRIES: dict[str, Callable[[Any, Path], Any]] = {
    "fit": lambda y, _: dk.OROLSClassifier(max_centers=4, sigma=2.0).fit(_X, y).predict(_X),
    "fit to zarr": lambda y, _: dk.OROLSClassifier(max_centers=4, sigma=2.0).fit(stored(_X), y).predict(_X),
    "fit to dask": lambda y, _: dk.OROLSClassifier(max_centers=4, sigma=2.0).fit(lazy(_X), y).predict(_X),
    "partial_fit": lambda y, _: dk.KRLSClassifier(nu=0.1, sigma=2.0).partial_fit(_X, y).predict(_X),
    "write_dataset": lambda y, tmp: dk.write_dataset(tmp / "d", _X, y, task="classification").targets(),
    "search": lambda y, _: (
        dk.GridSearch(dk.OROLSClassifier(max_centers=4, sigma=2.0), {"sigma": [2.0]}, folds=2).fit(_X, y).predict(_X)
    ),
}


def label_cases(labels: dict[str, Any]) -> list[Any]:
    pairs = [(name, kind) for name in Y_CONTAINERS for kind, values in labels.items() if can_hold(name, values)]
    entries = list(Y_ENTRIES)
    always = [(entries[place % len(entries)], *pair) for place, pair in enumerate(pairs) if place % 5 == 0]
    return variants(always, [(entry, *pair) for entry in entries for pair in pairs])


@pytest.mark.filterwarnings("ignore:.*Zarr V3 specification")
@pytest.mark.parametrize(("entry", "container", "kind"), label_cases(LABELS))
def test_labels(entry: str, container: str, kind: str, tmp_path: Path) -> None:
    y = Y_CONTAINERS[container](LABELS[kind])
    found = np.asarray(Y_ENTRIES[entry](y, tmp_path))
    plain = np.asarray(LABELS[kind])
    # The values are those of the plain labels, not only equal to them: ~ of a bool is a bool.
    assert {type(value) for value in found.tolist()} == {type(value) for value in plain.tolist()}
    assert (found == plain).mean() > 0.8
    if container != "list" and plain.dtype.kind in "biuf":
        assert found.dtype == plain.dtype.newbyteorder("=")


@pytest.mark.filterwarnings("ignore:.*Zarr V3 specification")
@pytest.mark.parametrize(("entry", "container", "kind"), label_cases(BAD_LABELS))
def test_labels_that_are_refused(entry: str, container: str, kind: str, tmp_path: Path) -> None:
    y = Y_CONTAINERS[container](BAD_LABELS[kind])
    with pytest.raises(dk.DataError) as caught:
        Y_ENTRIES[entry](y, tmp_path)
    said = str(caught.value)
    assert "y" in said
    if kind not in ("dates", "durations", "duration objects", "complex", "two types"):
        assert f"row {ROW} (counted" in said, said
    assert not (tmp_path / "d").exists()


@pytest.mark.filterwarnings("ignore:.*Zarr V3 specification")
@pytest.mark.parametrize("container", Y_CONTAINERS)
@pytest.mark.parametrize("kind", LABELS)
def test_scores_of_labels(container: str, kind: str) -> None:
    if not can_hold(container, LABELS[kind]):
        return
    model = classifier()
    wanted = float(np.mean(model.predict(_X) == _LABELS))
    if np.asarray(LABELS[kind]).dtype.kind in "OUT" and "bool" not in kind:
        with pytest.raises(dk.DataError, match="labels of the training"):
            model.score(_X, Y_CONTAINERS[container](LABELS[kind]))
        return
    assert model.score(_X, Y_CONTAINERS[container](LABELS[kind])) == pytest.approx(wanted)


WEIGHTS: dict[str, tuple[Any, str]] = {
    "float32": (np.ones(N, "f4"), ""),
    "integers": (np.ones(N, int), ""),
    "bool": (np.ones(N, bool), ""),
    "objects": (np.ones(N).astype(object), ""),
    "masked": (masked(np.ones(N)), f"row {ROW}"),
    "NA": (hole(np.ones(N), pd.NA), f"row {ROW}"),
    "NaN": (hole(np.ones(N), np.nan).astype(float), f"row {ROW}"),
    "durations": (np.ones(N).astype("timedelta64[s]"), "timedelta64"),
    "complex": (np.ones(N) + 1j, "complex"),
    "text": (np.full(N, "heavy"), "sample_weight"),
}


@pytest.mark.filterwarnings("ignore:.*Zarr V3 specification")
@pytest.mark.parametrize("entry", ["score", pytest.param("fit", marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    ("container", "kind"),
    [(name, kind) for name in Y_CONTAINERS for kind, (values, _) in WEIGHTS.items() if can_hold(name, values)],
)
def test_weights(entry: str, container: str, kind: str) -> None:
    values, words = WEIGHTS[kind]
    weights = Y_CONTAINERS[container](values)
    model = regressor() if entry == "score" else dk.OROLSRegressor(max_centers=3, sigma=2.0)
    call = model.score if entry == "score" else model.fit
    if words:
        with pytest.raises(dk.DataError, match=words):
            call(_X, _Y, sample_weight=weights)
    elif entry == "score":
        assert call(_X, _Y, sample_weight=weights) == pytest.approx(regressor().score(_X, _Y))
    else:
        np.testing.assert_allclose(call(_X, _Y, sample_weight=weights).predict(_X), regressor().predict(_X), rtol=1e-9)


BLOCKS: dict[str, tuple[Callable[[Array], Any], str]] = {
    "fewer rows": (lambda block: block[:5], r"rows .* of X .*\(5, 2\).*\(12, 2\)"),
    "more rows": (lambda block: np.r_[block, block], r"\(24, 2\).*\(12, 2\)"),
    "no rows": (lambda block: block[:0], r"\(0, 2\).*\(12, 2\)"),
    "fewer columns": (lambda block: block[:, :1], r"\(12, 1\).*\(12, 2\)"),
    "more columns": (lambda block: np.c_[block, block], r"\(12, 4\).*\(12, 2\)"),
    "one dimension": (lambda block: block[:, 0], r"\(12,\).*\(12, 2\)"),
    "three dimensions": (lambda block: block[:, :, None], r"\(12, 2, 1\).*\(12, 2\)"),
    "text": (lambda block: block.astype(str), "rows .* of X .*dtype <U.*float64"),
    "complex": (lambda block: block + 1j, "complex128.*float64"),
    "dates": (lambda block: block.astype("M8[s]"), "datetime64.*float64"),
    "masked": (lambda block: np.ma.masked_less(block, 99), "masked in row .*column 0"),
    "sparse": (scipy.sparse.csr_matrix, "rows .* of X .*sparse"),
}


@pytest.mark.parametrize(
    "entry", ["predict", "fit", *marked(pytest.mark.nightly, "partial_fit", "search", "score", "iter_predictions")]
)
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_that_are_not_as_declared(entry: str, name: str, tmp_path: Path) -> None:
    change, words = BLOCKS[name]
    X = lazy(_X).map_blocks(change, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(dk.DataError, match=words):
        np.asarray(X_ENTRIES[entry](X, tmp_path))


@pytest.mark.parametrize("entry", ["fit", "predict", "score"])
@pytest.mark.parametrize("name", ["float32", "bool", "objects", "list"])
def test_blocks_that_hold_the_same_numbers_otherwise(entry: str, name: str, tmp_path: Path) -> None:
    same: dict[str, Callable[[Array], Any]] = {
        "float32": lambda block: block.astype("f4"),
        "bool": lambda block: block > 0,
        "objects": lambda block: block.astype(object),
        "list": lambda block: block.tolist(),
    }
    X = lazy(_X).map_blocks(same[name], dtype=float, meta=np.empty((0, 0)))
    plain = (_X > 0).astype(float) if name == "bool" else _X
    found = np.asarray(X_ENTRIES[entry](X, tmp_path / "a"))
    np.testing.assert_allclose(found, X_ENTRIES[entry](plain, tmp_path / "b"), rtol=1e-9)


@pytest.mark.parametrize("what", ["y", "sample_weight"])
@pytest.mark.parametrize("rows", ["numpy", "dask", "zarr"])
def test_blocks_of_targets_and_weights_are_checked(what: str, rows: str) -> None:
    other = lazy(np.ones(N)).map_blocks(lambda block: block[:5], dtype=float)
    y, weights = (other, None) if what == "y" else (_Y, other)
    with pytest.raises(dk.DataError, match=rf"rows .* of {what} .*\(5,\).*\(12,\)"):
        dk.OROLSRegressor(max_centers=3).fit(X_CONTAINERS[rows](_X), y, sample_weight=weights)


def test_a_partition_with_other_columns_is_refused() -> None:
    given = dd.from_pandas(frame(_X), npartitions=2)
    other = given.map_partitions(lambda part: part[["b", "a"]], meta=given._meta, enforce_metadata=False)
    for call in (lambda: dk.OROLSRegressor().fit(other, _Y), lambda: regressor().predict(other).compute()):
        with pytest.raises(dk.DataError, match="'b', 'a'"):
            call()
    with pytest.raises(dk.DataError, match="cannot be computed"):
        dk.OROLSRegressor().fit(given.map_partitions(lambda part: part[["b", "a"]], meta=given._meta), _Y)


@pytest.mark.parametrize("kind", ["float64", "float32", "int8", "bool", "datetime64", "complex", "NaN", "text"])
def test_arrays_of_files(kind: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=TYPES[kind], y=_LABELS > 0)
    if kind in VALUES:
        data = ingest(tmp_path / "a.npz", tmp_path / "d")
        np.testing.assert_array_equal(data.X[:], TYPES[kind].astype(float))
        assert data.targets().dtype == bool
        return
    with pytest.raises(dk.DataError, match=r"dtype|row 18 "):  # rows of files are counted from 1
        ingest(tmp_path / "a.npz", tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_there_are_enough_cases() -> None:
    cases = [*feature_cases(), *label_cases(LABELS), *label_cases(BAD_LABELS)]
    assert len(cases) >= 1000
    assert sum(isinstance(case, tuple) for case in cases) >= 250


def test_text_in_blocks_of_several_widths_is_not_cut() -> None:
    words = np.array(["a", "bbbb"])[_LABELS]
    narrow = da.from_array(_LABELS, chunks=12).map_blocks(lambda block: np.array(["a", "bbbb"])[block], dtype="U1")
    with pytest.raises(dk.DataError, match=r"rows .* of y .*dtype <U4, but the array declares <U1"):
        dk.OROLSClassifier(max_centers=4).fit(_X, narrow)
    some = da.from_array(_LABELS, chunks=12).map_blocks(lambda block: np.array(["a", "bbbb"])[block], dtype=str)
    for X in (_X, lazy(_X), stored(_X)):
        assert dk.OROLSClassifier(max_centers=4).fit(X, some).classes_.tolist() == np.unique(words).tolist()


def test_a_hole_in_the_last_partition_is_no_label() -> None:
    """dask joins blocks in the dtype of the first, where NaN would become an integer."""
    y = dd.from_pandas(pd.Series(BAD_LABELS["nullable integers with NA"]), npartitions=2)
    for X in (_X, lazy(_X), stored(_X), da.from_array(_X, chunks=(-1, 2))):
        with pytest.raises(dk.DataError, match=f"row {ROW} "):
            dk.OROLSClassifier(max_centers=4).fit(X, y)
    assert (
        dk.OROLSClassifier(max_centers=4).fit(_X, dd.from_pandas(pd.Series(_LABELS, dtype="UInt8"))).classes_.dtype
        == "u1"
    )
