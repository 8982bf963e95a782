"""Projections on the columns of Q: a map to uncorrelated features, one for each centre.

Q = [1 K] inv(U) is a kernel expansion itself: column j is sum_i a_i k(x, x_i) + b over the first j centres. A model
with these weights gives the map for any rows, in any container, as another one gives the predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from distkern.scheduler.planning.large_plan import CONJUGATE_GRADIENTS
from distkern.scheduler.runtime.threads import single_threaded_blas

from ...arrays import Array
from ...errors import JobError
from ...models.kernel_model import KernelModel
from ..base.output_functions import all_targets

_NAME = "projection_weights"


def projection_weights(u: Array, s: Array) -> Array:
    """Return the weights of the columns of Q, scaled to unit variance over the training rows.

    Parameters
    ----------
    u : array, shape (m + 1, m + 1)
        Unit upper triangular: [1 K] = Q U.
    s : array, shape (m + 1,)
        Squared norms of the columns of Q; the first is the sum of the row weights.

    Returns
    -------
    array, shape (m + 1, m)
        The first row is the intercept; upper triangular below it. The weights of fewer centres are a part of it.
    """
    with single_threaded_blas():
        inverse = solve_triangular(u, np.eye(len(u)), unit_diagonal=True)
    return np.asarray(inverse[:, 1:] * np.sqrt(s[0] / s[1:]))


class Projections(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Mixin of estimators that hold the factors of one path, or restored `_projection` weights."""

    _model: KernelModel
    n_centers_: int
    solver_: str
    fit: Callable[..., Any]
    _evaluate: Callable[..., Any]
    _projection: Array | None

    def transform(self, X: Any) -> Any:
        """Project rows on the orthogonal columns that the selection made: a sparse, supervised kernel PCA.

        Column j is the contribution of centre j beyond the centres before it: its kernel function less the part that
        these, and the constant, explain. Over the training rows the columns have zero mean, unit variance and no
        correlation (weighted, with ``epsilon=0``). They have the order of selection: the first ones explain most of the
        targets. The predictions are linear in them. They are computed in float64, whatever `dtype` is.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Rows in the training's feature space.

        Returns
        -------
        numpy, zarr or dask array, shape (n_rows, n_centers)
            Container as for `predict`.

        Raises
        ------
        JobError
            The model was saved without its factors, or has no centre.

        Notes
        -----
        q_j(x) sqrt(W / s_j), with Q = [1 K] inv(U) (thesis 3.76), s_j the squared norm of its column j and W the sum of
        the weights of the training rows. Only with ``multiclass="shared"``: with other schemes every class or pair has
        a Q of its own, and the method does not exist.
        """
        check_is_fitted(self)
        return self._evaluate(X, all_targets, self.n_centers_, np.dtype(np.float64), self._projection_model())

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit the model and return `transform` of the training rows.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Training rows; a dataset brings its own targets.
        y : array-like, shape (n_rows,) or (n_rows, n_targets), optional
            Targets or labels.
        sample_weight : array-like, shape (n_rows,), optional
            Row weights.

        Returns
        -------
        numpy, zarr or dask array, shape (n_rows, n_centers)
            Container as for `predict`.
        """
        return self.fit(X, y, sample_weight=sample_weight).transform(X)

    @property
    def _n_features_out(self) -> int:
        return self.n_centers_

    def _projection_model(self) -> KernelModel:
        weights = self._projection_weights()
        if weights is None and self.solver_ == CONJUGATE_GRADIENTS:
            raise JobError(
                "the weights were solved by conjugate gradients, which have no orthogonal columns to project on: train "
                "with solver='factors'",
                kind="no-projections",
            )
        if weights is None:
            raise JobError(
                f"this {type(self).__name__} was saved without the factors that transform needs: train it again",
                kind="no-projections",
            )
        if not self.n_centers_:
            raise JobError(
                "the model has no centre, so there is nothing to project on: see its stop_reason_",
                kind="no-projections",
            )
        model = self._model
        return KernelModel(model.kernel, model.scaling, model.centers, weights[1:], weights[0], "float64")

    def _projection_weights(self) -> Array | None:
        """Return the weights from the path or from a store; None if there are none."""
        result = getattr(self, "_result", None)
        if result is None:
            return getattr(self, "_projection", None)
        if len(result.paths) > 1:
            return None
        path, k = result.paths[0], self.n_centers_ + 1
        if path.solved is not None and not len(path.s):
            return None
        # Columns that are orthogonal over the rows, without a penalty below them.
        path = path.selected or path
        return projection_weights(path.u[:k, :k], path.s[:k])


def _has_one_basis(estimator: Any) -> bool:
    if getattr(estimator, "multiclass", "shared") != "shared":
        raise JobError(
            f"multiclass={estimator.multiclass!r}: every class or pair of classes has columns of its own, so there is "
            "no one map; use multiclass='shared'",
            kind="no-projections",
        )
    return True


# scikit-learn's set_output has wrapped the methods when the class was created; this wraps the results.
for _method in (Projections.transform, Projections.fit_transform):
    setattr(Projections, _method.__name__, available_if(_has_one_basis)(_method))


def projection_arrays(estimator: Projections) -> dict[str, Array]:
    """Return the weights for a store, packed column by column; nothing where there is no single map."""
    weights = estimator._projection_weights()
    return {} if weights is None else {_NAME: weights[_packed(weights.shape[1])]}


def restore_projections(estimator: Projections, arrays: dict[str, NDArray[Any]]) -> None:
    """Set the weights of `projection_arrays`, which old stores lack; raise ValueError where they do not fit."""
    packed, m = arrays.get(_NAME), estimator.n_centers_
    estimator._projection = None
    if packed is None:
        return
    if packed.shape != (m * (m + 3) // 2,) or packed.dtype.kind != "f" or not np.isfinite(packed).all():
        raise ValueError(f"{_NAME} is no array of {m * (m + 3) // 2} finite numbers")
    weights = np.zeros((m + 1, m))
    weights[_packed(m)] = packed
    estimator._projection = weights


def _packed(m: int) -> NDArray[np.bool_]:
    """Return the mask of the weights of m centres that may differ from zero, shape (m + 1, m)."""
    return np.tri(m, m + 1, 1, dtype=bool).T
