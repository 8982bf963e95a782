"""xarray Datasets and dask DataFrames: the same models as numpy arrays give, out of core, with names of columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from numpy.testing import assert_array_equal

import distkern as dk
from distkern import estimators
from distkern.storage import CountingStore
from tests.estimators.fits import assert_equal_models, classes, data_for, regression

xr = pytest.importorskip("xarray")
dd = pytest.importorskip("dask.dataframe")

PARAMETERS: dict[str, Any] = {"max_centers": 12, "sigma": 1.0, "candidates": 64, "panel": 8, "stop": None}


def model_of(cls: Any) -> Any:
    """An estimator that is quick to fit."""
    known = cls().get_params()
    given = {name: PARAMETERS[name] for name in ("max_centers", "sigma", "candidates", "panel") if name in known}
    if cls in (dk.KRLSRegressor, dk.KRLSClassifier):
        given |= {"max_centers": 200, "nu": 0.2}
    return cls(**given)


def frame(X: Any) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])


def frames(cls: Any, n_parts: int = 5) -> tuple[Any, Any, Any, Any]:
    """Rows as numpy arrays, and as a dask DataFrame and Series with unknown divisions."""
    X, y = data_for(cls, 300)
    table = frame(X).assign(target=y)
    cut = dd.from_pandas(table, npartitions=n_parts).clear_divisions()
    assert not cut.known_divisions
    return X, y, cut[[f"f{i}" for i in range(X.shape[1])]], cut["target"]


def arrays(X: Any, y: Any, rows: int, **dims: Any) -> Any:
    """An xarray Dataset on dask arrays, columns named."""
    names = [f"f{i}" for i in range(X.shape[1])]
    return xr.Dataset(
        {"X": (("row", "feature"), da.from_array(X, chunks=(rows, 1))), "y": (("row",), da.from_array(y, chunks=70))},
        coords={"feature": names, "row": np.arange(len(X)) + 1000, **dims},
    )


QUICK = (dk.OROLSRegressor, dk.OROLSClassifier, dk.KRLSRegressor, dk.MSEClassifier)


@pytest.mark.parametrize(
    "cls",
    [pytest.param(cls, marks=() if cls in QUICK else pytest.mark.nightly) for cls in estimators.ESTIMATORS],
    ids=lambda cls: cls.__name__,
)
def test_every_estimator_takes_them(cls: Any) -> None:
    X, y, table, target = frames(cls)
    in_chunks = model_of(cls).fit(da.from_array(X, chunks=(60, 2)), da.from_array(y, chunks=60))
    of_frames = model_of(cls).fit(table, target)
    assert_array_equal(of_frames.coef_, in_chunks.coef_)
    assert of_frames.feature_names_in_.tolist() == ["f0", "f1"]
    of_xarray = model_of(cls).fit(arrays(X, y, 60))
    assert_array_equal(of_xarray.coef_, in_chunks.coef_)
    assert of_xarray.feature_names_in_.tolist() == ["f0", "f1"]
    lazily = of_frames.predict(table)
    assert isinstance(lazily, da.Array)
    wrapped = of_xarray.predict(arrays(X, y, 60))
    assert isinstance(wrapped, xr.DataArray)
    assert isinstance(wrapped.data, da.Array)
    assert_array_equal(wrapped.values, np.asarray(in_chunks.predict(da.from_array(X, chunks=(60, 2)))))
    assert_array_equal(lazily.compute(), wrapped.values)


def test_xarray_out() -> None:
    X, y = classes(200)
    data = arrays(X, y, 50)
    model = dk.OROLSClassifier(**PARAMETERS).fit(data)
    shares = model.predict_proba(data["X"])
    assert shares.dims == ("row", "output")
    assert_array_equal(shares.coords["row"], np.arange(200) + 1000)
    labels = model.predict(data)
    assert labels.dims == ("row",)
    assert model.score(data["X"], data["y"]) == pytest.approx(float((labels == data["y"]).mean()))


def test_xarray_in_memory() -> None:
    X, y = regression(200)
    data = arrays(X, y, 50).compute()
    model = dk.OROLSRegressor(**PARAMETERS).fit(data)
    assert_equal_models(model, dk.OROLSRegressor(**PARAMETERS).fit(X, y))
    predicted = model.predict(data["X"])
    assert isinstance(predicted.data, np.ndarray)
    (_, values, _) = next(model.iter_predictions(data))
    assert_array_equal(values, predicted.values)
    assert model.feature_names_in_.tolist() == ["f0", "f1"]
    unnamed = data.drop_vars("feature")
    assert not hasattr(dk.OROLSRegressor(**PARAMETERS).fit(unnamed), "feature_names_in_")


def test_labels_and_weights_of_any_kind() -> None:
    X, codes = classes(300)
    names = np.array(["ash", "oak", "yew"])[codes]
    weights = np.random.default_rng(0).integers(0, 3, len(X))
    reference = dk.OROLSClassifier(**PARAMETERS).fit(
        da.from_array(X, chunks=(100, 2)), da.from_array(names, chunks=100), weights
    )
    table = dd.from_pandas(frame(X).assign(kind=names, w=weights), npartitions=3)
    for kind in (table["kind"], table["kind"].astype("category"), table["kind"].astype("object")):
        model = dk.OROLSClassifier(**PARAMETERS).fit(table[["f0", "f1"]], kind, table["w"])
        assert model.classes_.tolist() == ["ash", "oak", "yew"]
        assert_array_equal(model.coef_, reference.coef_)
        assert set(model.predict(table[["f0", "f1"]]).compute()) <= set(names)
    weighed = xr.DataArray(weights, dims="row")
    data = arrays(X, names, 100)
    assert_array_equal(dk.OROLSClassifier(**PARAMETERS).fit(data["X"], data["y"], weighed).coef_, reference.coef_)


def test_columns_of_several_types_and_partitions_without_rows() -> None:
    X, y = regression(300, d=3)
    X = np.column_stack([X[:, 0], np.round(10 * X[:, 1]), X[:, 2] > 0])
    table = frame(X).astype({"f1": "int16", "f2": "bool"}).assign(target=y)
    table["f0"] = table["f0"].astype("Float64")
    cut = dd.from_pandas(table, npartitions=6)
    half = cut[cut["target"] > np.median(y)]
    late = dd.concat([half.partitions[[0]].loc[lambda part: part["target"] > 1e9], half])
    kept = table[table["target"] > np.median(y)]
    model = dk.OROLSRegressor(**PARAMETERS).fit(late[["f0", "f1", "f2"]], late["target"])
    lengths = tuple(len(part) for part in dask.compute(*half.to_delayed()))
    plain = kept[["f0", "f1", "f2"]].to_numpy(dtype="float64")
    reference = dk.OROLSRegressor(**PARAMETERS).fit(
        da.from_array(plain, chunks=(lengths, 3)), kept["target"].to_numpy()
    )
    assert_array_equal(model.coef_, reference.coef_)
    several = dk.OROLSRegressor(**PARAMETERS).fit(cut[["f0", "f1"]], cut[["f2", "target"]])
    assert several.predict(cut[["f0", "f1"]]).compute().shape == (300, 2)
    assert np.concatenate([p for _, p, _ in several.iter_predictions(cut[["f0", "f1"]])]).shape == (300, 2)


def test_xarray_on_zarr_is_read_chunk_by_chunk(tmp_path: Path) -> None:
    X, y = regression(400)
    data = arrays(X, y, 100).drop_vars(["feature", "row"]).chunk({"row": 100, "feature": -1})
    data.to_zarr(tmp_path / "rows", consolidated=False)
    store = CountingStore(zarr.storage.LocalStore(tmp_path / "rows", read_only=True))
    lazy = xr.open_zarr(store, chunks=None, consolidated=False)
    model = dk.OROLSRegressor(**PARAMETERS).fit(lazy)
    assert not lazy["X"].variable._in_memory
    reads = {key: n for (verb, key), n in store.keys.items() if verb == "get" and "/c/" in key}
    assert len(reads) == 8
    assert set(reads.values()) == {1}
    assert_equal_models(model, dk.OROLSRegressor(**PARAMETERS).fit(data))
    predicted = model.predict(lazy["X"])
    assert isinstance(predicted.data, da.Array)
    assert not lazy["X"].variable._in_memory


def test_packed_arrays_of_xarray_are_decoded_wherever_they_are_given(tmp_path: Path) -> None:
    X, y = regression(60)
    path = str(tmp_path / "s.zarr")
    data = xr.Dataset({"X": (("row", "f"), X), "y": ("row", y), "w": ("row", np.arange(60.0))})
    packed = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 4.0, "_FillValue": -32768}
    data.to_zarr(path, encoding=dict.fromkeys("Xyw", packed), consolidated=False)
    Z, z, w = (zarr.open_array(f"{path}/{name}", mode="r") for name in "Xyw")
    read = xr.open_zarr(path, consolidated=False)
    wanted = dk.OROLSRegressor(max_centers=5, sigma=1.0).fit(read.X, read.y, sample_weight=read.w)
    score = wanted.score(read.X, read.y, sample_weight=read.w)
    for rows, targets, weights in ((Z, z, w), (X, z, w), tuple(map(da.from_zarr, (Z, z, w))), (Z, da.from_zarr(z), w)):
        model = dk.OROLSRegressor(max_centers=5, sigma=1.0).fit(rows, targets, sample_weight=weights)
        assert model.score(rows, targets, sample_weight=weights) == pytest.approx(score, abs=1e-3)
        assert_array_equal(np.asarray(wanted.predict(da.from_zarr(Z))), wanted.predict(Z))


def test_rows_in_memory_with_targets_elsewhere() -> None:
    X, y = classes(200)
    table = dd.from_pandas(frame(X).assign(target=y, w=1.0 + y), npartitions=3)
    data = arrays(X, y, 50)
    reference = dk.OROLSClassifier(**PARAMETERS).fit(X, y, 1.0 + y)
    for target, weights in ((table["target"], table["w"]), (data["y"], 1.0 + data["y"])):
        assert_equal_models(dk.OROLSClassifier(**PARAMETERS).fit(X, target, weights), reference)
        of_frame = dk.OROLSClassifier(**PARAMETERS).fit(frame(X), target, weights)
        assert of_frame.feature_names_in_.tolist() == ["f0", "f1"]


def test_partial_fit_takes_them() -> None:
    X, y = regression(300)
    model, reference = dk.KRLSRegressor(sigma=1.0), dk.KRLSRegressor(sigma=1.0)
    table = dd.from_pandas(frame(X).assign(target=y), npartitions=3)
    data = arrays(X, y, 100)
    model.partial_fit(table[["f0", "f1"]], table["target"])
    model.partial_fit(data.isel(row=slice(0, 100)))
    chunked = da.from_array(X, chunks=(100, 2))
    reference.partial_fit(chunked, y).partial_fit(chunked[:100], y[:100])
    assert_array_equal(model.coef_, reference.coef_)
    assert model.feature_names_in_.tolist() == ["f0", "f1"]
    with pytest.raises(dk.DataError, match="3 features"):
        model.partial_fit(da.from_array(np.ones((9, 3))), np.ones(9))


X, Y = regression(40)
TABLE = dd.from_pandas(frame(X).assign(lost=pd.NaT, span=pd.Timedelta(1), target=Y), npartitions=2)
DATA = arrays(X, Y, 20)


@pytest.mark.parametrize(
    ("rows", "y", "kind", "said"),
    [
        (TABLE[["f0", "lost"]], TABLE["target"], "empty-column", "column 'lost' has no value in any row"),
        (TABLE[["f0", "span"]], TABLE["target"], "not-numeric", "column 'span' of X"),
        (TABLE[[]], TABLE["target"], "zero-features", "no columns"),
        (TABLE[["f0"]], TABLE["target"].partitions[0], "shape-mismatch", "40 rows but y has 20"),
        (TABLE[["f0"]], None, "target", "y is missing"),
        (TABLE[["f0"]].where(TABLE["f0"] < 1), TABLE["target"], "not-finite", "NaN in row"),
        (DATA, Y, "target", "leave y out"),
        (DATA.drop_vars("y"), None, "no-variable", "no variable y .it has X"),
        (DATA.drop_vars("X"), None, "no-variable", "no variable X"),
        (DATA["y"], DATA["y"], "shape-mismatch", "row"),
        (DATA["X"], DATA["y"][::-1], "row-labels", "row 0 .* is 1000 in X and 1039 in y; xarray.align"),
        (DATA["X"].T, DATA["y"], "row-labels", r"\('feature', 'row'\) and y \('row',\): rows come first"),
        (DATA.assign(y=("place", Y)), None, "row-labels", r"y \('place',\).* rename"),
    ],
)
def test_what_cannot_be_trained_on(rows: Any, y: Any, kind: str, said: str) -> None:
    with pytest.raises(dk.DataError, match=said) as caught:
        dk.OROLSRegressor(**PARAMETERS).fit(rows, y)
    assert caught.value.kind == kind


def test_weights_of_other_rows_are_refused() -> None:
    weights = xr.ones_like(DATA["y"])
    model = dk.OROLSRegressor(**PARAMETERS).fit(DATA["X"], DATA["y"], sample_weight=weights)
    assert_array_equal(model.coef_, dk.OROLSRegressor(**PARAMETERS).fit(DATA["X"], DATA["y"].drop_vars("row")).coef_)
    with pytest.raises(dk.DataError, match="1039 in sample_weight") as caught:
        dk.OROLSRegressor(**PARAMETERS).fit(DATA["X"], DATA["y"], sample_weight=weights[::-1])
    assert caught.value.kind == "row-labels"


def test_columns_in_another_order_are_refused() -> None:
    model = dk.OROLSRegressor(**PARAMETERS).fit(TABLE[["f0", "f1"]], TABLE["target"])
    turned = DATA.isel(feature=[1, 0])
    for rows in (TABLE[["f1", "f0"]], turned, turned["X"], turned.compute()):
        with pytest.raises(dk.DataError, match=r"column 0 .* is 'f1' and must be 'f0'") as caught:
            model.predict(rows)
        assert caught.value.kind == "feature-names"
    with pytest.raises(dk.DataError, match="lacks the column 'f1'"):
        model.predict(TABLE[["f0"]])
