"""Nonlinear pseudo-discriminants (Andelic, thesis 2007, Algorithm 1): no lambda, epsilon on the diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...kernels import Kernel
from ...monitoring.events import Subscriber
from ..base.documentation import documented
from ..base.regressor_classifier import BlockClassifier, BlockRegressor
from .kernel_least_squares import KernelLeastSquares


@documented
class NPDRegressor(BlockRegressor, KernelLeastSquares):
    """Sparse kernel regression by nonlinear pseudo-discriminants.

    Least squares on the kernel columns of the centres selected so far (thesis 3.46-3.48), with the residual of (3.64).
    The thesis's order-recursive pseudoinverse (3.62) gives the same weights as the thin factors used here, with
    lambda = 0; sparsity is the only regularisation beside `epsilon`.
    """

    def __init__(
        self,
        *,
        kernel: str | Kernel = "gaussian",
        sigma: float | str | Sequence[float] = "median",
        folds: int = 5,
        max_centers: int = 1000,
        criterion: str = "error-reduction",
        sampler: str = "mixture",
        candidates: int = 256,
        panel: int = 16,
        stop: str | None = "gcv",
        tol: float | None = None,
        patience: int | None = None,
        epsilon: float = 0.0,
        selection_rows: int | None = None,
        standardize: bool = True,
        dtype: str = "float64",
        factors: str = "auto",
        client: Any = None,
        memory_limit: int | str | None = None,
        max_seconds: float | None = None,
        run_dir: Any = None,
        random_state: int = 0,
        callbacks: Sequence[Subscriber] = (),
    ) -> None:
        self.kernel = kernel
        self.sigma = sigma
        self.folds = folds
        self.max_centers = max_centers
        self.criterion = criterion
        self.sampler = sampler
        self.candidates = candidates
        self.panel = panel
        self.stop = stop
        self.tol = tol
        self.patience = patience
        self.epsilon = epsilon
        self.selection_rows = selection_rows
        self.standardize = standardize
        self.dtype = dtype
        self.factors = factors
        self.client = client
        self.memory_limit = memory_limit
        self.max_seconds = max_seconds
        self.run_dir = run_dir
        self.random_state = random_state
        self.callbacks = callbacks


@documented
class NPDClassifier(BlockClassifier, KernelLeastSquares):
    """Sparse kernel classification by nonlinear pseudo-discriminants.

    Least squares on the kernel columns of the centres selected so far (thesis 3.46-3.48), with the residual of (3.64).
    The thesis's order-recursive pseudoinverse (3.62) gives the same weights as the thin factors used here, with
    lambda = 0; sparsity is the only regularisation beside `epsilon`.
    """

    def __init__(
        self,
        *,
        kernel: str | Kernel = "gaussian",
        sigma: float | str | Sequence[float] = "median",
        folds: int = 5,
        max_centers: int = 1000,
        criterion: str = "error-reduction",
        sampler: str = "mixture",
        candidates: int = 256,
        panel: int = 16,
        stop: str | None = "gcv",
        tol: float | None = None,
        patience: int | None = None,
        epsilon: float = 0.0,
        selection_rows: int | None = None,
        multiclass: str = "shared",
        standardize: bool = True,
        dtype: str = "float64",
        factors: str = "auto",
        client: Any = None,
        memory_limit: int | str | None = None,
        max_seconds: float | None = None,
        run_dir: Any = None,
        random_state: int = 0,
        callbacks: Sequence[Subscriber] = (),
    ) -> None:
        self.kernel = kernel
        self.sigma = sigma
        self.folds = folds
        self.max_centers = max_centers
        self.criterion = criterion
        self.sampler = sampler
        self.candidates = candidates
        self.panel = panel
        self.stop = stop
        self.tol = tol
        self.patience = patience
        self.epsilon = epsilon
        self.selection_rows = selection_rows
        self.multiclass = multiclass
        self.standardize = standardize
        self.dtype = dtype
        self.factors = factors
        self.client = client
        self.memory_limit = memory_limit
        self.max_seconds = max_seconds
        self.run_dir = run_dir
        self.random_state = random_state
        self.callbacks = callbacks
