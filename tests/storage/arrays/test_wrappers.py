"""Stores that count, wait and fail on purpose."""

from __future__ import annotations

import pickle
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import LocalStore, MemoryStore

from distkern.storage import CountingStore, Fault, FaultyStore, SlowStore

VALUES = np.arange(40.0).reshape(10, 4)


def array_in(store: object, **options: object) -> zarr.Array:
    array = zarr.create_array(store, shape=(10, 4), chunks=(2, 4), dtype="f8", compressors=None, **options)
    array[...] = VALUES
    return array


def test_wrappers_pass_everything_through() -> None:
    for wrapper in (CountingStore(MemoryStore()), SlowStore(MemoryStore(), 0.0), FaultyStore(MemoryStore())):
        array = array_in(wrapper)
        np.testing.assert_array_equal(array[:], VALUES)
        np.testing.assert_array_equal(zarr.open_array(wrapper, mode="r")[3:5], VALUES[3:5])
        assert zarr.open_group(CountingStore(MemoryStore()), mode="w").attrs.asdict() == {}


def test_sharded_arrays_pass_too() -> None:
    store = CountingStore(MemoryStore())
    array = zarr.create_array(store, shape=(8, 4), chunks=(2, 4), shards=(4, 4), dtype="f8")
    array[...] = VALUES[:8]
    np.testing.assert_array_equal(array[1:2], VALUES[1:2])
    assert store.calls["get"] > 0


def test_counts_survive_other_access_modes() -> None:
    store = CountingStore(MemoryStore())
    array_in(store)
    before = store.calls["get"]
    reader = zarr.open_array(store, mode="r")
    reader[0:2]
    assert store.keys["get", "c/0/0"] == 1
    assert store.calls["get"] > before
    assert store.calls["set"] >= 6
    assert store.bytes_read >= 2 * 4 * 8
    assert store.bytes_written >= VALUES.nbytes


def test_slow_store_waits() -> None:
    inner = MemoryStore()
    array_in(inner)
    array = zarr.open_array(SlowStore(inner, 0.02, jitter=0.01, seed=1), mode="r")
    started = perf_counter()
    array[0:2]
    assert perf_counter() - started >= 0.02


@pytest.mark.parametrize(
    ("kind", "error"),
    [("transient", ConnectionResetError), ("timeout", TimeoutError), ("permanent", PermissionError)],
)
def test_scripted_errors(kind: str, error: type[Exception]) -> None:
    inner = MemoryStore()
    array_in(inner)
    store = FaultyStore(inner, [Fault(kind, key="c/1/*", after=1, times=2)])  # type: ignore[arg-type]
    array = zarr.open_array(store, mode="r")
    array[:2], array[2:4]
    for _ in range(2):
        with pytest.raises(error, match="injected"):
            array[2:4]
    np.testing.assert_array_equal(array[2:4], VALUES[2:4])
    assert store.struck == {(kind, "c/1/0"): 2}


def test_missing_truncated_and_corrupted_values() -> None:
    inner = MemoryStore()
    array_in(inner, fill_value=-1.0)
    faults = [Fault("missing", key="c/0/0"), Fault("corrupted", key="c/1/0"), Fault("truncated", key="c/2/0")]
    array = zarr.open_array(FaultyStore(inner, faults, seed=5), mode="r")
    assert (array[0:2] == -1).all()
    damaged = array[2:4]
    assert np.count_nonzero(damaged != VALUES[2:4]) == 1
    with pytest.raises(ValueError):
        array[4:6]
    np.testing.assert_array_equal(array[:], VALUES)  # each struck once


def test_a_disk_that_fills_up() -> None:
    store = FaultyStore(MemoryStore(), [Fault("full", "set", key="c/*", after=3, times=None, together=True)])
    with pytest.raises(OSError, match="no space left"):
        array_in(store)
    assert sum(store.struck.values()) >= 1


@given(seed=st.integers(0, 2**32))
def test_random_faults_are_a_function_of_the_seed(seed: int) -> None:
    def struck() -> dict[tuple[str, str], int]:
        inner = MemoryStore()
        array_in(inner)
        store = FaultyStore(inner, [Fault("transient", key="c/*", times=None, probability=0.4)], seed=seed)
        array = zarr.open_array(store, mode="r")
        for chunk in (0, 3, 1, 2, 4, 4, 1, 0):
            try:
                array[2 * chunk : 2 * chunk + 2]
            except ConnectionResetError:
                continue
        return dict(store.struck)

    assert struck() == struck()


def test_wrappers_travel(tmp_path: Path) -> None:
    array_in(LocalStore(tmp_path / "a"))
    store = FaultyStore(LocalStore(tmp_path / "a", read_only=True), [Fault("transient", key="c/0/0")], seed=2)
    array = pickle.loads(pickle.dumps(zarr.open_array(store, mode="r")))
    with pytest.raises(ConnectionResetError):
        array[0:2]
    np.testing.assert_array_equal(array[:], VALUES)
    counting = pickle.loads(pickle.dumps(CountingStore(LocalStore(tmp_path / "a", read_only=True))))
    np.testing.assert_array_equal(zarr.open_array(counting, mode="r")[:], VALUES)
