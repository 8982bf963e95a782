"""The variance of a prediction from the thin factors.

With weights w of the orthogonal columns q(x) = phi(x) inv(U), the prior variance v/lambda of each weight, a constant
without prior and noise of variance v, the predictive variance of a new target is (Bishop 2006, eq 3.59; the form of
Rasmussen and Williams 2006, eq 2.9, plus the noise)

v (1 + 1/W + sum_{j >= 1} q_j(x)^2 / (lambda + s_j)).

The second and third terms are the leverage of the row, as in `leave_one_out`. The noise variance v is the residual sum
of squares over the degrees of freedom that the stop rule leaves, where a selected centre counts twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ..arrays import Array
from .leave_one_out import shrunk_norms

__all__ = ["Leverage"]


@dataclass(frozen=True, eq=False)
class Leverage:
    """Leverages of rows from their kernel values."""

    inverse: Array
    """(m + 1, m + 1): inv(U)."""
    factors: Array
    """(m + 1, T): 1 / (lambda + s), of the constant 1 / W."""
    variance: Array
    """(T,): noise variance of each target."""

    @classmethod
    def of(cls, u: Array, s: Array, lam: Array, variance: Array, *, intercept: bool = True) -> Self:
        """Return the leverages of a model.

        Parameters
        ----------
        u : array, shape (m + 1, m + 1)
            Unit upper triangular, [1 K] = Q U.
        s : array, shape (m + 1,)
            Squared norms of the columns of Q; the first is the sum of the weights.
        lam : array, shape (1,) or (T,)
            Regularisation.
        variance : array, shape (T,)
            Noise variance.
        intercept : bool, default True
            Whether the model has a constant.
        """
        inverse = solve_triangular(u, np.eye(len(u)), unit_diagonal=True)
        factors = 1 / shrunk_norms(s, np.broadcast_to(lam, (len(variance),)))
        factors[0] *= intercept
        return cls(np.asarray(inverse), factors, variance)

    @property
    def n_outputs(self) -> int:
        """Number of targets."""
        return len(self.variance)

    def aligned(self) -> Self:
        """Return the same with contiguous and aligned arrays."""
        return replace(self, inverse=np.array(self.inverse, order="C"), factors=np.array(self.factors, order="C"))

    def evaluate(self, columns: NDArray[Any]) -> Array:
        """Return the standard deviation of a new target at rows, shape (n, T), from kernel values, shape (n, m)."""
        q = columns.astype(np.float64, copy=False) @ self.inverse[1:]
        q += self.inverse[0]
        return np.asarray(np.sqrt(self.variance * (1.0 + np.square(q, out=q) @ self.factors)))
