"""The kernel minimum squared error classifier (Xu et al., 2005 and 2006): K gamma = B."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler.passes.dense_rows import DenseRows
from distkern.scheduler.passes.fit import Fit
from distkern.scheduler.planning.workload import Workload

from ...errors import DataError, JobError
from ...methods.kernel_mse import solve_full, solve_reduced
from ..base.documentation import described
from ..base.parameter_checks import whole
from ..base.regressor_classifier import BlockClassifier
from .dense_estimator import DENSE_ATTRIBUTES, DenseKernelEstimator, DenseSolution, square_bytes

_PARAMETERS = {
    "ridge": """
        float
            Weight of |gamma|^2 beside the squared errors. With 0 the solution of least norm is computed by eigenvalues,
            which takes many times longer; eigenvalues below rounding count as zero.""",
    "max_centers": """
        int, optional
            Expand in this many rows only, drawn at random with their weights; in all rows by default.""",
    "center_rows": """
        sequence of int, optional
            Expand in the rows with these numbers, in this order; their weights must be above zero. Not kept in a model
            store.""",
}


@described(_PARAMETERS, DENSE_ATTRIBUTES)
@dataclass(kw_only=True, eq=False, repr=False)
class KernelMSEClassifier(BlockClassifier, DenseKernelEstimator):
    """Kernel minimum squared error classification: K gamma = B in the sense of least squares, without an intercept.

    The nonlinear procedure of the slides (section "Nonlinear Minimum Squared Error Procedures", K gamma = B; Xu et al.,
    2005 and 2006), and with `max_centers` or `center_rows` its reduced form. B holds +-1 for two classes; for more, a
    column a class with 1 for its rows and 0 for others, fitted as such and reported as 2 b - 1, which is about +1 for
    the class and -1 for others like the decisions of every other classifier.
    """

    _constraints: ClassVar = {"max_centers": whole(1).or_none()}

    ridge: float = 1e-6
    max_centers: int | None = None
    center_rows: Sequence[int] | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.max_centers is not None and self.center_rows is not None:
            raise JobError(
                f"max_centers={self.max_centers} and center_rows are both given: rows are drawn or given, not both",
                kind="invalid-parameter",
            )

    def _reduced_to(self, n_rows: int) -> int | None:
        """Return the number of rows of a reduced expansion, None for all rows."""
        if self.center_rows is not None:
            return len(self.center_rows)
        if self.max_centers is None or self.max_centers >= n_rows:
            return None
        return int(self.max_centers)

    def _terms(self, work: Workload) -> dict[str, int]:
        n, T, m = work.n_rows, work.n_targets, self._reduced_to(work.n_rows)
        if m is None:
            # A complex copy that is factored in place; or the workspace of the divide-and-conquer eigensolver, twice
            # the matrix, and vectors.
            factors = (2 if self.ridge else 3) * square_bytes(n)
            return {"gram": square_bytes(n), "factors": factors, "solution": 8 * n * (8 * T + 4)}
        return {"columns": 8 * n * (2 * m + 64), "triangle": 6 * square_bytes(m), "solution": 8 * n * (3 * T + 2)}

    def _solve(self, rows: DenseRows, fit: Fit) -> DenseSolution:
        assert rows.classes is not None
        several = len(rows.classes) > 2
        B = (rows.targets + 1.0) / 2.0 if several else rows.targets
        positions = self._positions(rows)
        if positions is None:
            coef = solve_full(rows.gram(), B, rows.weights, float(self.ridge))
        else:
            coef = solve_reduced(rows.gram(positions), B, rows.weights, float(self.ridge))
        intercept = np.full(B.shape[1], -1.0 if several else 0.0)
        fit.kernel_columns = len(coef)
        return DenseSolution(2.0 * coef if several else coef, intercept, positions)

    def _positions(self, rows: DenseRows) -> NDArray[np.int64] | None:
        m = self._reduced_to(len(rows.rows))
        if m is None:
            return None
        if self.center_rows is None:
            return rows.sample(m, self._seed)
        wanted = np.asarray(self.center_rows, dtype=np.int64)
        where = np.minimum(np.searchsorted(rows.rows, wanted), len(rows.rows) - 1)
        missing = np.flatnonzero(rows.rows[where] != wanted)
        if len(missing):
            raise DataError(
                f"center_rows names row {wanted[missing[0]]}, which is none of the {len(rows.rows)} rows that train: "
                "rows are counted from 0, and rows of weight zero are absent",
                kind="no-such-row",
            )
        return where.astype(np.int64)
