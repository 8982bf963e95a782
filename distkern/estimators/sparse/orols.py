"""Order-recursive orthogonal least squares (Andelic et al., IJCAI-07)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...kernels import Kernel
from ...monitoring.events import Subscriber
from ..base.documentation import documented
from ..base.regressor_classifier import BlockClassifier, BlockRegressor
from .kernel_least_squares import KernelLeastSquares


@documented
class OROLSRegressor(BlockRegressor, KernelLeastSquares):
    """Sparse kernel regression by order-recursive orthogonal least squares.

    Centres are selected one after another for [1 K_m] = Q U with orthogonal columns (paper 10, 17-20; thesis 3.54,
    3.76-3.78), where K_m holds their kernel columns. The weights minimise |y - Q w|^2 + lambda |w|^2 (paper 22; thesis
    3.80), w = z / (lambda + s) and alpha = inv(U) w with s = diag(Q'Q) and z = Q'y (paper 25, 26; thesis 3.83, 3.84),
    and lambda is re-estimated at every step by generalised cross validation (paper 27-31; thesis 3.85-3.89).
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
        regularization: str | float = "gcv",
        stop: str | None = "gcv",
        tol: float | None = None,
        patience: int | None = None,
        epsilon: float = 0.0,
        selection_rows: int | None = None,
        refit: str | None = None,
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
        self.regularization = regularization
        self.stop = stop
        self.tol = tol
        self.patience = patience
        self.epsilon = epsilon
        self.selection_rows = selection_rows
        self.refit = refit
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
class OROLSClassifier(BlockClassifier, KernelLeastSquares):
    """Sparse kernel classification by order-recursive orthogonal least squares.

    Centres are selected one after another for [1 K_m] = Q U with orthogonal columns (paper 10, 17-20; thesis 3.54,
    3.76-3.78), where K_m holds their kernel columns. The weights minimise |y - Q w|^2 + lambda |w|^2 (paper 22; thesis
    3.80), w = z / (lambda + s) and alpha = inv(U) w with s = diag(Q'Q) and z = Q'y (paper 25, 26; thesis 3.83, 3.84),
    and lambda is re-estimated at every step by generalised cross validation (paper 27-31; thesis 3.85-3.89). Targets
    are +-1: one column for two classes, one a class or a pair of classes for more.
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
        regularization: str | float = "gcv",
        stop: str | None = "gcv",
        tol: float | None = None,
        patience: int | None = None,
        epsilon: float = 0.0,
        selection_rows: int | None = None,
        refit: str | None = None,
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
        self.regularization = regularization
        self.stop = stop
        self.tol = tol
        self.patience = patience
        self.epsilon = epsilon
        self.selection_rows = selection_rows
        self.refit = refit
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
