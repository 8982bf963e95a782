"""Predictions on dask workers: the bits of this process, back-pressure, workers that die or never come."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray
from zarr.storage import MemoryStore

from distkern.errors import ClusterError, DataError
from distkern.estimators.base.output_functions import all_targets
from distkern.kernels import Gaussian
from distkern.models.kernel_model import KernelModel
from distkern.scheduler.clusters.futures import IN_FLIGHT_PER_THREAD
from distkern.scheduler.prediction.local import predict_blocks
from distkern.scheduler.prediction.on_workers import predict_on_workers
from distkern.storage import ArraySource, ZarrRows
from tests.markers import variants
from tests.references import random_model
from tests.scheduler.worker_clusters import cluster
from tests.waiting import wait_until

Array = NDArray[Any]

N, CHUNK = 1500, 100


def model() -> KernelModel:
    return random_model(Gaussian(1.5), m=30)


def rows() -> Array:
    return np.random.default_rng(1).standard_normal((N, 4))


def on_disk(path: Path, X: Array) -> ZarrRows:
    array = zarr.create_array(str(path / "X"), shape=X.shape, chunks=(CHUNK, 4), dtype=X.dtype)
    array[...] = X
    return ZarrRows(array)


def in_process(path: Path, X: Array) -> ZarrRows:
    array = zarr.create_array(MemoryStore(), shape=X.shape, chunks=(CHUNK, 4), dtype=X.dtype)
    array[...] = X
    return ZarrRows(array)


def gathered(parts: Any) -> tuple[list[int], Array]:
    starts, values = zip(*parts, strict=True)
    return list(starts), np.concatenate(values)


@pytest.fixture(scope="module")
def in_process_client() -> Iterator[Any]:
    """A cluster of its own: errors that other tests got from the shared one keep their tasks there."""
    with cluster(2, processes=False) as client:
        yield client


def assert_nothing_left(client: Any) -> None:
    wait_until(lambda: not client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)), seconds=10)


@pytest.mark.parametrize("container", [on_disk, in_process], ids=lambda f: f.__name__)
def test_workers_change_no_bit(container: Any, in_process_client: Any, tmp_path: Path) -> None:
    source = container(tmp_path, rows())
    assert source.inline is (container is in_process)
    starts, values = gathered(predict_blocks(model(), source, all_targets))
    remote = gathered(predict_on_workers(in_process_client, model(), source, all_targets))
    assert remote[0] == starts == list(range(0, N, CHUNK))
    np.testing.assert_array_equal(remote[1], values)
    assert_nothing_left(in_process_client)


class Counting(ArraySource):
    """Rows in this process; counts the blocks that were read."""

    read = 0

    def read_features(self, block: int) -> Array:
        self.read += 1
        return super().read_features(block)


def test_a_bounded_number_of_blocks_is_under_way(in_process_client: Any) -> None:
    X = rows()
    source = Counting(X, np.zeros(N), boundaries=(*range(0, N, 10), N))
    limit = IN_FLIGHT_PER_THREAD * 2
    most = 0
    for taken, _ in enumerate(predict_on_workers(in_process_client, model(), source, all_targets)):
        most = max(most, source.read - taken)
        assert source.read - taken <= limit
    assert most == limit
    assert source.read == N // 10
    assert_nothing_left(in_process_client)


def test_a_prediction_that_is_given_up_leaves_nothing(in_process_client: Any, tmp_path: Path) -> None:
    blocks = predict_on_workers(in_process_client, model(), on_disk(tmp_path, rows()), all_targets)
    next(blocks)
    blocks.close()  # type: ignore[attr-defined]
    assert_nothing_left(in_process_client)


def test_errors_of_the_data_and_of_the_function_are_their_own(in_process_client: Any, tmp_path: Path) -> None:
    X = rows()
    X[1234, 1] = np.nan
    with pytest.raises(DataError, match=r"row 1234 .*column 1"):
        list(predict_on_workers(in_process_client, model(), on_disk(tmp_path, X), all_targets))

    def refuse(values: Array) -> Array:
        raise ValueError("not these")

    with pytest.raises(ValueError, match="not these"):
        list(predict_on_workers(in_process_client, model(), in_process(tmp_path, rows()), refuse))
    assert_nothing_left(in_process_client)


@pytest.mark.slow
def test_no_worker_comes(tmp_path: Path) -> None:
    with cluster(0, processes=False) as client, pytest.raises(ClusterError, match=r"no worker .* 0.5 s") as caught:
        list(predict_on_workers(client, model(), on_disk(tmp_path, rows()), all_targets, worker_wait=0.5))
    assert caught.value.kind == "no-workers"


def test_a_time_out_of_the_function_is_its_own(in_process_client: Any, tmp_path: Path) -> None:
    source = on_disk(tmp_path, rows())

    def late(values: Array) -> Array:
        raise TimeoutError("too late")

    with pytest.raises(TimeoutError, match="too late"):
        list(predict_on_workers(in_process_client, model(), source, late))
    assert_nothing_left(in_process_client)


@pytest.mark.cluster
@pytest.mark.parametrize("container", [on_disk, in_process], ids=lambda f: f.__name__)
def test_worker_processes_change_no_bit(container: Any, process_client: Any, tmp_path: Path) -> None:
    source = container(tmp_path, rows())
    expected = gathered(predict_blocks(model(), source, all_targets))
    remote = gathered(predict_on_workers(process_client, model(), source, all_targets))
    assert remote[0] == expected[0]
    np.testing.assert_array_equal(remote[1], expected[1])


@pytest.mark.cluster
@pytest.mark.parametrize("container", variants([on_disk], [on_disk, in_process]), ids=lambda f: f.__name__)
def test_workers_that_are_killed(container: Any, tmp_path: Path) -> None:
    """One after the other: the blocks and the model they held are made again elsewhere."""
    source = container(tmp_path, rows())
    expected = gathered(predict_blocks(model(), source, all_targets))
    parts = []
    with cluster(2, processes=True) as client:
        victims = list(client.run(os.getpid).values())
        for part in predict_on_workers(client, model(), source, all_targets):
            parts.append(part)
            if len(parts) in (2, 8):
                os.kill(victims.pop(), signal.SIGKILL)
    assert not victims
    starts, values = gathered(parts)
    assert starts == expected[0]
    np.testing.assert_array_equal(values, expected[1])
