"""Width and regularisation of few rows by the restricted evidence, with every row as a centre.

With f = b + sum_j a_j k(., x_j) over all rows, a prior of covariance tau^2 K for f - b, noise of variance mu tau^2 and
a constant b without prior, the marginal likelihood of the targets, with b and tau^2 left out of it (restricted maximum
likelihood: Patterson and Thompson 1971; Rasmussen and Williams 2006, eq 2.45 with one constant), is

-1/2 [(W - 1) log q + log |K + mu I| + log 1'C1],   C = (K + mu I)^-1,   q = y'Cy - (1'Cy)^2 / 1'C1,

and mu q is the minimum of |y - f|^2 + mu |f|^2 in the kernel's norm. A row of weight r counts as r rows, and equal rows
as one row with the sum of their weights and their mean target: with R the diagonal matrix of root weights, K becomes
R K R, 1 and y are multiplied by R, log |K + mu I| grows by (W - n) log mu, W the sum of the weights, and q by 1 / mu
times the squares of the targets around the means. The eigenvalues of one kernel matrix serve every mu. Several targets
share K and mu, and have a tau each.

The evidence trusts copies: rows that a table holds twice have the same noise, and the smallest mu explains them. The
error at each distinct row without it and its copies has no such fault, but a larger variance. So the choice has nearly
the largest evidence of the settings whose errors left out are not clearly worse than the lowest.

Covers matrices in memory only; the rows are collected in `distkern.scheduler.metric.few_rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from ..arrays import Array

__all__ = ["DistinctRows", "Setting", "best_setting", "evidence_bytes", "tried_settings"]

DECADES = np.arange(-10.0, 3.25, 0.25)
"""Decimal logarithms of the tried mu, in units of the kernel's value at distance zero."""

TOLERATED = 1.0
"""Standard errors of the difference by which the errors left out may be above the lowest."""

NEAR_EVIDENCE = 1.0
"""Log evidence below the largest at which a setting is as good: then the one of fewest parameters is taken. Noise has
nearly the same evidence for every width, and for the narrowest a parameter for every row."""

_LEAST_SHARE = 1e-13
"""A target whose centred squares are a smaller share of its squares is constant, but for rounding."""


@dataclass(frozen=True, eq=False)
class DistinctRows:
    """Rows without copies, and without constant targets."""

    features: Array
    """(n, d): different rows."""
    weights: Array
    """(n,): sum of the weights of the copies."""
    targets: Array
    """(n, T): their weighted mean, centred; each target in units of its root sum of squares over all rows."""
    within: Array
    """(T,): weighted squares of the targets around these means."""

    @classmethod
    def of(cls, features: Array, targets: Array, weights: Array | None = None) -> Self | None:
        """Return the distinct rows; None where every target is constant.

        Parameters
        ----------
        features : array, shape (n_rows, d)
            Rows in kernel space.
        targets : array, shape (n_rows, T)
            Targets.
        weights : array, shape (n_rows,), optional
            Row weights above zero; ones by default.
        """
        mass = np.ones(len(features)) if weights is None else weights
        # Squares of targets of any size are finite.
        largest = np.abs(targets).max(axis=0)
        targets = targets / np.where(largest > 0.0, largest, 1.0)
        centred = targets - mass @ targets / mass.sum()
        squares = mass @ np.square(centred)
        varying = squares > _LEAST_SHARE * (mass @ np.square(targets))
        if not varying.any():
            return None
        centred = centred[:, varying] / np.sqrt(squares[varying])
        distinct, copies = np.unique(features, axis=0, return_inverse=True)
        copies = copies.ravel()
        sums = np.asarray(np.bincount(copies, mass), dtype=np.float64)
        means = np.column_stack([np.bincount(copies, mass * column) for column in centred.T]) / sums[:, np.newaxis]
        return cls(distinct, sums, means, mass @ np.square(centred - means[copies]))


@dataclass(frozen=True, eq=False)
class Setting:
    """One width and regularisation."""

    factor: float
    """Multiple of the width."""
    mu: float
    """Regularisation."""
    evidence: float
    """Log evidence of all targets, without its constants."""
    share: float
    """Minimum of |y - f|^2 + mu |f|^2 over the centred squares of the targets, averaged over targets."""
    parameters: float
    """Effective number of parameters beside the constant, the sum of l / (l + mu) over the eigenvalues l."""
    errors: Array
    """(n,): weighted squared error at each distinct row from the fit without it, averaged over targets."""


def tried_settings(gram: Array, rows: DistinctRows, factor: float) -> list[Setting]:
    """Return a setting for every tried mu.

    Parameters
    ----------
    gram : array, shape (n, n)
        Kernel between the distinct rows; it is overwritten.
    rows : DistinctRows
        The rows.
    factor : float
        Multiple of the width, for the settings.

    Returns
    -------
    list of Setting
        Empty where the kernel matrix has numbers that are not finite.
    """
    if not np.isfinite(gram).all():
        return []
    n, n_targets = rows.targets.shape
    roots, total, scale = np.sqrt(rows.weights), float(rows.weights.sum()), float(gram.diagonal().mean())
    gram *= roots[:, np.newaxis]
    gram *= roots
    # numpy, unlike scipy, frees the lock of Python meanwhile.
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0.0)
    constant, products = vectors.T @ roots, vectors.T @ (roots[:, np.newaxis] * rows.targets)
    squares = np.square(vectors)
    found = []
    for mu in scale * 10.0**DECADES:
        inverse = 1.0 / (values + mu)
        own = float(inverse @ np.square(constant))
        intercept = (inverse * constant) @ products / own
        # The first term is at least the second (Cauchy and Schwarz).
        q = inverse @ np.square(products) - own * np.square(intercept) + rows.within / mu
        q = np.maximum(q, np.finfo(np.float64).tiny)
        determinant = float(np.log(values + mu).sum()) + (total - n) * np.log(mu)
        cost = (total - 1.0) * np.log(q).sum() + n_targets * (determinant + np.log(own))
        # The error without a row and its copies is that of the solution over the diagonal of the bordered inverse.
        ones = vectors @ (inverse * constant)
        solution = vectors @ (inverse[:, np.newaxis] * products) - ones[:, np.newaxis] * intercept
        freedom = squares @ inverse - np.square(ones) / own
        errors = np.square(solution / np.maximum(freedom, np.finfo(np.float64).tiny)[:, np.newaxis]).mean(axis=1)
        parameters = float((values * inverse).sum())
        found.append(Setting(factor, float(mu), float(-0.5 * cost), float(mu * q.mean()), parameters, errors))
    return found


def best_setting(settings: Sequence[Setting]) -> Setting:
    """Return the simplest of the settings of nearly the largest evidence.

    Settings whose errors left out are clearly above the lowest do not take part.

    Parameters
    ----------
    settings : sequence of Setting
        At least one, all of the same rows.
    """
    lowest = min(settings, key=lambda setting: float(setting.errors.sum()))

    def tolerated(setting: Setting) -> bool:
        differences = setting.errors - lowest.errors
        return bool(differences.sum() <= TOLERATED * np.sqrt(len(differences)) * differences.std())

    left = list(filter(tolerated, settings))
    most = max(setting.evidence for setting in left)
    near = [setting for setting in left if setting.evidence >= most - NEAR_EVIDENCE]
    return min(near, key=lambda setting: (setting.parameters, -setting.factor))


def evidence_bytes(n: int, n_targets: int) -> int:
    """Return the bytes of `tried_settings` for one kernel matrix.

    Parameters
    ----------
    n : int
        Number of rows.
    n_targets : int
        Number of targets.
    """
    # The matrix and what made it, its eigenvectors and their squares, and the work arrays of LAPACK.
    return 8 * (7 * n * n + n * (6 * n_targets + 6) + len(DECADES) * n)
