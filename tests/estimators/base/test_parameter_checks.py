from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import distkern as dk
from distkern.errors import JobError
from distkern.estimators import ESTIMATORS
from distkern.estimators.base.parameter_checks import CONSTRAINTS, constraints_of
from tests.estimators.fits import regression


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_parameter_has_a_constraint_that_its_default_meets(kind: type[Any]) -> None:
    constraints = constraints_of(kind)
    for name, parameter in inspect.signature(kind).parameters.items():
        if name != "kernel":
            assert constraints[name].violation(parameter.default) is None, name


def test_no_constraint_is_for_a_parameter_that_no_estimator_has() -> None:
    assert set(CONSTRAINTS) <= {name for kind in ESTIMATORS for name in inspect.signature(kind).parameters}


@pytest.mark.parametrize(
    ("kind", "name", "value", "wanted"),
    [
        (dk.OROLSClassifier, "max_centers", 0, "a whole number above 0"),
        (dk.OROLSClassifier, "max_centers", True, "a whole number above 0"),
        (dk.OROLSClassifier, "max_centers", None, "a whole number above 0"),
        (dk.OROLSClassifier, "folds", 1, "a whole number of at least 2"),
        (dk.OROLSClassifier, "regularization", -1, "a number of at least 0, or one of 'gcv', "),
        (dk.OROLSClassifier, "sampler", "mixtures", "(did you mean 'mixture'?)"),
        (dk.OROLSClassifier, "sigma", [1.0, 1], "a number above 0, or a list of different ones, or one of 'median'"),
        (dk.OROLSClassifier, "sigma", np.nan, "a number above 0"),
        (dk.OROLSClassifier, "epsilon", 10**400, "a number of at least 0"),
        (dk.OROLSClassifier, "standardize", "yes", "true or false"),
        (dk.OROLSClassifier, "memory_limit", "2 potatoes", 'a size above 0 such as "2GiB"'),
        (dk.OROLSClassifier, "callbacks", [1], "a list of functions"),
        (dk.OROLSClassifier, "run_dir", 3, "a path, or None"),
        (dk.KRLSRegressor, "sigma", "cv", "a number above 0, or 'median'"),
        (dk.KernelFisherDiscriminant, "regularization", 0, "a number above 0"),
        (dk.LSSVMClassifier, "tol", 0.0, "a number above 0"),
        (dk.HoKashyapClassifier, "learning_rate", 1, "a number above 0 and below 1"),
        (dk.WidrowHoffClassifier, "learning_rate", "aut", "(did you mean 'auto'?)"),
        (dk.FisherDiscriminant, "shrinkage", 1.5, "a number from 0 to 1"),
        (dk.KernelMSEClassifier, "center_rows", [1, 1], "a sequence of different row numbers"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(kind: Any, name: str, value: object, wanted: str) -> None:
    with pytest.raises(JobError) as error:
        kind(**{name: value})._check_parameters()
    assert str(error.value).startswith(f"{name}={value!r}: it must be ")
    assert wanted in str(error.value)
    assert error.value.kind == "invalid-parameter"


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (dk.OROLSClassifier, "sigma", np.array([1, 2])),
        (dk.OROLSClassifier, "stop", None),
        (dk.OROLSClassifier, "max_centers", np.int32(3)),
        (dk.OROLSClassifier, "memory_limit", 10**9),
        (dk.KRLSClassifier, "max_centers", None),
        (dk.KernelMSEClassifier, "center_rows", (0, 2)),
        (dk.WidrowHoffClassifier, "normalized", np.True_),
    ],
)
def test_what_is_allowed_passes(kind: Any, name: str, value: object) -> None:
    kind(**{name: value})._check_parameters()


@pytest.mark.parametrize(
    ("kind", "name", "given", "plain"),
    [
        (dk.OROLSRegressor, "dtype", np.float32, "float32"),
        (dk.OROLSRegressor, "dtype", np.dtype("float32"), "float32"),
        (dk.OROLSRegressor, "dtype", float, "float64"),
        (dk.KRLSRegressor, "dtype", np.float32, "float32"),
        (dk.OROLSRegressor, "sigma", np.array(2.0), 2.0),
        (dk.OROLSRegressor, "sigma", np.float32(2.0), 2.0),
        (dk.OROLSRegressor, "max_centers", np.array(3), 3),
        (dk.OROLSRegressor, "standardize", np.array(False), False),
        (dk.OROLSRegressor, "random_state", np.int64(3), 3),
        (dk.OROLSRegressor, "regularization", np.float32(0.5), 0.5),
        (dk.LSSVMRegressor, "gamma", np.array(2), 2),
        (dk.LSSVMRegressor, "sigma", np.array(2), 2),
        (dk.KRLSRegressor, "nu", np.float64(0.5), 0.5),
    ],
)
def test_values_of_numpy_are_plain_values(kind: Any, name: str, given: Any, plain: Any, tmp_path: Path) -> None:
    X, y = regression(60)
    ours, theirs = (kind(**{name: value}).fit(X, y) for value in (given, plain))
    assert ours.coef_.tobytes() == theirs.coef_.tobytes()
    ours.save(tmp_path / "a.model")
    assert dk.load_model(tmp_path / "a.model").get_params()[name] == plain
    assert clone(ours).get_params()[name] == given


@pytest.mark.parametrize("value", [np.float16, np.int32, "<f4", np.array([1.0]), int])
def test_other_dtypes_are_refused(value: Any) -> None:
    with pytest.raises(JobError, match="'float64', 'float32'"):
        dk.OROLSRegressor(dtype=value)._check_parameters()


def drawing(random_state: Any, **parameters: Any) -> Any:
    return dk.OROLSRegressor(random_state=random_state, max_centers=8, stop=None, sampler="uniform", **parameters)


def test_seeds_are_drawn_as_scikit_learn_draws_them(tmp_path: Path) -> None:
    X, y = regression(2000)
    state = np.random.RandomState(0)
    model = drawing(state)
    first, second = (model.fit(X, y).center_indices_.tolist() for _ in range(2))
    seeds = [int(np.random.RandomState(0).randint(2**31 - 1, size=n)[-1]) for n in (1, 2)]
    assert [drawing(seed).fit(X, y).center_indices_.tolist() for seed in seeds] == [first, second]
    assert first != second
    model.save(tmp_path / "a.model")
    assert dk.load_model(tmp_path / "a.model").random_state is None
    assert drawing(None).fit(X, y).center_indices_.tolist() != drawing(None).fit(X, y).center_indices_.tolist()


@pytest.mark.parametrize("sigma", [1.0, "cv"])
@pytest.mark.parametrize("source", [None, np.random.RandomState(0)])
def test_a_run_keeps_the_seed_that_it_drew(source: Any, sigma: Any, tmp_path: Path) -> None:
    X, y = regression(400)
    settings = {"sigma": sigma, "folds": 2, "run_dir": tmp_path / "run"}
    first = drawing(source, **settings).fit(X, y)
    again = drawing(source, **settings).fit(X, y)
    assert again.coef_.tobytes() == first.coef_.tobytes()
    with pytest.raises(dk.RunError, match=r"model\.seed was"):
        drawing(1, **settings).fit(X, y)


def test_all_settings_of_a_search_have_one_seed() -> None:
    X, y = regression(100)
    search = dk.GridSearch(drawing(None), {"sigma": [0.5, 1.0]}, folds=2).fit(X, y)
    assert search.passes_ == 1
