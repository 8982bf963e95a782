from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyarrow import csv

from distkern.errors import DataError
from distkern.storage import check_prediction_destination, open_predictions

ROWS = np.array([0.1, 2.5, -1e300])
LABELS = {
    "text": np.array(["no, sir", 'so "it" is', "ü"]),
    "integers": np.array([-1, 1, 7]),
    "bool": np.array([False, True]),
    "floats": np.array([0.5, 1.5]),
}


def read(path: Path) -> pd.DataFrame:
    return csv.read_csv(path).to_pandas() if path.suffix == ".csv" else pd.read_parquet(path)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("n_targets", [None, 2])
def test_numbers(tmp_path: Path, ending: str, n_targets: int | None) -> None:
    values = ROWS if n_targets is None else np.column_stack([ROWS, ROWS * 2])
    with open_predictions(tmp_path / f"p{ending}", 3, n_targets=n_targets) as writer:
        writer.append(values[:2])
        writer.append(values[2:])
        assert not (tmp_path / f"p{ending}").exists()
    frame = read(tmp_path / f"p{ending}")
    assert list(frame) == (["prediction"] if n_targets is None else ["prediction_0", "prediction_1"])
    np.testing.assert_array_equal(frame.to_numpy().reshape(values.shape), values)
    assert [entry.name for entry in tmp_path.iterdir()] == [f"p{ending}"]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_labels_and_probabilities(tmp_path: Path, ending: str, labels: Any) -> None:
    shares = np.random.default_rng(0).dirichlet(np.ones(len(labels)), 5)
    predicted = labels[shares.argmax(axis=1)]
    with open_predictions(tmp_path / f"p{ending}", 5, class_labels=labels, probability=True) as writer:
        writer.append(predicted, shares)
    frame = read(tmp_path / f"p{ending}")
    assert list(frame) == ["prediction", *(f"probability_{label}" for label in labels.tolist())]
    assert frame.prediction.tolist() == predicted.tolist()
    np.testing.assert_array_equal(frame.iloc[:, 1:].to_numpy(), shares)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_nothing_is_left_of_an_error(tmp_path: Path, ending: str) -> None:
    with (
        pytest.raises(DataError, match="2 rows were predicted, not 3"),
        open_predictions(tmp_path / f"p{ending}", 3) as w,
    ):
        w.append(ROWS[:2])
    with pytest.raises(DataError, match="shape"), open_predictions(tmp_path / f"p{ending}", 3) as w:
        w.append(np.zeros((3, 2)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_only_predictions_are_replaced(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"p{ending}"
    frame = pd.DataFrame({"a": ROWS})
    if ending == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    for overwrite, kind in ((False, "exists"), (True, "foreign")):
        with pytest.raises(DataError) as caught:
            check_prediction_destination(path, overwrite)
        assert caught.value.kind == kind
    path.unlink()
    for values in (ROWS, ROWS * 2):
        with open_predictions(path, 3, overwrite=True) as writer:
            writer.append(values)
    np.testing.assert_array_equal(read(path).prediction, ROWS * 2)


@pytest.mark.parametrize("name", ["-", "p.tsv", "p.csv.gz", "p.NPY", "p.txt", "s3://bucket/p.csv"])
def test_other_endings_are_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="zarr store"):
        open_predictions(name, 3)
    assert not list(tmp_path.iterdir())


def test_large_parquet_has_few_row_groups(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    with open_predictions(tmp_path / "p.parquet", 30_000) as writer:
        for _ in range(300):
            writer.append(np.zeros(100))
    assert pq.ParquetFile(tmp_path / "p.parquet").num_row_groups == 1
