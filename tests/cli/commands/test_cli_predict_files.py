"""``distkern predict`` on files and plain arrays, and ``distkern ingest`` of rows without targets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zarr

from tests.cli.command_line import Call

FORMS = ["csv", "tsv.gz", "parquet", "npy", "npz", "svm", "zarr", "folder", "pattern", "two"]


@pytest.fixture
def rows(here: Path, call: Call) -> pd.DataFrame:
    """A model m.model of three columns, trained on tr.zarr; return rows to predict, with their target."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 3)), columns=list("abc"))
    frame["y"] = np.where(frame.a > 0, "up", "down")
    frame.to_csv("tr.csv", index=False)
    assert call("ingest", "tr.csv", "--target", "y", "--out", "tr.zarr").code == 0
    (here / "j.toml").write_bytes(
        b'\xef\xbb\xbf[data]\ntrain = "tr.zarr"\n[model]\nmax_centers = 10\n[output]\nmodel = "m.model"\n'
    )
    done = call("train", "j.toml")
    assert done.code == 0, done.err
    return frame


def places(frame: pd.DataFrame, form: str) -> list[str]:
    X = frame[["a", "b", "c"]].to_numpy()
    if form == "csv":
        frame[["y", "c", "a", "b"]].to_csv("new.csv")
    elif form == "tsv.gz":
        frame.to_csv("new.tsv.gz", sep="\t", index=False)
    elif form == "parquet":
        frame.set_index("y").to_parquet("new.parquet")
    elif form == "npy":
        np.save("new.npy", X)
    elif form == "npz":
        np.savez("new.npz", X_test=X, y_test=np.ones(len(X)))
    elif form == "svm":
        Path("new.svm").write_text("".join(f"1:{a!r} 2:{b!r} 3:{c!r}\n" for a, b, c in X.tolist()))
    elif form == "zarr":
        zarr.create_array("new.zarr", data=X, chunks=(50, 2))
    else:
        Path("set").mkdir()
        for part in range(12):
            frame.iloc[part * 10 : part * 10 + 10].to_csv(f"set/part-{part}.csv", index=False)
        both = [f"set/part-{part}.csv" for part in range(12)]
        return {"folder": ["set"], "pattern": ["set/part-*.csv"]}.get(form, both)
    return [f"new.{form}"]


def svmlight(name: str, X: np.ndarray, y: np.ndarray, first: int) -> None:
    """Write rows with labels, and features counted from `first`; zeros are left out."""
    lines = (
        " ".join([str(label), *(f"{place}:{value!r}" for place, value in enumerate(row, first) if value)])
        for label, row in zip(y.tolist(), X.tolist(), strict=True)
    )
    Path(name).write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("form", FORMS)
def test_predictions_are_those_of_the_model(rows: pd.DataFrame, call: Call, form: str) -> None:
    from distkern import load_model

    model = load_model("m.model")
    X = rows[["a", "b", "c"]]
    done = call("predict", "m.model", *places(rows, form), "--out", "p.csv", "--proba")
    assert done.code == 0, done.err
    assert "120" in done.out
    found = pd.read_csv("p.csv")
    assert found.prediction.tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(found[["probability_down", "probability_up"]], model.predict_proba(X), rtol=1e-12)


@pytest.mark.parametrize(
    "arguments",
    [
        ("new.csv", "--target", "y"),
        ("new.parquet", "--target", "y"),
        ("new.npy", "--target", "3"),
        ("new.npz", "--part", "test"),
        ("new.svm",),
    ],
)
def test_files_are_evaluated_as_a_store(rows: pd.DataFrame, call: Call, arguments: tuple[str, ...]) -> None:
    # Columns named as those of svmlight files, and labels that are numbers, fit every format.
    frame = rows.rename(columns={"a": "1", "b": "2", "c": "3"}).assign(y=(rows.y == "up").astype(int))
    X, y = frame[["1", "2", "3"]].to_numpy(), frame.y.to_numpy()
    frame.to_csv("tr.csv", index=False)
    assert call("ingest", "tr.csv", "--target", "y", "--out", "tr.zarr", "--overwrite").code == 0
    assert call("train", "j.toml", "--overwrite").code == 0
    frame[["y", "3", "1", "2"]].to_csv("new.csv", index=False)
    frame[["y", "3", "1", "2"]].to_parquet("new.parquet")
    np.save("new.npy", np.c_[X, y])
    np.savez("new.npz", X_test=X, y_test=y)
    svmlight("new.svm", X, y, 1)
    expected = json.loads(call("evaluate", "m.model", "tr.zarr", "--json").out)
    done = call("evaluate", "m.model", *arguments, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["confusion"] == expected["confusion"]
    assert found["log_loss"] == pytest.approx(expected["log_loss"])


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["tr.csv"], "which column of tr.csv is the target"),
        (["tr.csv", "--target", "z"], "no column 'z' (target)"),
        (["tr.csv", "--target", "y", "--workers", "1"], "on workers"),
        (["tr.zarr", "--target", "y"], "--target says how files are read"),
        (["x.zarr"], "not a dataset"),
        (["labels.csv", "--target", "y"], "labels ('up')"),
        (["two.csv", "--target", "y", "--target", "z"], "2 targets"),
    ],
)
def test_rows_that_cannot_be_evaluated(
    rows: pd.DataFrame, call: Call, here: Path, arguments: list[str], part: str
) -> None:
    zarr.create_array("x.zarr", data=rows[["a", "b", "c"]].to_numpy())
    if "labels.csv" in arguments or "two.csv" in arguments:
        rows.to_csv("labels.csv", index=False)
        numbers = rows.assign(y=rows.a + rows.b, z=rows.c)
        numbers.to_csv("two.csv", index=False)
        numbers.drop(columns="z").to_csv("tr.csv", index=False)
        assert call("ingest", "tr.csv", "--target", "y", "--out", "tr.zarr", "--overwrite").code == 0
        assert call("train", "j.toml", "--overwrite").code == 0
    done = call("evaluate", "m.model", *arguments)
    assert done.code in (2, 3)
    assert part in done.err


def test_rows_without_targets_become_a_store(rows: pd.DataFrame, call: Call) -> None:
    rows[["a", "b", "c"]].to_csv("new.csv", index=False)
    done = call("ingest", "new.csv", "--no-target", "--out", "new.zarr")
    assert done.code == 0, done.err
    assert "no targets" in done.out
    assert call("info", "new.zarr").code == 0
    for out in ("p.csv", "p.parquet", "p.zarr"):
        assert call("predict", "m.model", "new.zarr", "--out", out).code == 0
    assert pd.read_parquet("p.parquet").prediction.tolist() == pd.read_csv("p.csv").prediction.tolist()
    refused = [
        call("evaluate", "m.model", "new.zarr"),
        call("train", "j.toml", "--overwrite", "--set", "data.train=new.zarr"),
    ]
    refused.append(call("train", "j.toml", "--overwrite", "--set", "data.test=new.zarr"))
    for done in refused:
        assert done.code == 3
        assert "has no targets" in done.err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["tr.zarr", "--delimiter", ";"], "--delimiter"),
        (["tr.csv", "--workers", "1"], "--no-target"),
        (["few.csv"], "no column 'c'"),
        (["few.npy"], "2 features"),
        (["hole.csv"], "row 2"),
        (["no.zarr"], "no dataset"),
        (["no*.csv"], "no file matches"),
        (["m.model"], "distkern model"),
        (["tr.csv", "few.npy"], "one format"),
    ],
)
def test_rows_that_cannot_be_predicted(rows: pd.DataFrame, call: Call, arguments: list[str], part: str) -> None:
    rows[["a", "b"]].to_csv("few.csv", index=False)
    np.save("few.npy", rows[["a", "b"]].to_numpy())
    rows.assign(b=rows.b.where(rows.index != 1)).to_csv("hole.csv", index=False)
    before = sorted(Path().iterdir())
    done = call("predict", "m.model", *arguments, "--out", "p.csv")
    assert done.code in (2, 3)
    assert part in done.err
    assert sorted(Path().iterdir()) == before


def test_a_job_with_weights(rows: pd.DataFrame, call: Call) -> None:
    from distkern import OROLSClassifier, load_model, open_dataset

    weights = np.where(rows.b > 0, 1.0, 0.0)
    zarr.create_array("w.zarr", data=weights, chunks=(50,))
    zarr.create_array("x.zarr", data=rows[["a", "b", "c"]].to_numpy(), chunks=(40, 3))
    zarr.create_array("y.zarr", data=(rows.y == "up").to_numpy().astype(np.int64), chunks=(40,))
    X = rows[["a", "b", "c"]].to_numpy()
    expected = OROLSClassifier(max_centers=10).fit(open_dataset("tr.zarr"), sample_weight=weights)
    done = call("train", "j.toml", "--overwrite", "--set", "data.weight=w.zarr")
    assert done.code == 0, done.err
    np.testing.assert_array_equal(load_model("m.model").coef_, expected.coef_)
    sets = ["data.x=x.zarr", "data.y=y.zarr", "data.weight=w.zarr"]
    text = Path("j.toml").read_text(encoding="utf-8-sig").replace('train = "tr.zarr"\n', "")
    Path("arrays.toml").write_text(text)
    done = call("train", "arrays.toml", "--overwrite", *(word for item in sets for word in ("--set", item)))
    assert done.code == 0, done.err
    half = OROLSClassifier(max_centers=10).fit(X, rows.y == "up", weights)
    np.testing.assert_allclose(load_model("m.model").decision_function(X), half.decision_function(X))
    zarr.create_array("short.zarr", data=weights[:50], chunks=(50,))
    done = call("train", "j.toml", "--overwrite", "--set", "data.weight=short.zarr")
    assert done.code == 3
    assert "50" in done.err


def test_svmlight_files_of_one_problem_have_the_same_columns(here: Path, call: Call) -> None:
    """The files of a problem may not use the first or last feature, which must not shift the columns."""
    from distkern import load_model

    X = np.random.default_rng(0).normal(size=(90, 5))
    y = (X[:, 1] > 0).astype(int)
    svmlight("train.svm", X[:60], y[:60], 1)
    svmlight("narrow.svm", X[60:] * [1, 1, 1, 1, 0], y[60:], 1)
    svmlight("shifted.svm", X[60:], y[60:], 0)
    (here / "j.toml").write_text('[data]\ntrain = "train.zarr"\n[model]\nmax_centers = 10\n[output]\nmodel = "m"\n')
    assert call("ingest", "train.svm", "--out", "train.zarr").code == 0
    assert call("train", "j.toml").code == 0

    def predicted(rows: np.ndarray) -> list[int]:
        model = load_model("m")
        return list(model.predict(pd.DataFrame(rows, columns=model.feature_names_in_)))

    def labels(*arguments: str) -> list[int]:
        done = call("predict", "m", *arguments, "--out", "p.csv", "--overwrite")
        assert done.code == 0, done.err
        return list(pd.read_csv("p.csv").prediction)

    # The names of the features are their numbers: a store with other columns is refused.
    for name, options, part in (
        ("narrow", (), "lacks the column '5'"),
        ("shifted", (), "lacks the column '5' of the model m and has the column '0'"),
        ("shifted", ("--features", 6), "has the column '0'"),
    ):
        assert call("ingest", f"{name}.svm", "--out", "t.zarr", "--overwrite", *options).code == 0
        done = call("evaluate", "m", "t.zarr")
        assert done.code == 3
        assert part in done.err
    # The width, given to ingest or known from the model, makes them fit.
    assert call("ingest", "narrow.svm", "--features", 5, "--out", "narrow.zarr").code == 0
    expected = predicted(X[60:] * [1, 1, 1, 1, 0])
    assert labels("narrow.zarr") == labels("narrow.svm") == expected
    # The problem counts from 0, but the training file does not use feature 0.
    assert call("ingest", "train.svm", "--index-base", 0, "--out", "train.zarr", "--overwrite").code == 0
    assert call("train", "j.toml", "--overwrite").code == 0
    svmlight("zero.svm", np.c_[np.ones(30), X[60:]], y[60:], 0)
    assert call("ingest", "zero.svm", "--out", "zero.zarr").code == 0
    expected = predicted(np.c_[np.ones(30), X[60:]])
    assert labels("zero.zarr") == labels("zero.svm") == expected
