"""`GridSearch`: the best of a grid of settings of an OROLS or NPD estimator, by K-fold cross-validation.

All settings and folds are trained together on the same blocks (`distkern.scheduler.search.cross_validation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ...errors import JobError
from ..base.estimator import BY_REFERENCE
from ..base.parameter_checks import AUTO, CONSTRAINTS, seed_of
from .kernel_least_squares import KernelLeastSquares
from .width_search import summarise


class GridSearch(BaseEstimator):
    """The best of a grid of settings by K-fold cross-validation, then a fit on all rows.

    It is scikit-learn's ``GridSearchCV`` for the estimators of the OROLS family and data that does not fit into memory:
    rows are read once for as many settings and folds as memory holds, and a fold of a row depends on its
    number alone. Features are scaled once, by the statistics of all rows. Where several reads are made, a setting whose
    errors already add up to more than those of another on all folds is not trained outside its other folds: errors are
    not negative, so it cannot be the best. With `selection_rows` the search is one on the sample alone: models are
    tested on its rows, with weights that are fitted on its rows.

    Parameters
    ----------
    estimator : OROLSClassifier, OROLSRegressor, NPDClassifier, NPDRegressor or LOOForwardClassifier
        Estimator to train; its `sigma` may be "median", not "cv", and it learns no metric. "auto" is "median" here,
        also in the best estimator, because settings are compared.
    param_grid : dict or sequence of dict
        Parameter names and the values to try, as for ``sklearn.model_selection.ParameterGrid``.
    folds : int, default 5
        Number of folds.
    complete : bool, default False
        Whether to train settings outside all folds even where they can no longer be the best.

    Attributes
    ----------
    best_params_ : dict
        The first of the settings with the lowest mean error.
    best_error_ : float
        Its mean error over the folds: fraction of wrong labels, or mean squared error summed over targets.
    best_estimator_ : estimator
        Fitted on all rows with these.
    cv_results_ : dict
        ``params``, a list, and arrays with an entry for each setting: mean_error, std_error (over the folds), n_centers
        (mean over the folds), and errors, shape (n_settings, folds), NaN where a fold was left out. The means are over
        the folds that were trained; a setting with folds left out has a mean above the lowest.
    passes_ : int
        Reads of the rows during the search.
    n_features_in_, feature_names_in_
        Those of `best_estimator_`; rows without names have no feature_names_in_.
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
        *,
        folds: int = 5,
        complete: bool = False,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.folds = folds
        self.complete = complete

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Search, then fit the best setting on all rows.

        Parameters
        ----------
        X
            As for the estimator's `fit`.
        y, sample_weight : optional
            As for the estimator's `fit`.

        Returns
        -------
        self

        Raises
        ------
        JobError
            A setting is wrong, or the estimator is not of the OROLS family.
        DataError
            The data cannot be trained on.
        RunError
            ``time-limit``: the estimator's `max_seconds`, which are for the search and the fit together, were used up
            by the search.
        """
        CONSTRAINTS["folds"].check("folds", self.folds)
        if not isinstance(self.estimator, KernelLeastSquares):
            raise JobError(
                f"estimator={type(self.estimator).__name__}: GridSearch is for OROLS and NPD; use scikit-learn's "
                "GridSearchCV for others",
                kind="invalid-parameter",
            )
        settings = [dict(setting) for setting in ParameterGrid(self.param_grid)]
        fixed = ("factors", "memory_limit", "max_seconds", "run_dir", "class_weight", "fit_intercept")
        for name in (*BY_REFERENCE, *fixed):
            if any(name in setting for setting in settings):
                raise JobError(
                    f"param_grid names {name}, which the search cannot vary: set it on the estimator",
                    kind="invalid-parameter",
                )
        if any("selection_rows" in setting for setting in settings):
            raise JobError(
                "param_grid names selection_rows: a search tests on the rows that it selects on, so errors for "
                "different numbers of them cannot be compared; set it on the estimator",
                kind="invalid-parameter",
            )
        if any({"loss", "huber_threshold", "quantile"} & setting.keys() for setting in settings):
            raise JobError(
                "param_grid names loss or its constant: a search compares weights by squares; set it on the estimator, "
                "or use scikit-learn's GridSearchCV",
                kind="invalid-parameter",
            )
        trials = [_compared(clone(self.estimator).set_params(**setting)) for setting in settings]
        for trial in trials:
            trial._check_parameters()
            if isinstance(trial.sigma, str) and trial.sigma == "cv":
                raise JobError(
                    "sigma='cv' searches by itself: give GridSearch widths to try, as in {'sigma': [1.0, 2.0]}",
                    kind="invalid-parameter",
                )
            if trial._has_rounds:
                raise JobError(
                    f"metric={trial.metric!r} and kernel={trial.kernel!r}: rounds on all rows precede the search, so "
                    "its errors would be too low: use scikit-learn's GridSearchCV, which learns anew for every fold",
                    kind="invalid-parameter",
                )
        drawn = seed_of(trials[0].random_state)
        for trial in trials:
            trial._drawn_seed = drawn
        limit = trials[0]._time_limit()
        # What lazy rows keep serves the search and the fit.
        with trials[0]._rows_to_train(X, y, sample_weight) as (source, client):
            found = trials[0]._search(trials, self.folds, source, client, leave_out=not self.complete, limit=limit)
            results = summarise(found)
            self.cv_results_ = {"params": settings, **results}
            self.best_index_ = found.best
            self.best_params_ = settings[found.best]
            self.best_error_ = float(results["mean_error"][found.best])
            self.passes_ = found.passes
            self.best_estimator_ = _compared(clone(self.estimator).set_params(**self.best_params_))
            self.best_estimator_.run_dir = self.estimator.run_dir
            self.best_estimator_.max_seconds = limit.left
            try:
                self.best_estimator_._train_like(trials[0], source, client)
            finally:
                self.best_estimator_.max_seconds = self.estimator.max_seconds
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.best_estimator_, name):
                setattr(self, name, getattr(self.best_estimator_, name))
            elif hasattr(self, name):
                delattr(self, name)
        return self

    def predict(self, X: Any) -> Any:
        """Predict with the best setting, see `best_estimator_`."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X)

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Estimate class probabilities with the best setting, see `best_estimator_`."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_proba(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy, or R squared, of the best setting, see `best_estimator_`."""
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y, sample_weight))


def _compared(estimator: KernelLeastSquares) -> KernelLeastSquares:
    """Return the estimator with the width that the search compares in place of "auto"."""
    if isinstance(estimator.sigma, str) and estimator.sigma == AUTO:
        estimator.sigma = "median"
    return estimator
