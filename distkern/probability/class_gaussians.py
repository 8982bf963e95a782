"""Gaussians of the outputs of each class, and Bayes' rule (thesis 4.6, 4.7).

The thesis scales a discriminating direction to length one before it computes means and variances. The scale cancels in
the posteriors of one projection: with c f in place of f, means and deviations are c times as large, the exponents of
4.7 are the same, and the factor 1/|c| is common to all classes. The direction is therefore not scaled here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from .calibration import log_softmax

NEGLIGIBLE = 1e-10
"""A direction of a smaller share of the largest variance counts as constant: one-of-many outputs sum to a constant."""


@dataclass(frozen=True, eq=False)
class ClassGaussians:
    """One Gaussian for each class, in coordinates in which the covariance within classes is the identity."""

    log_priors: Array
    """(C,): logarithms of the class shares; -inf for a class without rows."""
    basis: Array
    """(T, r): map from outputs to coordinates."""
    means: Array
    """(C, r): class means."""
    factors: Array
    """(C, r, r): lower Cholesky factors of the classes' covariances; identities where they share one."""

    @classmethod
    def fit(
        cls,
        outputs: Array,
        codes: NDArray[np.intp],
        n_classes: int,
        *,
        shared: bool,
        weights: Array | None = None,
        shrinkage: float = 1e-3,
    ) -> Self:
        """Compute the moments of each class.

        Parameters
        ----------
        outputs : array, shape (n, T)
            Outputs; one column for the thesis's projection of two classes.
        codes : array, shape (n,)
            Classes, counted from 0.
        n_classes : int
            Number of classes.
        shared : bool
            Whether all classes have the pooled covariance within classes.
        weights : array, shape (n,), optional
            Row weights; ones by default.
        shrinkage : float, default 0.001
            Share of the pooled covariance in that of a class, so that the covariance of a class of few rows is regular.
        """
        weights = np.ones(len(outputs)) if weights is None else weights
        members = weights[:, None] * (codes[:, None] == np.arange(n_classes))
        counts = members.sum(axis=0)
        centers = (members.T @ outputs) / np.maximum(counts, np.finfo(np.float64).tiny)[:, None]
        deviations = outputs - centers[codes]
        within = (deviations * weights[:, None]).T @ deviations / counts.sum()
        values, vectors = np.linalg.eigh(within)
        varies = values > NEGLIGIBLE * max(float(values.max()), np.finfo(np.float64).tiny)
        basis = vectors[:, varies] / np.sqrt(values[varies])
        r = basis.shape[1]
        factors = np.tile(np.eye(r), (n_classes, 1, 1))
        if not shared and r:
            whitened = deviations @ basis
            for c in np.flatnonzero(counts > 0):
                spread = (whitened * members[:, c : c + 1]).T @ whitened / counts[c]
                factors[c] = np.linalg.cholesky((1 - shrinkage) * spread + shrinkage * np.eye(r))
        with np.errstate(divide="ignore"):
            log_priors = np.log(counts / counts.sum())
        return cls(log_priors, basis, centers @ basis, factors)

    def log_densities(self, outputs: Array) -> Array:
        """Return log p(f | class) up to a constant that all classes share, shape (n, C) (4.7)."""
        coordinates = outputs @ self.basis
        logs = np.empty((len(outputs), len(self.means)))
        for c, (mean, factor) in enumerate(zip(self.means, self.factors, strict=True)):
            distances = np.linalg.solve(factor, (coordinates - mean).T)
            logs[:, c] = -0.5 * np.square(distances).sum(axis=0) - np.log(factor.diagonal()).sum()
        return logs

    def log_posteriors(self, outputs: Array) -> Array:
        """Return log P(class | f), shape (n, C), by Bayes' rule."""
        return log_softmax(self.log_densities(outputs) + self.log_priors)
