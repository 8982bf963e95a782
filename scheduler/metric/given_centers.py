"""Weights of the centres of an earlier round with the same rows, in place of a selection.

After the first updates a map changes little from round to round, and so do the rows that would be selected, which takes
most of the time of a round. Covers the weights only; `rounds` has the round, `learning` decides which centres it gets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.kernels import Kernel
from distkern.selection.factors import kernel_weights
from distkern.selection.gram_refit import add_gram, empty_gram, refit, regularise

from ..runtime.threads import map_tiles, workspace
from ..training.driver_loop import TrainingJob

ROWS_OF_A_SUM = 1024
"""Rows of which one thread adds up products at a time."""


def can_be_given(job: TrainingJob) -> bool:
    """Return whether the models of a job follow from sums over kernel columns and a constant."""
    return job.intercept and not job.epsilon


def bytes_of_given(n_centers: int, threads: int) -> int:
    """Return the most memory of `weights_of_given`: columns of the threads, their sums, and the factors."""
    n = n_centers + 1
    return 8 * (2 * threads * ROWS_OF_A_SUM * n + (2 * threads + 6) * n * n)


def weights_of_given(
    rows: Array, targets: Array, weights: Array | None, centers: NDArray[np.int64], kernel: Kernel, job: TrainingJob
) -> Array | None:
    """Fit the weights of given centres, with the number of them that the stop rule keeps.

    Parameters
    ----------
    rows : array, shape (n, d)
        Rows in the space of the kernel.
    targets : array, shape (n, T)
        Targets.
    weights : array, shape (n,), or None
        Row weights; None for ones.
    centers : array, shape (m,)
        Positions of the centres among the rows, in the order of their path.
    kernel : Kernel
        The kernel.
    job : TrainingJob
        Regularisation and stop rule, of which `can_be_given` is true.

    Returns
    -------
    array, shape (k + 1, T), or None
        Constant and weights of the first k centres; None where the columns depend on each other too much for sums.
    """
    mass = np.ones(len(rows)) if weights is None else weights
    means = mass @ targets / mass.sum()
    roots, centred, chosen = np.sqrt(mass)[:, None], targets - means, rows[centers]
    n, n_targets = len(centers) + 1, targets.shape[1]
    padded = np.zeros((len(rows), max(n_targets, 2)))  # numpy rounds products of one column differently
    padded[:, :n_targets] = roots * centred

    def sums(start: int) -> tuple[Array, Array]:
        part = slice(start, start + ROWS_OF_A_SUM)
        columns = workspace.array("given", (n, len(rows[part])), np.dtype(np.float64))
        kernel.columns(chosen, rows[part], out=columns[1:])
        columns[0] = 1.0
        columns *= roots[part].T
        gram = empty_gram(n)
        add_gram(gram, columns, workspace.array("square", (n, n), columns.dtype))
        return gram, columns @ padded[part]

    # In the order of the rows, so that the sums have the same bits for any number of threads.
    gram, products = empty_gram(n), np.zeros((n, padded.shape[1]))
    for part_gram, part_products in map_tiles(sums, range(0, len(rows), ROWS_OF_A_SUM)):
        gram += part_gram
        products += part_products
    # Columns that depend on each other are not left out: the centres are selected anew.
    fitted = refit(gram, np.ascontiguousarray(products[:, :n_targets]), dependent=0.0)
    if fitted is None:
        return None
    norms = (roots**2 * centred**2).sum(axis=0)
    factors, _, scores = regularise(fitted, float(mass.sum()), norms, job.regularization, job.stop)
    k = 1 + (n - 1 if scores is None else int(np.argmin(scores)) + 1)
    found = kernel_weights(factors.u[:k, :k], factors.s[:k], factors.z[:k], factors.lambdas[k - 1])
    found[0] += means
    return found
