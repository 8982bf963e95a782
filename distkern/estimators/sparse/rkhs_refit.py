"""Final weights by the norm in the kernel's space, ``refit="rkhs"``, computed from a path without its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distkern.scheduler.protocol.path import Path
from distkern.scheduler.runtime.threads import single_threaded_blas

from ...kernels import Kernel
from ...numerics.scaling import FeatureScaling
from ...selection.rkhs_refit import fit_in_rkhs_norm
from ...selection.rounding import in_deviations, magnified
from .assembly import PrefixWeights, path_weights


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
        centers = self.scaling.apply(path.features[:count], np.dtype(np.float64))
        # One thread: the same bits on every machine.
        with single_threaded_blas():
            gram = np.asarray(self.kernel.block(centers, centers.copy()), dtype=np.float64)
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
