"""Pure functions of blocks: the same bits in this process and on workers, and after a worker was lost."""

import numpy as np
import pytest

from distkern.errors import ClusterError, DataError
from distkern.scheduler.passes.block_tasks import LocalTasks, WorkerTasks, block_tasks
from distkern.scheduler.rows.block_reading import BlockRows
from distkern.storage import ArraySource
from tests.scheduler.worker_clusters import cluster


def gram(block: BlockRows, scale: float) -> np.ndarray:
    assert block.features is not None
    return scale * block.features.T @ block.features


def add(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return left + right


def fail(block: BlockRows) -> None:
    raise DataError(f"rows from {block.rows[0]}", kind="test")


def first_row(block: BlockRows) -> int:
    return int(block.rows[0])


def source(n_blocks: int = 7) -> ArraySource:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_blocks * 10, 3))
    return ArraySource(X, rng.standard_normal(len(X)), boundaries=tuple(range(0, len(X) + 1, 10)))


@pytest.fixture(scope="module")
def client():
    with cluster(2, processes=False) as client:
        yield client


@pytest.mark.parametrize("n_blocks", [1, 2, 7, 8])
def test_sums_have_the_same_bits_in_this_process_and_on_workers(client, n_blocks):
    rows = source(n_blocks)
    with (
        block_tasks(rows, classification=False) as here,
        block_tasks(rows, classification=False, client=client) as there,
    ):
        assert isinstance(here, LocalTasks)
        assert isinstance(there, WorkerTasks)
        sums = [tasks.reduce("gram", gram, tasks.hold(2.0), merge=add) for tasks in (here, there)]
    assert sums[0].tobytes() == sums[1].tobytes()
    np.testing.assert_allclose(sums[0], 2 * rows.X.T @ rows.X)


def test_results_come_in_the_order_of_blocks(client):
    for where in (None, client):
        with block_tasks(source(), classification=False, client=where) as tasks:
            assert list(tasks.each("first-row", first_row)) == list(range(0, 70, 10))
            assert list(tasks.each("first-row", first_row, blocks=[4, 2])) == [40, 20]


def test_an_error_of_a_function_comes_back_as_it_is(client):
    for where in (None, client):
        with block_tasks(source(), classification=False, client=where) as tasks, pytest.raises(DataError, match="rows"):
            list(tasks.each("fail", fail))


@pytest.mark.slow
def test_a_cluster_without_workers_ends_the_wait():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as empty,
        Client(empty, set_as_default=False) as client,
        WorkerTasks(source(), False, client, worker_wait=0.1) as tasks,
        pytest.raises(ClusterError, match="no worker"),
    ):
        tasks.reduce("gram", gram, 1.0, merge=add)
