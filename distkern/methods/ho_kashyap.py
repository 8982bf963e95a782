"""The Ho-Kashyap procedure: target margins b that only grow, and weights a that are least squares on them.

With z = Y a the margins of the rows (rows of the negative side negated), e = z - b and e+ = (e + |e|)/2:
b <- b + 2 eta e+ and a = Y+ b. The weights are updated by a <- a + (Y'Y)+ Y'(b - Y a): the pseudoinverse is applied to
the residual, so rounding errors do not accumulate over iterations. Y'(b - Y a) is a sum over rows; b has one number for
each row and target.

A hyperplane separates the rows where all z > 0. Where none does, e+ goes to zero and e does not. Since Y'e = 0, any
separating vector v would have sum e- (Y v) = sum e+ (Y v): with sum e+ <= tol sum e- the nearest row would have to be
1/tol times closer to the hyperplane than the farthest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array

__all__ = ["MarginSums", "grow_margins"]

SIGN_TOLERANCE = 1e-12
"""A margin counts as positive above this fraction of the largest: rounding may leave a zero margin on either side."""


@dataclass(frozen=True, eq=False)
class MarginSums:
    """Sums of one iteration over a set of rows, one column for each target."""

    bias_products: Array
    """(T,): sum of the residuals b - Y a, each row with its sign."""
    products: Array
    """(d, T): X' times the same residuals."""
    lowest: Array
    """(T,): smallest margin."""
    largest: Array
    """(T,): largest absolute margin."""
    beyond: Array
    """(T,): sum of e+ before b grew."""
    short: Array
    """(T,): sum of e- before b grew."""

    def merge(self, other: MarginSums) -> MarginSums:
        """Return the sums of both sets of rows together."""
        return MarginSums(
            self.bias_products + other.bias_products,
            self.products + other.products,
            np.minimum(self.lowest, other.lowest),
            np.maximum(self.largest, other.largest),
            self.beyond + other.beyond,
            self.short + other.short,
        )

    def separable(self, tol: float) -> list[bool | None]:
        """Return for each target whether a hyperplane separates the rows; None while this is not known."""
        found: list[bool | None] = []
        for lowest, largest, beyond, short in zip(self.lowest, self.largest, self.beyond, self.short, strict=True):
            if lowest > SIGN_TOLERANCE * largest:
                found.append(True)
            else:
                found.append(False if beyond <= tol * short and short > 0 else None)
        return found


def grow_margins(
    X: Array, signs: Array, row_weights: Array | None, b: Array, weights: Array, bias: Array, rates: Array
) -> tuple[Array, MarginSums]:
    """Compute one iteration for a set of rows.

    Parameters
    ----------
    X : array, shape (n, d)
        Rows.
    signs : array, shape (n, T)
        1 where the row is on the positive side, else -1.
    row_weights : array, shape (n,), optional
        Weights of the rows; ones by default.
    b : array, shape (n, T)
        Target margins.
    weights, bias : array, shape (d, T) and (T,)
        a.
    rates : array, shape (T,)
        eta of each target; with 0 its b does not change.

    Returns
    -------
    b : array, shape (n, T)
        The new margins.
    sums : MarginSums
    """
    n_targets = signs.shape[1]
    z = signs * (X @ weights + bias)
    e = z - b
    beyond = np.maximum(e, 0.0)
    grown = b + 2.0 * rates * beyond
    residual = signs * (grown - z)
    short = beyond - e
    if row_weights is not None:
        residual, beyond, short = (row_weights[:, None] * part for part in (residual, beyond, short))
    return grown, MarginSums(
        residual.sum(axis=0),
        X.T @ residual,
        z.min(axis=0, initial=np.inf) if len(z) else np.full(n_targets, np.inf),
        np.abs(z).max(axis=0, initial=0.0),
        beyond.sum(axis=0),
        short.sum(axis=0),
    )
