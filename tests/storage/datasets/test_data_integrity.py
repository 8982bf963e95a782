"""Chunks that are missing, damaged or changed."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numcodecs import Blosc
from zarr.codecs import BloscCodec
from zarr.storage import LocalStore, MemoryStore

from distkern.errors import DataError
from distkern.storage import (
    Dataset,
    DatasetSource,
    Fault,
    FaultyStore,
    ZarrRows,
    ZarrSource,
    collect_report,
    differing_arrays,
    open_dataset,
    rows_checksum,
    write_dataset,
)
from tests.faulty import SOON, faulty, rows, write_array


@pytest.fixture
def store(tmp_path: Path) -> Dataset:
    X, y = rows(64)
    return write_dataset(tmp_path / "d", X, (y > 0).astype(int), chunk_rows=16)


def through(dataset: Dataset, faults: list[Fault]) -> DatasetSource:
    """Read a dataset through a store with faults."""
    group = zarr.open_group(FaultyStore(LocalStore(dataset.path, read_only=True), faults, seed=1), mode="r")
    dataset.X, dataset._y = group["X"], group["y"]
    return DatasetSource(dataset, policy=SOON)


def rewrite(array: zarr.Array[Any], chunk: int, values: Any) -> None:
    """Write other values into a chunk, correctly encoded."""
    writer = zarr.open_array(LocalStore(array.store.root), path=array.path, mode="r+")
    writer[chunk * 16 : chunk * 16 + 16] = values


@pytest.mark.parametrize("name", ["X", "y"])
def test_a_rewritten_chunk_of_a_dataset(store: Dataset, name: str) -> None:
    array = getattr(store, name)
    rewrite(array, 2, 1 - array[32:48] if name == "y" else array[32:48] * (1 + 1e-15))
    source = store.source()
    read = source.read_features if name == "X" else source.read_targets
    read(1)
    with pytest.raises(DataError, match=rf"chunk 2 of {name} \(rows 32 to 47\) of .*differs") as caught:
        read(2)
    assert caught.value.kind == "corrupt"
    with pytest.raises(DataError, match=f"chunk 2 of {name}"):
        store.verify()


def test_chunks_damaged_by_the_store(store: Dataset) -> None:
    for kind in ("truncated", "corrupted"):
        source = through(open_dataset(store.path), [Fault(kind, key="X/c/1/0", times=None)])  # type: ignore[arg-type]
        source.read_features(0)
        with pytest.raises(DataError, match="chunk 1 of") as caught:
            source.read_features(1)
        assert caught.value.kind in ("corrupt", "unreadable")
        assert "rows 16 to 31" in str(caught.value)


@pytest.mark.parametrize("name", ["X", "y"])
@pytest.mark.parametrize("local", [True, False])
def test_missing_chunks_of_a_dataset(tmp_path: Path, name: str, local: bool) -> None:
    """Never read as zeros, also where zeros were written and behind a store that is not a local one."""
    X = np.zeros((48, 3))
    X[:16] = 1.0
    dataset = write_dataset(tmp_path / "d", X, np.zeros(48), chunk_rows=16)
    source = dataset.source() if local else through(dataset, [])
    read = source.read_features if name == "X" else source.read_targets
    read(2)
    Path(dataset.path, "X/c/2/0" if name == "X" else "y/c/2").unlink()
    read(1)
    with pytest.raises(DataError, match=f"chunk 2 of {name} is missing from .*/d: write") as caught:
        read(2)
    assert caught.value.kind == "unreadable"


def test_a_chunk_that_a_store_withholds(store: Dataset) -> None:
    """Its key is there and its value is not, once: what is read then is not what was written."""
    source = through(store, [Fault("missing", key="X/c/1/0")])
    with pytest.raises(DataError, match="chunk 1 of X") as caught:
        source.read_features(1)
    assert caught.value.kind == "corrupt"
    source.read_features(1)


def test_stores_without_crc(store: Dataset) -> None:
    """Earlier versions wrote hashes only."""
    document = json.loads(Path(store.path, "zarr.json").read_text())
    crcs = document["attributes"]["distkern"].pop("crc32")
    assert [len(crcs[name]) for name in ("X", "y")] == [4, 4]
    Path(store.path, "zarr.json").write_text(json.dumps(document))
    old = open_dataset(store.path)
    assert old.crcs is None
    old.verify()
    rewrite(old.X, 2, 7.0)
    with pytest.raises(DataError, match="chunk 2 of X"):
        old.source().read_features(2)


def test_all_chunks_are_written(tmp_path: Path) -> None:
    """All-zero ones too, whichever way rows arrive."""
    X = np.zeros((40, 2))
    X[0] = 1
    for n, sources in enumerate([(X, np.zeros(40)), (X.astype("f4"), np.zeros(40, dtype=int)), (X.astype("i4"), X)]):
        place = tmp_path / str(n)
        write_dataset(place, *sources, chunk_rows=7, task="regression")
        assert len(list((place / "X" / "c").rglob("0"))) >= 6
        assert sum(file.is_file() for file in (place / "X" / "c").rglob("*")) == 6
        assert sum(file.is_file() for file in (place / "y" / "c").rglob("*")) == 6
        open_dataset(place).verify()


def test_absent_chunks_of_a_users_array_are_reported(tmp_path: Path) -> None:
    X, y = rows(64, 4)
    X[16:48, 2:] = 0.0  # zarr does not write chunks that equal the fill value
    X[48:, :2] = 0.0
    path = write_array(tmp_path / "X", X, (16, 2))
    weights = zarr.create_array(MemoryStore(), shape=(64,), chunks=(8,), dtype="f8", fill_value=1.0)
    array, _ = faulty(path)
    source = ZarrSource(array, y, weights, policy=SOON)
    with collect_report() as report:
        read = np.concatenate([source.read_features(block) for block in range(4)])
        for block in range(4):
            source.read_weights(block)
    np.testing.assert_array_equal(read, X)
    assert report.absent == {
        "X": (3, ((1, 1), (2, 1), (3, 0))),
        "sample_weight": (8, ((0,), (1,), (2,), (3,), (4,))),
    }


def test_zeros_that_were_written_are_not_reported(tmp_path: Path) -> None:
    X, y = rows(64, 4)
    X[16:32] = 0.0
    path = write_array(tmp_path / "X", X, (16, 4), config={"write_empty_chunks": True})
    with collect_report() as report:
        ZarrSource(faulty(path)[0], y, policy=SOON).read_features(1)
    assert report.absent == {}


def test_chunks_across_blocks_count_once(tmp_path: Path) -> None:
    X, _ = rows(60)
    y = np.zeros(60)
    y[40:] = 1.0
    source = ZarrSource(
        faulty(write_array(tmp_path / "X", X, (10, 3)))[0],
        faulty(write_array(tmp_path / "y", y, (20,)))[0],
        policy=SOON,
    )
    with collect_report() as report:
        for block in range(6):
            source.read_targets(block)
    assert report.absent == {"y": (2, ((0,), (1,)))}


def test_an_absent_chunk_that_reads_as_nan_is_an_error(tmp_path: Path) -> None:
    X, y = rows(64)
    path = write_array(tmp_path / "X", X, (16, 3), fill_value=np.nan)
    shutil.rmtree(path / "c" / "1")
    source = ZarrSource(faulty(path)[0], y, policy=SOON)
    with pytest.raises(DataError, match="NaN in row 16") as caught:
        source.read_features(1)
    assert caught.value.kind == "not-finite"


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "?"])
def test_absent_chunks_of_any_dtype_and_format(zarr_format: Any, dtype: str) -> None:
    array = zarr.create_array(MemoryStore(), shape=(30, 2), chunks=(10, 2), dtype=dtype, zarr_format=zarr_format)
    array[:10] = 1
    with collect_report() as report:
        rows_ = ZarrRows(array, policy=SOON)
        read = np.concatenate([rows_.read_features(block) for block in range(len(rows_.boundaries) - 1)])
    assert read[:10].all()
    assert not read[10:].any()
    assert report.absent == {"X": (2, ((1, 0), (2, 0)))}


def test_an_array_that_was_never_written() -> None:
    for shape in ((100, 2), (10**12, 3)):
        array = zarr.create_array(MemoryStore(), shape=shape, chunks=(10, 2), dtype="f8")
        with pytest.raises(DataError) as caught:
            ZarrRows(array)
        assert caught.value.kind in ("no-chunks", "too-many-blocks")
        assert str(shape[0]) in str(caught.value)


@given(
    values=arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 3))),
    place=st.integers(0, 10**6),
    bit=st.integers(0, 7),
    part=st.sampled_from(["X", "y", "sample_weight"]),
)
def test_checksums_notice_any_flipped_bit(values: Any, place: int, bit: int, part: str) -> None:
    X, y, weights = values.copy(), values[:, 0].copy(), np.abs(values[:, 0]).copy()
    before = rows_checksum(X, y, weights)
    assert before == rows_checksum(np.asfortranarray(X), y.copy(), weights)
    changed = {"X": X, "y": y, "sample_weight": weights}[part]
    raw = changed.reshape(-1).view(np.uint8)
    raw[place % len(raw)] ^= 1 << bit
    after = rows_checksum(X, y, weights)
    assert after != before
    assert differing_arrays(before, after) == [part]
    assert differing_arrays(before, before) == []


def test_checksums_of_text_and_of_parts() -> None:
    X, labels = np.ones((3, 2)), np.array(["a", "b", "ä"])
    whole = rows_checksum(X, labels, None)
    assert differing_arrays(whole, rows_checksum(None, labels, None)) == []
    assert differing_arrays(whole, rows_checksum(X, labels[::-1], None)) == ["y"]
    assert differing_arrays(whole, rows_checksum(2 * X, labels[::-1], np.ones(3))) == ["X", "y"]


@pytest.mark.parametrize("layout", ["v3", "v2", "shards"])
def test_blosc_chunks_that_state_another_length(tmp_path: Path, layout: str) -> None:
    """The C library would read beyond them and end the process."""
    options: dict[str, Any] = {
        "v3": {"compressors": BloscCodec(cname="lz4")},
        "v2": {"zarr_format": 2, "compressors": Blosc("lz4")},
        "shards": {"shards": (16, 2), "compressors": BloscCodec(cname="lz4")},
    }[layout]
    values = np.full((32, 2), 0.5)
    array = zarr.create_array(tmp_path / "X", shape=values.shape, chunks=(8, 2), dtype="f8", **options)
    array[...] = values
    chunk = tmp_path / "X" / {"v2": "1.0"}.get(layout, "c/1/0")
    good = chunk.read_bytes()
    source = pickle.loads(pickle.dumps(ZarrRows(zarr.open_array(tmp_path / "X", mode="r"), policy=SOON)))
    assert source.read_features(1).all()
    for place, value in ((12, 2**30 + 44), (4, 2**31 - 1), (8, 2**31 - 1), (8, 0), (12, 0)):
        chunk.write_bytes(good[:place] + value.to_bytes(4, "little") + good[place + 4 :])
        with pytest.raises(DataError, match=r"blosc chunk .*damaged") as caught:
            source.read_features(1)
        assert caught.value.kind == "unreadable"
        assert "(chunk 1 of" in str(caught.value)
    chunk.write_bytes(good)
    assert source.read_features(1).all()
