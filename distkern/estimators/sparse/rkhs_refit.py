"""Final weights by the norm in the kernel's space, computed from a path without its rows.

Covers ``refit="rkhs"``, and the paths of few rows, whose regularisation was chosen before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from distkern.scheduler import TrainingResult
from distkern.scheduler.protocol.path import Path
from distkern.scheduler.runtime.threads import single_threaded_blas

from ...arrays import Array
from ...kernels import Kernel
from ...numerics.scaling import FeatureScaling
from ...selection.rkhs_refit import factors_in_rkhs_norm, fit_in_rkhs_norm
from ...selection.rounding import in_deviations, magnified
from ...selection.stopping import StopReason
from .assembly import PrefixWeights, path_weights

NEAR_FIT = 1.01
"""A path of few rows ends where its penalised squared error is at most this times that of all rows as centres: from
there on the test errors of nine sets changed by less than a tenth of their standard errors."""


@dataclass(frozen=True)
class NormRefit:
    """Computes the weights of the first centres of a path; no row of the data is read again."""

    kernel: Kernel
    """The kernel."""
    scaling: FeatureScaling
    """Scaling of raw features to the kernel's."""
    epsilon: float
    """Number that was added to each kernel column at its own row: the kernel of the training is k + epsilon I."""
    per_target: bool
    """Whether every target has its own constant."""
    dtype: str
    """Dtype of the kernel values of predictions."""

    def __call__(self, path: Path, count: int) -> PrefixWeights:
        """Return the weights of the first `count` centres; `JobError` ``indefinite-kernel``."""
        if not count:
            return path_weights(path, count)
        # One thread: the same bits on every machine.
        with single_threaded_blas():
            gram = _gram(path, count, self.kernel, self.scaling)
            gram[np.diag_indices(count)] += self.epsilon
            k = slice(count + 1)
            own = path.in_units()
            fit = fit_in_rkhs_norm(own.u[k, k], own.s[k], own.z[k], own.target_norms, gram, per_target=self.per_target)
        weights = fit.weights if path.target_units is None else fit.weights * np.array(path.target_units)
        norms = np.sqrt(path.s[k] @ np.square(path.u[k, k]) / path.s[0])
        moved = magnified(norms, weights, self.dtype)
        steps = path.u[k, k] @ weights
        left = path.target_norms + (steps * (path.s[k, None] * steps - 2.0 * path.z[k])).sum(axis=0)
        residual = np.sqrt(np.maximum(left, 0.0) / path.s[0])
        cost = in_deviations(np.hypot(residual, moved) - residual, np.sqrt(path.target_norms / path.s[0]))
        return PrefixWeights(weights, fit.mu, fit.gcv, cost)


def penalised(result: TrainingResult, mu: float, share: float = 0.0) -> TrainingResult:
    """Return the result of a training on few rows with the regularisation that was chosen for it.

    The model has the fewest centres whose penalised squared error is within 1 % of that of all rows as centres, and all
    of the path where it ended before.

    Parameters
    ----------
    result : TrainingResult
        Result of `FewRowsChoice.applied`, of one path, with or without rows that came later.
    mu : float
        Regularisation.
    share : float, default 0.0
        Penalised squared error with all rows as centres, over the centred squares of the targets; with 0 all centres
        are kept.

    Raises
    ------
    JobError
        ``indefinite-kernel``.
    """
    (path,) = result.paths
    m = len(path.rows)
    if not m:
        return result
    with single_threaded_blas():
        gram = _gram(path, m, result.kernel, result.scaling)
        made = factors_in_rkhs_norm(path.u, path.s, path.z, path.target_norms, gram, mu)
    varying = path.target_norms > 0.0
    explained = np.cumsum(np.square(made.z) / made.s[:, np.newaxis], axis=0)[:, varying]
    shares = 1.0 - (explained / path.target_norms[varying]).mean(axis=1)
    near = np.flatnonzero(shares[1:] <= NEAR_FIT * share)
    kept = int(near[0]) + 1 if len(near) else m
    # The path has all centres that are independent or allowed: only without the 1 % its own end is the reason.
    reason = StopReason.ALL_ROWS_REACHED if len(near) else path.reason
    lambdas = np.zeros((m + 1, 1))
    penalised_path = replace(
        path,
        n_centers=kept,
        u=made.u,
        s=made.s,
        z=made.z,
        lambdas=lambdas,
        gcv=made.gcv,
        reason=reason,
        mu=mu,
        selected=path,
    )
    return replace(result, paths=[penalised_path], reason=reason)


def fitted_parameters(path: Path, count: int) -> float:
    """Return the sum of the leverages of all rows in the fit of the first `count` centres of a `penalised` path."""
    assert path.selected is not None
    k, selected = slice(count + 1), path.selected
    rows = np.sqrt(selected.s[k, np.newaxis]) * selected.u[k, k]
    inverse = solve_triangular(path.u[k, k], rows.T, trans="T", unit_diagonal=True, check_finite=False)
    return float((np.square(inverse).sum(axis=1) / path.s[k]).sum())


def _gram(path: Path, count: int, kernel: Kernel, scaling: FeatureScaling) -> Array:
    """Return the kernel between the first centres of a path."""
    centers = scaling.apply(path.features[:count], np.dtype(np.float64))
    return np.asarray(kernel.block(centers, centers.copy()), dtype=np.float64)
