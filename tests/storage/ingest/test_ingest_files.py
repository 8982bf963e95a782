"""Options that all formats share: no targets, weights, several targets, folders, patterns, empty files, names."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import distkern as dk
from distkern.errors import DataError, JobError
from distkern.storage import Dataset, RowFiles, ingest, open_dataset, write_dataset

X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.5], [7.0, 1.0]])
Y = np.array([0.5, 1.5, 2.5, 3.5])
Z = np.array([4.0, 3.0, 2.0, 1.5])
W = np.array([1.0, 2.0, 0.0, 0.5])
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y, "z": Z, "w": W})
TABLE = FRAME.to_numpy()
FORMATS = ["csv", "parquet", "npy", "npz", "svmlight"]


def svmlight(rows: Any, labels: Any = None, first: int = 1) -> str:
    lines = []
    for number, row in enumerate(rows):
        label = [] if labels is None else [str(labels[number])]
        lines.append(" ".join(label + [f"{index}:{value}" for index, value in enumerate(row, first)]))
    return "\n".join(lines) + "\n"


def features_only(folder: Path, form: str) -> Path:
    path = folder / f"new.{form}"
    if form == "csv":
        FRAME[["a", "b"]].to_csv(path, index=False)
    elif form == "parquet":
        FRAME[["a", "b"]].to_parquet(path)
    elif form == "npy":
        np.save(path, X)
    elif form == "npz":
        np.savez(path, X=X)
    else:
        path.write_text(svmlight(X))
    return path


def complete(folder: Path, form: str) -> tuple[Path, dict[str, Any]]:
    """Write rows with a target and a weight; return the file and the options that name them."""
    path = folder / f"rows.{form}"
    if form == "csv":
        FRAME.to_csv(path, index=False)
    elif form == "parquet":
        FRAME.to_parquet(path)
    elif form == "npy":
        np.save(path, TABLE)
        return path, {"target": 2, "weight": 4}
    elif form == "npz":
        np.savez(path, X=TABLE[:, [0, 1, 3]], y=Y, w=W)
        return path, {"weight": "w"}
    else:
        path.write_text(svmlight(TABLE[:, [0, 1, 3]], Y))
        np.save(folder / "w.npy", W)
        return path, {"weight": str(folder / "w.npy")}
    return path, {"target": "y", "weight": "w"}


@pytest.mark.parametrize("form", FORMATS)
def test_rows_without_targets(tmp_path: Path, form: str) -> None:
    dataset = ingest(features_only(tmp_path, form), tmp_path / "d", no_target=True)
    np.testing.assert_array_equal(dataset.X[:], X)
    assert (dataset.has_targets, dataset.task, dataset.class_labels, dataset.n_rows) == (False, None, None, 4)
    assert "no targets" in repr(dataset)
    dataset.verify()
    model = dk.OROLSRegressor(sigma=3, max_centers=3, stop=None).fit(X, Y)
    np.testing.assert_allclose(model.predict(dataset), model.predict(X))
    for refused in (
        lambda: dataset.y,
        lambda: dataset.targets(),
        lambda: dk.OROLSRegressor().fit(dataset),
        lambda: dk.KRLSRegressor().partial_fit(dataset),
    ):
        with pytest.raises(DataError, match="has no targets") as caught:
            refused()
        assert caught.value.kind == "no-targets"


@pytest.mark.parametrize("form", FORMATS)
def test_a_target_is_asked_for(tmp_path: Path, form: str) -> None:
    with pytest.raises(DataError, match="--no-target"):
        ingest(features_only(tmp_path, form), tmp_path / "d")
    with pytest.raises(JobError) as caught:
        ingest(features_only(tmp_path, form), tmp_path / "d", no_target=True, task="regression")
    assert caught.value.kind == "target"


@pytest.mark.parametrize("form", FORMATS)
def test_weights_are_those_of_the_training(tmp_path: Path, form: str) -> None:
    path, options = complete(tmp_path, form)
    dataset = ingest(path, tmp_path / "d", **options)
    assert dataset.weights is not None
    np.testing.assert_array_equal(dataset.weights[:], W)
    np.testing.assert_array_equal(dataset.X[:], TABLE[:, [0, 1, 3]])
    np.testing.assert_array_equal(dataset.targets(), Y)
    dataset.verify()
    settings = {"sigma": 3.0, "max_centers": 2, "stop": None}
    X3 = TABLE[:, [0, 1, 3]]
    ours = dk.OROLSRegressor(**settings).fit(dataset)
    np.testing.assert_allclose(ours.predict(dataset), dk.OROLSRegressor(**settings).fit(X3, Y, W).predict(X3))
    given = dk.OROLSRegressor(**settings).fit(dataset, sample_weight=np.ones(4))
    np.testing.assert_allclose(given.predict(dataset), dk.OROLSRegressor(**settings).fit(X3, Y).predict(X3))


def test_weights_that_cannot_be(tmp_path: Path) -> None:
    for values, kind in ((["1", "-2"], "invalid-weights"), (["1", ""], "missing-value"), (["1", "x"], "text-column")):
        text = "a,y,w\n" + "".join(f"{row},{row}.5,{value}\n" for row, value in enumerate(values))
        (tmp_path / "t.csv").write_text(text)
        with pytest.raises(DataError) as caught:
            ingest(tmp_path / "t.csv", tmp_path / "d", target="y", weight="w")
        assert caught.value.kind == kind
        assert not (tmp_path / "d").exists()
    np.save(tmp_path / "w.npy", np.ones(3))
    (tmp_path / "t.svm").write_text(svmlight(X, Y))
    with pytest.raises(DataError, match="3"):
        ingest(tmp_path / "t.svm", tmp_path / "d", weight=str(tmp_path / "w.npy"))
    with pytest.raises(DataError, match="named twice"):
        ingest(complete(tmp_path, "csv")[0], tmp_path / "d", target="y", weight="y")


def test_weights_from_arrays_and_instead(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "d", X, Y, sample_weight=W)
    other = write_dataset(tmp_path / "o", X, Y)
    assert dataset.fingerprint() != other.fingerprint()
    plain = dataset.with_weights(other.y)
    weights = plain.source().read_weights(0)
    assert weights is not None
    np.testing.assert_array_equal(weights, Y)
    assert plain.source().fingerprint() not in (dataset.source().fingerprint(), other.source().fingerprint())


@pytest.mark.parametrize("form", ["csv", "parquet", "npy"])
def test_several_targets(tmp_path: Path, form: str) -> None:
    path, _ = complete(tmp_path, form)
    target: Any = (3, 2) if form == "npy" else ("z", "y")
    dataset = ingest(path, tmp_path / "d", target=target)
    np.testing.assert_array_equal(dataset.targets(), TABLE[:, [3, 2]])
    np.testing.assert_array_equal(dataset.X[:], TABLE[:, [0, 1, 4]])
    assert dataset.task == "regression"


def test_several_targets_that_cannot_be(tmp_path: Path) -> None:
    FRAME.assign(c=list("uvuv")).to_csv(tmp_path / "t.csv", index=False)
    FRAME.assign(c=list("uvuv")).to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        with pytest.raises(DataError, match=r"'c'.*several targets must be numbers"):
            ingest(tmp_path / name, tmp_path / "d", target=["y", "c"])
    with pytest.raises(JobError, match="name one"):
        ingest(complete(tmp_path, "npz")[0], tmp_path / "d", target=["y", "w"])


PARTS: dict[str, tuple[Callable[[Path, Any], Any], str]] = {
    "parquet": (lambda path, rows: FRAME.iloc[rows].to_parquet(path), "empty"),
    "csv": (lambda path, rows: FRAME.iloc[rows].to_csv(path, index=False), "empty"),
    "npy": (lambda path, rows: np.save(path, TABLE[rows]), "empty"),
}


@pytest.mark.parametrize("form", PARTS)
def test_folders_patterns_and_empty_parts(tmp_path: Path, form: str) -> None:
    write = PARTS[form][0]
    folder = tmp_path / "set"
    folder.mkdir()
    for name, rows in (("part.0", [0]), ("part.2", [1]), ("part.10", [2]), ("part.11", []), ("part.12", [3])):
        write(folder / f"{name}.{form}", rows)
    (folder / "_SUCCESS").touch()
    (folder / ".part.0.crc").touch()
    options: dict[str, Any] = {"target": 2 if form == "npy" else "y"}
    for number, source in enumerate((folder, str(folder / f"part*.{form}"), str(tmp_path / f"**/*.{form}"))):
        dataset = ingest(source, tmp_path / f"d{number}", **options)
        np.testing.assert_array_equal(dataset.targets(), Y)
    with pytest.raises(DataError) as caught:
        ingest(folder / f"part.11.{form}", tmp_path / "d", **options)
    assert caught.value.kind == "empty-file"
    for source, part in (
        (str(folder / "no*"), "no file matches"),
        (tmp_path, "a folder d0"),
        (tmp_path / "d0", "is a"),
    ):
        with pytest.raises(DataError, match=part):
            ingest(source, tmp_path / "d", **options)


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


@pytest.mark.parametrize("form", ["csv", "svm"])
@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), (".zst", zstd)]
)
def test_compressed(tmp_path: Path, form: str, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    rng = np.random.default_rng(0)
    rows = np.round(rng.normal(size=(400, 3)), 4)
    frame = pd.DataFrame(rows, columns=["y", "a", "b"])
    text = frame.to_csv(index=False) if form == "csv" else svmlight(rows[:, 1:], rows[:, 0])
    path = tmp_path / f"t.{form}{suffix}"
    path.write_bytes(packed := pack(text.encode()))
    options: dict[str, Any] = {"target": "y"} if form == "csv" else {}
    dataset = ingest(path, tmp_path / "d", **options)
    np.testing.assert_array_equal(dataset.X[:], rows[:, 1:])
    np.testing.assert_array_equal(dataset.targets(), rows[:, 0])
    for damage in (packed[: len(packed) // 2], packed[:20] + b"damage" + packed[26:], text.encode()):
        path.write_bytes(damage)
        with pytest.raises(DataError) as caught:
            ingest(path, tmp_path / "e", **options)
        assert caught.value.kind == "unreadable"
        assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("name", ["a9a", "a9a.t", "mnist.scale", "x.txt", "x.data.bz2"])
def test_a_format_by_name(tmp_path: Path, name: str) -> None:
    text = svmlight(X, Y).encode()
    (tmp_path / name).write_bytes(bz2.compress(text) if name.endswith("bz2") else text)
    with pytest.raises(DataError, match="--format"):
        ingest(tmp_path / name, tmp_path / "d")
    np.testing.assert_array_equal(ingest(tmp_path / name, tmp_path / "d", format="svmlight").X[:], X)


def test_formats_that_are_not_compressed(tmp_path: Path) -> None:
    (tmp_path / "x.npy.gz").write_bytes(b"")
    with pytest.raises(DataError, match="decompress it first"):
        ingest(tmp_path / "x.npy.gz", tmp_path / "d", no_target=True)
    with pytest.raises(JobError, match=r"'excel'.*csv, parquet"):
        ingest(tmp_path / "x.npy.gz", tmp_path / "d", format="excel")


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"target": "y", "no_target": True}, "target"),
        ({"target": "y", "features": 3}, "unused-option"),
        ({"target": "y", "index_base": 1}, "unused-option"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: dict[str, Any], kind: str) -> None:
    with pytest.raises(JobError) as caught:
        ingest(complete(tmp_path, "csv")[0], tmp_path / "d", **options)
    assert caught.value.kind == kind


def test_columns_of_a_model(tmp_path: Path) -> None:
    path, _ = complete(tmp_path, "parquet")
    rows = RowFiles([path], 3, ["w", "a", "b"])
    np.testing.assert_array_equal(np.concatenate([piece for piece, _ in rows.pieces()]), TABLE[:, [4, 0, 1]])
    with pytest.raises(DataError, match="no column 'q', which the model was trained on"):
        RowFiles([path], 2, ["a", "q"])


def test_old_readers_refuse_what_they_do_not_know(tmp_path: Path) -> None:
    versions = {}
    for name, options in (("plain", {}), ("weighted", {"sample_weight": W})):
        write_dataset(tmp_path / name, X, Y, **options)  # type: ignore[arg-type]
        versions[name] = _facts(tmp_path / name)["format_version"]
    write_dataset(tmp_path / "rows", X)
    assert versions == {"plain": 1, "weighted": 2}
    assert _facts(tmp_path / "rows")["format_version"] == 2
    assert isinstance(open_dataset(tmp_path / "rows"), Dataset)


def _facts(path: Path) -> Any:
    import json

    return json.loads((path / "zarr.json").read_text())["attributes"]["distkern"]
