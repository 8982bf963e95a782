"""Weights of many centres by preconditioned conjugate gradients, with lambda by generalised cross validation.

The weights minimise |y - b 1 - K a|^2 + lambda a'G a with row weights W, the kernel columns K of all rows, the kernel
matrix G between the centres, and b free. No Gram matrix over the rows is formed: every iteration needs K'W K P for a
few columns P. Several lambdas share each product, since the columns of one block of right-hand sides are multiplied
together.

The preconditioner is that of Rudi, Carratino and Rosasco (Falkon, 2017) with more rows: with G = T'T the matrix is
T'(Phi'W Phi + lambda I) T, where Phi = K inv(T). Phi'W Phi is estimated from the centres, for which Phi = T', and from
as many rows that are drawn at random, all with the same weight; A'A is the estimate plus lambda I. Single precision is
enough for T and A, as products with the matrix itself do not use them. Centres are not drawn uniformly, but weights in
inverse proportion to their probability make the estimate worse, as a few rows then dominate it.

GCV needs the trace of the fit, which is estimated by further right-hand sides K'W^(1/2) v with random signs v
(Hutchinson, 1990). G has a small multiple of the identity added, so equal centres are no error.

Conjugate gradients start from given weights and solve for the change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..errors import DataError
from ..kernels import Kernel
from ..numerics.conjugate_gradients import conjugate_gradients
from ..numerics.packed_triangles import BLOCK, PackedTriangle, Spread, triangle_bytes

__all__ = ["PenalisedFit", "PenalisedSystem", "RightSums", "Watch", "fit_weights", "system_bytes"]

EXCESS = 3e-3
"""Iterations end when the penalised squared error is at most this part above its minimum, as the preconditioner
estimates it."""

LEAST_SHARE = 1e-8
"""Least penalised squared error, in parts of the targets' squares, to which `EXCESS` refers."""

GIVEN_UP = 3.0
"""A lambda is given up once its error less so many times the estimated excess has a GCV above that of another lambda:
small lambdas converge slowest, and are of no use where the targets are noisy."""

JITTER = 1.0
"""Jitter in units of machine epsilon times the number of centres times the mean diagonal of G."""

LARGEST_JITTER = 1e-2
"""Largest jitter in units of the mean diagonal."""

ADDED_ROWS, THREAD_ROWS = 2048, 512
"""Rows that are added to the preconditioner together, and those of one thread at a time."""

Watch = Callable[[int, float], bool]
"""Function that takes the number of iterations and the excess of the worst column, and returns whether to go on."""


@dataclass(frozen=True)
class RightSums:
    """Sums over all rows that make the right-hand sides, with e what the given weights leave of the targets."""

    products: Array
    """(m, T + 1 + probes): K'W [e 1 V]."""
    target_norms: Array
    """(T,): e'We."""
    target_sums: Array
    """(T,): 1'We."""
    probe_sums: Array
    """(probes,): 1'WV."""


@dataclass(frozen=True)
class PenalisedFit:
    """Weights with the lambda of the lowest GCV."""

    weights: Array
    """(m + 1, T): the first row is the intercept on centred targets."""
    lambdas: Array
    """(1,) or (T,)."""
    gcv: float
    """Generalised cross validation, added up over targets."""
    tried: Array
    """(L, 3): each lambda, its GCV and the degrees of freedom of its fit."""
    all_weights: Array
    """(L, m + 1, T): weights with each lambda."""
    iterations: int
    """Number of iterations."""
    converged: bool
    """Whether every lambda that was not given up ended within `EXCESS`."""


class PenalisedSystem:
    """The penalty, and preconditioners for some lambdas.

    Parameters
    ----------
    centers : array, shape (m, d)
        Centres in kernel space; their dtype is that of the preconditioner.
    kernel : Kernel
        Kernel of the centres.
    more : array, shape (s, d)
        Rows drawn at random, in kernel space.
    lambdas : sequence of float
        Regularisation, in units of the mean diagonal of G.
    weight_sum : float
        Sum W of the row weights.
    epsilon : float, default 0.0
        Added to the kernel of a row with itself.
    spread : callable, optional
        Runs the work on threads; one after another by default.

    Raises
    ------
    DataError
        ``indefinite``: G is not positive definite, even with the largest jitter.
    """

    def __init__(
        self,
        centers: Array,
        kernel: Kernel,
        more: Array,
        lambdas: Array,
        weight_sum: float,
        *,
        epsilon: float = 0.0,
        spread: Spread | None = None,
    ) -> None:
        self.m, self.epsilon = len(centers), epsilon
        self._centers, self._kernel, self._spread = centers, kernel, spread or map
        self._diagonal = kernel.diagonal(centers).astype(np.float64) + epsilon
        self.unit = float(self._diagonal.mean())
        # Ascending: the preconditioner of the largest lambda, the safest one, is factored in place of the estimate.
        self.lambdas = np.sort(np.asarray(lambdas, dtype=np.float64)) * self.unit
        self._root, self.jitter = self._factor_gram()
        estimate = self._root.square()
        self._add_rows(estimate, more)
        estimate.scale(weight_sum / (self.m + len(more)))
        self._factors = [self._factor_with(estimate.copy(), value, estimate) for value in self.lambdas[:-1]]
        self._factors.append(self._factor_with(estimate, self.lambdas[-1], None))

    def _factor_gram(self) -> tuple[PackedTriangle, float]:
        jitter = JITTER * float(np.finfo(self._centers.dtype).eps) * self.m
        while jitter <= LARGEST_JITTER:
            root = PackedTriangle(self.m, self._centers.dtype, self._spread)
            root.fill(self._gram)
            root.add_diagonal(jitter * self.unit)
            if root.factor():
                return root, jitter * self.unit
            jitter *= 10.0
        raise DataError(
            f"the kernel matrix of {self.m} centres is not positive definite, even with {LARGEST_JITTER:g} of its mean "
            "diagonal added: use solver='factors', dtype='float64', or a positive definite kernel such as 'gaussian'",
            kind="indefinite",
        )

    def _gram(self, rows: slice, columns: slice, out: Array) -> None:
        """Write the kernel between some centres and some others, with the exact diagonal."""
        self._kernel.columns(self._centers[rows], self._centers[columns].copy(), out=out)
        where = np.arange(rows.stop - rows.start)
        out[where, where + rows.start - columns.start] = self._diagonal[rows]

    def _add_rows(self, estimate: PackedTriangle, more: Array) -> None:
        for start in range(0, len(more), ADDED_ROWS):
            parts: dict[int, Array] = {}

            def compute(first: int, parts: dict[int, Array] = parts, stop: int = start + ADDED_ROWS) -> None:
                rows = more[first : min(first + THREAD_ROWS, stop)]
                parts[first] = self._root.solve_transposed(np.asarray(self._kernel.columns(self._centers, rows)))

            for _ in self._spread(compute, range(start, min(start + ADDED_ROWS, len(more)), THREAD_ROWS)):
                pass
            estimate.add_square([parts[first] for first in sorted(parts)])

    def _factor_with(self, matrix: PackedTriangle, value: float, again: PackedTriangle | None) -> PackedTriangle:
        """Factor an estimate plus lambda I; where rounding exceeds lambda, with more on the diagonal."""
        added = value
        while True:
            matrix.add_diagonal(added)
            if matrix.factor():
                return matrix
            added = max(10.0 * added, float(np.finfo(self._centers.dtype).tiny) ** 0.5)
            if again is None or not np.isfinite(added) or added > 1e6 * (value + 1.0) * self.m:
                raise DataError(
                    f"the preconditioner for {self.m} centres is not positive definite with lambda {value:g}: use "
                    "dtype='float64', or solver='factors'",
                    kind="indefinite",
                )
            matrix = again.copy()

    def penalty_of(self, weights: Array) -> Array:
        """Return (G + jitter I) a, shape (m, k), for some weights, most of which may be zero."""
        used = np.flatnonzero(weights.any(axis=1))
        parts: dict[int, Array] = {}

        def multiply(start: int) -> None:
            some = used[start : start + THREAD_ROWS]
            columns = self._kernel.columns(self._centers, self._centers[some])
            columns[some, np.arange(len(some))] = self._diagonal[some]
            parts[start] = columns.astype(np.float64) @ weights[some]

        total = self.jitter * weights
        for group in range(0, len(used), 4 * THREAD_ROWS):
            parts.clear()
            for _ in self._spread(multiply, range(group, min(group + 4 * THREAD_ROWS, len(used)), THREAD_ROWS)):
                pass
            for start in sorted(parts):
                total += parts[start]
        return total

    def precondition(self, residuals: Array) -> Array:
        """Return an approximate solution, shape (L, m, c), of right-hand sides for each lambda."""
        parts = _split(self._root.solve_transposed(_join(residuals)), len(residuals))
        solved = [
            factor.solve(factor.solve_transposed(part)) for factor, part in zip(self._factors, parts, strict=True)
        ]
        return _split(self._root.solve(_join(np.stack(solved))), len(residuals))


def fit_weights(
    system: PenalisedSystem,
    right: RightSums,
    product: Callable[[Array], Array],
    start: Array,
    weight_sum: float,
    *,
    intercept: bool = True,
    per_target: bool = False,
    most: int = 30,
    watch: Watch | None = None,
) -> PenalisedFit:
    """Solve for the weights with every lambda, and choose one by GCV.

    Parameters
    ----------
    system : PenalisedSystem
        Penalty and preconditioners.
    right : RightSums
        Sums over all rows, with at least one probe where there are several lambdas.
    product : callable
        Returns K'W K P for P, shape (m, k).
    start : array, shape (m, T)
        Weights with which e was computed.
    weight_sum : float
        Sum W of the row weights.
    intercept : bool, default True
        Whether b is fitted; otherwise it is zero.
    per_target : bool, default False
        Whether every target has its own lambda.
    most : int, default 30
        Most iterations.
    watch : callable, optional
        Called after each iteration; may end them.
    """
    T, L = start.shape[1], len(system.lambdas)
    ones = right.products[:, T] if intercept else np.zeros(system.m)
    means, probe_means = right.target_sums / weight_sum, right.probe_sums / weight_sum
    sides = right.products[:, :T] - np.outer(ones, means)
    probes = right.products[:, T + 1 :] - np.outer(ones, probe_means)
    left = right.target_norms - (weight_sum * np.square(means) if intercept else 0.0)
    penalty = system.penalty_of(start)
    lambdas = system.lambdas[:, np.newaxis, np.newaxis]
    gradient = sides - lambdas * penalty
    B = np.concatenate([gradient, np.broadcast_to(probes, (L, *probes.shape))], axis=2)
    before = left + system.lambdas[:, np.newaxis] * (start * penalty).sum(axis=0)

    def operator(flat: Array) -> Array:
        products = product(flat) - np.outer(ones, ones @ flat / weight_sum)
        return products + _join(lambdas * _split(system.penalty_of(flat), L))

    rest, largest = B, np.inf

    def state(solution: Array) -> tuple[Array, Array, Array]:
        """Return squared errors (L, T), degrees of freedom (L,) and GCV (L, T) of the weights so far."""
        change = _split(solution, L)
        own = change[:, :, :T]
        penalised = lambdas * _split(system.penalty_of(_join(own)), L)
        # |e - K a|^2 with K'W K a = B - rest - lambda G a
        errors = left + (own * (B[:, :, :T] - rest[:, :, :T] - penalised - 2.0 * sides)).sum(axis=1)
        errors = np.maximum(errors, 0.0)
        freedom = np.full(L, float(intercept))
        if probes.shape[1]:
            freedom += np.maximum((change[:, :, T:] * probes).sum(axis=1).mean(axis=1), 0.0)
        return errors, freedom, _gcv(errors, freedom, weight_sum)

    def converged(flat: Array, residual: Array, energy: Array, iteration: int) -> NDArray[np.bool_]:
        nonlocal rest, largest
        rest = _split(residual, L)
        energy = energy.reshape(L, -1)
        objective = before - (_split(flat, L) * (B + rest))[:, :, :T].sum(axis=1)
        least = np.full((L, B.shape[2]), weight_sum)
        least[:, :T] = np.maximum(objective, LEAST_SHARE * np.maximum(left, 1e-300))
        excess = energy / least
        done = (excess <= EXCESS).all(axis=1)
        if done.any() and not done.all():
            errors, freedom, gcv = state(flat)
            reachable = _gcv(np.maximum(errors - GIVEN_UP * energy[:, :T], 0.0), freedom, weight_sum)
            if not per_target:
                gcv, reachable = gcv.sum(axis=1, keepdims=True), reachable.sum(axis=1, keepdims=True)
            done |= (reachable >= gcv[done].min(axis=0)).all(axis=1)
        largest = float(excess[~done].max(initial=0.0))
        go_on = watch is None or iteration == 0 or watch(iteration, largest)
        ended = (excess <= EXCESS) | done[:, np.newaxis] | (not go_on)
        return np.asarray(ended.ravel())

    def precondition(flat: Array) -> Array:
        return _join(system.precondition(_split(flat, L)))

    solved = conjugate_gradients(operator, _join(B), precondition, 0.0, most, converged=converged)
    own = _split(solved.solution, L)[:, :, :T]
    _, freedom, gcv = state(solved.solution)
    weights = np.empty((L, system.m + 1, T))
    weights[:, 1:] = start + own
    weights[:, 0] = (means if intercept else 0.0) - np.einsum("m,lmt->lt", ones, own) / weight_sum
    # Of equal scores the last, so that where no lambda leaves a degree of freedom the largest is taken.
    scores = (gcv if per_target else gcv.sum(axis=1, keepdims=True))[::-1]
    chosen = np.broadcast_to(L - 1 - scores.argmin(axis=0), (T,))
    targets = np.arange(T)
    return PenalisedFit(
        weights=np.ascontiguousarray(weights[chosen, :, targets].T),
        lambdas=system.lambdas[chosen if per_target else chosen[:1]],
        gcv=float(gcv[chosen, targets].sum()),
        tried=np.column_stack([system.lambdas, gcv.sum(axis=1), freedom]),
        all_weights=weights,
        iterations=solved.iterations,
        converged=largest <= EXCESS,
    )


def _gcv(errors: Array, freedom: Array, weight_sum: float) -> Array:
    """Return generalised cross validation of squared errors, (L, T); infinite without a degree of freedom left."""
    leftover = weight_sum - freedom[:, np.newaxis]
    usable = np.maximum(leftover, 1.0)
    return np.asarray(np.where(leftover > 0.0, weight_sum * errors / np.square(usable), np.inf))


def system_bytes(m: int, d: int, n_lambdas: int, more: int, n_columns: int, itemsize: int, threads: int) -> int:
    """Return the bytes of a `PenalisedSystem` and of its iterations.

    Parameters
    ----------
    m, d : int
        Centres and features.
    n_lambdas : int
        Number of lambdas.
    more : int
        Rows that are added to the preconditioner.
    n_columns : int
        Right-hand sides of a lambda.
    itemsize : int
        Bytes of a number.
    threads : int
        Threads of the process.
    """
    # T, the estimate or its last factor, and the factors of the other lambdas.
    triangles = (2 + n_lambdas - 1) * triangle_bytes(m, itemsize)
    # Rows that are added, products of block rows, and converted columns; diagonal blocks in float64.
    panels = m * itemsize * (ADDED_ROWS + 2 * (THREAD_ROWS + BLOCK) * threads) + 8 * m * THREAD_ROWS * threads
    panels += 4 * 8 * min(BLOCK, m) ** 2
    vectors = 16 * 8 * m * n_lambdas * max(n_columns, 2)
    return triangles + panels + vectors + 2 * (m + more) * d * itemsize


def _join(parts: Array) -> Array:
    """Return the columns of all lambdas side by side: (L, m, c) to (m, L c)."""
    return np.ascontiguousarray(parts.transpose(1, 0, 2).reshape(parts.shape[1], -1))


def _split(joined: Array, count: int) -> Array:
    """Return the inverse of `_join`."""
    return np.ascontiguousarray(joined.reshape(len(joined), count, -1).transpose(1, 0, 2))
