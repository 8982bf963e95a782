"""Least-squares support vector machines (Suykens and Vandewalle, Neural Processing Letters 9, 1999)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler.passes.dense_rows import DenseRows
from distkern.scheduler.passes.fit import Fit
from distkern.scheduler.passes.kernel_product import KernelProduct, product_bytes
from distkern.scheduler.planning.limits import WorkerFacts
from distkern.scheduler.planning.plan import Plan
from distkern.scheduler.planning.workload import Workload
from distkern.scheduler.runtime.threads import available_cores

from ...arrays import Array
from ...errors import DistkernWarning
from ...numerics.bordered_systems import eliminate_border, solve_bordered
from ...numerics.conjugate_gradients import LowRankPreconditioner, conjugate_gradients, pivoted_cholesky
from ..base.documentation import described
from ..base.parameter_checks import ABOVE_ZERO, one_of
from ..base.regressor_classifier import BlockClassifier, BlockRegressor
from .dense_estimator import DENSE_ATTRIBUTES, DenseKernelEstimator, DenseSolution, square_bytes

_PARAMETERS = {
    "gamma": """
        float
            Weight of the squared errors against the squared norm of the function; 1/gamma is added to the diagonal
            of K, divided by the row's weight.""",
    "solver": """
        {"auto", "dense", "cg"}
            "dense" factors the n x n matrix in this process. "cg" is conjugate gradients: the matrix is computed anew
            at every iteration, block by block, on all threads or workers, and never stored. "auto" takes "dense"
            where its plan fits.""",
    "tol": """
        float
            Conjugate gradients end when every residual is at most this part of its right-hand side.""",
    "max_iter": """
        int
            Most iterations of conjugate gradients; a `DistkernWarning` is issued when they were not enough.""",
    "preconditioner_rank": """
        int
            Columns of the pivoted incomplete Cholesky factor that preconditions conjugate gradients; 0 for the
            diagonal alone. It takes 16 bytes for each column and row.""",
}

LSSVM_ATTRIBUTES = (
    DENSE_ATTRIBUTES
    + """
    solver_ : {"dense", "cg"}
        Solver that was used.
    n_iter_ : int
        Iterations of conjugate gradients, 1 where the system was solved directly.
    residual_ : float
        Largest |rhs - H x| / |rhs| of the two systems at the end of conjugate gradients; 0 for a direct solution."""
)


@dataclass(kw_only=True, eq=False, repr=False)
class LeastSquaresSVM(DenseKernelEstimator):
    """Base of regressor and classifier: the bordered system, solved directly or by conjugate gradients."""

    _constraints: ClassVar = {"tol": ABOVE_ZERO, "solver": one_of("auto", "dense", "cg")}

    gamma: float = 1.0
    solver: str = "auto"
    tol: float = 1e-8
    max_iter: int = 1000
    preconditioner_rank: int = 400

    def plan(self, work: Workload, facts: WorkerFacts | None) -> Plan:
        """Plan a training, see `BlockEstimator.plan`; "auto": conjugate gradients where the matrix does not fit."""
        direct = self._plan_terms(work, facts, self._terms, lambda _: {})
        if self.solver == "dense" or (self.solver == "auto" and direct.fits):
            return direct
        threads = available_cores() if facts is None else facts.threads

        def on_workers(shapes: Workload) -> dict[str, int]:
            n, d, k = shapes.n_rows, shapes.n_features, shapes.n_targets + 1
            # Rows and vectors are copied to workers; one process holds them already.
            sent = {} if facts is None else {"copies": 2 * 8 * n * (d + k)}
            return sent | product_bytes(n, d, k, threads)

        return self._plan_terms(work, facts, self._iterative_terms, on_workers)

    def _terms(self, work: Workload) -> dict[str, int]:
        n, T = work.n_rows, work.n_targets
        return {"gram": square_bytes(n), "solution": 8 * n * (5 * (T + 1) + work.n_features + 2)}

    def _iterative_terms(self, work: Workload) -> dict[str, int]:
        n, k, rank = work.n_rows, work.n_targets + 1, min(int(self.preconditioner_rank), work.n_rows)
        return {"preconditioner": 16 * n * rank + 24 * rank * rank, "solution": 8 * n * (12 * k + 8)}

    def _solve(self, rows: DenseRows, fit: Fit) -> DenseSolution:
        diagonal = 1.0 / (float(self.gamma) * rows.weights)
        self.solver_, self.n_iter_, self.residual_ = "dense", 1, 0.0
        if "driver_gram" in fit.plan.terms:
            H = rows.gram()
            H[np.diag_indices(len(H))] += diagonal
            fit.kernel_columns = len(H)
            return DenseSolution(*solve_bordered(H, rows.targets))
        self.solver_ = "cg"
        return self._iterate(rows, fit, diagonal)

    def _iterate(self, rows: DenseRows, fit: Fit, diagonal: Array) -> DenseSolution:
        """Solve H eta = 1 and H N = Y together: they share every product."""
        n, kernel = len(rows.rows), rows.kernel
        factor = pivoted_cholesky(
            lambda j: np.asarray(kernel.block(rows.features, rows.features[[j, j]])[:, 0], dtype=np.float64),
            np.asarray(kernel.diagonal(rows.features), dtype=np.float64),
            diagonal,
            int(self.preconditioner_rank),
        )
        product = KernelProduct(fit.tasks, rows.features, kernel)
        right = np.column_stack([np.ones(n), rows.targets])
        found = conjugate_gradients(
            lambda P: product(P) + diagonal[:, None] * P,
            right,
            LowRankPreconditioner(factor, diagonal),
            float(self.tol),
            int(self.max_iter),
        )
        self.n_iter_, self.residual_ = found.iterations, found.residual
        if not found.converged:
            warnings.warn(
                f"conjugate gradients left a relative residual of {found.residual:.2g} after {found.iterations} "
                f"iterations, above tol={float(self.tol):g}: raise max_iter or preconditioner_rank, or "
                "lower gamma",
                DistkernWarning,
                stacklevel=2,
            )
        fit.rounds, fit.exchanges = found.iterations, 1 + found.products
        fit.kernel_columns = len(factor) + found.products * n
        return DenseSolution(*eliminate_border(found.solution[:, 0], found.solution[:, 1:]))

    def _stored_values(self) -> dict[str, Any]:
        return {"solver": self.solver_, "n_iter": self.n_iter_, "residual": self.residual_}

    def _restore(self, stored: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.solver_ = str(stored["solver"])
        self.n_iter_ = int(stored["n_iter"])
        self.residual_ = float(stored["residual"])


@described(_PARAMETERS, LSSVM_ATTRIBUTES)
class LSSVMRegressor(BlockRegressor, LeastSquaresSVM):
    """Least-squares support vector regression: every row is a centre, and errors count squared.

    Minimises |w|^2 / 2 + gamma / 2 sum_i r_i e_i^2 with e_i = y_i - w'phi(x_i) - b (Suykens and Vandewalle, 1999; named
    in thesis 3.3.1), f(x) = sum_i a_i k(x, x_i) + b. Solves ``[0 1'; 1 K + D][b; a] = [0; y]`` with D = diag(1 / (gamma
    r_i)) for row weights r.
    """


@described(_PARAMETERS, LSSVM_ATTRIBUTES)
class LSSVMClassifier(BlockClassifier, LeastSquaresSVM):
    """Least-squares support vector classification on targets of +-1, one for each class of more than two.

    Minimises |w|^2 / 2 + gamma / 2 sum_i r_i e_i^2 with e_i = y_i - w'phi(x_i) - b (Suykens and Vandewalle, 1999; named
    in thesis 3.3.1), f(x) = sum_i a_i k(x, x_i) + b. Solves ``[0 1'; 1 K + D][b; a] = [0; y]`` with D = diag(1 / (gamma
    r_i)) for row weights r. All classes share one matrix.
    """
