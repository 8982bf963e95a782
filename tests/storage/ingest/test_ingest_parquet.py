import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distkern.errors import DataError
from distkern.storage import ingest


def put(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    ("target", "expected", "task"),
    [
        (["x", "y", "x"], ["x", "y", "x"], "classification"),
        (pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y", "x"], "classification"),
        ([True, False, True], [True, False, True], "classification"),
        ([4, 7, 4], [4, 7, 4], "classification"),
        ([0.5, 1.5, 2.5], [0.5, 1.5, 2.5], "regression"),
        ([decimal.Decimal("1.5"), decimal.Decimal("2.5"), decimal.Decimal(3)], [1.5, 2.5, 3.0], "regression"),
    ],
)
def test_targets(tmp_path: Path, target: Any, expected: list[Any], task: str) -> None:
    dataset = ingest(put(tmp_path / "t.parquet", a=[1.0, 2, 3], y=target), tmp_path / "d", target="y")
    assert dataset.targets().tolist() == expected
    assert dataset.task == task
    assert dataset.feature_names == ("a",)


@pytest.mark.parametrize(
    ("types", "stored"),
    [
        (("float32", "float32"), "float32"),
        (("int16", "int8"), "int16"),
        (("bool_", "bool_"), "uint8"),
        (("float16", "float16"), "float64"),
        (("int64", "float32"), "float64"),
        (("float64", "bool_"), "float64"),
    ],
)
def test_feature_types(tmp_path: Path, types: tuple[str, str], stored: str) -> None:
    a, b = (
        pa.array(np.array([1, 0, 1]), type=getattr(pa, name)())
        if name != "float16" and name != "bool_"
        else pa.array(np.array([1, 0, 1]).astype(name.rstrip("_")))
        for name in types
    )
    dataset = ingest(put(tmp_path / "t.parquet", a=a, b=b, y=[0, 1, 0]), tmp_path / "d", target="y")
    assert dataset.X.dtype == stored
    assert dataset.X[:].tolist() == [[1, 1], [0, 0], [1, 1]]


def test_several_files_and_pandas_index(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "y": ["u", "v"]}, index=[10, 20])
    frame.to_parquet(tmp_path / "1.parquet")
    frame[["y", "b", "a"]].to_parquet(tmp_path / "2.parquet")
    dataset = ingest([tmp_path / "1.parquet", tmp_path / "2.parquet"], tmp_path / "d", target="y")
    assert dataset.feature_names == ("a", "b")
    assert dataset.X[:].tolist() == [[1, 3], [2, 4], [1, 3], [2, 4]]
    assert dataset.targets().tolist() == ["u", "v", "u", "v"]


def test_many_batches(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(200_000, 3))
    path = put(tmp_path / "t.parquet", a=rows[:, 0], b=rows[:, 1], y=rows[:, 2])
    dataset = ingest(path, tmp_path / "d", target="y")
    np.testing.assert_array_equal(dataset.X[:], rows[:, :2])
    np.testing.assert_array_equal(dataset.targets(), rows[:, 2])


def test_missing_values(tmp_path: Path) -> None:
    path = put(tmp_path / "t.parquet", a=[1, None, 3, 5], b=[1, 2, 3, 4], y=["u", "v", "w", None])
    with pytest.raises(DataError, match=r"'a' has no value in row 2 "):
        ingest(path, tmp_path / "d", target="y", missing="error")
    dropped = ingest(path, tmp_path / "d", target="y", missing="drop")
    assert dropped.X.dtype == np.int64
    assert dropped.X[:].tolist() == [[1, 1], [3, 3]]
    with pytest.raises(DataError, match="target has no value in row 4 "):
        ingest(path, tmp_path / "e", target="y", missing="mean")
    path = put(tmp_path / "u.parquet", a=[1, None, 2], b=[1, 2, 3], y=[1.0, 2.0, 3.0])
    filled = ingest(path, tmp_path / "e", target="y", missing="mean")
    assert filled.X[:].tolist() == [[1, 1], [1.5, 2], [2, 3]]


@pytest.mark.parametrize(
    ("columns", "options", "kind", "parts"),
    [
        ({"a": [[1], [2]], "y": [0, 1]}, {}, "column-type", ["'a'", "list"]),
        ({"a": [1, 2], "y": [0, 1]}, {"target": "z"}, "unknown-column", ["'z'", "'a', 'y'"]),
        ({"a": pa.array([], pa.int64()), "y": pa.array([], pa.int64())}, {}, "empty-file", ["no rows"]),
        ({"a": pa.nulls(2), "y": [0, 1]}, {"missing": "indicator"}, "empty-column", ["'a'"]),
        ({"a": pa.nulls(2), "y": [0, 1]}, {"missing": "error"}, "missing-value", ["'a'", "row 1 "]),
        ({"a": [1.0, None], "y": [0, 1]}, {}, "missing-value", ["'a'", "row 2 ", "--missing indicator"]),
        ({"a": [1.0, np.inf], "y": [0, 1]}, {}, "not-finite", ["'a'", "row 2 "]),
        ({"a": [1.0, 2.0], "y": pa.nulls(2)}, {}, "missing-value", ["target", "row 1 "]),
    ],
)
def test_refused(tmp_path: Path, columns: Any, options: dict[str, Any], kind: str, parts: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        ingest(put(tmp_path / "t.parquet", **columns), tmp_path / "d", **{"target": "y", **options})
    assert caught.value.kind == kind
    for part in parts:
        assert part in str(caught.value)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("content", [b"", b"PAR1", b"random" * 50])
def test_not_parquet(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"t\.parquet") as caught:
        ingest(tmp_path / "t.parquet", tmp_path / "d", target="y")
    assert caught.value.kind == "unreadable"


def test_flipped_bit(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=20_000)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": rows, "y": rows}), path, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[30_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"t\.parquet") as caught:
        ingest(path, tmp_path / "d", target="y")
    assert caught.value.kind == "unreadable"


@pytest.mark.parametrize("index", ["named", "two levels", "dask", "shuffled"])
def test_index_columns_are_no_features(tmp_path: Path, index: str) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0], "y": [0.5, 1.5, 2.5]}, index=[5, 3, 4])
    if index == "named":
        frame.index.name = "row_id"
    if index == "two levels":
        frame.index = pd.MultiIndex.from_arrays([[1, 1, 2], [1, 2, 3]], names=["group", "i"])
    if index == "dask":
        table = pa.table({"a": frame.a.array, "y": frame.y.array, "__null_dask_index__": [0, 1, 2]})
        pq.write_table(table, tmp_path / "t.parquet")
    else:
        frame.to_parquet(tmp_path / "t.parquet")
    assert ingest(tmp_path / "t.parquet", tmp_path / "d", target="y").feature_names == ("a",)
    if index == "named":
        # An index that is named with an option is a column like others.
        assert ingest(tmp_path / "t.parquet", tmp_path / "e", target="row_id").feature_names == ("a", "y")
