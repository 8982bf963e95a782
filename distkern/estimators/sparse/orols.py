"""Order-recursive orthogonal least squares (Andelic et al., IJCAI-07)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..base.documentation import documented
from ..base.parameter_checks import AUTO, WIDTHS, one_of
from ..base.regressor_classifier import BlockClassifier, BlockRegressor
from .kernel_least_squares import KernelLeastSquares
from .parameters import PoolParameters


@dataclass(kw_only=True, eq=False, repr=False)
class OROLS(PoolParameters, KernelLeastSquares):
    """Base of regressor and classifier: their parameters."""

    _constraints: ClassVar = {"sigma": WIDTHS | one_of(AUTO)}

    sigma: float | str | Sequence[float] = AUTO
    regularization: str | float = "gcv"
    refit: str | None = None
    loss: str = "squared"


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class OROLSRegressor(BlockRegressor, OROLS):
    """Sparse kernel regression by order-recursive orthogonal least squares.

    Centres are selected one after another for [1 K_m] = Q U with orthogonal columns (paper 10, 17-20; thesis 3.54,
    3.76-3.78), where K_m holds their kernel columns. The weights minimise |y - Q w|^2 + lambda |w|^2 (paper 22; thesis
    3.80), w = z / (lambda + s) and alpha = inv(U) w with s = diag(Q'Q) and z = Q'y (paper 25, 26; thesis 3.83, 3.84),
    and lambda is re-estimated at every step by generalised cross validation (paper 27-31; thesis 3.85-3.89).
    """

    intervals: bool | str = "auto"
    huber_threshold: float = 1.345
    quantile: float = 0.5


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class OROLSClassifier(BlockClassifier, OROLS):
    """Sparse kernel classification by order-recursive orthogonal least squares.

    Centres are selected one after another for [1 K_m] = Q U with orthogonal columns (paper 10, 17-20; thesis 3.54,
    3.76-3.78), where K_m holds their kernel columns. The weights minimise |y - Q w|^2 + lambda |w|^2 (paper 22; thesis
    3.80), w = z / (lambda + s) and alpha = inv(U) w with s = diag(Q'Q) and z = Q'y (paper 25, 26; thesis 3.83, 3.84),
    and lambda is re-estimated at every step by generalised cross validation (paper 27-31; thesis 3.85-3.89). Targets
    are +-1: one column for two classes, one for each class or pair of classes for more.
    """

    multiclass: str = "shared"
    class_weight: str | Mapping[Any, float] | None = None
    probabilities: str = "logistic"
