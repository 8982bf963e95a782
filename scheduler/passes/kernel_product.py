"""Products of a Gram matrix that is never stored with a few vectors: pairs of row slabs, on threads or workers.

The matrix is symmetric, so each pair of slabs is computed once and used from both sides. How rows are cut depends on
their number alone, and parts are added in the order of the slabs: the bits are the same everywhere.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from distkern.arrays import Array
from distkern.kernels import Kernel

from ..runtime.threads import workspace
from .block_tasks import BlockTasks, Handle

LARGEST_SLAB = 2048
"""Most rows of a task."""

SMALLEST_SLAB = 256
"""Fewest rows worth a task, if there are as many."""

TILE = 512
"""Columns of the matrix that a task computes at a time."""


class KernelProduct:
    """K P for the Gram matrix K of some rows.

    Parameters
    ----------
    tasks : BlockTasks
        Where the work is done.
    features : array, shape (n, d)
        Rows in the kernel's space.
    kernel : Kernel
        The kernel.
    """

    def __init__(self, tasks: BlockTasks, features: Array, kernel: Kernel) -> None:
        self._tasks = tasks
        self._features = tasks.hold(features)
        self._kernel = kernel
        self._n = len(features)
        self._slab = slab_rows(self._n)

    def __call__(self, P: Array) -> Array:
        """Multiply P, shape (n, k) with k > 1."""
        held = self._tasks.hold(np.ascontiguousarray(P))
        total = np.zeros_like(P)

        def multiply(start: int) -> Handle:
            stop = start + self._slab
            return self._tasks.submit("kernel-product", slab_product, self._features, self._kernel, start, stop, held)

        for part in self._tasks.in_order(range(0, self._n, self._slab), multiply):
            total[-len(part) :] += part
        return total


def slab_rows(n: int) -> int:
    """Rows of a task: some sixteen tasks, unless that makes too large or too small ones."""
    return min(max(-(-n // 16), SMALLEST_SLAB), LARGEST_SLAB)


def slab_product(features: Array, kernel: Kernel, start: int, stop: int, P: Array) -> Array:
    """Return what rows ``start`` to ``stop`` and the rows below them add to the product.

    Parameters
    ----------
    features : array, shape (n, d)
        All rows.
    kernel : Kernel
        The kernel.
    start, stop : int
        Rows of the slab.
    P : array, shape (n, k)
        What is multiplied.

    Returns
    -------
    array, shape (n - start, k)
        For the rows from `start` on.
    """
    # What dask delivers need not be aligned, and that would change products.
    features, P = (np.require(a, requirements=["C", "A"]) for a in (features, P))
    n, stop = len(features), min(stop, len(features))
    rows, count = features[start:stop], stop - start
    out = np.zeros((n - start, P.shape[1]))
    own = out[:count]
    for first, last in pairwise([*range(start, stop, TILE), *range(stop, n, TILE), n]):
        K = workspace.array("gram", (count, last - first), rows.dtype)
        kernel.block(rows, features[first:last], out=K)
        own += K @ P[first:last]
        if first >= stop:
            out[first - start : last - start] += K.T @ P[start:stop]
    return out


def product_bytes(n: int, d: int, k: int, threads: int) -> dict[str, int]:
    """Bytes of a product in a process that does the work, a term a buffer.

    Parameters
    ----------
    n, d : int
        Rows and features.
    k : int
        Columns of what is multiplied.
    threads : int
        Threads of the process.
    """
    slab = slab_rows(n)
    return {
        "parts": (2 * threads + 1) * 8 * n * k,
        "gram_tiles": threads * 8 * (slab * (TILE + d) + TILE * d + slab * k),
    }
