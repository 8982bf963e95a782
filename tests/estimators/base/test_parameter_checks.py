from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import distkern as dk
from distkern.errors import JobError
from distkern.estimators import ESTIMATORS
from distkern.estimators.base.parameter_checks import CONSTRAINTS, constraints_of


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
