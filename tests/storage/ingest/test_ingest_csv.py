import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distkern.errors import DataError, JobError
from distkern.storage import ingest, open_dataset

TABLE = "a,label,b\n1,x,2\n3.5,y,-4\n5,x,6e1\n"


def put(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("t.csv", TABLE, {}),
        ("t.CSV", TABLE, {}),
        ("t.csv.gz", TABLE, {}),
        ("t.tsv", TABLE.replace(",", "\t"), {}),
        ("t.tsv.gz", TABLE.replace(",", "\t"), {}),
        ("t.csv", TABLE.replace(",", ";"), {"delimiter": ";"}),
        ("t.csv", TABLE.replace("\n", "\r\n"), {}),
        ("t.csv", "\ufeff" + TABLE, {}),
        ("t.csv", TABLE.rstrip("\n"), {}),
        ("t.csv", TABLE.replace("\n", "\n\n"), {}),
        ("t.csv", TABLE.replace("1,x", '"1","x"').replace("-4", " -4 "), {}),
        ("t.csv", "c,a,label,b\nhi,1,x,2\nho,3.5,y,-4\nhi,5,x,6e1\n", {"drop": ["c"]}),
    ],
)
def test_forms_of_one_table(tmp_path: Path, name: str, text: str, options: dict[str, Any]) -> None:
    dataset = ingest(put(tmp_path / name, text), tmp_path / "d", target="label", **options)
    np.testing.assert_array_equal(dataset.X[:], [[1, 2], [3.5, -4], [5, 60]])
    assert dataset.targets().tolist() == ["x", "y", "x"]
    assert dataset.feature_names == ("a", "b")
    assert dataset.notes == {"sources": [name], "rows_dropped": 0, "values_filled": 0}
    dataset.verify()


@pytest.mark.parametrize(
    ("values", "task", "expected", "labels"),
    [
        (["0", "1", "1"], "classification", [0, 1, 1], "int64"),
        (["0.5", "1", "2"], "regression", [0.5, 1, 2], None),
        (["1", "2", "x"], "classification", ["1", "2", "x"], "<U1"),
        (["NA", "DE", "FR"], "classification", ["NA", "DE", "FR"], "<U2"),
        (["true", "false", "true"], "classification", ["true", "false", "true"], "<U5"),
        (["007", "7", "8"], "classification", [7, 7, 8], "int64"),
    ],
)
def test_target_types(tmp_path: Path, values: list[str], task: str, expected: list[Any], labels: str | None) -> None:
    text = "a,y\n" + "".join(f"{row},{value}\n" for row, value in enumerate(values))
    dataset = ingest(put(tmp_path / "t.csv", text), tmp_path / "d", target="y")
    assert dataset.task == task
    assert dataset.targets().tolist() == expected
    assert (None if dataset.class_labels is None else str(dataset.class_labels.dtype)) == labels


def test_type_is_not_guessed_from_the_first_rows(tmp_path: Path) -> None:
    n_rows = 400_000
    lines = [f"{row},{row % 2},1\n" for row in range(n_rows)]
    lines[-1] = f"{n_rows}.5,1.5,0.25\n"
    path = put(tmp_path / "t.csv", "a,b,y\n" + "".join(lines))
    assert path.stat().st_size > 4 * 1024 * 1024
    dataset = ingest(path, tmp_path / "d", target="b")
    assert dataset.task == "regression"
    assert dataset.X[-1].tolist() == [n_rows + 0.5, 0.25]
    assert dataset.targets(n_rows - 2).tolist() == [0.0, 1.5]
    lines[-3] = "oops,1,1\n"
    put(path, "a,b,y\n" + "".join(lines))
    with pytest.raises(DataError, match=rf"column 'a' holds the text 'oops' in row {n_rows - 2} .*--categorical"):
        ingest(path, tmp_path / "e", target="b")
    assert not (tmp_path / "e").exists()


def test_several_files_matched_by_name(tmp_path: Path) -> None:
    first = put(tmp_path / "1.csv", TABLE)
    second = put(tmp_path / "2.csv.gz", "label,b,a\ny,20,10\n")
    dataset = ingest([first, second], tmp_path / "d", target="label")
    assert dataset.X[-1].tolist() == [10, 20]
    assert dataset.targets().tolist() == ["x", "y", "x", "y"]
    assert dataset.notes["sources"] == ["1.csv", "2.csv.gz"]
    third = put(tmp_path / "3.csv", "label,b,c\ny,20,10\n")
    with pytest.raises(DataError) as caught:
        ingest([first, third], tmp_path / "e", target="label")
    assert caught.value.kind == "columns-differ"
    assert "'a'" in str(caught.value)
    assert "3.csv" in str(caught.value)
    fourth = put(tmp_path / "4.csv", "label,b,a\ny,20,\n")
    with pytest.raises(DataError, match="row 4 "):
        ingest([first, fourth], tmp_path / "e", target="label", missing="error")


HOLES = "a,b,y\n1,10,0\n,20,1\n3,NaN,0\n5,30,1\n6,40,\n"


def test_missing_error(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        ingest(put(tmp_path / "t.csv", HOLES), tmp_path / "d", target="y", missing="error")
    assert caught.value.kind == "missing-value"
    for part in ("'a'", "row 2 ", "--missing"):
        assert part in str(caught.value)
    assert not (tmp_path / "d").exists()


def test_missing_drop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = ingest(put(tmp_path / "t.csv", HOLES), tmp_path / "d", target="y", missing="drop")
    assert dataset.X[:].tolist() == [[1, 10], [5, 30]]
    assert dataset.targets().tolist() == [0, 1]
    assert dataset.notes["rows_dropped"] == 3
    assert "3 of 5 rows" in caplog.text


def test_missing_mean(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = HOLES.replace("6,40,\n", "")
    dataset = ingest(put(tmp_path / "t.csv", text), tmp_path / "d", target="y", missing="mean")
    assert dataset.X[:].tolist() == [[1, 10], [3, 20], [3, 20], [5, 30]]
    assert dataset.notes["values_filled"] == 2
    assert "2 missing values" in caplog.text
    with pytest.raises(DataError, match=r"target has no value in row 5 .*--missing drop"):
        ingest(put(tmp_path / "u.csv", HOLES), tmp_path / "e", target="y", missing="mean")


def test_missing_text_target(tmp_path: Path) -> None:
    path = put(tmp_path / "t.csv", "a,y\n1,u\n2,\n3,v\n")
    with pytest.raises(DataError, match="target has no value in row 2 "):
        ingest(path, tmp_path / "d", target="y")
    assert ingest(path, tmp_path / "d", target="y", missing="drop").targets().tolist() == ["u", "v"]


@pytest.mark.parametrize(
    ("text", "options", "kind", "parts"),
    [
        ("", {}, "empty-file", ["empty", "header"]),
        ("\n\n", {}, "empty-file", ["empty"]),
        ("a,y", {}, "empty-file", ["no rows"]),
        ("a,y\n", {}, "empty-file", ["no rows"]),
        ("a,y\n1,2\n3\n", {}, "ragged-row", ["1 values", "row 2 ", "2 columns", "'3'"]),
        ("a,y\n1,2\n\n3,4,5\n", {}, "ragged-row", ["3 values", "row 2 ", "2 columns"]),
        ("a,y\n1,2\n3,4\n", {"target": None}, "target", ["--target", "'a', 'y'"]),
        ("alpha,y\n1,2\n", {"target": "alfa"}, "unknown-column", ["'alfa'", "did you mean 'alpha'?", "'y'"]),
        ("a;y\n1;2\n", {}, "unknown-column", ["--delimiter", "';'"]),
        ("a y\n1 2\n", {}, "unknown-column", ["--delimiter", "' '"]),
        ("a,y\n1,2\n", {"drop": ["b"]}, "unknown-column", ["'b'", "to drop"]),
        ("a,y\n1,2\n", {"drop": ["y"]}, "target", ["'y'"]),
        ("a,y\n1,2\n", {"drop": ["a"]}, "zero-features", ["'y'"]),
        ("a,a,y\n1,2,3\n", {}, "duplicate-column", ["'a'"]),
        ("a,y\n1,0\ninf,1\n", {}, "not-finite", ["'a'", "row 2 "]),
        ("a,y\n1,0.5\n2,1e400\n", {}, "not-finite", ["target", "row 2 "]),
        ("a,y\n,0\n,1\n", {"missing": "mean"}, "empty-column", ["'a'", "--drop"]),
        ("a,y\n,0\n,1\n", {"missing": "drop"}, "too-few-rows", ["0 rows"]),
        ("a,y\n1,0\n1,1\n", {}, "constant-features", ["constant features only"]),
        ("a,y\n1,0\n2,0\n", {}, "single-class", ["0"]),
        ("a,y\n1,\n2,\n", {}, "missing-value", ["target", "row 1 "]),
        (b"a,y\n1,\xff\xfe\n2,x\n", {}, "unreadable", ["t.csv"]),
        (b"\xff\xfea,y\n1,2\n", {}, "unreadable", ["t.csv"]),
        (np.random.default_rng(0).bytes(500), {}, "unreadable", ["t.csv"]),
    ],
)
def test_refused_files(tmp_path: Path, text: str | bytes, options: dict[str, Any], kind: str, parts: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        ingest(put(tmp_path / "t.csv", text), tmp_path / "d", **{"target": "y", **options})
    assert caught.value.kind == kind
    for part in parts:
        assert part in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: b"no gzip at all"])
def test_damaged_gzip(tmp_path: Path, damage: Any) -> None:
    path = put(tmp_path / "t.csv.gz", "a,y\n" + "".join(f"{row},{row % 2}\n" for row in range(5000)))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"t\.csv\.gz") as caught:
        ingest(path, tmp_path / "d", target="y")
    assert caught.value.kind == "unreadable"


def test_small_file_has_several_chunks(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(30_000, 6))
    lines = "\n".join(",".join(map(repr, row.tolist())) for row in rows)
    dataset = ingest(put(tmp_path / "t.csv", f"a,b,c,d,e,y\n{lines}\n"), tmp_path / "d", target="y")
    assert dataset.X.cdata_shape[0] >= 4
    np.testing.assert_array_equal(dataset.X[:], rows[:, :5])
    np.testing.assert_array_equal(dataset.targets(), rows[:, 5])


@pytest.mark.parametrize(
    ("name", "options", "error", "kind", "part"),
    [
        ("none.csv", {}, DataError, "missing", "none.csv"),
        ("folder.csv", {}, DataError, "missing", "folder.csv"),
        ("t.xlsx", {}, DataError, "unknown-format", ".parquet"),
        ("t.csv", {"missing": "median"}, JobError, "invalid-missing", "error, drop, mean"),
        ("t.csv", {"part": "train"}, JobError, "unused-option", "--part"),
        ("t.csv", {"delimiter": "ab"}, JobError, "invalid-delimiter", "'ab'"),
        ("t.csv", {"task": "cluster"}, JobError, "invalid-task", "'cluster'"),
        ("t.csv", {"chunk_rows": -1}, JobError, "invalid-chunk-rows", "-1"),
    ],
)
def test_refused_calls(
    tmp_path: Path, name: str, options: dict[str, Any], error: type[Any], kind: str, part: str
) -> None:
    put(tmp_path / "t.csv", TABLE)
    put(tmp_path / "t.xlsx", "")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(error) as caught:
        ingest(tmp_path / name, tmp_path / "d", target="label", **options)
    assert caught.value.kind == kind
    assert part in str(caught.value)
    assert not (tmp_path / "d").exists()


def test_sources_of_one_format(tmp_path: Path) -> None:
    with pytest.raises(JobError) as caught:
        ingest([put(tmp_path / "a.csv", TABLE), put(tmp_path / "b.npz", "")], tmp_path / "d", target="label")
    assert caught.value.kind == "mixed-formats"
    with pytest.raises(JobError) as caught:
        ingest([], tmp_path / "d")
    assert caught.value.kind == "no-source"


def test_existing_output_is_refused_before_reading(tmp_path: Path) -> None:
    path = put(tmp_path / "t.csv", TABLE)
    ingest(path, tmp_path / "d", target="label")
    put(path, "damaged")
    with pytest.raises(DataError, match="--overwrite") as caught:
        ingest(path, tmp_path / "d", target="label")
    assert caught.value.kind == "exists"
    with pytest.raises(DataError, match="no rows"):
        ingest(path, tmp_path / "d", target="label", overwrite=True)
    open_dataset(tmp_path / "d").verify()
    put(path, TABLE + "7,z,8\n")
    assert ingest(path, tmp_path / "d", target="label", overwrite=True).n_rows == 4


@pytest.mark.parametrize(
    ("text", "options", "names", "first"),
    [
        ("a, b , y\n1, 2, 0\n3, 4, 1\n", {}, ("a", "b"), [1, 2]),
        ("\ufeffa,b,y\n1,2,0\n3,4,1\n", {}, ("a", "b"), [1, 2]),
        ("a,b,y\nTrue,1.5,0\nFALSE,2.5,1\n", {}, ("a", "b"), [1, 1.5]),
        ("1,0.5,0\n2,1.5,1\n", {"header": False, "target": "2"}, None, [1, 0.5]),
        ("\ufeff1,0.5,0\n2,1.5,1\n", {"header": False, "target": 2}, None, [1, 0.5]),
        ("0,1,2\n1,0.5,0\n2,1.5,1\n", {"target": "2"}, ("0", "1"), [1, 0.5]),
        ("0.25,0.5,1.5\n1,0.5,0\n2,1.5,1\n", {"target": "1.5", "header": True}, ("0.25", "0.5"), [1, 0.5]),
        (",a,b,y\n0,5,6,0\n1,7,8,1\n", {}, ("a", "b"), [5, 6]),
        ("Unnamed: 0,a,b,y\n3,5,6,0\n7,7,8,1\n", {}, ("a", "b"), [5, 6]),
        (",a,b,y\n0,5,6,0\n1,7,8,1\n", {"target": ""}, ("a", "b", "y"), [5, 6, 0]),
        (",a,b,y\n4,5,6,0\n1,7,8,1\n", {"drop": [""]}, ("a", "b"), [5, 6]),
    ],
)
def test_headers(tmp_path: Path, text: str, options: dict[str, Any], names: Any, first: list[float]) -> None:
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    dataset = ingest(tmp_path / "t.csv", tmp_path / "d", **{"target": "y", **options})
    assert dataset.feature_names == names
    assert dataset.n_rows == 2
    assert dataset.X[0].tolist() == first


@pytest.mark.parametrize(
    ("text", "kind", "part"),
    [
        ("1,0.869,-0.635\n0,0.5,0.25\n", "no-header", "--no-header"),
        ("5.1,3.5,setosa\n4.9,3.0,virginica\n", "no-header", "--no-header"),
        ("3,1,0\n4,1,0\n", "no-header", "--no-header"),
        (",a,y\n4,5,0\n1,7,1\n", "unnamed-column", "--drop ''"),
        (",a,y\nu,5,0\nv,7,1\n", "unnamed-column", "--drop ''"),
    ],
)
def test_headers_and_columns_that_are_refused(tmp_path: Path, text: str, kind: str, part: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError) as caught:
        ingest(tmp_path / "t.csv", tmp_path / "d", target="y")
    assert caught.value.kind == kind
    assert part in str(caught.value)


def test_the_index_column_is_named_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "t.csv").write_text(",a,y\n0,5,0\n1,7,1\n")
    ingest(tmp_path / "t.csv", tmp_path / "d", target="y")
    assert "numbers the rows" in caplog.text


def test_rows_are_numbered_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1,2,0\n3,4,1\n5,6\n")
    with pytest.raises(DataError, match=r"2 values in row 3 .*first row has 3"):
        ingest(tmp_path / "t.csv", tmp_path / "d", target=2, header=False)
