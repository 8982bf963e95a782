"""Forward selections that the thesis compares with: by QR updates (Nair et al.), and classical OLS (Chen et al.)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler.passes.dense_rows import DenseRows
from distkern.scheduler.passes.fit import Fit
from distkern.scheduler.planning.workload import Workload

from ...selection.forward_path import BATCH_COLUMNS, ForwardPath, Reductions, forward_path
from ...selection.stopping import StopReason
from ..base.documentation import described
from ..base.regressor_classifier import BlockClassifier, BlockRegressor
from .dense_estimator import DENSE_ATTRIBUTES, DenseKernelEstimator, DenseSolution, square_bytes

_PARAMETERS = {
    "max_centers": """
        int
            Most centres to select; this is the only regularisation.""",
    "tol": """
        float, optional
            Selection ends when the largest residual of a row, the norm over its targets, is at most this.""",
    "tolerance": """
        float
            Selection ends when 1 - sum of error reduction ratios is below this: the unexplained part of the targets'
            squares about their means.""",
}

FORWARD_ATTRIBUTES = (
    DENSE_ATTRIBUTES
    + """
    history_ : structured array
        A row per centre: center, residual_max (before it), q_norm, error_reduction.
    stop_reason_ : StopReason
        The reason for which selection ended; its `advice` explains it."""
)

OLS_ATTRIBUTES = (
    FORWARD_ATTRIBUTES
    + """
    error_reduction_ : array, shape (m,)
        Part of the targets' squares that each centre explained when it was selected."""
)


@dataclass(kw_only=True, eq=False, repr=False)
class ForwardSelection(DenseKernelEstimator):
    """Base of both selections: a path of centres, and the reason for its end."""

    max_centers: int = 100

    def _terms(self, work: Workload) -> dict[str, int]:
        n, T, m = work.n_rows, work.n_targets, min(int(self.max_centers), work.n_rows) + 1
        return {"factors": 8 * (n * m + 2 * m * m), "residual": 8 * n * (6 * T + work.n_features + 12)}

    @abstractmethod
    def _select(self, rows: DenseRows) -> ForwardPath:
        """Select centres."""

    def _solve(self, rows: DenseRows, fit: Fit) -> DenseSolution:
        path = self._select(rows)
        fit.rounds, fit.kernel_columns = len(path.positions), path.n_columns
        history = path.history.copy()
        history["center"] = rows.rows[path.positions]
        self._set_path(history, path.reason)
        return DenseSolution(path.coef, path.intercept, path.positions)

    def _stored_arrays(self) -> dict[str, NDArray[Any]]:
        return {"history": self.history_}

    def _stored_values(self) -> dict[str, Any]:
        return {"stop_reason": str(self.stop_reason_)}

    def _restore(self, stored: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        if arrays["history"].dtype.names is None:
            raise ValueError("history has no columns")
        self._set_path(arrays["history"], StopReason(stored["stop_reason"]))

    def _set_path(self, history: NDArray[np.void], reason: StopReason) -> None:
        self.history_ = history
        self.stop_reason_ = reason


@dataclass(kw_only=True, eq=False, repr=False)
class QRForward(ForwardSelection):
    """Largest residual next, weights by the updated QR decomposition."""

    tol: float | None = None

    def _select(self, rows: DenseRows) -> ForwardPath:
        def column(row: int) -> NDArray[np.float64]:
            return rows.gram(np.array([row]))[:, 0]

        tol = None if self.tol is None else float(self.tol)
        return forward_path(column, rows.targets, rows.weights, int(self.max_centers), tol=tol)


@dataclass(kw_only=True, eq=False, repr=False)
class OLSForward(ForwardSelection):
    """Largest error reduction next, over all rows."""

    tolerance: float = 1e-3

    def _terms(self, work: Workload) -> dict[str, int]:
        n = work.n_rows
        return {"gram": square_bytes(n), **super()._terms(work), "slab": 8 * n * 3 * min(BATCH_COLUMNS, n)}

    def _select(self, rows: DenseRows) -> ForwardPath:
        K = rows.gram()
        path = forward_path(
            K.__getitem__,
            rows.targets,
            rows.weights,
            int(self.max_centers),
            reductions=Reductions(K, rows.weights),
            tolerance=float(self.tolerance),
        )
        return replace(path, n_columns=len(K))

    def _set_path(self, history: NDArray[np.void], reason: StopReason) -> None:
        super()._set_path(history, reason)
        self.error_reduction_ = history["error_reduction"].copy()


@described(_PARAMETERS, FORWARD_ATTRIBUTES)
class QRForwardRegressor(BlockRegressor, QRForward):
    """Forward selection of the row with the largest residual, by QR updates (Nair, Choudhury and Keane, 2002).

    The method that the paper (section 3, Table 4) and the thesis (3.4) compare theirs with: least squares on the
    selected columns (thesis 3.46), the next one where |y - [1 K_m] a| is largest (3.63). The path of OROLS with
    ``criterion="residual", regularization="none"``, in one process and O(n m) memory.
    """


@described(_PARAMETERS, FORWARD_ATTRIBUTES)
class QRForwardClassifier(BlockClassifier, QRForward):
    """Forward selection of the row with the largest residual, by QR updates; all classes share the centres.

    The method that the paper (section 3, Table 4) and the thesis (3.4) compare theirs with: least squares on the
    selected columns (thesis 3.46), the next one where |y - [1 K_m] a| is largest (3.63). The path of OROLS with
    ``criterion="residual", regularization="none"``, in one process and O(n m) memory.
    """


@described(_PARAMETERS, OLS_ATTRIBUTES)
class OLSForwardRegressor(BlockRegressor, OLSForward):
    """Classical orthogonal least squares with every row as a candidate (Chen, Cowan and Grant, 1991).

    K = Q U (thesis 3.71-3.75), and the next column is that of the largest error reduction ratio (q'y)^2 / (q'q y'y).
    The whole Gram matrix is compared at every step: O(n^2) memory, O(n^2 m) work, no regularisation.
    """


@described(_PARAMETERS, OLS_ATTRIBUTES)
class OLSForwardClassifier(BlockClassifier, OLSForward):
    """Classical orthogonal least squares on targets of +-1 a class (Billings and Lee, 2002).

    K = Q U (thesis 3.71-3.75), and the next column is that of the largest error reduction ratio (q'y)^2 / (q'q y'y).
    The whole Gram matrix is compared at every step: O(n^2) memory, O(n^2 m) work, no regularisation.
    """
