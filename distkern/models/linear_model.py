"""A linear model, evaluated as a kernel model whose centres are stored in kernel space.

f(x) = b + s(x)'W with s the scaling. The columns of W are centres of the linear kernel with weight one. Centres of
other kernels are stored in the caller's features and mapped; the columns of W would lose digits by that far from the
origin.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array
from ..kernels import Linear
from ..numerics.scaling import FeatureScaling
from .kernel_model import KernelModel, PreparedModel

__all__ = ["LinearModel"]


class LinearModel(KernelModel):
    """Weights of scaled features: the centres, (T, d), are the weights, the kernel is x.c, and `coef` the identity."""

    @classmethod
    def of(cls, scaling: FeatureScaling, weights: Array, intercept: Array) -> LinearModel:
        """Make a model of weights, shape (d, T), and intercepts, shape (T,), of scaled features."""
        centers = np.ascontiguousarray(weights.T)
        return cls(Linear(), scaling, centers, np.eye(len(centers)), intercept, "float64")

    def prepare(self) -> PreparedModel:
        """Return the model for many calls; the weights are not scaled again."""
        return PreparedModel(
            self.kernel,
            self.scaling,
            np.require(self.centers, requirements=["C", "A"]),
            np.require(self.coef, requirements=["C", "A"]),
            self.intercept,
        )

    def in_units_of_rows(self) -> tuple[Array, Array]:
        """Return weights, shape (d, T), and intercepts, shape (T,), of the caller's features."""
        weights = self.centers.T / self.scaling.scale[:, None]
        return weights, np.asarray(self.intercept - self.scaling.shift @ weights)
