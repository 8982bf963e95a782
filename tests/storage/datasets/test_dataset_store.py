import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from distkern.errors import DataError, JobError
from distkern.storage import Dataset, DatasetWriter, open_dataset, write_dataset, write_model

RNG = np.random.default_rng(7)
X = RNG.normal(size=(100, 3))


def attributes(path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((path / "zarr.json").read_text())["attributes"]["distkern"]
    return facts


def change(path: Path, **facts: Any) -> None:
    document = json.loads((path / "zarr.json").read_text())
    document["attributes"]["distkern"].update(facts)
    (path / "zarr.json").write_text(json.dumps(document))


@pytest.fixture
def store(tmp_path: Path) -> Dataset:
    y = np.array(["no", "yes"])[(X[:, 0] > 0).astype(int)]
    return write_dataset(tmp_path / "d", X, y, chunk_rows=32, feature_names=["a", "b", "c"])


def test_round_trip_and_layout(store: Dataset) -> None:
    again = open_dataset(store.path)
    np.testing.assert_array_equal(again.X[:], X)
    assert again.X.chunks == (32, 3)
    assert again.y.chunks == (32,)
    assert again.X.metadata.zarr_format == 3
    assert [codec.to_dict()["name"] for codec in again.X.compressors] == ["blosc"]
    assert again.X.compressors[0].to_dict()["configuration"]["cname"] == "lz4"
    assert (again.n_rows, again.n_features, again.task) == (100, 3, "classification")
    assert again.feature_names == ("a", "b", "c")
    np.testing.assert_allclose(again.feature_mean, X.mean(axis=0), atol=1e-15)
    np.testing.assert_allclose(again.feature_std, X.std(axis=0))
    assert again.nbytes == 100 * 3 * 8 + 100 * 4
    assert repr(again) == "<Dataset 'd': 100 rows x 3 features float64, classification, 2 classes>"
    again.verify()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["b", "a"], "<U1"),
        (["long name", "ä"], "<U9"),
        ([True, False], "bool"),
        ([3, -1], "int64"),
        (np.array([3, 1], dtype=np.uint8), "uint8"),
        (np.array([2.5, -0.5]), "float64"),
        (np.array([2.5, -0.5], dtype=np.float32), "float32"),
        (np.array([b"x", b"a"]), "<U1"),
        (np.array(["x", "a"], dtype=object), "<U1"),
        (np.array(["x", "a"], dtype=np.dtypes.StringDType()), "<U1"),
        (np.array([True, False], dtype=object), "bool"),
        (np.array([3, 1], dtype=object), "int64"),
        (np.array([3, 1.5], dtype=object), "float64"),
        (np.array([3, 1], dtype=">i4"), "int32"),
    ],
)
def test_labels_come_back_as_given(tmp_path: Path, labels: Any, expected: str) -> None:
    y = np.asarray(labels)[np.arange(100) % 2]
    dataset = write_dataset(tmp_path / "d", X, y, task="classification")
    assert dataset.class_labels is not None
    assert dataset.class_labels.dtype == expected
    assert dataset.y.dtype == np.int32
    assert dataset.class_counts == (50, 50)
    wanted = y.astype(dataset.class_labels.dtype)
    np.testing.assert_array_equal(dataset.targets(), wanted)
    np.testing.assert_array_equal(dataset.targets(3, 9), wanted[3:9])
    assert list(dataset.class_labels) == sorted(set(wanted.tolist()))


@pytest.mark.parametrize(
    ("y", "task", "expected"),
    [
        (np.arange(100), None, "classification"),
        (np.arange(101), None, "regression"),
        (np.arange(101), "classification", "classification"),
        (np.arange(100) % 2, "regression", "regression"),
        (np.arange(100) % 2 * 1.0, None, "regression"),
        (np.arange(100) % 2 == 0, None, "classification"),
        ((np.arange(100) % 2).astype(object), None, "classification"),
    ],
)
def test_task_rule(tmp_path: Path, y: Any, task: str | None, expected: str) -> None:
    dataset = write_dataset(tmp_path / "d", RNG.normal(size=(len(y), 2)), y, task=task, chunk_rows=40)
    assert dataset.task == expected
    np.testing.assert_array_equal(dataset.targets(), y)
    if expected == "regression":
        assert dataset.y.dtype == np.asarray(y).dtype
        assert dataset.class_labels is None


def test_class_of_one_row_is_kept(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "d", X, [0] * 99 + [5])
    assert dataset.class_counts == (99, 1)


def test_a_lazy_frame_is_computed_once(tmp_path: Path) -> None:
    dask = pytest.importorskip("dask")
    frames = pytest.importorskip("dask.dataframe")
    calls: list[int] = []

    def part(number: int) -> pd.DataFrame:
        calls.append(number)
        return pd.DataFrame(X[number : number + 50], columns=list("abc"))

    lazy = frames.from_delayed([dask.delayed(part)(number) for number in (0, 50)], meta=part(0), verify_meta=False)
    calls.clear()
    dataset = write_dataset(tmp_path / "d", lazy, Y)
    assert sorted(calls) == [0, 50]
    assert dataset.feature_names == ("a", "b", "c")
    np.testing.assert_array_equal(dataset.X[:], X)


@pytest.mark.parametrize("targets", [1, 3])
def test_several_targets(tmp_path: Path, targets: int) -> None:
    y = RNG.normal(size=(100, targets)).astype(np.float32)
    dataset = write_dataset(tmp_path / "d", X, y, chunk_rows=30)
    assert dataset.y.chunks == (30, targets)
    assert dataset.y.dtype == np.float32
    np.testing.assert_array_equal(dataset.targets(), y)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("float32", "float32"),
        ("float64", "float64"),
        ("float16", "float64"),
        ("longdouble", "float64"),
        ("int16", "int16"),
        ("uint8", "uint8"),
        ("bool", "uint8"),
        ("object", "float64"),
        (">f4", "float32"),
    ],
)
def test_feature_dtypes(tmp_path: Path, given: str, stored: str) -> None:
    rows = (np.arange(12).reshape(6, 2) % 5).astype(given)
    dataset = write_dataset(tmp_path / "d", rows, np.arange(6) % 2)
    assert dataset.X.dtype == stored
    np.testing.assert_array_equal(dataset.X[:], rows.astype(stored))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_arrays_are_copied_by_chunk(tmp_path: Path, zarr_format: Any) -> None:
    Z = (
        zarr.create_array(tmp_path / "Z", shape=X.shape, chunks=(7, 2), dtype="f8", order="F", zarr_format=zarr_format)
        if zarr_format == 2
        else zarr.create_array(tmp_path / "Z", shape=X.shape, chunks=(7, 2), dtype="f8")
    )
    Z[:] = X
    y = zarr.create_array(tmp_path / "y", shape=(100,), chunks=(11,), dtype="f4", zarr_format=zarr_format)
    y[:] = X[:, 0]
    copy = write_dataset(tmp_path / "d", Z, y, chunk_rows=20)
    plain = write_dataset(tmp_path / "e", X, X[:, 0].astype("f4"), chunk_rows=20)
    assert attributes(Path(copy.path)) == attributes(Path(plain.path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=8),
    chunk_rows=st.integers(3, 25),
    kind=st.sampled_from(["text", "integer", "number"]),
    known=st.booleans(),
)
@example(sizes=[1, 1], chunk_rows=3, kind="text", known=False)  # labels appear in another order than the sorted one
def test_pieces_do_not_matter(tmp_path: Path, sizes: list[int], chunk_rows: int, kind: str, known: bool) -> None:
    n_rows = sum(sizes) + 2
    rows = np.random.default_rng(n_rows).normal(size=(n_rows, 2))
    y: Any = {
        "text": np.array(["b", "c", "a"])[np.arange(n_rows) % 3],
        "integer": np.arange(n_rows),
        "number": rows[:, 0],
    }[kind]
    for name in "ab":
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    whole = write_dataset(tmp_path / "a", rows, y, chunk_rows=chunk_rows)
    with DatasetWriter(tmp_path / "b", n_rows=n_rows if known else None, chunk_rows=whole.X.chunks[0]) as writer:
        start = 0
        for size in (*sizes, 2):
            writer.append(rows[start : start + size], y[start : start + size])
            start += size
    pieces = open_dataset(tmp_path / "b")
    assert attributes(tmp_path / "a") == attributes(tmp_path / "b")
    np.testing.assert_array_equal(pieces.X[:], rows)
    np.testing.assert_array_equal(pieces.targets(), y)
    pieces.verify()


def bad(row: int, column: int, value: float) -> Any:
    rows = X.copy()
    rows[row, column] = value
    return rows


Y = np.arange(100) % 2


@pytest.mark.parametrize(
    ("rows", "y", "options", "kind", "parts"),
    [
        (bad(17, 1, np.nan), Y, {}, "not-finite", ["NaN", "row 17 (counted from 0)", "column 1"]),
        (bad(99, 2, np.inf), Y, {"feature_names": ["a", "b", "c"]}, "not-finite", ["inf", "row 99", "'c'"]),
        (bad(0, 0, -np.inf).astype("f4"), Y, {}, "not-finite", ["row 0", "--missing"]),
        (X, np.where(np.arange(100) == 40, np.nan, 1.0), {}, "not-finite", ["y", "row 40"]),
        (X, Y[:99], {}, "shape-mismatch", ["100", "99"]),
        (X, 3, {}, "shape-mismatch", ["100"]),
        (X[:, 0], Y, {}, "shape-mismatch", ["(100,)"]),
        (X, np.zeros((100, 2, 2)), {}, "shape-mismatch", ["3 dimensions"]),
        (X[:1], Y[:1], {}, "too-few-rows", ["1 rows", "at least 2"]),
        (X[:0], Y[:0], {}, "too-few-rows", ["0 rows"]),
        (X[:, :0], Y, {}, "zero-features", ["no features"]),
        (np.ones((100, 2)), Y, {}, "constant-features", ["constant features only", "2 columns"]),
        (X, np.zeros(100, int), {}, "single-class", ["0"]),
        (X, ["only"] * 100, {}, "single-class", ["'only'"]),
        (X.astype(complex), Y, {}, "not-numeric", ["complex128"]),
        (X.astype(str), Y, {}, "not-numeric", ["<U"]),
        ([["a", 1]] * 100, Y, {}, "not-numeric", ["X"]),
        ([[1, 2], [3]], [0, 1], {}, "shape-mismatch", ["X", "row 1"]),
        (X, np.arange(100).astype("M8[s]"), {}, "not-numeric", ["datetime64"]),
        (X, np.array([None, *"ab" * 50][:100], object), {}, "missing-label", ["row 0"]),
        (X, np.array([pd.NA, *"ab" * 50][:100], object), {}, "missing-label", ["<NA>", "row 0"]),
        (X, np.array([np.nan, *"ab" * 50][:100], object), {}, "missing-label", ["row 0"]),
        (X, np.array([b"a", b"\xff"] * 50), {}, "bad-label", ["bytes"]),
        (X, [[1], [1, 2]] * 50, {}, "shape-mismatch", ["y"]),
        (X, np.array([1.5, "a"] * 50, object), {}, "mixed-labels", ["float", "str"]),
        (X, ["a", "b"] * 50, {"task": "regression"}, "not-numeric", ["'regression'"]),
        (X, np.zeros((100, 2), int), {"task": "classification"}, "shape-mismatch", ["(100, 2)"]),
        (X, Y, {"feature_names": ["a", "b"]}, "feature-names", ["2", "3"]),
        (X, Y, {"feature_names": ["a", "b", "a"]}, "feature-names", ["different"]),
    ],
)
def test_refused_data(tmp_path: Path, rows: Any, y: Any, options: dict[str, Any], kind: str, parts: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        write_dataset(tmp_path / "d", rows, y, chunk_rows=16, **options)
    assert caught.value.kind == kind
    for part in parts:
        assert part in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"task": "clasification"}, {"chunk_rows": 0}])
def test_refused_parameters(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(JobError, match="must be"):
        write_dataset(tmp_path / "d", X, Y, **options)


@pytest.mark.parametrize(
    ("second", "y", "kind"),
    [
        (X[:, :2], Y, "shape-mismatch"),
        (X.astype("f8"), Y, "dtype-mismatch"),
        (X.astype("f4"), Y * 1.5, "mixed-labels"),
        (X.astype("f4"), np.array(["a"] * 100), "mixed-labels"),
    ],
)
def test_pieces_must_agree(tmp_path: Path, second: Any, y: Any, kind: str) -> None:
    def write() -> None:
        with DatasetWriter(tmp_path / "d") as writer:
            writer.append(X.astype("f4"), Y)
            writer.append(second, y)

    with pytest.raises(DataError) as caught:
        write()
    assert caught.value.kind == kind
    assert list(tmp_path.iterdir()) == []


def test_row_number_counts_over_pieces(tmp_path: Path) -> None:
    def write() -> None:
        with DatasetWriter(tmp_path / "d") as writer:
            writer.append(X, Y)
            writer.append(bad(5, 0, np.nan), Y)

    with pytest.raises(DataError, match="row 105"):
        write()


def test_announced_rows_must_come(tmp_path: Path) -> None:
    def write() -> None:
        with DatasetWriter(tmp_path / "d", n_rows=101) as writer:
            writer.append(X, Y)

    with pytest.raises(DataError, match="101"):
        write()


def test_identifier_column_is_no_class(tmp_path: Path) -> None:
    n_rows = 65_537
    with pytest.raises(DataError, match="65536") as caught:
        write_dataset(tmp_path / "d", np.arange(n_rows)[:, None], np.arange(n_rows).astype(str))
    assert caught.value.kind == "too-many-classes"


def test_overwrite(store: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--overwrite") as caught:
        write_dataset(store.path, X, Y)
    assert caught.value.kind == "exists"
    assert write_dataset(store.path, X, Y * 1.0, overwrite=True).task == "regression"
    write_model(tmp_path / "m", {}, {"a": X})
    with pytest.raises(DataError) as caught:
        write_dataset(tmp_path / "m", X, Y, overwrite=True)
    assert caught.value.kind == "foreign"


def test_killed_writer_leaves_nothing_that_opens(tmp_path: Path) -> None:
    writer = DatasetWriter(tmp_path / "d", chunk_rows=10)
    with writer:
        writer.append(X, Y)
        (half,) = tmp_path.iterdir()
        shutil.copytree(half, tmp_path / "killed")
        assert not (tmp_path / "d").exists()
    with pytest.raises(DataError, match="again") as caught:
        open_dataset(tmp_path / "killed")
    assert caught.value.kind == "incomplete"
    write_dataset(tmp_path / "killed", X, Y, overwrite=True).verify()


def test_open_errors(store: Dataset, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "zarr.json").write_text("{")
    zarr.create_array(tmp_path / "plain", shape=(3, 2), dtype="f8")
    zarr.open_group(tmp_path / "group", mode="w")
    write_model(tmp_path / "m", {}, {"a": X})
    for name, kind, part in [
        ("nowhere", "missing", "nowhere"),
        ("x.csv", "not-a-dataset", "a .csv file"),
        ("empty", "not-a-dataset", "directory"),
        ("torn", "not-a-dataset", "directory"),
        ("plain", "not-a-dataset", "a plain zarr array"),
        ("group", "not-a-dataset", "another program"),
        ("m", "not-a-dataset", "a distkern model"),
    ]:
        with pytest.raises(DataError) as caught:
            open_dataset(tmp_path / name)
        assert (caught.value.kind, part in str(caught.value)) == (kind, True), name


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"complete": False}, "incomplete"),
        ({"complete": 1}, "incomplete"),
        ({"format_version": 3}, "newer-version"),
        ({"format_version": None}, "corrupt"),
        ({"n_rows": 99}, "corrupt"),
        ({"class_labels_dtype": "no"}, "corrupt"),
        ({"feature_mean": "x"}, "corrupt"),
    ],
)
def test_tampered_description(store: Dataset, facts: dict[str, Any], kind: str) -> None:
    change(Path(store.path), **facts)
    with pytest.raises(DataError) as caught:
        open_dataset(store.path)
    assert caught.value.kind == kind


@pytest.mark.parametrize("name", ["X", "y"])
def test_missing_array(store: Dataset, name: str) -> None:
    shutil.rmtree(Path(store.path) / name)
    with pytest.raises(DataError, match=f"array {name} is missing"):
        open_dataset(store.path)


def test_verify_names_the_chunk(store: Dataset) -> None:
    array = zarr.open_array(Path(store.path) / "X", mode="a")
    array[70, 1] = 0.0
    with pytest.raises(DataError, match=r"chunk 2 of X \(rows 64 to 95\)") as caught:
        store.verify()
    assert caught.value.kind == "corrupt"


@pytest.mark.parametrize("damage", ["truncate", "remove"])
def test_damaged_chunk_is_not_read_as_numbers(store: Dataset, damage: str) -> None:
    chunk = Path(store.path) / "y" / "c" / "1"
    if damage == "truncate":
        chunk.write_bytes(chunk.read_bytes()[:5])
    else:
        chunk.unlink()
    with pytest.raises(DataError):
        store.verify()
    source = store.source()
    source.read_targets(0)
    with pytest.raises(DataError) as caught:
        source.read_targets(1)
    assert caught.value.kind == "unreadable"


def test_remote_url_that_cannot_be_opened() -> None:
    with pytest.raises(DataError):
        open_dataset("nosuchprotocol://bucket/name")
