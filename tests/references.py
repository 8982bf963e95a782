"""Slow, dense references, straight from the equations; tests compare the engine to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.kernels import Gaussian, Gaussians, Kernel, Laplacian, Linear, Matern, Polynomial, Sigmoid, Wendland
from distkern.models.kernel_model import KernelModel
from distkern.numerics.scaling import FeatureScaling

Array = NDArray[np.float64]


def gaussian_gram(X: Array, sigma: float) -> Array:
    """Full Gram matrix, one difference at a time (no cancellation)."""
    return np.array([np.exp(-np.square(X - x).sum(axis=1) / (2 * sigma**2)) for x in X]).T


def lambda_step(s: Array, z: Array, yy: float, lam: float, weight_sum: float) -> float:
    """One GCV re-estimation (thesis 3.85-3.89) for one target, term by term."""
    ss = yy - 2 * sum(zj**2 / (lam + sj) for sj, zj in zip(s, z, strict=True))
    ss += sum(sj * zj**2 / (lam + sj) ** 2 for sj, zj in zip(s, z, strict=True))
    trace = weight_sum - sum(sj / (lam + sj) for sj in s)
    derivative = sum(sj / (lam + sj) ** 2 for sj in s)
    penalty = sum((zj / (lam + sj)) ** 2 / (lam + sj) for sj, zj in zip(s, z, strict=True))
    if trace <= 0 or penalty == 0:
        return lam
    return float(np.clip(derivative * max(ss, 0.0) / (trace * penalty), 0.0, 1e6 * max(s)))


class DenseResidualOROLS:
    """Algorithm 1 of the paper, one centre at a time, with the whole Gram matrix and a full Q.

    Targets are centred; every column is orthogonalised twice; the row with the largest |residual| among those not
    yet selected is next, ties to the lowest.
    """

    def __init__(self, gram: Array, y: Array, n_steps: int, *, regularize: bool = True) -> None:
        n = len(y)
        self.mean = y.mean()
        target = y - self.mean
        self.q = np.ones((n, 1))
        self.u = np.ones((1, 1))
        self.s, self.z = np.array([float(n)]), np.array([0.0])
        self.lambdas = [0.0]
        self.rows: list[int] = []
        residual = target.copy()
        free = np.ones(n, dtype=bool)
        while len(self.rows) < n_steps and free.any():
            i = int(np.argmax(np.where(free, np.abs(residual), -1.0)))
            free[i] = False
            k = gram[:, i]
            c = self.q.T @ k / self.s
            q = k - self.q @ c
            second = self.q.T @ q / self.s
            q = q - self.q @ second
            c = c + second
            if q @ q <= 1e-14 * (k @ k):
                continue
            m = len(self.s)
            u = np.eye(m + 1)
            u[:m, :m] = self.u
            u[:m, m] = c
            self.u = u
            self.q = np.column_stack([self.q, q])
            self.s = np.append(self.s, q @ q)
            self.z = np.append(self.z, q @ target)
            lam = self.lambdas[-1]
            if regularize:
                lam = lambda_step(self.s, self.z, float(target @ target), lam, n)
            self.lambdas.append(lam)
            self.rows.append(i)
            residual = residual - q * self.z[-1] / (lam + self.s[-1])
        self.residual = residual

    def weights(self) -> Array:
        """Intercept and weights (thesis 3.83, 3.84), the target's mean in the intercept."""
        weights = np.linalg.solve(self.u, self.z / (self.lambdas[-1] + self.s))
        weights[0] += self.mean
        return weights


def order_recursive_pseudoinverse(columns: list[Array]) -> Array:
    """Pseudoinverse of [1 k_1 ... k_m], grown a column at a time (thesis 3.54, 3.56, 3.62)."""
    n = len(columns[0])
    matrix, inverse = np.ones((n, 1)), np.full((1, n), 1.0 / n)
    for k in columns:
        q = k - matrix @ (inverse @ k)
        q_dagger = q / (q @ q)
        inverse = np.vstack([inverse - np.outer(inverse @ k, q_dagger), q_dagger])
        matrix = np.column_stack([matrix, k])
    return inverse


def error_reductions(columns: Array, basis: Array, target: Array) -> Array:
    """Error reduction of each column beside an orthonormalised basis; -inf where a column depends on the basis."""
    q, _ = np.linalg.qr(basis)
    projected = columns - q @ (q.T @ columns)
    projected -= q @ (q.T @ projected)
    residual = target - q @ (q.T @ target)
    norms = np.square(projected).sum(axis=0)
    usable = norms > 1e-14 * np.square(columns).sum(axis=0)
    gains = np.full(columns.shape[1], -np.inf)
    gains[usable] = np.square(projected[:, usable].T @ residual).sum(axis=1) / norms[usable]
    return gains


def greedy_error_reduction(columns: Array, basis: Array, target: Array, count: int) -> list[int]:
    """Forward selection by error reduction: project everything anew at every step."""
    chosen: list[int] = []
    for _ in range(count):
        gains = error_reductions(columns, np.column_stack([basis, columns[:, chosen]]), target)
        gains[chosen] = -np.inf
        if not np.isfinite(gains).any():
            break
        chosen.append(int(np.argmax(gains)))
    return chosen


def numerical_gradient(function: Callable[[float], float], at: float) -> float:
    """Central difference with a relative step."""
    h = 1e-6 * max(abs(at), 1e-12)
    return (function(at + h) - function(at - h)) / (2 * h)


def dense_kernel_columns(kernel: Kernel, X: Array, centers: Array, own_rows: Array, epsilon: float) -> Array:
    """Kernel columns of `centers`, which are rows `own_rows` of `X`, one value at a time; epsilon at the own row."""
    values = np.empty((len(X), len(centers)))
    for j, center in enumerate(centers):
        if isinstance(kernel, (Gaussian, Gaussians)):
            sigma = kernel.sigma[j] if isinstance(kernel, Gaussians) else kernel.sigma
            values[:, j] = np.exp(-np.square(X - center).sum(axis=1) / (2 * sigma**2))
        elif isinstance(kernel, (Laplacian, Matern, Wendland)):
            values[:, j] = kernel.block(center[None] - X, np.zeros((1, X.shape[1])))[:, 0]
        elif isinstance(kernel, Polynomial):
            values[:, j] = ((X * center).sum(axis=1) + kernel.offset) ** kernel.degree
        elif isinstance(kernel, Sigmoid):
            values[:, j] = np.tanh(kernel.kappa * (X * center).sum(axis=1) + kernel.theta)
        else:
            assert isinstance(kernel, Linear)
            values[:, j] = (X * center).sum(axis=1)
    values[own_rows, np.arange(len(centers))] += epsilon
    return values


def random_model(
    kernel: Kernel,
    dtype: str = "float64",
    m: int = 7,
    n_targets: int = 3,
    offset: float = 0.0,
    d: int = 4,
) -> KernelModel:
    """Make a model of random centres and weights, `offset` away from the origin."""
    rng = np.random.default_rng(0)
    return KernelModel(
        kernel,
        FeatureScaling(offset + rng.standard_normal(d), rng.uniform(0.5, 2.0, d)),
        offset + rng.standard_normal((m, d)),
        rng.standard_normal((m, n_targets)),
        rng.standard_normal(n_targets),
        dtype,
    )


def dense_predictions(model: KernelModel, X: Array) -> Array:
    """b + K a in float64, one kernel value at a time."""
    rows = (X - model.scaling.shift) / model.scaling.scale
    centers = (model.centers - model.scaling.shift) / model.scaling.scale
    own = np.zeros(len(centers), dtype=np.int64)
    if not len(X) or not len(centers):
        return np.tile(model.intercept, (len(X), 1))
    return np.asarray(model.intercept + dense_kernel_columns(model.kernel, rows, centers, own, 0.0) @ model.coef)


def check_factors(
    q: Array,
    residual: Array,
    u: Array,
    s: Array,
    z: Array,
    lambdas: Array,
    design: Array,
    targets: Array,
    *,
    orthogonal: float = 1e-10,
    accurate: float = 1e-9,
) -> None:
    """Hold thin factors to their equations.

    Parameters
    ----------
    q : array, shape (n, k)
        Columns of Q the rows hold; a path that ended within a panel has more columns in `u` than here.
    residual : array, shape (n, T)
        E after k - 1 steps.
    u, s, z, lambdas
        As a `Path` has them, m + 1 long with m + 1 >= k.
    design : array, shape (n, m + 1)
        [1 K] of the centres, times the root weights.
    targets : array, shape (n, T)
        Centred, times the root weights.
    orthogonal, accurate : float
        Largest cosine between columns of Q, and largest relative error of everything else.
    """
    k, m = q.shape[1], len(s)
    assert k <= m
    assert u.shape == (m, m)
    assert z.shape == (m, targets.shape[1])
    assert lambdas.shape[0] == m
    for array in (q, residual, u, s, z, lambdas):
        assert np.isfinite(array).all()
    assert (s > 0).all()
    assert (lambdas >= 0).all()
    np.testing.assert_array_equal(np.tril(u), np.eye(m))

    lengths = np.sqrt(s[:k])
    columns = np.linalg.norm(design[:, :k], axis=0)
    cosines = (q.T @ q) / np.outer(lengths, lengths)
    np.testing.assert_allclose(cosines - np.diag(cosines.diagonal()), 0.0, rtol=0, atol=orthogonal)
    # The squared length of what little is left of a nearly dependent column is a difference of large numbers.
    cancelled = (columns / lengths) ** 2 * np.finfo(np.float64).eps
    assert (np.abs(cosines.diagonal() - 1) <= max(orthogonal, accurate / 10) + 100 * cancelled).all()

    np.testing.assert_allclose((q @ u[:k, :k] - design[:, :k]) / columns, 0.0, rtol=0, atol=accurate)

    size = np.linalg.norm(targets, axis=0)
    size = np.where(size > 0, size, 1.0)
    assert (z[0] == 0.0).all()
    np.testing.assert_allclose((q.T @ targets - z[:k]) / np.outer(lengths, size), 0.0, rtol=0, atol=accurate)

    # Step j used the lambda of its own time (thesis 3.82).
    expected = targets.astype(np.float64)
    for j in range(1, k):
        expected = expected - np.outer(q[:, j], z[j] / (lambdas[j] + s[j]))
    np.testing.assert_allclose((residual - expected) / size, 0.0, rtol=0, atol=accurate)


class DensePath:
    """Algorithm 1 for any targets, row weights and lambda: what `DenseResidualOROLS` does for one target and none.

    Parameters
    ----------
    columns : array, shape (n, n)
        Kernel columns of all rows, times the root weights of the rows.
    targets : array, shape (n, T)
        Centred, times the root weights.
    roots : array, shape (n,)
        Root weights.
    candidates : array
        Rows to choose among.
    n_steps : int
        Most centres.
    regularization : {"gcv", "gcv-per-target", "evidence", "evidence-per-target", "none"} or float
        How lambda follows the path.
    """

    def __init__(
        self,
        columns: Array,
        targets: Array,
        roots: Array,
        candidates: Any,
        n_steps: int,
        regularization: str | float,
    ) -> None:
        n_targets = targets.shape[1]
        self.q = roots[:, None].copy()
        self.s, self.z = np.array([roots @ roots]), np.zeros((1, n_targets))
        yy, weight_sum = np.square(targets).sum(axis=0), float(roots @ roots)
        lam = np.full(n_targets, regularization if isinstance(regularization, float) else 0.0)
        self.lambdas = [lam]
        self.rows: list[int] = []
        self.passed_over: list[int] = []
        self.largest: list[float] = []
        self.residual = targets.copy()
        free = np.zeros(len(roots), dtype=bool)
        free[np.asarray(candidates, dtype=np.int64)] = True
        while len(self.rows) < n_steps and free.any():
            sizes = np.sqrt(np.square(self.residual).sum(axis=1)) / roots
            row = int(np.argmax(np.where(free, sizes, -1.0)))
            free[row] = False
            q = columns[:, row].copy()
            for _ in range(3):
                q -= self.q @ (self.q.T @ q / self.s)
            if q @ q <= 1e-14 * (columns[:, row] @ columns[:, row]):
                self.passed_over.append(row)
                continue
            self.largest.append(float(sizes.max()))
            self.q = np.column_stack([self.q, q])
            self.s, self.z = np.append(self.s, q @ q), np.vstack([self.z, q @ targets])
            step = self._evidence_step if str(regularization).startswith("evidence") else self._step
            if regularization in ("gcv-per-target", "evidence-per-target"):
                lam = np.array([step([t], yy, lam[t], weight_sum) for t in range(n_targets)])
            elif regularization in ("gcv", "evidence"):
                lam = np.full(n_targets, step(range(n_targets), yy, lam[0], weight_sum))
            self.lambdas.append(lam)
            self.rows.append(row)
            self.residual = self.residual - np.outer(q, self.z[-1] / (lam + self.s[-1]))

    def _evidence_step(self, targets: Iterable[int], yy: Array, lam: float, weight_sum: float) -> float:
        """One re-estimation of alpha/beta (MacKay 1992) for targets that share both."""
        s, ss, size, determined = self.s, 0.0, 0.0, 0.0
        for t in targets:
            w = self.z[:, t] / (lam + s)
            ss += max(yy[t] - 2 * np.sum(w * self.z[:, t]) + np.sum(s * w**2), 0.0)
            size += np.sum(w**2)
            determined += np.sum(s / (lam + s))
        rows = len(list(targets)) * weight_sum
        if rows <= determined or size == 0:
            return lam
        return float(np.clip((determined / size) / ((rows - determined) / ss) if ss else 0.0, 0.0, 1e6 * s.max()))

    def _step(self, targets: Iterable[int], yy: Array, lam: float, weight_sum: float) -> float:
        """One GCV re-estimation of the lambda that some targets share."""
        s, ss, penalty = self.s, 0.0, 0.0
        for t in targets:
            z = self.z[:, t]
            ss += max(yy[t] - 2 * np.sum(z**2 / (lam + s)) + np.sum(s * z**2 / (lam + s) ** 2), 0.0)
            penalty += np.sum((z / (lam + s)) ** 2 / (lam + s))
        trace = weight_sum - np.sum(s / (lam + s))
        if trace <= 0 or penalty == 0:
            return lam
        return float(np.clip(np.sum(s / (lam + s) ** 2) * ss / (trace * penalty), 0.0, 1e6 * s.max()))
