"""scikit-learn's own checks, and the tools that wrap estimators."""

from __future__ import annotations

import pickle
from typing import Any
from unittest import SkipTest

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import distkern as dk
from tests.estimators.fits import (
    ALL,
    CLASSIFIERS,
    REGRESSORS,
    assert_equal_models,
    classes,
    data_for,
    fitted,
    regression,
)

EVERY = (
    *ALL,
    dk.LOOForwardClassifier,
    *(dk.KRLSRegressor, dk.KRLSClassifier),
    *(dk.FisherDiscriminant, dk.MSEClassifier, dk.WidrowHoffClassifier, dk.HoKashyapClassifier),
    *(dk.LSSVMRegressor, dk.LSSVMClassifier, dk.KernelFisherDiscriminant, dk.KernelMSEClassifier),
    *(dk.QRForwardRegressor, dk.QRForwardClassifier, dk.OLSForwardRegressor, dk.OLSForwardClassifier),
)

ONE_OF_A_KIND = (
    *(dk.OROLSRegressor, dk.OROLSClassifier, dk.KRLSClassifier),
    *(dk.FisherDiscriminant, dk.WidrowHoffClassifier, dk.LSSVMRegressor),
)
"""Every way to train, for regression or classification; the checks of the others are slow."""

ALIKE = (dk.NPDRegressor, dk.QRForwardRegressor, dk.OLSForwardRegressor, dk.OLSForwardClassifier)
"""Methods that train as others do, with parameters of their own; their checks are nightly."""

VARIANTS = (
    dk.OROLSClassifier(multiclass="one-vs-rest", criterion="residual", max_centers=5),
    dk.OROLSRegressor(stop="lambda", regularization="gcv-per-target"),
    dk.NPDRegressor(epsilon=0.01, stop=None, max_centers=20, kernel="polynomial"),
    # All pairs are candidates, however often a row is repeated. With wider kernels columns of one row nearly depend on
    # each other, and which of them ends a saturated path is a matter of rounding.
    *(cls(sigma=[0.5, 1.0], candidates=1024) for cls in (dk.OROLSRegressor, dk.NPDClassifier)),
    dk.KRLSClassifier(standardize=False, sigma=1.0),
    dk.FisherDiscriminant(shrinkage=0.2, standardize=False),
    dk.MSEClassifier(standardize=True, margin=2.0),
    dk.WidrowHoffClassifier(schedule="row", normalized=True),
    *(cls(solver="cg") for cls in EVERY if "solver" in cls().get_params()),
)


def failures_by_nature(estimator: Any) -> dict[str, str]:
    """Checks that a method fails by what it is, with the reason."""
    names = ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
    if isinstance(estimator, dk.WidrowHoffClassifier):
        return {names[0]: "the check shuffles the repeated rows, and steps depend on the order of the rows"}
    failed = {}
    if getattr(estimator, "epsilon", 0) or getattr(estimator, "criterion", None) == "residual":
        reason = "a weight equals repeated rows up to epsilon at a row's own place and to ties of residuals"
        # The second check is for the methods that take sparse rows.
        failed |= dict.fromkeys(names if getattr(estimator, "_takes_sparse", False) else names[:1], reason)
    return failed


def passes(estimator: Any, check: Any) -> None:
    try:
        check(estimator)
    except SkipTest as skipped:
        raise AssertionError(f"scikit-learn skipped the check: {skipped}") from skipped


@parametrize_with_checks([cls() for cls in ONE_OF_A_KIND], expected_failed_checks=failures_by_nature)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    passes(estimator, check)


@parametrize_with_checks([dk.TableEncoder()])
def test_scikit_learns_checks_of_the_encoder(estimator: Any, check: Any) -> None:
    passes(estimator, check)


@pytest.mark.slow
@parametrize_with_checks(
    [cls() for cls in EVERY if cls not in (*ONE_OF_A_KIND, *ALIKE)], expected_failed_checks=failures_by_nature
)
def test_scikit_learns_checks_of_the_others(estimator: Any, check: Any) -> None:
    passes(estimator, check)


@pytest.mark.nightly
@parametrize_with_checks([*VARIANTS, *(cls() for cls in ALIKE)], expected_failed_checks=failures_by_nature)
def test_scikit_learns_checks_of_variants(estimator: Any, check: Any) -> None:
    passes(estimator, check)


def test_no_estimator_is_missed() -> None:
    public = {getattr(dk, name) for name in dk.__all__}
    estimators = {kind for kind in public if isinstance(kind, type) and issubclass(kind, BaseEstimator)}
    assert estimators == {*EVERY, dk.GridSearch, dk.TableEncoder}


def test_estimators_say_what_they_are() -> None:
    assert all(is_regressor(cls()) for cls in REGRESSORS)
    assert all(is_classifier(cls()) for cls in CLASSIFIERS)


@pytest.mark.parametrize("cls", ALL)
def test_clone_keeps_parameters_and_takes_client_and_callbacks_by_reference(cls: Any) -> None:
    class Client:
        def __deepcopy__(self, memo: Any) -> Any:
            raise AssertionError("a client cannot be copied")

    client, callbacks = Client(), [print]
    original = cls(client=client, callbacks=callbacks, kernel=dk.Gaussian(2.0), max_centers=7, tol=0.5)
    twin = clone(original)
    assert type(twin) is cls
    assert twin is not original
    assert twin.client is client
    assert twin.callbacks is callbacks
    assert twin.get_params() == original.get_params()
    assert not hasattr(clone(fitted(cls)), "coef_")
    assert clone(cls(run_dir="a-run")).run_dir is None


def test_clone_keeps_metadata_requests() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        original = dk.OROLSRegressor().set_fit_request(sample_weight=True)
        assert clone(original).get_metadata_routing().fit.requests == {"sample_weight": True}


def test_set_params_reaches_every_parameter() -> None:
    for cls in ALL:
        estimator = cls()
        names = estimator.get_params(deep=False)
        assert cls(**names).get_params() == names
        assert estimator.set_params(max_centers=3, sigma=0.5).max_centers == 3


@pytest.mark.parametrize("cls", ALL)
def test_pickling_keeps_the_model_and_leaves_client_and_callbacks_behind(cls: Any) -> None:
    events: list[Any] = []
    model = fitted(cls, callbacks=[lambda event: events.append(event)])
    twin = pickle.loads(pickle.dumps(model))
    assert twin.client is None
    assert tuple(twin.callbacks) == ()
    assert len(model.callbacks) == 1
    assert_equal_models(twin, model)
    X, _ = data_for(cls)
    np.testing.assert_array_equal(twin.predict(X), model.predict(X))
    assert_equal_models(twin.truncate(4), model.truncate(4))


@pytest.mark.parametrize("cls", ALL)
def test_a_pipeline_with_a_scaler_equals_standardize(cls: Any) -> None:
    X, y = data_for(cls)
    X = 100 * X + 7
    inside = cls(max_centers=10, sigma=1.0, stop=None).fit(X, y)
    pipeline = make_pipeline(StandardScaler(), cls(max_centers=10, sigma=1.0, stop=None, standardize=False)).fit(X, y)
    np.testing.assert_array_equal(pipeline[-1].center_indices_, inside.center_indices_)
    if cls in REGRESSORS:
        np.testing.assert_allclose(pipeline.predict(X), inside.predict(X), rtol=1e-6, atol=1e-8)
    else:
        np.testing.assert_array_equal(pipeline.predict(X), inside.predict(X))
    assert pipeline.score(X, y) == pytest.approx(inside.score(X, y))


@pytest.mark.parametrize("cls", ALL)
def test_grid_search_finds_the_better_width(cls: Any) -> None:
    X, y = data_for(cls, 150)
    search = GridSearchCV(cls(max_centers=12), {"sigma": [1e-3, 1.0]}, cv=3, error_score="raise").fit(X, y)
    assert search.best_params_ == {"sigma": 1.0}
    assert search.best_score_ > 0.5
    assert search.best_estimator_.n_centers_ <= 12


def test_cross_validation_of_strings() -> None:
    X, codes = classes(150)
    y = np.array(["ape", "bee", "cat"])[codes]
    assert cross_val_score(dk.OROLSClassifier(max_centers=12, sigma=1.0), X, y, cv=3).mean() > 0.8


def test_feature_names_are_kept_and_compared() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = regression()
    frame = pandas.DataFrame(X, columns=["length", "width"])
    model = dk.OROLSRegressor(max_centers=5).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["length", "width"]
    np.testing.assert_array_equal(model.predict(frame), dk.OROLSRegressor(max_centers=5).fit(X, y).predict(X))
    with pytest.raises(dk.DataError, match="feature names"):
        model.predict(frame[["width", "length"]])


def test_lists_are_fine() -> None:
    X, y = regression(20)
    model = dk.OROLSRegressor(max_centers=5).fit(X.tolist(), y.tolist())
    assert_equal_models(model, dk.OROLSRegressor(max_centers=5).fit(X, y))
    np.testing.assert_array_equal(model.predict(X[:3].tolist()), model.predict(X[:3]))


def test_a_second_fit_forgets_the_first() -> None:
    model = dk.OROLSClassifier(max_centers=8, sigma=1.0)
    model.fit(*classes(60, 4, 3))
    model.fit(*classes(60, 2))
    assert_equal_models(model, dk.OROLSClassifier(max_centers=8, sigma=1.0).fit(*classes(60, 2)))
    assert model.n_features_in_ == 2


def test_read_only_and_strided_input() -> None:
    X, y = regression()
    expected = dk.OROLSRegressor(max_centers=8).fit(X, y)
    frozen = X.copy()
    frozen.setflags(write=False)
    assert_equal_models(dk.OROLSRegressor(max_centers=8).fit(frozen, y), expected)
    assert_equal_models(dk.OROLSRegressor(max_centers=8).fit(np.asfortranarray(X), y), expected)
    assert_equal_models(
        dk.OROLSRegressor(max_centers=8).fit(np.repeat(X, 2, axis=0)[::2], np.repeat(y, 2)[::2]), expected
    )
