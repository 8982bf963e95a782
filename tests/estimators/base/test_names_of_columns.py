"""Columns are matched by name, whatever container the training and the rows have."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from numpy.testing import assert_array_equal

import distkern as dk
from tests.markers import every_value, name_of, variants

xr = pytest.importorskip("xarray")
dd = pytest.importorskip("dask.dataframe")

ABC = ["a", "b", "c"]
TURNED = ["c", "a", "b"]
RENAMED = ["a", "q", "c"]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3)) * [1.0, 5.0, 0.2]
Y = np.where(X @ [1.0, -0.1, 2.0] > 0, "up", "down")
TABLE = pd.DataFrame(X, columns=ABC).assign(q=0.0)

STORES: dict[str, dk.Dataset] = {}


@pytest.fixture(scope="module", autouse=True)
def _stores(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("stores")
    for names in (ABC, TURNED, RENAMED, ["a", "c"], [*ABC, "q"], ["a", "b"]):
        name = "-".join(names)
        STORES[name] = dk.write_dataset(folder / name, TABLE[names].to_numpy(), Y, feature_names=names)


Rows = Callable[[list[str]], Any]


def dataset(names: list[str]) -> Any:
    return STORES["-".join(names)]


def frame(names: list[str]) -> Any:
    return TABLE[names]


def dask_frame(names: list[str]) -> Any:
    return dd.from_pandas(TABLE[names], npartitions=2)


def labelled(names: list[str]) -> Any:
    return xr.DataArray(TABLE[names].to_numpy(), dims=("row", "feature"), coords={"feature": names})


def lazily_labelled(names: list[str]) -> Any:
    return labelled(names).chunk({"row": 50})


NAMED = [dataset, frame, dask_frame, labelled, lazily_labelled]


def numpy_rows(names: list[str]) -> Any:
    return TABLE[names].to_numpy()


def zarr_rows(names: list[str]) -> Any:
    return zarr.array(TABLE[names].to_numpy(), chunks=(50, 3))


def dask_rows(names: list[str]) -> Any:
    return da.from_array(TABLE[names].to_numpy(), chunks=(50, 3))


UNNAMED = [numpy_rows, zarr_rows, dask_rows]


def values(result: Any) -> Any:
    return np.asarray(result)


ENTRIES: dict[str, Callable[[Any, Any], Any]] = {
    "predict": lambda model, rows: values(model.predict(rows)),
    "predict_proba": lambda model, rows: values(model.predict_proba(rows)),
    "decision_function": lambda model, rows: values(model.decision_function(rows)),
    "transform": lambda model, rows: values(model.transform(rows)),
    "iter_predictions": lambda model, rows: np.concatenate([part for _, part, _ in model.iter_predictions(rows)]),
    "score": lambda model, rows: model.score(rows, Y),
}


def trained(rows: Any, cls: Any = dk.FisherDiscriminant) -> Any:
    return cls().fit(rows, None if isinstance(rows, dk.Dataset) else Y)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Rows without names for a model with names, or the reverse: scikit-learn warns, and so do estimators."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*feature names", UserWarning)
        yield


@pytest.mark.parametrize("container", NAMED, ids=name_of)
def test_every_container_with_names_sets_them(container: Rows) -> None:
    assert trained(container(TURNED)).feature_names_in_.tolist() == TURNED


@pytest.mark.parametrize(
    ("of_training", "of_rows"),
    variants([(dataset, rows) for rows in NAMED] + [(rows, dataset) for rows in NAMED[1:]], product(NAMED, NAMED)),
    ids=name_of,
)
def test_columns_are_matched_by_name(of_training: Rows, of_rows: Rows) -> None:
    """Datasets are read in the order of the training; other containers with another order are refused."""
    model = trained(of_training(ABC))
    same, turned, renamed = (of_rows(names) for names in (ABC, TURNED, RENAMED))
    for name, entry in ENTRIES.items():
        if name == "score" and of_rows is dask_frame:
            continue  # scikit-learn needs the number of predictions
        expected = entry(model, of_rows(ABC))
        assert_array_equal(entry(model, same), expected, name)
        if of_rows is dataset:
            assert_array_equal(entry(model, turned), expected, name)
        else:
            with pytest.raises(dk.DataError, match="order") as caught:
                entry(model, turned)
            assert caught.value.kind == "feature-names", name
        for rows in (renamed, of_rows(["a", "c"]), of_rows([*ABC, "q"])):
            with pytest.raises(dk.DataError, match=r"'b'|'q'|- b|- q") as caught:
                entry(model, rows)
            assert caught.value.kind == "feature-names", name


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("named", "unnamed"), every_value(NAMED, UNNAMED), ids=name_of)
def test_without_names_on_one_side_the_number_of_columns_counts(named: Rows, unnamed: Rows) -> None:
    with_names, without = trained(named(ABC)), trained(unnamed(ABC))
    assert not hasattr(without, "feature_names_in_")
    for model, rows in ((with_names, unnamed), (without, named)):
        assert_array_equal(values(model.predict(rows(ABC))), model.predict(X))
        with pytest.raises(dk.DataError, match="2 features"):
            model.predict(rows(["a", "b"]))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("unnamed", UNNAMED, ids=name_of)
@pytest.mark.parametrize("cls", [dk.FisherDiscriminant, dk.KRLSClassifier])
def test_a_fit_forgets_the_names_of_the_last_one(cls: Any, unnamed: Rows, tmp_path: Path) -> None:
    model = trained(TABLE[ABC], cls).fit(unnamed(["b", "a"]), Y)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 2
    model.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    assert not hasattr(loaded, "feature_names_in_")
    assert_array_equal(loaded.predict(X[:, [1, 0]]), model.predict(X[:, [1, 0]]))
    assert trained(dataset(TURNED), cls).fit(TABLE[ABC], Y).feature_names_in_.tolist() == ABC


@pytest.mark.parametrize("bad", [TABLE[["b", "a"]].assign(b=np.nan), zarr.array(X[:, :2] * np.nan, chunks=(50, 2))])
@pytest.mark.parametrize("cls", [dk.OROLSClassifier, dk.FisherDiscriminant])
def test_a_fit_that_fails_leaves_the_names_of_the_model(cls: Any, bad: Any, tmp_path: Path) -> None:
    model = trained(TABLE[ABC], cls)
    with pytest.raises(dk.DataError, match=r"not finite|NaN|nan"):
        model.fit(bad, Y)
    assert model.feature_names_in_.tolist() == ABC
    model.save(tmp_path / "m")
    assert_array_equal(dk.load_model(tmp_path / "m").predict(TABLE[ABC]), model.predict(TABLE[ABC]))


STREAMS = [lambda: dk.KRLSClassifier(nu=0.01, sigma=3.0), lambda: dk.WidrowHoffClassifier()]


@pytest.mark.parametrize("container", NAMED, ids=name_of)
@pytest.mark.parametrize("make", STREAMS, ids=["krls", "widrow-hoff"])
def test_a_stream_keeps_the_columns_of_its_first_rows(make: Any, container: Rows) -> None:
    def passed(model: Any, rows: Any) -> Any:
        return model.partial_fit(rows, None if isinstance(rows, dk.Dataset) else Y, classes=np.unique(Y))

    model, expected = (passed(make(), container(ABC)) for _ in range(2))
    passed(expected, container(ABC))
    if container is dataset:
        passed(model, dataset(TURNED))
        assert_array_equal(model.coef_, expected.coef_)
    else:
        with pytest.raises(dk.DataError, match="order") as caught:
            passed(model, container(TURNED))
        assert caught.value.kind == "feature-names"
    with pytest.raises(dk.DataError, match="q"):
        passed(model, container(RENAMED))
    assert model.feature_names_in_.tolist() == ABC
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*feature names", UserWarning)
        passed(passed(make(), X), container(TURNED)).predict(X)
        unnamed = passed(passed(make(), X), container(TURNED))
    assert not hasattr(unnamed, "feature_names_in_")


def test_a_saved_model_keeps_the_names_of_a_dataset(tmp_path: Path) -> None:
    model = trained(dataset(ABC), dk.OROLSClassifier)
    model.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    for each in (model.truncate(5), loaded):
        assert each.feature_names_in_.tolist() == ABC
        assert_array_equal(each.predict(dataset(TURNED)), each.predict(dataset(ABC)))
    with pytest.raises(dk.DataError, match="lacks the column 'b'"):
        loaded.predict(dataset(RENAMED))


@pytest.mark.usefixtures("quiet")
def test_a_search_has_the_names_of_its_rows() -> None:
    search = dk.GridSearch(dk.OROLSClassifier(max_centers=8), {"sigma": [1.0, 3.0]}, folds=2)
    search.fit(dataset(ABC))
    assert (search.n_features_in_, search.feature_names_in_.tolist()) == (3, ABC)
    assert_array_equal(search.predict(dataset(TURNED)), search.predict(TABLE[ABC]))
    with pytest.raises(dk.DataError, match="lacks the column 'b'"):
        search.predict(dataset(RENAMED))
    assert not hasattr(search.fit(X, Y), "feature_names_in_")
