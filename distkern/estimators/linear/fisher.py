"""Fisher's linear discriminant (thesis 3.1)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from distkern.scheduler.passes.first_pass import Statistics
from distkern.scheduler.passes.fit import Fit
from distkern.scheduler.prediction.local import OutputFunction

from ...arrays import Array
from ...methods.linear_discriminants import fisher
from ...models.linear_model import LinearModel
from ...numerics.scaling import FeatureScaling
from ..base import output_functions as outputs
from ..base.documentation import described
from ..base.output_functions import posteriors
from . import documentation as linear_documentation
from .linear_classifier import LinearClassifier, Solution

logger = logging.getLogger(__name__)

_ATTRIBUTES = (
    linear_documentation.LINEAR_ATTRIBUTES
    + """
    priors_ : array, shape (n_classes,)
        Shares of the classes in the rows, by weight.
    means_ : array, shape (n_classes, d)
        Means of the classes, in the caller's units.
    scalings_ : array, shape (d, c)
        Directions of `transform`, in the caller's units; c is at most the number of classes less one.
    ratios_ : array, shape (c,)
        Scatter between the classes over scatter within them along each direction, per row."""
)


@described({**linear_documentation.SHARED, "shrinkage": linear_documentation.SHRINKAGE}, _ATTRIBUTES)
@dataclass(kw_only=True, eq=False, repr=False)
class FisherDiscriminant(ClassNamePrefixFeaturesOutMixin, TransformerMixin, LinearClassifier):
    """Fisher's linear discriminant: w = inv(S_W) (m_+ - m_-), with the bias and the posteriors of normal classes.

    The direction of largest scatter between over scatter within the classes (thesis 3.5-3.11), with the bias and the
    posteriors of normal classes of one covariance (3.15-3.19). Several classes share the covariance within them, and
    the largest posterior wins. One pass over the rows: their scatter is kept as a triangular factor, so that
    ill-conditioned features cost no more digits than they must. Where features are constant within the classes, or
    depend on others, the covariance is singular: its pseudoinverse is used, which ignores such directions even if they
    separate the classes, and a warning is logged; with `shrinkage` above 0 they are used.
    """

    _with_augmented = False

    shrinkage: float = 0.0

    def _solve(self, fit: Fit, statistics: Statistics, scaling: FeatureScaling) -> Solution:
        assert statistics.scatter is not None
        scatter = statistics.scatter.scaled(scaling)
        found, projection = fisher(scatter, float(self.shrinkage))
        d = len(found.weights)
        if found.rank < d:
            logger.warning(
                "the covariance within the classes has rank %d of %d: directions in which no class varies are ignored; "
                "set shrinkage above 0 to use them",
                found.rank,
                d,
            )
        self.priors_ = scatter.weights / scatter.weight
        self.means_ = statistics.scatter.means
        self.rank_ = found.rank
        self._set_projection(scaling, projection.directions, -scatter.mean @ projection.directions, projection.ratios)
        return Solution(found.weights, found.intercept)

    def _set_projection(self, scaling: FeatureScaling, directions: Array, origin: Array, ratios: Array) -> None:
        self._projection = LinearModel.of(scaling, directions, origin)
        self.scalings_, _ = self._projection.in_units_of_rows()
        self.ratios_ = ratios

    def _probabilities(self) -> OutputFunction[Array]:
        return posteriors

    @property
    def _n_features_out(self) -> int:
        return int(self.scalings_.shape[1])

    def transform(self, X: Any) -> Any:
        """Project rows on the directions that separate the classes.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Rows in the training's feature space.

        Returns
        -------
        numpy, zarr or dask array, shape (n_rows, c)
            Zero at the mean of the training rows, of unit variance within the classes. Container as for `predict`.
        """
        check_is_fitted(self)
        return self._evaluate(X, outputs.all_targets, self._n_features_out, np.dtype(np.float64), self._projection)

    def _stored_arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "priors": self.priors_,
            "means": self.means_,
            "directions": self._projection.centers,
            "origin": self._projection.intercept,
            "ratios": self.ratios_,
        }

    def _restore(self, stored: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore(stored, arrays)
        d, c = len(self.coef_), len(arrays["ratios"])
        n_classes = len(arrays["priors"])
        shapes = {"priors": (n_classes,), "means": (n_classes, d), "directions": (c, d), "origin": (c,), "ratios": (c,)}
        for name, shape in shapes.items():
            if arrays[name].shape != shape or arrays[name].dtype.kind != "f" or not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name} does not fit the rest")
        self.priors_, self.means_ = arrays["priors"], arrays["means"]
        self._set_projection(self._model.scaling, arrays["directions"].T, arrays["origin"], arrays["ratios"])
