"""Predictions in tiles and blocks: the dense reference, the same bits everywhere, bounded memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any
from unittest import mock

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.estimators.base.output_functions import all_targets
from distkern.kernels import Gaussian, Kernel, Laplacian, Linear, Polynomial, Sigmoid, Wendland
from distkern.models.kernel_model import KernelModel
from distkern.scheduler.prediction import local as prediction
from distkern.scheduler.prediction.dask_arrays import map_rows
from distkern.scheduler.prediction.local import (
    evaluate,
    evaluate_batches,
    predict_blocks,
    tile_rows,
)
from distkern.scheduler.runtime.threads import single_threaded_blas
from distkern.storage import ArraySource, ZarrRows, open_dataset, write_dataset
from tests.markers import every_value, name_of
from tests.references import dense_predictions, random_model
from tests.scheduler.trainings import tile_threads

Array = NDArray[Any]

KERNELS: list[Kernel] = [Gaussian(1.5), Laplacian(1.5), Wendland(2.0), Polynomial(3, 0.5), Sigmoid(0.3, 0.1), Linear()]


def rows_of(n: int, d: int = 4, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal((n, d))


def stored(path: Path, X: Array, chunk_rows: int) -> zarr.Array[Any]:
    array = zarr.create_array(str(path), shape=X.shape, chunks=(chunk_rows, X.shape[1]), dtype=X.dtype)
    array[...] = X
    return array


def tile_by_tile(model: KernelModel, X: Array, rows: int) -> Array:
    """Call the per-tile function on this thread."""
    parts = [np.empty((0, len(model.intercept)))]
    with single_threaded_blas():
        parts += [model.evaluate(X[start : start + rows]) for start in range(0, len(X), rows)]
    return np.concatenate(parts)


# ---- Tiles


@given(
    n=st.integers(1, 300),
    m=st.integers(0, 40),
    n_targets=st.integers(1, 5),
    d=st.integers(1, 6),
    dtype=st.sampled_from(["float64", "float32"]),
    kernel=st.sampled_from(KERNELS),
    rows=st.sampled_from([1, 2, 16, 64, 4096]),
    width=st.integers(1, 3),
)
def test_tiles_are_the_dense_sum_with_the_same_bits_for_any_number_of_threads(
    n: int, m: int, n_targets: int, d: int, dtype: str, kernel: Kernel, rows: int, width: int
) -> None:
    model, X = random_model(kernel, dtype, m, n_targets, d=d), rows_of(n, d)
    with mock.patch.multiple(prediction, MIN_TILE_ROWS=rows, MAX_TILE_ROWS=rows), tile_threads(width):
        values = evaluate(model, X)
    assert values.dtype == np.float64
    dense = dense_predictions(model, X)
    accurate = (1e-10 if dtype == "float64" else 2e-4) * max(1.0, float(np.abs(dense).max()))
    np.testing.assert_allclose(values, dense, rtol=0, atol=accurate)
    np.testing.assert_array_equal(values, tile_by_tile(model, X, rows))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n_targets", [1, 26])
def test_many_tiles_of_the_usual_size(dtype: str, n_targets: int) -> None:
    model, X = random_model(Gaussian(1.5), dtype, 300, n_targets), rows_of(5000)
    rows = tile_rows(300, 4, np.dtype(dtype).itemsize)
    assert len(X) > 3 * rows
    expected = tile_by_tile(model, X, rows)
    for width in (1, 2, 3):
        with tile_threads(width):
            np.testing.assert_array_equal(evaluate(model, X), expected)


def test_no_rows_give_no_values() -> None:
    assert evaluate(random_model(Linear()), np.empty((0, 4))).shape == (0, 3)
    ((start, values),) = evaluate_batches(random_model(Linear()), np.empty((0, 4)))
    assert (start, values.shape) == (0, (0, 3))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n_targets", [1, 40])
def test_batches_have_the_bits_of_all_rows_at_once(dtype: str, n_targets: int) -> None:
    model, X = random_model(Gaussian(1.5), dtype, 300, n_targets), rows_of(5001)
    with mock.patch.object(prediction, "FITTED_BYTES", 8 * n_targets * 1500):
        starts, parts = zip(*evaluate_batches(model, X), strict=True)
    assert starts == (0, 1024, 2048, 3072, 4096)
    np.testing.assert_array_equal(np.concatenate(parts), evaluate(model, X))


def test_batches_of_many_targets_take_little_memory() -> None:
    model, X = random_model(Gaussian(1.5), "float32", 20, 2000), rows_of(12_000)
    tracemalloc.start()
    for _, values in evaluate_batches(model, X):
        assert values.shape[1] == 2000
        del values
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # All at once they take 192 MB.
    assert peak < 2 * prediction.FITTED_BYTES


@given(m=st.integers(0, 10**6), d=st.integers(1, 10**5), itemsize=st.sampled_from([4, 8]))
def test_tile_rows_are_a_power_of_two_that_fills_the_cache(m: int, d: int, itemsize: int) -> None:
    rows = tile_rows(m, d, itemsize)
    assert rows & (rows - 1) == 0
    assert prediction.MIN_TILE_ROWS <= rows <= prediction.MAX_TILE_ROWS
    row_bytes = itemsize * (m + d)
    assert rows == prediction.MIN_TILE_ROWS or rows * row_bytes <= prediction.TILE_BYTES
    assert rows == prediction.MAX_TILE_ROWS or 2 * rows * row_bytes > prediction.TILE_BYTES


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_tile_allocates_its_own_buffers(dtype: str) -> None:
    """Once a thread has its buffers, what is new is the result and the prepared model."""
    model, X = random_model(Gaussian(1.5), dtype, 400, 2), rows_of(20_000)
    itemsize = np.dtype(dtype).itemsize
    tile_bytes = itemsize * 400 * tile_rows(400, 4, itemsize)
    with tile_threads(1):
        evaluate(model, X)
        tracemalloc.start()
        result = evaluate(model, X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert result.nbytes <= peak < result.nbytes + 0.2 * tile_bytes


# ---- Blocks of any container


def in_memory(path: Path, X: Array, chunk_rows: int) -> Any:
    return ArraySource(X, np.zeros(len(X)), boundaries=(*range(0, len(X), chunk_rows), len(X)))


def in_zarr(path: Path, X: Array, chunk_rows: int) -> Any:
    return ZarrRows(stored(path / "X", X, chunk_rows))


def in_dataset(path: Path, X: Array, chunk_rows: int) -> Any:
    write_dataset(path / "set", X, np.arange(len(X)) / 7, chunk_rows=chunk_rows)
    return open_dataset(path / "set").source()


@pytest.mark.parametrize(
    ("container", "dtype", "width"),
    every_value([in_memory, in_zarr, in_dataset], ["float64", "float32"], [1, 2, 3]),
    ids=name_of,
)
def test_containers_cut_alike_give_the_same_bits(
    container: Any, dtype: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, "MAX_TILE_ROWS", 64)
    model, X = random_model(Gaussian(1.5), dtype, 30), rows_of(1000)
    whole = evaluate(model, X)
    source = container(tmp_path, X, 128)
    with tile_threads(width):
        parts = list(predict_blocks(model, source, all_targets))
    assert [start for start, _ in parts] == list(source.boundaries[:-1])
    assert len(parts) == 8
    np.testing.assert_array_equal(np.concatenate([values for _, values in parts]), whole)


@pytest.mark.parametrize("tail", [(3,), (), (3, 2)])
def test_dask_arrays_give_the_same_bits_lazily(tail: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "MAX_TILE_ROWS", 64)
    model, X = random_model(Gaussian(1.5), m=30), rows_of(1000)
    finish = {0: _first, 1: all_targets, 2: _twice}[len(tail)]
    lazy = map_rows(model, da.from_array(X, chunks=(128, 3)), finish, tail, np.dtype(np.float64))
    # The model is one key that all chunks share.
    assert sum("kernel-model" in str(key) for key in lazy.__dask_graph__()) == 1
    for scheduler in ("synchronous", "threads"):
        np.testing.assert_array_equal(lazy.compute(scheduler=scheduler), finish(evaluate(model, X)))


def _first(values: Array) -> Array:
    return values[:, 0]


def _twice(values: Array) -> Array:
    return np.stack([values, -values], axis=2)


@pytest.mark.parametrize("chunk_rows", [1, 37, 100, 1000])
def test_other_blocks_change_rounding_only(chunk_rows: int, tmp_path: Path) -> None:
    model, X = random_model(Gaussian(1.5), m=30), rows_of(333)
    parts = predict_blocks(model, in_zarr(tmp_path, X, chunk_rows), all_targets)
    values = np.concatenate([part for _, part in parts])
    np.testing.assert_allclose(values, dense_predictions(model, X), rtol=1e-10, atol=1e-10)


def test_values_that_are_not_finite_are_named_when_their_block_comes(tmp_path: Path) -> None:
    X = rows_of(1000)
    X[777, 2] = np.nan
    blocks = predict_blocks(random_model(Gaussian(1.5)), in_zarr(tmp_path, X, 128), all_targets)
    assert [next(blocks)[0] for _ in range(6)] == [0, 128, 256, 384, 512, 640]
    with pytest.raises(DataError, match=r"row 777 .*column 2"):
        next(blocks)


# ---- Memory


def peak_of(model: KernelModel, source: ZarrRows, width: int) -> int:
    """Most bytes allocated at a time while all blocks are predicted and dropped."""
    with tile_threads(width):
        tracemalloc.start()
        for _, values in predict_blocks(model, source, all_targets):
            del values
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def expected_bytes(
    block_rows: int, d: int, feature_itemsize: int, m: int, n_targets: int, itemsize: int, threads: int
) -> int:
    """Peak bytes of `predict_blocks` in one process, beside the interpreter, with reads one block ahead."""
    rows = min(tile_rows(m, d, itemsize), block_rows)
    # A block in use, and one on its way with the chunks it is put together from, compressed and not.
    blocks = 4 * block_rows * d * feature_itemsize
    # Fitted targets, what is made of them, what the caller still holds.
    results = 3 * block_rows * n_targets * 8
    prepared = m * (d + n_targets) * itemsize
    tile = rows * (d * (itemsize if itemsize == 8 else itemsize + 8) + (m + n_targets) * itemsize)
    # Vectors, zarr's and the pool's bookkeeping are smaller than a tile.
    return (2 << 20) + blocks + results + prepared + threads * tile


@pytest.mark.parametrize(("dtype", "n_targets", "width"), every_value(["float64", "float32"], [1, 20], [1, 2]))
def test_memory_is_that_of_a_few_blocks_and_as_computed(dtype: str, n_targets: int, width: int, tmp_path: Path) -> None:
    chunk_rows, d, m = 4096, 32, 150
    model = random_model(Gaussian(5.0), dtype, m, n_targets, d=d)
    X = rows_of(24 * chunk_rows, d)
    peak = peak_of(model, ZarrRows(stored(tmp_path / "X", X, chunk_rows)), width)
    assert peak < 0.5 * X.nbytes
    itemsize = np.dtype(dtype).itemsize
    # That is by the size of a block, not by how many there are.
    expected = expected_bytes(chunk_rows, d, X.itemsize, m, n_targets, itemsize, width)
    assert expected / 3 < peak <= expected
