"""Products of a Gram matrix, which is never stored, with a few vectors: pairs of row slabs, on threads or workers.

The matrix is symmetric, so each pair of slabs is computed once and used for both. The slabs depend on the number of
rows alone, and parts are added in the order of the slabs, so the bits are the same everywhere. Covers one product; the
iterations are in `distkern.numerics.conjugate_gradients`.
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
"""Least rows of a task, if there are as many."""

TILE = 512
"""Columns of the matrix that a task computes at a time."""


class KernelProduct:
    """K P for the Gram matrix K of some rows.

    Parameters
    ----------
    tasks : BlockTasks
        Runner of the tasks.
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
        """Multiply P, shape (n, k) with k > 1: numpy rounds products of one column differently."""
        held = self._tasks.hold(np.ascontiguousarray(P))
        total = np.zeros_like(P)

        def multiply(start: int) -> Handle:
            stop = start + self._slab
            return self._tasks.submit("kernel-product", slab_product, self._features, self._kernel, start, stop, held)

        for part in self._tasks.in_order(range(0, self._n, self._slab), multiply):
            total[-len(part) :] += part
        return total


def slab_rows(n: int) -> int:
    """Return the rows of a task: those of about sixteen tasks, within the limits of a slab."""
    return min(max(-(-n // 16), SMALLEST_SLAB), LARGEST_SLAB)


def slab_product(features: Array, kernel: Kernel, start: int, stop: int, P: Array) -> Array:
    """Return the part of the product of rows ``start`` to ``stop`` with themselves and the rows below them.

    Parameters
    ----------
    features : array, shape (n, d)
        All rows.
    kernel : Kernel
        The kernel.
    start, stop : int
        Rows of the slab.
    P : array, shape (n, k)
        The vectors.

    Returns
    -------
    array, shape (n - start, k)
        Part of the product for the rows from `start` on.
    """
    # dask may deliver unaligned arrays, whose products are rounded differently.
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
    """Return the bytes of a product in a process that computes it, one term for each buffer.

    Parameters
    ----------
    n, d : int
        Rows and features.
    k : int
        Number of vectors.
    threads : int
        Threads of the process.
    """
    slab = slab_rows(n)
    return {
        "parts": (2 * threads + 1) * 8 * n * k,
        "gram_tiles": threads * 8 * (slab * (TILE + d) + TILE * d + slab * k),
    }
