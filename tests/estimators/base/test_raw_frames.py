"""Raw frames at `fit` and `predict`: one column rule for all containers, and the encoder as a transformer."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import (
    check_global_output_transform_pandas,
    check_set_output_transform_pandas,
    check_set_output_transform_polars,
)

import distkern as dk
from distkern.estimators.base.encoded_rows import EncodedRows
from distkern.storage import ingest

N = 400


def raw(n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "length": rng.normal(size=n),
            "kind": rng.choice(["oak", "elm", "ash"], n),
            "place": [f"p{code}" for code in rng.integers(0, 60, n)],
            "when": pd.date_range("2024-01-01", periods=n, freq="7h"),
            "wet": rng.random(n) > 0.5,
            "count": rng.integers(0, 9, n),
        }
    )
    table.loc[::7, "length"] = np.nan
    table.loc[::11, "kind"] = None
    return table


def target(table: pd.DataFrame) -> Any:
    place = table["place"].str[1:].astype(int) % 5
    return np.asarray(table["length"].fillna(0) ** 2 + (table["kind"] == "oak") + place, dtype=np.float64)


TABLE = raw()
Y = target(TABLE)

FRAMES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda table: table,
    "categorical": lambda table: table.astype(dict.fromkeys({"kind", "place"} & {*table.columns}, "category")),
    "nullable": lambda table: table.convert_dtypes(),
    "polars": pl.from_pandas,
    "arrow": lambda table: pa.Table.from_pandas(table, preserve_index=False),
    "dask": lambda table: dd.from_pandas(table, npartitions=3),
}


def model(**options: Any) -> Any:
    return dk.OROLSRegressor(max_centers=20, **options)


@pytest.fixture(scope="module")
def trained() -> Any:
    return model().fit(TABLE, Y)


@pytest.mark.parametrize("container", FRAMES)
def test_every_frame_gives_one_model_and_one_prediction(container: str, trained: Any) -> None:
    rows = FRAMES[container](TABLE)
    made = model().fit(rows, Y)
    assert made.table_schema_.as_record() == trained.table_schema_.as_record()
    assert made.feature_names_in_.tolist() == trained.table_schema_.encoded_names
    if container != "dask":  # blocks are partitions
        np.testing.assert_array_equal(made.coef_, trained.coef_)
    np.testing.assert_array_equal(made.center_indices_, trained.center_indices_)
    turned = FRAMES[container](TABLE.assign(other=1)[[*TABLE.columns[::-1], "other"]])
    np.testing.assert_allclose(np.asarray(made.predict(turned)), trained.predict(TABLE), rtol=1e-9, atol=1e-9)


def test_encoder_and_estimator_give_the_bits_of_the_frame(trained: Any, tmp_path: Path) -> None:
    piped = make_pipeline(dk.TableEncoder(), model()).fit(TABLE, Y)
    np.testing.assert_array_equal(piped[-1].coef_, trained.coef_)
    np.testing.assert_array_equal(piped.predict(TABLE), trained.predict(TABLE))
    for other in (pickle.loads(pickle.dumps(trained)), saved(trained, tmp_path / "model")):
        np.testing.assert_array_equal(other.predict(TABLE), trained.predict(TABLE))
        assert other.table_schema_.as_record() == trained.table_schema_.as_record()


def saved(fitted: Any, place: Path) -> Any:
    fitted.save(place)
    return dk.load_model(place)


def test_a_store_of_a_raw_frame_gives_the_bits_of_the_frame(trained: Any, tmp_path: Path) -> None:
    data = dk.write_dataset(tmp_path / "d", TABLE, Y, chunk_rows=N)
    assert data.table_schema is not None
    made = model().fit(data)
    np.testing.assert_array_equal(made.coef_, trained.coef_)
    np.testing.assert_array_equal(made.predict(TABLE), trained.predict(TABLE))
    with pytest.raises(dk.JobError, match="feature_names"):
        dk.write_dataset(tmp_path / "e", TABLE, Y, feature_names=["a"] * 6)


@pytest.mark.parametrize("container", ["pandas", "dask"])
def test_weights_enter_the_statistics_of_every_way_to_train(container: str, tmp_path: Path) -> None:
    """Of rows of weight zero nothing is known: their levels have the mean target."""
    weights = np.where(np.arange(N) % 5 > 0, 1.0 + np.arange(N) % 3, 0.0)
    rows = FRAMES[container](TABLE)
    made = model().fit(rows, Y, weights)
    encoder = dk.TableEncoder().fit(TABLE, Y, sample_weight=weights)
    stored = dk.write_dataset(tmp_path / "d", TABLE, Y, sample_weight=weights, chunk_rows=N)
    assert stored.table_schema is not None
    other = model().fit(TABLE, Y)
    schema = made.table_schema_.as_record()
    assert schema == encoder.table_schema_.as_record() == stored.table_schema.as_record()
    assert schema != other.table_schema_.as_record()
    kept = model().fit(TABLE[weights > 0], Y[weights > 0], weights[weights > 0])
    assert [column.levels for column in kept.table_schema_.columns] == [
        column.levels for column in made.table_schema_.columns
    ]
    TABLE.assign(y=Y, w=weights).to_csv(tmp_path / "rows.csv", index=False)
    read = ingest(tmp_path / "rows.csv", tmp_path / "c", target="y", weight="w")
    assert read.table_schema is not None
    assert read.table_schema.as_record() == schema


@pytest.mark.parametrize("kind", ["series", "array", "numpy"])
def test_a_dask_frame_is_written_by_partitions(kind: str, tmp_path: Path) -> None:
    """The bits of the frame in memory, with categories, dates, gaps, an empty partition and weights."""
    weights = 1.0 + np.arange(N) % 3
    whole = dk.write_dataset(tmp_path / "a", TABLE, Y, sample_weight=weights, chunk_rows=150)
    frame = dd.concat([dd.from_pandas(part, npartitions=1) for part in (TABLE[:130], TABLE[130:130], TABLE[130:])])
    given: dict[str, Callable[[Any], Any]] = {
        "series": lambda values: dd.from_pandas(pd.Series(values), npartitions=4),
        "array": lambda values: da.from_array(values, chunks=77),
        "numpy": lambda values: values,
    }
    parts = dk.write_dataset(tmp_path / "b", frame, given[kind](Y), sample_weight=given[kind](weights), chunk_rows=150)
    assert parts.checksums == whole.checksums
    assert parts.table_schema is not None
    assert parts.table_schema.as_record() == whole.table_schema.as_record()
    for values in (Y[:-1], np.append(Y, 1.0)):
        with pytest.raises(dk.DataError, match=f"y has {len(values)}"):
            dk.write_dataset(tmp_path / "c", frame, given[kind](values))
    assert not (tmp_path / "c").exists()
    numbers = TABLE[["wet", "count"]]
    frame = dd.from_pandas(numbers, npartitions=3)
    assert dk.write_dataset(tmp_path / "d", frame, given[kind](Y)).feature_names == ("wet", "count")
    np.testing.assert_array_equal(dk.open_dataset(tmp_path / "d").X[:], numbers.astype(int))
    with pytest.raises(dk.DataError, match="'wood'"):
        dk.write_dataset(tmp_path / "e", frame.assign(wood=1)[["wet", "wood"]], feature_names=["wet", "w"])


def test_sparse_columns_of_pandas_are_columns_of_numbers() -> None:
    dense = TABLE.assign(extra=np.arange(len(TABLE)) % 3 / 2)
    sparse = dense.assign(extra=pd.arrays.SparseArray(dense["extra"]))
    models = [dk.OROLSRegressor(max_centers=20).fit(frame, Y) for frame in (dense, sparse)]
    np.testing.assert_array_equal(models[0].predict(sparse), models[1].predict(dense))


@pytest.mark.parametrize(("value", "said"), [("a\ud800", "surrogates"), (10**30, "int")])
def test_values_that_arrow_cannot_hold_are_named(value: Any, said: str) -> None:
    with pytest.raises(dk.DataError, match=f"(?s)'odd'.*{said}") as caught:
        dk.OROLSRegressor().fit(TABLE.assign(odd=pd.Series([value] * len(TABLE), dtype=object)), Y)
    assert caught.value.kind == "column-type"


def test_a_store_with_statistics_of_its_own_is_refused(tmp_path: Path) -> None:
    first = dk.write_dataset(tmp_path / "a", TABLE, Y)
    # The same names of columns, and other means and target statistics.
    other = dk.write_dataset(tmp_path / "b", TABLE.assign(length=TABLE["length"] + 5), 3 * Y)
    assert first.feature_names == other.feature_names
    model = dk.OROLSRegressor(max_centers=20).fit(first)
    expected = model.predict(TABLE)
    assert model.predict(dk.open_dataset(tmp_path / "a")).shape == expected.shape
    for use in (model.predict, model.score, lambda rows: next(iter(model.iter_predictions(rows)))):
        with pytest.raises(dk.DataError, match="--like MODEL") as caught:
            use(other)
        assert caught.value.kind == "schema"
    np.testing.assert_array_equal(model.predict(TABLE), expected)


def test_levels_share_one_scale(trained: Any) -> None:
    scaling = trained._model.scaling
    names = trained.feature_names_in_.tolist()
    kinds = [scaling.scale[place] for place, name in enumerate(names) if name.startswith("kind")]
    assert len(kinds) == 4
    assert len(set(kinds)) == 1
    np.testing.assert_allclose(scaling.scale[names.index("count")], TABLE["count"].std(ddof=0))


def test_a_category_of_many_levels_is_as_important_as_a_number_with_the_same_effect(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    codes, size = rng.integers(0, 16, 1200), rng.normal(size=1200)
    effects = rng.normal(size=16)
    y = (effects[codes] - effects.mean()) / effects.std() + size
    table = pd.DataFrame({"kind": [f"k{code:02d}" for code in codes], "size": size, "noise": rng.normal(size=1200)})
    options = {"metric": "diagonal", "metric_rounds": 2, "max_centers": 100, "random_state": 0}
    model = dk.OROLSRegressor(**options).fit(table, y)
    found = model.column_importances_
    assert sum(found.values()) == pytest.approx(1)
    assert found["noise"] < 0.02
    # Without the variances the columns of the category have 0.92 together.
    assert found["kind"] == pytest.approx(0.5, abs=0.12)
    stored = dk.OROLSRegressor(**options).fit(dk.write_dataset(tmp_path / "d", table, y))
    assert stored.column_importances_ == found
    encoder = dk.TableEncoder()
    array = dk.OROLSRegressor(**options).fit(encoder.fit_transform(table, y), y)
    np.testing.assert_array_equal(array.feature_importances_, model.feature_importances_)


def test_classifier_and_stream() -> None:
    labels = np.where(Y > 2, "high", "low")
    made = dk.OROLSClassifier(max_centers=20).fit(TABLE, labels)
    assert made.score(TABLE, labels) > 0.8
    assert made.predict_proba(TABLE).shape == (N, 2)
    more = raw(50, 1).dropna()
    stream = dk.KRLSRegressor(nu=0.1).partial_fit(TABLE, Y).partial_fit(more, target(more))
    assert np.isfinite(stream.predict(TABLE)).all()
    numeric = TABLE[["wet", "count"]]
    again = made.fit(numeric, labels)
    assert not hasattr(again, "table_schema_")
    np.testing.assert_array_equal(
        again.coef_, dk.OROLSClassifier(max_centers=20).fit(numeric.astype(float), labels).coef_
    )


def test_a_failed_fit_keeps_the_last_model() -> None:
    made = model().fit(TABLE, Y)
    before = made.predict(TABLE)
    with pytest.raises(dk.DataError, match="'kind'"):
        made.fit(TABLE.assign(kind=None, place=1), Y)
    np.testing.assert_array_equal(made.predict(TABLE), before)


def test_the_encoder_among_transformers(tmp_path: Path) -> None:
    encoder = dk.TableEncoder()
    rows = encoder.fit_transform(TABLE, Y)
    new = encoder.transform(TABLE)
    names = encoder.get_feature_names_out().tolist()
    assert names == encoder.table_schema_.encoded_names
    differing = [name for place, name in enumerate(names) if not np.array_equal(rows[:, place], new[:, place])]
    assert differing == ["place target"]
    for other in (pickle.loads(pickle.dumps(encoder)), saved(encoder, tmp_path / "encoder")):
        np.testing.assert_array_equal(other.transform(TABLE), new)
    both = ColumnTransformer([("raw", dk.TableEncoder(), ["kind", "place"])], remainder="drop").fit(TABLE, Y)
    assert both.get_feature_names_out()[0] == "raw__kind=ash"
    assert cross_val_score(make_pipeline(dk.TableEncoder(unknown="ignore"), model()), TABLE, Y, cv=3).mean() > 0.3
    with pytest.raises(dk.DataError, match="'yew'"):
        dk.TableEncoder(unknown="error").fit(TABLE, Y).transform(TABLE.assign(kind="yew"))
    lazy = dk.TableEncoder().fit_transform(dd.from_pandas(TABLE, npartitions=3), Y)
    np.testing.assert_array_equal(lazy.compute(), rows)


@pytest.mark.parametrize(
    "check",
    [check_set_output_transform_pandas, check_set_output_transform_polars, check_global_output_transform_pandas],
)
def test_set_output(check: Any) -> None:
    check("TableEncoder", dk.TableEncoder())


def test_encoded_rows_keep_their_scales_where_rows_are_taken() -> None:
    rows = dk.TableEncoder().fit_transform(TABLE, Y)
    for part in (rows[:5], rows[[1, 2]], rows[[3], :], *train_test_split(rows), pickle.loads(pickle.dumps(rows))):
        assert isinstance(part, EncodedRows)
        np.testing.assert_array_equal(part.feature_scales, rows.feature_scales)
    for other in (rows[:, :3], rows[0], rows + 1, rows.T):
        assert getattr(other, "feature_scales", None) is None


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("max_one_hot", -1), ("smoothing", -0.5), ("task", "rank"), ("unknown", "drop"), ("categorical", "kind")],
)
def test_wrong_parameters(parameter: str, value: Any) -> None:
    with pytest.raises(dk.JobError, match=parameter):
        dk.TableEncoder(**{parameter: value}).fit(TABLE, Y)
