"""Forward selection by the leave-one-out misclassification rate (Hong, Chen and Harris, 2006)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..base.documentation import documented
from ..base.regressor_classifier import BlockClassifier
from .kernel_least_squares import KernelLeastSquares


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class LOOForwardClassifier(BlockClassifier, KernelLeastSquares):
    """Sparse kernel classification by the lowest leave-one-out misclassification rate.

    The algorithm of the slides of Hong, Chen and Harris (Fast Kernel Classifier Construction Using Orthogonal Forward
    Selection to Minimise Leave-One-Out Misclassification Rate, ICIC 2006): every row is a candidate, there is no
    intercept, one centre is accepted at a time by the recursions of alpha and beta, and the path ends as soon as the
    rate does not fall. Of candidates with the same rate, the one with the largest error reduction is accepted. More
    than two classes share the centres, and the largest leave-one-out output decides.

    Row i counts as misclassified where alpha(i) / beta(i) <= 0, with alpha_k = alpha_{k-1} + g y w - w^2 / (s + lambda)
    and beta_k = beta_{k-1} - w^2 / (s + lambda) for the new orthogonal column w, s = w'w, g = w'y / (s + lambda)
    (slides, "Efficient Computation" and "Proposed Algorithm", from alpha_0 = 0, beta_0 = 1).

    The columns of all rows are kept, so memory grows with the square of the rows; ``OROLSClassifier`` with
    ``criterion="loo-error"`` applies the criterion to a pool of candidates, for data of any size.
    """

    _intercept: ClassVar[bool] = False

    # Parameters that the algorithm fixes.
    criterion = "loo-error"
    sampler = "all"
    candidates = 256
    panel = 1
    tol = None
    patience = None
    epsilon = 0.0
    selection_rows = None

    ridge: float = 1e-6
    stop: str | None = "loo"
    multiclass: str = "shared"
    probabilities: str = "logistic"

    @property
    def regularization(self) -> float:
        """Lambda, the same at every step: `ridge`."""
        return self.ridge
