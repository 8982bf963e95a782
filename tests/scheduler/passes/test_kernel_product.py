"""Products with a Gram matrix that is not stored: right, and the same bits everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.kernels import Gaussian, Polynomial
from distkern.scheduler.passes import kernel_product
from distkern.scheduler.passes.block_tasks import block_tasks
from distkern.scheduler.passes.kernel_product import KernelProduct, slab_product, slab_rows
from distkern.storage import ArraySource
from tests.scheduler.worker_clusters import cluster


def tasks_for(X, client=None):
    return block_tasks(ArraySource(X, X[:, 0]), classification=False, client=client)


@pytest.mark.parametrize("kernel", [Gaussian(1.5), Polynomial(2, 1.0)])
@pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 1300])
def test_the_product_is_that_of_the_whole_matrix(kernel, n):
    rng = np.random.default_rng(n)
    X, P = rng.standard_normal((n, 3)), rng.standard_normal((n, 2))
    with tasks_for(X) as tasks:
        found = KernelProduct(tasks, X, kernel)(P)
    np.testing.assert_allclose(found, kernel.block(X, X.copy()) @ P, rtol=1e-11, atol=1e-10)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 20))
def test_slabs_and_tiles_cover_every_pair_once(n, slab, tile):
    rng = np.random.default_rng(n)
    X, P = rng.standard_normal((n, 2)), rng.standard_normal((n, 2))
    kernel = Gaussian(1.0)
    total = np.zeros((n, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_product, "TILE", tile)
        for start in range(0, n, slab):
            total[start:] += slab_product(X, kernel, start, start + slab, P)
    np.testing.assert_allclose(total, kernel.block(X, X.copy()) @ P, rtol=1e-11, atol=1e-12)


def test_the_number_of_rows_alone_decides_how_they_are_cut():
    assert [slab_rows(n) for n in (1, 5000, 10**5)] == [256, 313, 2048]


def test_workers_and_threads_give_the_same_bits():
    rng = np.random.default_rng(0)
    X, P = rng.standard_normal((1000, 3)), rng.standard_normal((1000, 3))
    with cluster(2, processes=False) as client, tasks_for(X) as here, tasks_for(X, client) as there:
        products = [KernelProduct(tasks, X, Gaussian(1.0))(P) for tasks in (here, there)]
    assert products[0].tobytes() == products[1].tobytes()
