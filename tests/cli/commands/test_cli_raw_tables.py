"""Raw tables on the command line: one ingest, one training, and raw files to predict and evaluate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import distkern as dk
from tests.cli.command_line import Call, job_text, model_bits
from tests.estimators.base.test_raw_frames import raw, target

CENTERS = 20


@pytest.fixture
def trained(here: Path, call: Call) -> pd.DataFrame:
    """A model m, trained on train.csv through train.zarr; return its table."""
    table = raw()
    table["y"] = target(table)
    table.to_csv("train.csv", index=False)
    done = call("ingest", "train.csv", "--target", "y", "--out", "train.zarr")
    assert done.code == 0, done.err
    job = {"data": {"train": "train.zarr"}, "model": {"max_centers": CENTERS}, "output": {"model": "m"}}
    (here / "j.toml").write_text(job_text(**job))
    done = call("train", "j.toml")
    assert done.code == 0, done.err
    return table


def test_files_frames_and_the_encoder_give_the_same_bits(here: Path, trained: pd.DataFrame) -> None:
    rows, y = trained.drop(columns="y"), trained["y"]
    dk.OROLSRegressor(max_centers=CENTERS).fit(rows, y).save("f")
    encoded = dk.TableEncoder().fit_transform(rows, y)
    dk.OROLSRegressor(max_centers=CENTERS).fit(encoded, y).save("e")
    dk.OROLSRegressor(max_centers=CENTERS).fit(dk.open_dataset("train.zarr")).save("d")
    assert model_bits(here / "m") == model_bits(here / "f") == model_bits(here / "e") == model_bits(here / "d")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_raw_files_are_predicted_and_evaluated(trained: pd.DataFrame, call: Call, form: str) -> None:
    new = raw(60, 1)
    new["y"] = target(new)
    new.loc[3, "kind"] = "yew"

    def put(table: pd.DataFrame) -> str:
        if form == "csv":
            table.to_csv("new.csv", index=False)
        else:
            table.to_parquet("new.parquet")
        return f"new.{form}"

    place = put(new.assign(more=1)[["more", *new.columns[::-1]]])
    done = call("evaluate", "m", place, "--target", "y", "--json")
    assert done.code == 0, done.err
    assert "'kind' has levels that the training did not have: 'yew'" in done.err
    with pytest.warns(dk.TableWarning, match="yew"):
        expected = dk.load_model("m").predict(new)
    assert json.loads(done.out)["rmse"] == pytest.approx(np.sqrt(np.mean((expected - new["y"]) ** 2)))
    assert call("predict", "m", place, "--out", "p.csv").code == 0
    np.testing.assert_allclose(pd.read_csv("p.csv")["prediction"], expected, rtol=1e-9)
    for table, said in (
        (new.drop(columns="kind"), "no column 'kind'"),
        (new.assign(length="long"), "column 'length' holds the text 'long' in row 1 "),
        (new.assign(when="soon"), "column 'when' holds the text 'soon' in row 1 "),
    ):
        done = call("predict", "m", put(table), "--out", "q.csv")
        assert done.code == 3
        assert said in done.err
        assert not Path("q.csv").exists()


def test_stores_of_new_rows_have_the_schema_of_the_training(trained: pd.DataFrame, call: Call) -> None:
    done = call("ingest", "train.csv", "--target", "y", "--out", "like.zarr", "--like", "m")
    assert done.code == 0, done.err
    assert call("evaluate", "m", "like.zarr").code == 0
    other = trained.iloc[::2].assign(kind=trained["kind"].iloc[::2].fillna("oak").where(trained.index[::2] % 3 > 0))
    other.to_csv("other.csv", index=False)
    assert call("ingest", "other.csv", "--target", "y", "--out", "other.zarr").code == 0
    done = call("evaluate", "m", "other.zarr")
    assert done.code == 3
    assert "--like m" in done.err
    job = {"data": {"train": "train.zarr", "test": "other.zarr"}, "model": {"max_centers": 5}}
    Path("k.toml").write_text(job_text(**job))
    done = call("train", "k.toml")
    assert done.code == 3
    assert "--like train.zarr" in done.err
    assert call("ingest", "train.csv", "--target", "y", "--out", "x.zarr", "--like", "nothing").code == 3


def test_info_and_report_show_the_columns(trained: pd.DataFrame, call: Call) -> None:
    for place in ("train.zarr", "m"):
        shown = json.loads(call("info", place, "--json").out)["columns"]
        assert shown["kind"] == "category, one-hot, 3 levels (ash, elm, oak), with gaps"
        assert list(shown) == [name for name in trained.columns if name != "y"]
    more = ("--set", "model.metric=diagonal", "--set", "output.model=n", "--set", "output.run=n.run")
    assert call("train", "j.toml", *more).code == 0
    importances = json.loads(call("info", "n", "--json").out)["metric"]["importances"]
    assert set(importances) == set(trained.columns) - {"y"}
    assert sum(importances.values()) == pytest.approx(1.0)
    assert dk.load_model("n").column_importances_ == pytest.approx(importances)
    assert call("report", "n.run", "--out", "r.html").code == 0
    page = Path("r.html").read_text()
    assert "place target" not in page.split("Importances of the features")[1].split("</svg>")[0]
