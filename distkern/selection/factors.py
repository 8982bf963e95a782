"""The small part of the thin factors: U, s, z and lambda, and the algebra that extends them by a panel.

K_m = [1 k_1 ... k_m] = Q_m U_m with orthogonal, not normalised columns q_j of Q. The rows of Q stay with the data;
all arrays here have a size of about m, and no row is read. Q is extended in two passes: candidates are projected
once when they enter the pool, and their panel is projected a second time here, through Gram matrices only.

Notation follows the paper (Andelic et al., IJCAI-07, eqs 10, 17-20) and the thesis (3.54, 3.76-3.84).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot

import numpy as np
from scipy.linalg import solve_triangular

from ..arrays import Array
from .criteria import path_score
from .extrapolation import LambdaOverRows, score_over_rows
from .regularization import gcv, reestimate_by_evidence, reestimate_lambda

PER_TARGET = "-per-target"
"""Suffix of the names of the rules that give every target its own lambda."""

_RULES = {"gcv": reestimate_lambda, "evidence": reestimate_by_evidence}


@dataclass(frozen=True)
class PanelUpdate:
    """The change of Q and of the coefficients when formed columns F become columns of Q.

    Q_new = F combine - Q correct, with F of width p (the formed panel) and k <= p columns kept.
    """

    kept: tuple[int, ...]
    """Panel positions that are kept, ascending; the others depend on the rest."""
    combine: Array
    """(p, k): combination of the formed columns."""
    correct: Array
    """(m + 1, k): second orthogonalisation pass against Q."""
    s: Array
    """(k,): squared norms of the new columns."""
    z: Array
    """(k, T): their products with the targets."""
    u_top: Array
    """(m + 1, k): added by the second pass to the coefficients of the kept columns in the old basis."""
    u_new: Array
    """(k, k): unit upper triangular part of U for the kept columns."""
    survivors: Array
    """(k, p): maps elimination multipliers of the p formed columns to coefficients in the new basis."""
    restore: Array | None
    """(p, p): multiples of F to add to the surviving candidates again, None if every column was kept."""


def finish_panel(
    cross: Array,
    gram: Array,
    products: Array,
    s: Array,
    residual_products: Array,
    lower: Array,
    column_norms: Array,
    dependent: float,
    orthogonal: float = 0.0,
) -> PanelUpdate:
    """Orthogonalise a formed panel a second time, in coefficient space.

    Parameters
    ----------
    cross : array, shape (m + 1, p)
        Q'F; small, because F was projected once already.
    gram : array, shape (p, p)
        F'F.
    products : array, shape (p, T)
        F'E with the current residual E.
    s : array, shape (m + 1,)
        q_j'q_j of the columns in Q.
    residual_products : array, shape (m + 1, T)
        Q'E, not zero where lambda > 0.
    lower : array, shape (p, p)
        Unit upper triangular; pool columns of the panel are F @ lower.
    column_norms : array, shape (p,)
        |k_j|^2 of the panel's kernel columns.
    dependent : float
        A column with |q|^2 <= dependent * |k|^2 is not kept.
    orthogonal : float, default 0.0
        If every cosine between F and Q is at most this, the first pass suffices and `correct` is zero.

    Returns
    -------
    PanelUpdate
        Q_new is orthogonal to Q and within itself up to rounding.
    """
    # The paper (eqs 17-20) projects once and loses orthogonality with the square of the condition number. A second
    # pass restores it: "twice is enough" (Giraud, Langou, Rozloznik and van den Eshof, 2005).
    second = cross / s[:, None]
    if np.all(np.abs(cross) <= orthogonal * np.sqrt(s)[:, None] * np.sqrt(np.maximum(gram.diagonal(), 0.0))):
        second = np.zeros_like(second)
        cross = second
    orthogonal_gram = gram - cross.T @ second
    orthogonal_gram = (orthogonal_gram + orthogonal_gram.T) / 2
    orthogonal_products = products - second.T @ residual_products
    p = len(gram)

    limits = dependent * column_norms
    kept = list(range(p))
    base: Array = np.eye(p)
    relation: Array = base
    while True:
        kept_now, unit_lower, pivots = skipping_ldl(base.T @ orthogonal_gram @ base, limits[kept])
        if len(kept_now) == len(kept):
            break
        # A later column of F lost a multiple of a dropped column, which is not in Q: only that multiple is added again.
        # Computing all from the pool columns instead would lose small pivots in the rounding of large ones.
        kept = [kept[i] for i in kept_now]
        relation = lower[np.ix_(kept, kept)]
        base = solve_triangular(relation, lower[:, kept].T, trans="T", unit_diagonal=True).T
    if len(kept) == p:
        relation = lower
    to_q = solve_triangular(unit_lower, base.T, lower=True, unit_diagonal=True).T
    correct = second @ to_q
    survivors = (to_q.T @ orthogonal_gram) / pivots[:, None]
    restore = None if len(kept) == p else np.eye(p) - to_q @ survivors
    return PanelUpdate(
        kept=tuple(kept),
        combine=to_q,
        correct=correct,
        s=pivots,
        z=to_q.T @ orthogonal_products,
        u_top=second @ base @ relation,
        u_new=unit_lower.T @ relation,
        survivors=survivors,
        restore=restore,
    )


def skipping_ldl(gram: Array, limits: Array) -> tuple[list[int], Array, Array]:
    """Return (kept, unit L, D) of LDL', where each column whose pivot does not exceed its limit is skipped in order."""
    p = len(gram)
    kept: list[int] = []
    lower = np.zeros((p, p))
    pivots = np.zeros(p)
    for j in range(p):
        k = len(kept)
        # Row j of L D by forward substitution over the kept columns.
        row = gram[kept, j].copy()
        for i in range(k):
            row[i] -= lower[i, :i] @ row[:i]
        multipliers = row / pivots[:k]
        pivot = gram[j, j] - multipliers @ row
        if not pivot > limits[j]:
            continue
        lower[k, :k] = multipliers
        lower[k, k] = 1.0
        pivots[k] = pivot
        kept.append(j)
    k = len(kept)
    return kept, lower[:k, :k], pivots[:k]


class Factors:
    """U, s, z and the lambda path of one problem, extended by one column at a time.

    Parameters
    ----------
    weight_sum : float
        Sum of the row weights, the M of the formulas; also s_0, the squared norm of the first column.
    target_norms : array, shape (T,)
        y'y of each centred target.
    capacity : int
        Largest number of centres.
    regularization : {"gcv", "gcv-per-target", "evidence", "evidence-per-target", "none"} or float, default "gcv"
        Rule for lambda along the path: estimated again in each step from 0 on, zero, or fixed.
    """

    def __init__(
        self, weight_sum: float, target_norms: Array, capacity: int, regularization: str | float = "gcv"
    ) -> None:
        n_targets = len(target_norms)
        self.weight_sum = weight_sum
        self.target_norms = target_norms
        self.regularization = regularization
        self.n_columns = 1
        self._u = np.zeros((capacity + 1, capacity + 1))
        self._u[0, 0] = 1.0
        self._s = np.zeros(capacity + 1)
        self._s[0] = weight_sum
        self._z = np.zeros((capacity + 1, n_targets))
        self._residual_products = np.zeros((capacity + 1, n_targets))
        rule = regularization if isinstance(regularization, str) else ""
        self._reestimate = _RULES.get(rule.removesuffix(PER_TARGET))
        n_lambdas = n_targets if rule.endswith(PER_TARGET) else 1
        fixed = 0.0 if isinstance(regularization, str) else float(regularization)
        self.lambdas = np.full((capacity + 1, n_lambdas), fixed)
        # Targets that share lambda enter its choice only as sums of their squares: one number a column replaces T.
        self._per_target = n_lambdas == n_targets
        self._sizes = np.zeros((capacity + 1, n_lambdas))
        self._norms = target_norms if self._per_target else target_norms.sum(keepdims=True)

    @property
    def s(self) -> Array:
        """Squared column norms of Q, shape (m + 1,)."""
        return self._s[: self.n_columns]

    @property
    def z(self) -> Array:
        """Q'Y, shape (m + 1, T)."""
        return self._z[: self.n_columns]

    @property
    def u(self) -> Array:
        """U, shape (m + 1, m + 1), unit upper triangular."""
        return self._u[: self.n_columns, : self.n_columns]

    @property
    def residual_products(self) -> Array:
        """Q'E for the current residual of the rows, shape (m + 1, T)."""
        return self._residual_products[: self.n_columns]

    @property
    def lambda_(self) -> Array:
        """Regularisation after the last step, shape (1,) or (T,)."""
        return np.asarray(self.lambdas[self.n_columns - 1])

    def condition(self) -> float:
        """Condition number of Q, max sqrt(s) / min sqrt(s)."""
        return float(np.sqrt(self.s.max()) / np.sqrt(self.s.min()))

    def append(self, u_column: Array, s: float, z: Array) -> tuple[Array, float]:
        """Add one column, estimate lambda once more and return (residual step, GCV).

        Parameters
        ----------
        u_column : array, shape (m + 1,)
            Coefficients of the kernel column on the columns already in Q.
        s : float
            q'q of the new column.
        z : array, shape (T,)
            q'Y.

        Returns
        -------
        step : array, shape (T,)
            E is reduced by q times this: z / (lambda + s) (thesis 3.82).
        gcv : float
            Generalised cross validation with the new lambda.
        """
        m = self.n_columns
        step = self.preview(0, s, z)
        self._u[:m, m] = u_column
        self._u[m, m] = 1.0
        self.n_columns = m + 1
        self._residual_products[m] = z - s * step
        return step, float(gcv(self.s, self._sizes[: m + 1], self._norms, self.lambdas[m], self.weight_sum).sum())

    def score(self, stop: str | None, all_rows: float | None = None) -> float | None:
        """Return the score that a stop rule observes after the last step, None if it observes another number.

        Parameters
        ----------
        stop : str or None
            Name of the rule.
        all_rows : float, optional
            Sum of the weights of all rows, to estimate the score over them where the factors are of a sample.
        """
        sums = self._sums(stop)
        if all_rows is None:
            return path_score(stop, *sums, self.weight_sum)
        return score_over_rows(stop, *sums, self.weight_sum, all_rows)

    def _sums(self, stop: str | None) -> tuple[Array, Array, Array, Array]:
        # Rules other than GCV also use the number of targets.
        z, yy = (self._sizes[: self.n_columns], self._norms) if stop == "gcv" else (self.z, self.target_norms)
        return self.s, z, yy, self.lambda_

    def lambda_over(self, estimate: LambdaOverRows) -> float:
        """Return lambda over all rows after the last step, as `estimate` has followed it from the first."""
        return estimate.observe(*self._sums("lambda"), self.weight_sum)

    def preview(self, ahead: int, s: float, z: Array) -> Array:
        """Return the residual step of a column that may be added, without adding it.

        Parameters
        ----------
        ahead : int
            Number of previewed columns before it that are not added either; their previews must be called first, in
            order.
        s, z
            As for `append`.
        """
        m = self.n_columns + ahead
        self._s[m] = s
        self._z[m] = z
        self._sizes[m] = np.abs(z) if self._per_target else hypot(*z.tolist())
        if self._reestimate is not None:
            self.lambdas[m] = self._reestimate(
                self._s[: m + 1], self._sizes[: m + 1], self._norms, self.lambdas[m - 1], self.weight_sum
            )
        return np.asarray(z / (self.lambdas[m] + s))


def kernel_weights(u: Array, s: Array, z: Array, lam: Array) -> Array:
    """Return the weights in the kernel basis, the solution of U a = z / (lambda + s) (thesis 3.83, 3.84).

    Parameters
    ----------
    u : array, shape (m + 1, m + 1)
        Unit upper triangular.
    s : array, shape (m + 1,)
        Squared column norms of Q.
    z : array, shape (m + 1, T)
        Q'Y.
    lam : array, shape (1,) or (T,)
        Regularisation.

    Returns
    -------
    array, shape (m + 1, T)
        Row 0 is the intercept on centred targets.
    """
    return np.asarray(solve_triangular(u, z / (lam + s[:, None]), unit_diagonal=True))
