"""Linear discriminants and minimum squared error from the means and the scatter of classes.

Fisher's discriminant (thesis 3.11, 3.18, 3.19) and least squares on targets that are the same for all rows of a
class (3.22) both depend on the rows through a `ClassScatter` only. For two classes they have the same direction (3.28).
With R of S_W = R'R and rows sqrt(M_k) (m_k - m), the sum of squared errors of X w + b on targets t_k equals that of the
small system [R; sqrt(M_k) (m_k - m)] w = [0; sqrt(M_k) (t_k - t)]. It is solved by QR: the normal equations of the
thesis would square the condition number.

The rank is determined on columns of unit length, so it does not depend on the units of the features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, solve_triangular

from ..arrays import Array
from ..numerics.class_scatter import ClassScatter, triangle

__all__ = ["LinearFit", "Projection", "Range", "class_targets", "fisher", "least_squares", "smallest_norm"]

RANK_TOLERANCE = 1e-12
"""Singular values, of columns of unit length, below this fraction of the largest count as zero."""


@dataclass(frozen=True, eq=False)
class LinearFit:
    """f(x) = x'weights + intercept, in the coordinates of the scatter it was computed from."""

    weights: Array
    """(d, T)."""
    intercept: Array
    """(T,)."""
    rank: int
    """Number of directions that the rows determine, at most d."""


@dataclass(frozen=True, eq=False)
class Projection:
    """Directions that separate the classes: leading solutions of S_B w = lambda S_W w (3.8)."""

    directions: Array
    """(d, c): uncorrelated and of unit variance within the classes; c is at most the number of classes less one."""
    ratios: Array
    """(c,): lambda (3.9), descending."""


@dataclass(frozen=True, eq=False)
class Range:
    """The directions that rows with the triangular factor R determine, and those that they do not."""

    null: Array
    """(d, k): orthonormal directions that R maps to zero, numerically."""
    inverse: Array
    """(d, d - k): V with V'R'R V = I, orthogonal to `null`; V V' is the pseudoinverse of R'R."""

    @classmethod
    def of(cls, factor: Array) -> Range:
        """Split the space of a factor, shape (d, d)."""
        null, complement = _split(factor)
        if complement is None:
            return cls(null, np.asarray(solve_triangular(factor, np.eye(len(factor)))))
        reduced = triangle(factor @ complement)
        return cls(null, complement @ solve_triangular(reduced, np.eye(len(reduced))))

    @property
    def rank(self) -> int:
        """Number of determined dimensions."""
        return int(self.inverse.shape[1])


def _split(factor: Array) -> tuple[Array, Array | None]:
    """Return orthonormal bases of the null space and of its complement, None for the whole space."""
    d = len(factor)
    # Lengths of columns; the division by the largest entry keeps squares from under- and overflow.
    largest = np.abs(factor).max(axis=0)
    scale = np.where(largest > 0, largest, 1.0)
    scale = scale * np.where(largest > 0, np.linalg.norm(factor / scale, axis=0), 1.0)
    _, singular, right = np.linalg.svd(factor / scale)
    rank = int(np.count_nonzero(singular > RANK_TOLERANCE * singular[0])) if singular[0] > 0 else 0
    if rank == d:
        return np.zeros((d, 0)), None
    if rank == 0:
        return np.eye(d), np.zeros((d, 0))
    # The common factor scale.min() changes no direction and keeps the quotients from overflow.
    directions = right[rank:].T / (scale / scale.min())[:, None]
    basis, _ = qr(directions)
    return basis[:, : d - rank], basis[:, d - rank :]


def class_targets(n_classes: int, margin: float) -> Array:
    """Return the targets of each class: b of the slides (5.8, 5.12).

    Parameters
    ----------
    n_classes : int
        Number of classes, at least 2.
    margin : float
        Value of every entry of b.

    Returns
    -------
    array, shape (n_classes, T)
        Two classes have one column: -margin for the first and margin for the second. The slides negate the rows of the
        first class instead. More classes have one column each: margin for the own class and 0 for the others.
    """
    if n_classes == 2:
        return np.array([[-margin], [margin]])
    return margin * np.eye(n_classes)


def least_squares(scatter: ClassScatter, targets: Array, center: Array) -> LinearFit:
    """Minimise the squared error on targets that are the same for all rows of a class (3.20 to 3.22).

    Parameters
    ----------
    scatter : ClassScatter
        Scatter of rows from which `center` was subtracted.
    targets : array, shape (K, T)
        Targets of each class.
    center : array, shape (d,)
        Origin of the rows' coordinates, in the coordinates in which the norm of a solution is measured.

    Returns
    -------
    LinearFit
        Where several solutions are equally good, the solution of the pseudoinverse: the augmented weight vector (bias,
        weights) of smallest Euclidean norm, in coordinates to which `center` was added again.
    """
    d, n_targets = scatter.means.shape[1], targets.shape[1]
    mean_target = scatter.weights @ targets / scatter.weight
    deviations = np.sqrt(scatter.weights)[:, None] * (targets - mean_target)
    system = np.zeros((d + len(targets), d + n_targets))
    system[:d, :d] = scatter.factor
    system[d:, :d] = scatter.between()
    system[d:, d:] = deviations
    reduced = triangle(system)
    factor, products = reduced[:d, :d], reduced[:d, d:]
    null, complement = _split(factor)
    if complement is None:
        weights = np.asarray(solve_triangular(factor, products))
    else:
        rank = complement.shape[1]
        inner = triangle(np.concatenate([factor @ complement, products], axis=1))
        weights = complement @ solve_triangular(inner[:rank, :rank], inner[:rank, rank:])
    weights = smallest_norm(weights, mean_target - (center + scatter.mean) @ weights, null, center + scatter.mean)
    return LinearFit(weights, mean_target - scatter.mean @ weights, d - null.shape[1])


def smallest_norm(weights: Array, bias: Array, null: Array, mean: Array) -> Array:
    """Add undetermined directions so that the bias and the weights together are as short as possible.

    Along a direction of `null` the rows determine f at their mean only: the bias compensates what is added to the
    weights.

    Parameters
    ----------
    weights : array, shape (d, T)
        A solution orthogonal to `null`.
    bias : array, shape (T,)
        f at the origin with these `weights`.
    null : array, shape (d, k)
        Orthonormal directions in which the rows do not differ.
    mean : array, shape (d,)
        Mean of the rows.
    """
    along = null.T @ mean
    length = float(np.linalg.norm(along))
    if length == 0.0:
        return weights
    return np.asarray(weights + np.outer(null @ (along / length), bias / (length + 1.0 / length)))


def fisher(scatter: ClassScatter, shrinkage: float) -> tuple[LinearFit, Projection]:
    """Compute the discriminants of normal classes with equal covariance.

    Parameters
    ----------
    scatter : ClassScatter
        Scatter of at least two classes.
    shrinkage : float
        Share, 0 to 1, of a multiple of the identity with the same trace in the covariance.

    Returns
    -------
    fit : LinearFit
        For two classes the log odds of the second (3.17 to 3.19). For more classes the log posterior of each class, up
        to a term that all classes share. The pseudoinverse of the covariance leaves out directions in which no class
        varies.
    projection : Projection
        Directions that separate the classes.
    """
    factor = scatter.factor / np.sqrt(scatter.weight)
    d = len(factor)
    if shrinkage:
        spread = np.sqrt(shrinkage / d) * np.linalg.norm(factor)
        factor = triangle(np.concatenate([np.sqrt(1.0 - shrinkage) * factor, spread * np.eye(d)]))
    inside = Range.of(factor)
    mean, priors = scatter.mean, scatter.weights / scatter.weight
    whitened = (scatter.means - mean) @ inside.inverse
    biases = np.log(priors) - 0.5 * np.square(whitened).sum(axis=1)
    if len(priors) == 2:
        weights = inside.inverse @ (whitened[1:] - whitened[:1]).T
        biases = biases[1:] - biases[:1]
    else:
        weights = inside.inverse @ whitened.T
    fit = LinearFit(weights, biases - mean @ weights, inside.rank)
    _, singular, right = np.linalg.svd(np.sqrt(priors)[:, None] * whitened, full_matrices=False)
    kept = min(len(priors) - 1, inside.rank)
    directions = inside.inverse @ right[:kept].T
    return fit, Projection(_signed(directions), np.square(singular[:kept]))


def _signed(directions: Array) -> Array:
    """Return the directions with signs that make the largest entry of each positive."""
    if not directions.size:
        return directions
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=0)[None], axis=0)
    return np.asarray(directions * np.where(largest < 0, -1.0, 1.0))
