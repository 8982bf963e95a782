import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distkern.errors import DataError, JobError
from distkern.storage import ingest
from tests.markers import every_value

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 3))
y = np.array(["u", "v", "w"])[np.arange(60) % 3]


@pytest.mark.parametrize(
    ("save", "order", "dtype"),
    every_value([np.savez, np.savez_compressed], ["C", "F"], ["f8", "f4", "u1", "?", ">f8", "f2"]),
)
def test_npz(tmp_path: Path, save: Any, order: Any, dtype: str) -> None:
    rows = np.asarray(np.abs(X) * 2, order=order).astype("i4" if dtype == "?" else dtype).astype(dtype)
    save(tmp_path / "t.npz", X=rows, y=y)
    dataset = ingest(tmp_path / "t.npz", tmp_path / "d")
    np.testing.assert_array_equal(dataset.X[:], rows)
    assert dataset.targets().tolist() == y.tolist()
    assert dataset.X.dtype == {"?": "uint8", "f2": "float64", ">f8": "float64"}.get(dtype, dtype)


def test_npz_parts(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, X_train=X, y_train=y, X_test=X[:9], y_test=y[:9], z_test=X[:9, 0])
    with pytest.raises(JobError, match="--part") as caught:
        ingest(path, tmp_path / "d")
    assert caught.value.kind == "part"
    assert ingest(path, tmp_path / "train", part="train").n_rows == 60
    assert ingest(path, tmp_path / "test", part="test").n_rows == 9
    assert ingest(path, tmp_path / "z", part="test", target="z").targets().tolist() == X[:9, 0].tolist()
    with pytest.raises(DataError) as unknown:
        ingest(path, tmp_path / "d", part="train", target="z")
    assert unknown.value.kind == "unknown-key"
    assert "z_test" in str(unknown.value)
    with pytest.raises(JobError, match="train or test"):
        ingest(path, tmp_path / "d", part="valid")
    np.savez(tmp_path / "one.npz", X_train=X, y_train=y)
    assert ingest(tmp_path / "one.npz", tmp_path / "one").n_rows == 60


def test_several_targets_and_files(tmp_path: Path) -> None:
    goals = RNG.normal(size=(60, 2))
    for name in ("a.npz", "b.npz"):
        np.savez(tmp_path / name, X=X, y=goals)
    dataset = ingest([tmp_path / "a.npz", tmp_path / "b.npz"], tmp_path / "d")
    np.testing.assert_array_equal(dataset.X[:], np.vstack([X, X]))
    np.testing.assert_array_equal(dataset.targets(), np.vstack([goals, goals]))


def test_npy(tmp_path: Path) -> None:
    table = np.column_stack([X, np.arange(60) % 4])
    np.save(tmp_path / "t.npy", table)
    np.save(tmp_path / "f.npy", np.asfortranarray(table))
    np.save(tmp_path / "y.npy", y)
    for name in ("t.npy", "f.npy"):
        dataset = ingest(tmp_path / name, tmp_path / "d", target=3, task="classification", overwrite=True)
        np.testing.assert_array_equal(dataset.X[:], X)
        assert dataset.class_counts == (15, 15, 15, 15)
    np.testing.assert_array_equal(ingest(tmp_path / "t.npy", tmp_path / "e", target="0").X[:], table[:, 1:])
    paired = ingest(tmp_path / "t.npy", tmp_path / "f", target=str(tmp_path / "y.npy"))
    assert paired.targets().tolist() == y.tolist()


@pytest.mark.parametrize(
    ("target", "kind", "part"),
    [
        (None, "target", "--target"),
        ("4", "unknown-column", "0 to 3"),
        ("-1", "unknown-column", "0 to 3"),
        ("nowhere.npy", "missing", "nowhere.npy"),
    ],
)
def test_npy_target_errors(tmp_path: Path, target: str | None, kind: str, part: str) -> None:
    np.save(tmp_path / "t.npy", np.column_stack([X, X[:, 0]]))
    with pytest.raises(DataError) as caught:
        ingest(tmp_path / "t.npy", tmp_path / "d", target=target)
    assert caught.value.kind == kind
    assert part in str(caught.value)


def test_one_target_file_for_one_source(tmp_path: Path) -> None:
    for name in ("a.npy", "b.npy", "y.npy"):
        np.save(tmp_path / name, X)
    with pytest.raises(DataError) as caught:
        ingest([tmp_path / "a.npy", tmp_path / "b.npy"], tmp_path / "d", target=str(tmp_path / "y.npy"))
    assert caught.value.kind == "target"


def hole(row: int, column: int, value: float) -> Any:
    rows = X.copy()
    rows[row, column] = value
    return rows


@pytest.mark.parametrize(
    ("arrays", "kind", "parts"),
    [
        ({"X": X, "y": y[:59]}, "shape-mismatch", ["60", "59"]),
        ({"X": X[:, 0], "y": y}, "shape-mismatch", ["(60,)"]),
        ({"X": X[:0], "y": y[:0]}, "empty-file", ["(0, 3)"]),
        ({"X": X.astype(str), "y": y}, "not-numeric", ["<U32"]),
        ({"X": X}, "unknown-key", ["'y'", "X"]),
        ({"features": X, "y": y}, "unknown-key", ["'X'", "features"]),
        ({"X": X.astype(object), "y": y}, "unreadable", ["t.npz", "pickled"]),
        ({"X": X, "y": y.astype(object)}, "unreadable", ["t.npz", "pickled"]),
        ({"X": hole(7, 1, np.nan), "y": y}, "missing-value", ["row 8 ", "column 1"]),
        ({"X": hole(7, 1, np.inf), "y": y}, "not-finite", ["row 8 ", "column 1"]),
        ({"X": X, "y": hole(7, 1, np.nan)}, "missing-value", ["row 8 ", "target"]),
    ],
)
def test_npz_refused(tmp_path: Path, arrays: Any, kind: str, parts: list[str]) -> None:
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(DataError) as caught:
        ingest(tmp_path / "t.npz", tmp_path / "d")
    assert caught.value.kind == kind
    for part in parts:
        assert part in str(caught.value)
    assert not (tmp_path / "d").exists()


def test_missing_values_are_filled_or_dropped(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=hole(7, 1, np.nan).astype("f4"), y=y)
    dropped = ingest(tmp_path / "t.npz", tmp_path / "d", missing="drop")
    assert dropped.n_rows == 59
    filled = ingest(tmp_path / "t.npz", tmp_path / "e", missing="mean")
    assert filled.X.dtype == np.float32
    assert filled.X[7, 1] == np.float32(np.delete(X.astype("f4")[:, 1], 7).astype("f8").mean())


def test_columns_must_agree(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=X, y=y)
    np.savez(tmp_path / "b.npz", X=X[:, :2], y=y)
    with pytest.raises(DataError) as caught:
        ingest([tmp_path / "a.npz", tmp_path / "b.npz"], tmp_path / "d")
    assert caught.value.kind == "columns-differ"


@pytest.mark.parametrize("name", ["t.npy", "t.npz"])
@pytest.mark.parametrize("content", [b"", b"random bytes" * 40, b"\x93NUMPY\x01\x00", b"PK\x03\x04" + b"x" * 50])
def test_wrong_kind_of_file(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name) as caught:
        ingest(tmp_path / name, tmp_path / "d", target="0")
    assert caught.value.kind in ("unreadable", "unknown-key")


def test_short_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", X)
    (tmp_path / "t.npy").write_bytes((tmp_path / "t.npy").read_bytes()[:-8])
    with pytest.raises(DataError, match="ends before") as caught:
        ingest(tmp_path / "t.npy", tmp_path / "d", target="0")
    assert caught.value.kind == "unreadable"


@pytest.mark.parametrize("shape", [(10**13, 3), (3, 10**13)])
@pytest.mark.parametrize("name", ["t.npy", "t.npz"])
def test_claim_of_a_huge_array(tmp_path: Path, name: str, shape: tuple[int, int]) -> None:
    with (tmp_path / "t.npy").open("wb") as stream:
        header: Any = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
    if name == "t.npz":
        with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
            archive.write(tmp_path / "t.npy", "X.npy")
            archive.write(tmp_path / "t.npy", "y.npy")
    with pytest.raises(DataError, match="ends before") as caught:
        ingest(tmp_path / name, tmp_path / "d", target=None if name == "t.npz" else 0)
    assert caught.value.kind == "unreadable"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_member(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "t.npz", X=RNG.normal(size=(2000, 3)), y=np.arange(2000) % 2)
    data = bytearray((tmp_path / "t.npz").read_bytes())
    data[9000] ^= 0xFF
    (tmp_path / "t.npz").write_bytes(data)
    with pytest.raises(DataError, match=r"t\.npz") as caught:
        ingest(tmp_path / "t.npz", tmp_path / "d")
    assert caught.value.kind == "unreadable"


def test_member_is_not_held_in_memory(tmp_path: Path) -> None:
    n_rows, width = 400_000, 16
    np.savez(
        tmp_path / "t.npz",
        X=np.arange(n_rows * width, dtype="f8").reshape(n_rows, width),
        y=np.arange(n_rows),
    )
    tracemalloc.start()
    try:
        dataset = ingest(tmp_path / "t.npz", tmp_path / "d")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert dataset.X.nbytes == 8 * n_rows * width
    assert peak < 0.8 * dataset.X.nbytes
    assert dataset.X[-1, -1] == n_rows * width - 1


def test_other_members_do_not_matter(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=X, y=y)
    with zipfile.ZipFile(tmp_path / "t.npz", "a") as archive:
        archive.writestr("notes.txt", "hello")
    assert ingest(tmp_path / "t.npz", tmp_path / "d").n_rows == 60
