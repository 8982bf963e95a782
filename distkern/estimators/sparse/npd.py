"""Nonlinear pseudo-discriminants (Andelic, thesis 2007, Algorithm 1): no lambda, epsilon on the diagonal."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.documentation import documented
from ..base.regressor_classifier import BlockClassifier, BlockRegressor
from .kernel_least_squares import KernelLeastSquares
from .parameters import PoolParameters


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class NPDRegressor(BlockRegressor, PoolParameters, KernelLeastSquares):
    """Sparse kernel regression by nonlinear pseudo-discriminants.

    Least squares on the kernel columns of the centres selected so far (thesis 3.46-3.48), with the residual of (3.64).
    The thesis's order-recursive pseudoinverse (3.62) gives the same weights as the thin factors used here, with
    lambda = 0; sparsity is the only regularisation beside `epsilon`.
    """

    intervals: bool | str = "auto"


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class NPDClassifier(BlockClassifier, PoolParameters, KernelLeastSquares):
    """Sparse kernel classification by nonlinear pseudo-discriminants.

    Least squares on the kernel columns of the centres selected so far (thesis 3.46-3.48), with the residual of (3.64).
    The thesis's order-recursive pseudoinverse (3.62) gives the same weights as the thin factors used here, with
    lambda = 0; sparsity is the only regularisation beside `epsilon`.
    """

    multiclass: str = "shared"
    probabilities: str = "logistic"
