import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from distkern.errors import DataError
from distkern.storage import (
    ArraySource,
    BlockSource,
    DatasetSource,
    ZarrRows,
    ZarrSource,
    as_source,
    open_arrays,
    write_dataset,
)
from tests.locations import ROOT

RNG = np.random.default_rng(3)
X = RNG.normal(size=(90, 4))
y = RNG.normal(size=90)


def stored(path: Path, values: Any, **layout: Any) -> Any:
    array = zarr.create_array(path, shape=values.shape, dtype=values.dtype, **layout)
    array[...] = values
    return array


def check_source(source: BlockSource, rows: Any, targets: Any, weights: Any = None) -> None:
    """Hold every block of a source to the whole arrays and to the memory layout that is promised."""
    assert source.boundaries[0] == 0
    assert source.boundaries[-1] == source.n_rows == len(rows)
    assert source.n_features == rows.shape[1]
    assert source.target_shape == targets.shape[1:]
    for block in range(len(source.boundaries) - 1):
        span = slice(source.boundaries[block], source.boundaries[block + 1])
        features, target, weight = (
            source.read_features(block),
            source.read_targets(block),
            source.read_weights(block),
        )
        np.testing.assert_array_equal(features, rows[span])
        np.testing.assert_array_equal(target, targets[span])
        assert features.dtype == source.feature_dtype
        for array in (features, target):
            assert array.flags.c_contiguous
            assert array.flags.aligned
            assert array.flags.writeable
            assert array.dtype.isnative
        if weights is None:
            assert weight is None
        else:
            assert weight is not None
            assert weight.dtype == np.float64
            np.testing.assert_array_equal(weight, weights[span])
        features[...] = 0
        np.testing.assert_array_equal(source.read_features(block), rows[span])
    picked = np.array([5, 2, 2, len(rows) - 1, 0])
    single = source.read_rows(picked)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(single, rows[picked])
    assert single.flags.c_contiguous
    assert single.dtype == source.feature_dtype


layouts = st.fixed_dictionaries(
    {
        "chunks": st.tuples(st.integers(7, 100), st.integers(1, 4)),
        "zarr_format": st.sampled_from([2, 3]),
        "dtype": st.sampled_from(["f4", "f8", ">f8", "i2", "u1", "f2", "?"]),
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(layout=layouts, y_chunk=st.integers(7, 100), targets=st.none() | st.integers(1, 3))
def test_any_chunking(tmp_path: Path, layout: dict[str, Any], y_chunk: int, targets: int | None) -> None:
    rows = (X * 10).astype(layout["dtype"])
    goal = y if targets is None else RNG.normal(size=(90, targets))
    order = {"order": "F"} if layout["zarr_format"] == 2 else {}
    Z = stored(
        tmp_path / "X",
        rows,
        chunks=layout["chunks"],
        zarr_format=layout["zarr_format"],
        overwrite=True,
        **order,
    )
    t = stored(tmp_path / "y", goal, chunks=(y_chunk, *(1,) * (goal.ndim - 1)), overwrite=True)
    source = ZarrSource(Z, t)
    assert source.inline is False
    check_source(source, rows, goal)
    check_source(pickle.loads(pickle.dumps(source)), rows, goal)


def test_sharded_array_has_blocks_of_whole_shards(tmp_path: Path) -> None:
    Z = stored(tmp_path / "X", X, chunks=(5, 4), shards=(20, 4))
    source = ZarrSource(Z, y)
    assert source.boundaries == (0, 20, 40, 60, 80, 90)
    check_source(source, X, y)


def test_array_without_order_of_its_own(tmp_path: Path) -> None:
    check_source(ArraySource(np.asfortranarray(X), y[:, None]), X, y[:, None])


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "?", ">f4", "f2"])
def test_array_source(dtype: str) -> None:
    rows = (X * 3).astype(dtype)
    weights = np.arange(90) / 7
    source = ArraySource(rows, y.astype(">f8"), weights, boundaries=(0, 7, 50, 90))
    assert source.inline is True
    check_source(source, rows, y, weights)


def test_array_source_default_blocks() -> None:
    assert ArraySource(np.zeros((5000, 2)), np.zeros(5000)).boundaries == (0, 4096, 5000)


@pytest.mark.parametrize("boundaries", [(), (0, 89), (1, 90), (0, 50, 50, 90), (0, 60, 50, 90)])
def test_array_source_boundaries_must_cover(boundaries: tuple[int, ...]) -> None:
    with pytest.raises(DataError) as caught:
        ArraySource(X, y, boundaries=boundaries)
    assert caught.value.kind == "boundaries"


@pytest.mark.parametrize("rows", [[-1], [90], [0, 200]])
def test_rows_out_of_range(tmp_path: Path, rows: list[int]) -> None:
    for source in (ArraySource(X, y), ZarrSource(stored(tmp_path / "X", X, chunks=(9, 4)), y)):
        with pytest.raises(IndexError, match="0 to 89"):
            source.read_rows(np.array(rows))


def test_no_rows_picked(tmp_path: Path) -> None:
    for source in (ArraySource(X, y), ZarrSource(stored(tmp_path / "X", X, chunks=(9, 4)), y)):
        assert source.read_rows(np.array([], dtype=np.int64)).shape == (0, 4)


def test_text_targets_in_zarr(tmp_path: Path) -> None:
    labels = np.array(["red", "green"], dtype=np.dtypes.StringDType())[np.arange(90) % 2]
    source = ZarrSource(stored(tmp_path / "X", X, chunks=(30, 4)), stored(tmp_path / "y", labels, chunks=(90,)))
    assert source.read_targets(1).tolist() == labels[30:60].tolist()


def test_weights_of_any_kind(tmp_path: Path) -> None:
    weights = np.arange(90.0)
    Z = stored(tmp_path / "X", X, chunks=(9, 4))
    check_source(ZarrSource(Z, y, weights), X, y, weights)
    check_source(ZarrSource(Z, y, stored(tmp_path / "w", weights.astype("i4"), chunks=(13,))), X, y, weights)
    dataset = write_dataset(tmp_path / "d", X, y, chunk_rows=13)
    check_source(as_source(dataset, sample_weight=weights), X, y, weights)


@pytest.mark.parametrize(
    ("weights", "kind", "part"),
    [
        (np.ones(89), "shape-mismatch", "89"),
        (np.ones((90, 1)), "shape-mismatch", "(90, 1)"),
        (np.where(np.arange(90) == 33, -1.0, 1.0), "invalid-weights", "row 33"),
        (np.where(np.arange(90) == 33, np.nan, 1.0), "invalid-weights", "row 33"),
        (np.where(np.arange(90) == 33, np.inf, 1.0), "invalid-weights", "row 33"),
        (["a"] * 90, "not-numeric", "sample_weight"),
    ],
)
def test_bad_weights(tmp_path: Path, weights: Any, kind: str, part: str) -> None:
    for rows in (X, stored(tmp_path / "X", X, chunks=(9, 4))):
        with pytest.raises(DataError, match="sample_weight") as caught:
            as_source(rows, y, weights)
        assert caught.value.kind == kind
        assert part in str(caught.value)


def test_bad_weights_in_zarr_are_found_when_read(tmp_path: Path) -> None:
    weights = stored(tmp_path / "w", np.where(np.arange(90) == 33, -1.0, 1.0), chunks=(50,))
    source = ZarrSource(stored(tmp_path / "X", X, chunks=(30, 4)), y, weights)
    source.read_weights(0)
    with pytest.raises(DataError, match="row 33"):
        source.read_weights(1)
    with pytest.raises(DataError, match="89"):
        ZarrSource(stored(tmp_path / "Z", X, chunks=(30, 4)), y, stored(tmp_path / "v", y[:89], chunks=(9,)))


def test_dispatch(tmp_path: Path) -> None:
    Z = stored(tmp_path / "X", X, chunks=(9, 4))
    t = stored(tmp_path / "y", y, chunks=(9,))
    dataset = write_dataset(tmp_path / "d", X, y)
    assert type(as_source(dataset)) is DatasetSource
    assert type(as_source(Z, t)) is ZarrSource
    assert type(as_source(Z, y)) is ZarrSource
    assert type(as_source(X, t)) is ArraySource
    assert type(as_source(X.tolist(), y.tolist())) is ArraySource
    check_source(as_source(Z, y), X, y)
    check_source(as_source(X, t), X, y)


@pytest.mark.parametrize(("rows", "targets", "parts"), [(90, 89, ["90", "89"]), (89, 90, ["89", "90"])])
def test_row_counts_must_agree(tmp_path: Path, rows: int, targets: int, parts: list[str]) -> None:
    Z = stored(tmp_path / "X", X[:rows], chunks=(9, 4))
    t = stored(tmp_path / "y", y[:targets], chunks=(9,))
    for left, right in ((Z, t), (Z, y[:targets]), (X[:rows], t), (X[:rows], y[:targets])):
        with pytest.raises(DataError) as caught:
            as_source(left, right)
        assert caught.value.kind == "shape-mismatch"
        assert all(part in str(caught.value) for part in parts)


def test_refused_input(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "d", X, y)
    bad = X.copy()
    bad[44, 2] = np.nan
    for arguments, kind in [
        ((dataset, y), "target"),
        ((X, None), "target"),
        ((bad, y), "not-finite"),
        ((X, bad[:, 2]), "not-finite"),
        ((X[:, 0], y), "shape-mismatch"),
        ((X, np.zeros((90, 1, 1))), "shape-mismatch"),
        ((stored(tmp_path / "one", y, chunks=(9,)), y), "shape-mismatch"),
        ((stored(tmp_path / "complex", X.astype(complex), chunks=(9, 4)), y), "not-numeric"),
    ]:
        with pytest.raises(DataError) as caught:
            as_source(*arguments)
        assert caught.value.kind == kind


def test_not_finite_in_zarr_is_found_when_read(tmp_path: Path) -> None:
    bad = X.copy()
    bad[44, 2] = np.nan
    source = ZarrSource(stored(tmp_path / "X", bad, chunks=(30, 4)), bad[:, 2])
    source.read_features(0)
    with pytest.raises(DataError, match=r"row 44 .*column 2"):
        source.read_features(1)
    with pytest.raises(DataError, match="row 44"):
        source.read_targets(1)


def test_memory_store_stays_inline() -> None:
    group = zarr.open_group({}, mode="w")
    Z = group.create_array("X", data=X, chunks=(30, 4))
    source = ZarrSource(Z, y)
    assert source.inline is True
    check_source(source, X, y)


@pytest.mark.slow
def test_relative_path_survives_a_change_of_directory(tmp_path: Path) -> None:
    stored(tmp_path / "X.zarr", X, chunks=(30, 4))
    program = (
        "import pickle, sys, zarr; from distkern.storage import ZarrSource;"
        "Z = zarr.open_array('X.zarr', mode='r');"
        "sys.stdout.buffer.write(pickle.dumps(ZarrSource(Z, Z[:, 0])))"
    )
    root = ROOT
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        check=True,
    )
    check_source(pickle.loads(done.stdout), X, X[:, 0])


def test_dataset_source(tmp_path: Path) -> None:
    labels = np.array(["b", "a", "c"])[np.arange(90) % 3]
    dataset = write_dataset(tmp_path / "d", X.astype("f4"), labels, chunk_rows=11)
    source = dataset.source()
    assert source.inline is False
    assert source.classes is not None
    assert source.boundaries == (*range(0, 90, 11), 90)
    check_source(source, X.astype("f4"), np.searchsorted(source.classes, labels))
    check_source(pickle.loads(pickle.dumps(source)), X.astype("f4"), np.searchsorted(source.classes, labels))


def test_missing_chunk_of_a_dataset_is_damage(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "d", X, y, chunk_rows=30)
    (tmp_path / "d" / "X" / "c" / "1" / "0").unlink()
    source = dataset.source()
    source.read_features(0)
    source.read_rows(np.array([0, 29, 60]))
    for read in (lambda: source.read_features(1), lambda: source.read_rows(np.array([0, 30]))):
        with pytest.raises(DataError, match="chunk 1 of X is missing"):
            read()


def test_chunk_of_zeros_is_no_damage(tmp_path: Path) -> None:
    rows = np.zeros((90, 2), dtype="u1")
    rows[:20] = RNG.integers(0, 9, (20, 2))
    dataset = write_dataset(tmp_path / "d", rows, y, chunk_rows=30)
    check_source(dataset.source(), rows, y)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_open_arrays(tmp_path: Path, zarr_format: Any) -> None:
    group = zarr.open_group(tmp_path / "g", mode="w", zarr_format=zarr_format)
    group.create_array("X", data=X, chunks=(30, 2))
    group.create_array("y", data=y, chunks=(7,))
    check_source(as_source(*open_arrays(tmp_path / "g" / "X", str(tmp_path / "g" / "y"))), X, y)


def test_open_arrays_errors(tmp_path: Path) -> None:
    stored(tmp_path / "X", X, chunks=(9, 4))
    write_dataset(tmp_path / "d", X, y)
    (tmp_path / "file.npy").write_bytes(b"")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / ".zarray").write_text("{")
    for name, kind, part in [
        ("none", "missing", "none"),
        ("d", "not-an-array", "train ="),
        ("file.npy", "not-an-array", "a .npy file"),
        ("torn", "not-an-array", "torn"),
    ]:
        with pytest.raises(DataError) as caught:
            open_arrays(tmp_path / "X", tmp_path / name)
        assert caught.value.kind == kind
        assert part in str(caught.value)


def test_rows_without_targets_are_cut_and_read_as_with_them(tmp_path: Path) -> None:
    X = np.arange(600.0).reshape(200, 3)
    array = zarr.create_array(str(tmp_path / "X"), shape=X.shape, chunks=(16, 2), dtype=X.dtype)
    array[...] = X
    rows, source = ZarrRows(array), ZarrSource(array, np.zeros(200))
    assert rows.boundaries == source.boundaries
    assert rows.inline is False
    assert pickle.loads(pickle.dumps(rows)).boundaries == rows.boundaries
    for block in range(len(rows.boundaries) - 1):
        np.testing.assert_array_equal(rows.read_features(block), source.read_features(block))
    np.testing.assert_array_equal(rows.read_rows(np.array([7, 3, 7])), X[[7, 3, 7]])
    memory = zarr.array(X, store=MemoryStore())
    assert ZarrRows(memory).inline is True
    with pytest.raises(DataError, match="two dimensions"):
        ZarrRows(zarr.array(X[:, 0]))
