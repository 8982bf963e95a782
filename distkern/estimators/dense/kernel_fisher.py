"""The kernel Fisher discriminant (Andelic, thesis 2007, section 3.3; Mika, 2002)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler.passes.dense_rows import DenseRows
from distkern.scheduler.passes.fit import Fit
from distkern.scheduler.planning.workload import Workload
from distkern.scheduler.prediction.local import OutputFunction

from ...arrays import Array
from ...methods.kernel_fisher import discriminants, fisher_directions
from ..base.documentation import described
from ..base.output_functions import posteriors
from ..base.parameter_checks import ABOVE_ZERO
from ..base.regressor_classifier import BlockClassifier
from .dense_estimator import DENSE_ATTRIBUTES, DenseKernelEstimator, DenseSolution, square_bytes

_PARAMETERS = {
    "regularization": """
        float
            epsilon in N + epsilon I, above 0, in units of the within-class scatter N, which grows with the number of
            rows; divided by a row's weight at its own place.""",
}

FISHER_ATTRIBUTES = (
    DENSE_ATTRIBUTES
    + """
    directions_ : array, shape (m, q)
        Expansion of the discriminating directions in the rows, one fewer than there are classes.
    eigenvalues_ : array, shape (q,)
        Between-class over regularised within-class scatter along each, descending.
    projected_means_ : array, shape (n_classes, q)
        Means of each class's training rows on the directions.
    projected_covariance_ : array, shape (q, q)
        Covariance of the training rows about their classes' means.
    priors_ : array, shape (n_classes,)
        Share of each class in the training rows."""
)

_KEPT = ("directions", "eigenvalues", "projected_means", "projected_covariance", "priors")


@described(_PARAMETERS, FISHER_ATTRIBUTES)
@dataclass(kw_only=True, eq=False, repr=False)
class KernelFisherDiscriminant(BlockClassifier, DenseKernelEstimator):
    """Fisher's discriminant in the kernel's feature space, for two classes or more.

    Rows are projected on the directions that maximise between-class scatter over within-class scatter (thesis 3.29,
    3.40), inv(N + epsilon I) (m_+ - m_-) for two classes (3.41); classes are Gaussian there, with one covariance and
    the training rows' shares as priors, which gives the bias (3.19). Equal, for two classes and up to the scale of the
    weights, to ridge regression on the labels with an intercept (3.43).
    """

    _constraints: ClassVar = {"regularization": ABOVE_ZERO}

    regularization: float = 1e-3

    def _terms(self, work: Workload) -> dict[str, int]:
        n, C = work.n_rows, work.n_targets + 1
        return {
            "gram": square_bytes(n),
            "scatter": square_bytes(n),
            "solution": 8 * n * (6 * C + work.n_features + 4),
        }

    def _solve(self, rows: DenseRows, fit: Fit) -> DenseSolution:
        assert rows.classes is not None
        found = fisher_directions(rows.gram(), rows.codes, len(rows.classes), rows.weights, float(self.regularization))
        self.directions_, self.eigenvalues_ = found.directions, found.eigenvalues
        self.projected_means_, self.projected_covariance_ = found.means, found.covariance
        self.priors_ = found.priors
        coef, intercept = discriminants(found)
        fit.kernel_columns = len(coef)
        return DenseSolution(coef, intercept)

    def decision_function(self, X: Any) -> Any:
        """Return log odds: of the second class for two classes, else log posteriors up to a constant a row.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Rows in the training's feature space.

        Returns
        -------
        numpy, zarr or dask array, shape (n_rows,) for two classes, else (n_rows, n_classes)
            Container as for `predict`.
        """
        return super().decision_function(X)

    def _probabilities(self) -> OutputFunction[Array]:
        # The variances are those of the training rows, which the directions were fitted to: with little regularisation
        # the probabilities are overconfident.
        return posteriors

    def _stored_arrays(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, f"{name}_") for name in _KEPT}

    def _restore(self, stored: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        for name in _KEPT:
            if arrays[name].dtype.kind != "f" or not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name} holds no numbers")
            setattr(self, f"{name}_", arrays[name])
