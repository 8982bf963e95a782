"""Look-ahead for the residual criterion: the next steps, simulated among a few candidates.

The row with the largest residual is the next centre, and every step changes all residuals. The steps among a few
candidates follow without any other row (thesis 3.76-3.82, in coefficient space) from the candidates' products with each
other, with Q and with E, and from the values of K, Q and E at their rows. The simulation only predicts an order. Every
accepted step is computed and checked over all rows, so a rounding error of the simulation costs time, never a wrong
centre.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array


@dataclass
class LookaheadCandidates:
    """Products and values of B candidate rows, whose kernel columns are not orthogonalised, and of watched rows.

    Arrays over rows include the root weights, as Q and E do.
    """

    rows: NDArray[np.int64]
    """(R,): global rows; the first B are the candidates, the others are watched and have no kernel column."""
    gram: Array
    """(B, B): K'K."""
    cross: Array
    """(m + 1, B): Q'K."""
    products: Array
    """(B, T): K'E with the current residual E."""
    kernel: Array
    """(R, B): the kernel columns at the rows."""
    q: Array
    """(R, m + 1): Q at the rows; column 0 holds the root weights."""
    residual: Array
    """(R, T): E at the rows."""


@dataclass(frozen=True)
class Prediction:
    """The predicted next centres, in order."""

    order: tuple[int, ...]
    """Positions among the candidates."""
    lower: Array
    """(n, n): unit upper triangular; their columns, orthogonal to Q, are F @ lower with nearly orthogonal F."""
    share: float
    """The smallest |q|^2 / |k|^2 of the columns; a value below rounding has no digits, it only means "small"."""


def predict_steps(
    candidates: LookaheadCandidates,
    s: Array,
    residual_products: Array,
    next_step: Callable[[int, float, Array], Array],
    *,
    first: int,
    limit: int,
    reliable: float,
    through_dependent: bool,
) -> Prediction:
    """Simulate greedy steps, largest residual first, ties to the lowest row, until a row that is no candidate is next.

    Parameters
    ----------
    candidates : LookaheadCandidates
        The candidates, and the watched rows.
    s : array, shape (m + 1,)
        q_j'q_j of the columns in Q.
    residual_products : array, shape (m + 1, T)
        Q'E, not zero where lambda > 0.
    next_step : callable
        ``next_step(i, s, z)``: the multiple of the i-th column from here that E is reduced by (thesis 3.82), after the
        columns before it.
    first : int
        The candidate that is known to be next.
    limit : int
        Largest number of steps.
    reliable : float
        A candidate with a squared norm of at most this times |k|^2 is below the rounding of the simulation: it counts
        as dependent on Q.
    through_dependent : bool
        Whether the prediction goes on after such a candidate; if not, it ends there.

    Returns
    -------
    Prediction
        At least `first`.
    """
    coefficients = candidates.cross / s[:, None]
    gram = candidates.gram - candidates.cross.T @ coefficients
    products = candidates.products - coefficients.T @ residual_products
    values = candidates.kernel - candidates.q @ coefficients
    residual = candidates.residual.copy()
    roots = candidates.q[:, 0]
    norms = candidates.gram.diagonal()
    free = np.ones(len(candidates.rows), dtype=bool)

    order: list[int] = []
    shares: list[float] = []
    multipliers = np.zeros((limit, len(gram)))
    n_steps = 0
    j = first
    while True:
        ahead = len(order)
        order.append(j)
        free[j] = False
        multipliers[ahead, j] = 1.0
        s_j = float(gram[j, j])
        shares.append(s_j / float(norms[j]) if norms[j] > 0.0 else 0.0)
        if shares[-1] > reliable:
            z_j = products[j].copy()
            step = next_step(n_steps, s_j, z_j)
            n_steps += 1
            multipliers[ahead] = gram[j] / s_j
            residual -= np.outer(values[:, j], step)
            values -= np.outer(values[:, j], multipliers[ahead])
            products -= np.outer(multipliers[ahead], z_j)
            gram -= np.outer(gram[j], multipliers[ahead])
        elif not through_dependent:
            break
        if len(order) == limit or not free.any():
            break
        # In single precision the root of a tiny weight is 0; such a row gets the size 0.
        sizes = np.divide(np.sqrt(np.square(residual).sum(axis=1)), roots, out=np.zeros(len(roots)), where=roots > 0.0)
        sizes[~free] = -1.0
        tied = np.flatnonzero(sizes == sizes.max())
        j = int(tied[np.argmin(candidates.rows[tied])])
        if j >= len(gram):
            break
    n = len(order)
    return Prediction(tuple(order), np.triu(multipliers[:n, order], 1) + np.eye(n), min(shares))


def orthogonal_coefficients(cross: Array, s: Array, leaning: Array) -> Array:
    """Return coefficients C that make K - Q C orthogonal to Q where Q is only nearly orthogonal.

    The paper's C = Q'K / s assumes an orthogonal Q. Rounding leaves small products between late and early columns of Q,
    and C would multiply them by |k|/|q| with every further column (the instability of classical Gram-Schmidt). With
    these products in C, only the rounding of one pass remains.

    Parameters
    ----------
    cross : array, shape (m + 1, n)
        Q'K.
    s : array, shape (m + 1,)
        The diagonal of Q'Q.
    leaning : array, shape (m + 1, m + 1)
        Q'Q without its diagonal, small.

    Returns
    -------
    array, shape (m + 1, n)
        The solution of (Q'Q) C = Q'K to second order in `leaning`.
    """
    coefficients = cross / s[:, None]
    return np.asarray(coefficients - (leaning @ coefficients) / s[:, None])
