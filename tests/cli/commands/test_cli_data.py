from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command_line import Call, job_text


def csv(folder: Path, text: str, name: str = "rows.csv") -> str:
    (folder / name).write_text(text)
    return name


def test_ingest_writes_a_store_and_prints_its_contents(here: Path, call: Call) -> None:
    csv(here, "a,b,y\n1,2,x\n3,4,z\n5,6,x\n7,8,z\n")
    done = call("ingest", "rows.csv", "--target", "y", "--out", "rows.zarr", "--task", "classification")
    assert done.code == 0, done.err
    for part in ("rows.zarr", "4", "2", "classification", "x, z"):
        assert part in done.out
    described = json.loads(call("info", "rows.zarr", "--json").out)
    assert described["n_rows"] == 4


def test_ingest_passes_its_options_on(here: Path, call: Call) -> None:
    from distkern.storage import open_dataset

    csv(here, "a;b;c;y\n1;2;0;1.5\n3;;0;2.5\n5;6;0;3.5\n")
    done = call(
        *("ingest", "rows.csv", "--target", "y", "--out", "rows.zarr", "--task", "regression"),
        *("--missing", "drop", "--drop", "c", "--delimiter", ";", "--chunk-rows", 2),
    )
    assert done.code == 0, done.err
    data = open_dataset("rows.zarr")
    assert (data.n_rows, data.n_features, data.task) == (2, 2, "regression")
    assert data.X.chunks[0] == 2


@pytest.mark.parametrize("part", ["train", "test"])
def test_ingest_takes_parts_of_npz(here: Path, call: Call, part: str) -> None:
    from distkern.storage import open_dataset

    rng = np.random.default_rng(0)
    arrays = {"X_train": rng.random((8, 3)), "y_train": np.arange(8) % 2}
    np.savez(here / "a.npz", **arrays, X_test=rng.random((6, 3)), y_test=np.arange(6) % 2)
    done = call("ingest", "a.npz", "--part", part, "--out", "a.zarr", "--task", "classification")
    assert done.code == 0, done.err
    assert open_dataset("a.zarr").n_rows == {"train": 8, "test": 6}[part]


def test_ingest_refuses_a_store_that_exists(here: Path, call: Call) -> None:
    csv(here, "a,y\n1,2.5\n3,4.5\n")
    arguments = ["ingest", "rows.csv", "--target", "y", "--out", "rows.zarr", "--task", "regression"]
    assert call(*arguments).code == 0
    again = call(*arguments)
    assert again.code == 3
    assert "rows.zarr" in again.err
    assert "overwrite" in again.err
    assert call(*arguments, "--overwrite").code == 0


@pytest.mark.parametrize("store", ["blobs.zarr", "blobs.model", "blobs.run"])
def test_info_describes_each_kind_of_store(trained: Path, call: Call, store: str) -> None:
    text = call("info", store)
    assert text.code == 0, text.err
    assert text.out.strip()
    done = call("info", store, "--json")
    assert isinstance(json.loads(done.out), dict)
    assert done.out.count("\n") == 1


def test_evaluate_agrees_with_the_model(trained: Path, call: Call) -> None:
    from distkern.estimators import load_model
    from distkern.storage import open_dataset

    done = call("evaluate", "blobs.model", "blobs-test.zarr", "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    data = open_dataset("blobs-test.zarr")
    expected = np.mean(load_model("blobs.model").predict(np.asarray(data.X[:])) != data.targets())
    assert record["error"] == pytest.approx(float(expected))
    assert record["labels"] == ["ant", "bee", "cat"]
    assert np.sum(record["confusion"]) == record["n_rows"] == 200
    text = call("evaluate", "blobs.model", "blobs-test.zarr").out
    for part in ("error", "precision", "ant", "predicted class"):
        assert part in text


def test_evaluate_a_regression(waves: Path, call: Call) -> None:
    (waves / "job.toml").write_text(
        job_text(
            data={"train": "waves.zarr"},
            model={"sigma": 0.5, "max_centers": 100},
            output={"model": "w.model"},
        )
    )
    assert call("train", "job.toml").code == 0
    record = json.loads(call("evaluate", "w.model", "waves-test.zarr", "--json").out)
    assert {"rmse", "mae", "r2"} <= set(record)
    assert record["r2"] > 0.9
    assert "rmse" in call("evaluate", "w.model", "waves-test.zarr").out


def test_predict_writes_labels_and_probabilities(trained: Path, call: Call) -> None:
    zarr = pytest.importorskip("zarr")
    from distkern.estimators import load_model
    from distkern.storage import open_dataset

    done = call("predict", "blobs.model", "blobs-test.zarr", "--out", "out.zarr", "--proba")
    assert done.code == 0, done.err
    assert "200" in done.out
    model, data = load_model("blobs.model"), open_dataset("blobs-test.zarr")
    features = np.asarray(data.X[:])
    written = zarr.open_group("out.zarr", mode="r")
    assert len(list(written.arrays())) >= 2
    shapes = {array.shape for _, array in written.arrays()}
    assert (200, 3) in shapes
    assert (200,) in shapes
    probabilities = next(array for _, array in written.arrays() if array.shape == (200, 3))
    assert np.allclose(probabilities[:], model.predict_proba(features))


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (["evaluate"], ["--workers", "0"], "whole number above 0"),
        (["predict", "--out", "out.zarr"], ["--workers", "2", "--scheduler", "tcp://a:1"], "exclude each other"),
        (["evaluate"], ["--memory", "1 potato"], "2GiB"),
        (["predict", "--out", "out.zarr"], ["--workers", "2", "--memory", "much"], "2GiB"),
    ],
)
def test_cluster_flags_that_do_not_fit(
    trained: Path, call: Call, command: list[str], flags: list[str], message: str
) -> None:
    done = call(command[0], "blobs.model", "blobs-test.zarr", *command[1:], *flags)
    assert done.code == 2
    assert message in done.err
    assert not Path("out.zarr").exists()


@pytest.mark.slow
@pytest.mark.cluster
def test_workers_predict_the_same(trained: Path, call: Call, shell: Call) -> None:
    from distkern.scheduler import local_client
    from distkern.storage import read_predictions

    alone = json.loads(call("evaluate", "blobs.model", "blobs-test.zarr", "--json").out)
    call("predict", "blobs.model", "blobs-test.zarr", "--out", "alone.zarr", "--proba")
    done = shell("predict", "blobs.model", "blobs-test.zarr", "--out", "own.zarr", "--proba", "--workers", 2)
    assert done.code == 0, done.err
    with local_client(2) as client:
        flags = ["--scheduler", client.scheduler.address]
        done = call("predict", "blobs.model", "blobs-test.zarr", "--out", "lent.zarr", "--proba", *flags)
        assert done.code == 0, done.err
        assert json.loads(call("evaluate", "blobs.model", "blobs-test.zarr", "--json", *flags).out) == alone
        assert len(client.scheduler_info()["workers"]) == 2
    expected = read_predictions(trained / "alone.zarr")
    for name in ("own.zarr", "lent.zarr"):
        result = read_predictions(trained / name)
        np.testing.assert_array_equal(result.prediction, expected.prediction)
        assert result.probability is not None
        assert expected.probability is not None
        np.testing.assert_array_equal(result.probability, expected.probability)


def test_predict_refuses_an_output_before_it_looks_for_workers(trained: Path, call: Call) -> None:
    (trained / "p").mkdir()
    done = call("predict", "m", "waves.zarr", "--out", "p", "--scheduler", "tcp://127.0.0.1:9")
    assert done.code == 3, done.err
    assert "p exists already" in done.err


def test_predict_refuses_an_output_that_exists(trained: Path, call: Call) -> None:
    arguments = ["predict", "blobs.model", "blobs-test.zarr", "--out", "out.zarr"]
    assert call(*arguments).code == 0
    again = call(*arguments)
    assert again.code == 3
    assert "out.zarr" in again.err
    assert call(*arguments, "--overwrite").code == 0
