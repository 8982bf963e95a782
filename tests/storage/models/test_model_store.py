import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distkern.errors import StoreError
from distkern.storage import check_model_destination, read_model, write_dataset, write_model

ARRAYS: dict[str, Any] = {
    "centers": np.arange(12.0).reshape(4, 3),
    "indices": np.array([5, 1, 2, 0]),
    "classes": np.array(["no", "yes"]),
    "flags": np.array([True, False]),
    "scalar": np.array(2.5),
    "history": np.array([(3, 0.5, True), (1, 0.25, False)], dtype=[("center", int), ("gcv", float), ("ok", bool)]),
    "empty": np.zeros((0, 3), dtype=np.float32),
}
META = {"method": "orols", "lambda": 0.1, "history": [1, 2, None], "gcv": np.float64(0.25)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_model(tmp_path / "m", META, ARRAYS)
    return tmp_path / "m"


def edit(model: Path, change: Any) -> None:
    description = json.loads((model / "model.json").read_text())
    change(description)
    (model / "model.json").write_text(json.dumps(description))


def test_round_trip(model: Path) -> None:
    meta, arrays = read_model(model)
    assert meta == {"method": "orols", "lambda": 0.1, "history": [1, 2, None], "gcv": 0.25}
    assert set(arrays) == set(ARRAYS)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, ARRAYS[name])
        assert array.dtype == ARRAYS[name].dtype
        assert array.flags.c_contiguous
        assert array.dtype.isnative


def test_same_input_same_bytes(model: Path, tmp_path: Path) -> None:
    turned = dict(reversed(ARRAYS.items()))
    turned["centers"] = np.asfortranarray(turned["centers"]).astype(">f8")
    write_model(tmp_path / "n", dict(reversed(META.items())), turned)
    files = sorted(path.name for path in model.iterdir())
    assert files == sorted(path.name for path in (tmp_path / "n").iterdir())
    for name in files:
        assert (model / name).read_bytes() == (tmp_path / "n" / name).read_bytes()


def test_records_are_packed(tmp_path: Path) -> None:
    padded = np.zeros(3, dtype=np.dtype([("a", "i1"), ("b", ">f8")], align=True))
    padded["b"] = [1, 2, 3]
    write_model(tmp_path / "m", {}, {"history": padded})
    history = read_model(tmp_path / "m")[1]["history"]
    assert history.dtype == np.dtype([("a", "i1"), ("b", "f8")])
    assert history["b"].tolist() == [1, 2, 3]


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    write_model(tmp_path / "m", {"gcv": float("inf")}, {"a": np.array([np.nan])})
    assert read_model(tmp_path / "m")[0] == {"gcv": float("inf")}


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".hidden", "a.b"])
def test_names_stay_in_the_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be part"):
        write_model(tmp_path / "m", {}, {name: np.zeros(2)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "array",
    [
        np.array([None]),
        np.array([1 + 2j]),
        np.array(["2020"], dtype="M8[D]"),
        np.zeros(2, dtype=[("a", object)]),
        np.zeros(2, dtype=[("a", float, 3)]),
        np.zeros(2, dtype=[("a", [("b", float)])]),
    ],
)
def test_dtypes_that_are_not_stored(tmp_path: Path, array: Any) -> None:
    with pytest.raises(ValueError, match="cannot be part"):
        write_model(tmp_path / "m", {}, {"a": array})


def test_meta_that_is_not_json(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="object"):
        write_model(tmp_path / "m", {"a": object()}, {})
    assert list(tmp_path.iterdir()) == []


def test_overwrite(model: Path, tmp_path: Path) -> None:
    for refused in (lambda: write_model(model, {}, {}), lambda: check_model_destination(model)):
        with pytest.raises(StoreError, match="--overwrite") as caught:
            refused()
        assert caught.value.kind == "exists"
    write_model(model, {"new": 1}, {}, overwrite=True)
    assert read_model(model) == ({"new": 1}, {})
    dataset = write_dataset(tmp_path / "d", np.arange(6.0).reshape(3, 2), np.arange(3.0))
    with pytest.raises(StoreError) as caught:
        check_model_destination(dataset.path, overwrite=True)
    assert caught.value.kind == "foreign"
    check_model_destination(tmp_path / "free")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_flipped_bit(model: Path) -> None:
    flip(model / "centers.npy")
    with pytest.raises(StoreError, match=r"centers\.npy differs") as caught:
        read_model(model)
    assert caught.value.kind == "corrupt"


@pytest.mark.parametrize(
    ("tamper", "kind"),
    [
        (lambda m: (m / "centers.npy").write_bytes(b""), "corrupt"),
        (lambda m: (m / "centers.npy").write_bytes((m / "centers.npy").read_bytes()[:-8]), "corrupt"),
        (lambda m: (m / "centers.npy").write_bytes((m / "centers.npy").read_bytes() + b"x"), "corrupt"),
        (lambda m: (m / "centers.npy").write_bytes(b"random bytes" * 20), "corrupt"),
        (lambda m: np.save(m / "centers.npy", ARRAYS["centers"].astype("f4")), "corrupt"),
        (lambda m: np.save(m / "centers.npy", ARRAYS["centers"].T), "corrupt"),
        (lambda m: np.save(m / "centers.npy", np.array([None]), allow_pickle=True), "corrupt"),
        (lambda m: np.save(m / "other.npy", np.zeros(2)), "corrupt"),
        (lambda m: (m / "centers.npy").unlink(), "incomplete"),
        (lambda m: (m / "model.json").unlink(), "incomplete"),
        (lambda m: (m / "model.json").write_text("{"), "corrupt"),
        (lambda m: (m / "model.json").write_text("[]"), "corrupt"),
        (lambda m: (m / "model.json").write_text("{}"), "not-a-model"),
        (lambda m: edit(m, lambda d: d.update(format_version=99)), "newer-version"),
        (lambda m: edit(m, lambda d: d.update(arrays=[])), "corrupt"),
        (lambda m: edit(m, lambda d: d.pop("meta")), "corrupt"),
        (lambda m: edit(m, lambda d: d["arrays"].update({"../x": d["arrays"]["centers"]})), "corrupt"),
        (lambda m: edit(m, lambda d: d["arrays"]["centers"].update(shape=[10**12, 3])), "corrupt"),
        (lambda m: edit(m, lambda d: d["arrays"]["centers"].update(shape=[-4, 3])), "corrupt"),
        (lambda m: edit(m, lambda d: d["arrays"]["centers"].update(shape=4)), "corrupt"),
        (lambda m: edit(m, lambda d: d["arrays"]["centers"].update(dtype="|O")), "corrupt"),
        (lambda m: edit(m, lambda d: d["arrays"]["history"].update(dtype=[["center", "|O"]])), "corrupt"),
        (lambda m: edit(m, lambda d: d["arrays"]["history"].update(dtype=[["center"]])), "corrupt"),
        (lambda m: edit(m, lambda d: d["arrays"]["centers"].update(sha256=None)), "corrupt"),
        (lambda m: edit(m, lambda d: d["arrays"].update(centers=None)), "corrupt"),
    ],
)
def test_tampering(model: Path, tamper: Any, kind: str) -> None:
    tamper(model)
    with pytest.raises(StoreError) as caught:
        read_model(model)
    assert caught.value.kind == kind
    assert str(model) in str(caught.value)


def test_huge_claim_is_refused_before_allocation(tmp_path: Path) -> None:
    write_model(tmp_path / "m", {}, {"a": np.zeros(3)})
    file = tmp_path / "m" / "a.npy"
    shape = 10**15
    with file.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (shape,)})
    edit(tmp_path / "m", lambda d: d["arrays"]["a"].update(shape=[shape]))
    with pytest.raises(StoreError, match="bytes, not"):
        read_model(tmp_path / "m")


def test_symlink_is_not_followed(model: Path, tmp_path: Path) -> None:
    (model / "centers.npy").rename(tmp_path / "outside.npy")
    (model / "centers.npy").symlink_to(tmp_path / "outside.npy")
    with pytest.raises(StoreError) as caught:
        read_model(model)
    assert caught.value.kind == "incomplete"


def test_stores_that_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("")
    (tmp_path / "folder").mkdir()
    for name, kind, part in [
        ("none", "missing", "none"),
        ("file.txt", "not-a-model", "a .txt file"),
        ("folder", "not-a-model", "without a store"),
    ]:
        with pytest.raises(StoreError) as caught:
            read_model(tmp_path / name)
        assert caught.value.kind == kind
        assert part in str(caught.value)
