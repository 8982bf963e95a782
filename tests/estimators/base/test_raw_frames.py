"""Raw frames at `fit` and `predict`: one column rule for all containers, and the encoder as a transformer."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("container", FRAMES)
def test_new_rows_with_other_columns_types_and_levels(container: str, trained: Any) -> None:
    def predicted(table: pd.DataFrame) -> Any:
        return np.asarray(trained.predict(FRAMES[container](table)))

    for change, kind, said in (
        (lambda table: table.drop(columns="kind"), "unknown-column", "'kind'"),
        (lambda table: table.assign(length="long"), "type-changed", r"'length'.*'long' in row \d"),
        (lambda table: table.assign(when=1.5), "type-changed", "'when'.*double"),
    ):
        with pytest.raises(dk.DataError, match=said) as caught:
            predicted(change(TABLE))
        assert caught.value.kind == kind
    with pytest.warns(dk.TableWarning, match=r"'kind' has levels .*'yew'"):
        found = predicted(TABLE.assign(kind="yew"))
    assert np.isfinite(found).all()


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


def test_levels_share_one_scale(trained: Any) -> None:
    scaling = trained._model.scaling
    names = trained.feature_names_in_.tolist()
    kinds = [scaling.scale[place] for place, name in enumerate(names) if name.startswith("kind")]
    assert len(kinds) == 4
    assert len(set(kinds)) == 1
    np.testing.assert_allclose(scaling.scale[names.index("count")], TABLE["count"].std(ddof=0))


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
