"""Fisher's discriminant in the space of a kernel (Andelic, thesis 2007, section 3.3), for any number of classes.

With column k_i of the Gram matrix for row i, row weights r_i and the classes' weights W_c, the within-class scatter is
N = sum_c sum_{i in c} r_i (k_i - m_c)(k_i - m_c)' (3.38) with the class means m_c = sum_{i in c} r_i k_i / W_c (3.37).
Directions maximise a'Ba / a'(N + epsilon R^-1)a with the between-class scatter
B = sum_c W_c (m_c - m)(m_c - m)', of rank C - 1; R^-1 makes a weight the same as repeated rows. For two classes the
direction is that of (N + epsilon I)^-1 (m_+ - m_-) (3.41).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..numerics.bordered_systems import solve_symmetric

__all__ = ["FisherDirections", "discriminants", "fisher_directions"]

_RELATIVE = 1e-12
"""An eigenvalue below this part of the largest has no direction; a variance is at least this part of the largest."""


@dataclass(frozen=True)
class FisherDirections:
    """Directions, and the Gaussians of the classes' projections on them."""

    directions: Array
    """(n, q): expansion of each direction in the rows, a'(N + epsilon R^-1)a = 1."""
    eigenvalues: Array
    """(q,): Rayleigh quotients, descending."""
    means: Array
    """(C, q): means of each class's projections; zeros for a class without rows."""
    covariance: Array
    """(q, q): pooled covariance within the classes, sums divided by the weight of all rows."""
    priors: Array
    """(C,): share of each class in the weight of all rows."""


def fisher_directions(
    K: Array, codes: NDArray[np.intp], n_classes: int, weights: Array, epsilon: float
) -> FisherDirections:
    """Find all discriminating directions.

    Parameters
    ----------
    K : array, shape (n, n)
        Gram matrix; overwritten.
    codes : array, shape (n,)
        Class of each row.
    n_classes : int
        Number of classes C.
    weights : array, shape (n,)
        Row weights above zero.
    epsilon : float
        Regularisation above zero, in units of N.

    Returns
    -------
    FisherDirections

    Raises
    ------
    DataError
        ``singular``: epsilon is too small for the scatter.
    """
    mass = np.bincount(codes, weights=weights, minlength=n_classes)
    present = np.flatnonzero(mass > 0)
    indicator = np.zeros((len(codes), n_classes))
    indicator[np.arange(len(codes)), codes] = weights
    means = (indicator.T @ K)[present] / mass[present, None]
    overall = mass[present] @ means / mass.sum()
    between = (np.sqrt(mass[present, None]) * (means - overall)).T

    # K is replaced by its centred rows times root weights; the scatter is its product with itself. The product of K
    # with itself less that of the means is the same matrix, but cancels.
    position = np.searchsorted(present, codes)
    roots = np.sqrt(weights)
    for i in range(len(K)):
        K[i] -= means[position[i]]
        K[i] *= roots[i]
    scatter = K.T @ K
    scatter[np.diag_indices(len(scatter))] += epsilon / weights
    expansion = solve_symmetric(scatter, between)

    small = between.T @ expansion
    values, vectors = np.linalg.eigh((small + small.T) / 2)
    order = np.argsort(values)[::-1][: len(present) - 1]
    order = order[values[order] > _RELATIVE * max(values.max(), 0.0)]
    directions = expansion @ (vectors[:, order] / np.sqrt(values[order]))
    centred = K @ directions
    class_means = np.zeros((n_classes, len(order)))
    class_means[present] = means @ directions
    return FisherDirections(
        directions=directions,
        eigenvalues=values[order],
        means=class_means,
        covariance=centred.T @ centred / mass.sum(),
        priors=mass / mass.sum(),
    )


def discriminants(found: FisherDirections) -> tuple[Array, Array]:
    """Return weights and intercepts of the log posterior odds for Gaussian projections of one covariance (3.12-3.19).

    Parameters
    ----------
    found : FisherDirections
        Directions and Gaussians.

    Returns
    -------
    coef : array, shape (n, T)
        Expansion in the rows. For two classes T = 1, the log odds of the second; otherwise one column for each class,
        the logarithm of density and prior up to a term that all classes share.
    intercept : array, shape (T,)
        Includes the logarithm of the priors. For a class without rows it is so low that the class is never predicted.
    """
    present = found.priors > 0
    covariance = found.covariance.copy()
    middle = found.priors @ found.means
    # The odds do not depend on the origin; at the mean of all rows their terms are small and cancel least.
    means = np.where(present[:, None], found.means - middle, 0.0)
    # The projections within classes may have a variance of almost zero; the densities need one above zero.
    floor = _RELATIVE * float(np.square(means).sum(axis=1).max(initial=0.0))
    covariance[np.diag_indices(len(covariance))] += max(floor, float(np.finfo(np.float64).tiny))
    linear = np.linalg.solve(covariance, means.T) if len(covariance) else means.T
    intercept = -0.5 * np.einsum("cq,qc->c", means, linear) - middle @ linear
    intercept[present] += np.log(found.priors[present])
    intercept[~present] = -np.sqrt(np.finfo(np.float64).max)
    if len(intercept) == 2:
        linear, intercept = linear[:, 1:] - linear[:, :1], intercept[1:] - intercept[:1]
    return found.directions @ linear, intercept
