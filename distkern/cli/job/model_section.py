"""Estimator parameters as keys of a job file's ``[model]``.

The names come from the estimators' signatures, so that they cannot drift; the types of the well-known ones
are checked here because a message can then name the key of the file. What a value means is left to the
estimators.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, FiniteFloat, NonNegativeInt, PositiveInt

from ...errors import JobError

METHODS: dict[str, tuple[str | None, str | None]] = {
    "orols": ("OROLSRegressor", "OROLSClassifier"),
    "npd": ("NPDRegressor", "NPDClassifier"),
    "krls": ("KRLSRegressor", "KRLSClassifier"),
    "loo-forward": (None, "LOOForwardClassifier"),
    "qr-forward": ("QRForwardRegressor", "QRForwardClassifier"),
    "ols-forward": ("OLSForwardRegressor", "OLSForwardClassifier"),
    "ls-svm": ("LSSVMRegressor", "LSSVMClassifier"),
    "kernel-fisher": (None, "KernelFisherDiscriminant"),
    "kernel-mse": (None, "KernelMSEClassifier"),
    "fisher": (None, "FisherDiscriminant"),
    "mse": (None, "MSEClassifier"),
    "widrow-hoff": (None, "WidrowHoffClassifier"),
    "ho-kashyap": (None, "HoKashyapClassifier"),
}
"""Method names of a job file, and the estimators of regression and classification."""

RESERVED = {
    "client": "name workers or a scheduler in [cluster]",
    "run_dir": "name it as run in [output]",
    "memory_limit": "name it as memory in [cluster]",
    "callbacks": "only Python code can give callbacks",
}
"""Parameters that other sections of the job file set, with the advice to give."""

_Positive = Annotated[FiniteFloat, Field(gt=0)]
_Fraction = Annotated[FiniteFloat, Field(ge=0)]

_CHECKED: dict[str, tuple[Any, str]] = {
    "kernel": (
        str | dict[str, Any],
        'the name of a kernel, or a table such as {name = "polynomial", degree = 3}',
    ),
    "sigma": (
        _Positive | str | Annotated[list[_Positive], Field(min_length=1)],
        'a number above 0, a list of such, or the name of a rule such as "median" or "cv"',
    ),
    "folds": (Annotated[int, Field(ge=2)], "a whole number of folds from 2"),
    "max_centers": (PositiveInt, "a whole number above 0"),
    "criterion": (str, "the name of a criterion between quotes"),
    "candidates": (PositiveInt, "a whole number above 0"),
    "panel": (PositiveInt, "a whole number above 0"),
    "regularization": (_Fraction | str, 'a number from 0, or the name of a rule such as "gcv"'),
    "stop": (str, 'the name of a rule such as "gcv", or "none"'),
    "tol": (_Fraction, "a number from 0"),
    "patience": (PositiveInt, "a whole number above 0"),
    "epsilon": (_Fraction, "a number from 0"),
    "selection_rows": (Annotated[int, Field(ge=2)], "a whole number of rows from 2"),
    "refit": (str, 'the name of a norm such as "rkhs", or "none"'),
    "multiclass": (str, "the name of a scheme between quotes"),
    "standardize": (bool, "true or false"),
    "dtype": (Literal["float64", "float32"], '"float64" or "float32"'),
    "factors": (str, 'a place such as "auto", between quotes'),
    "max_seconds": (_Positive, "a number of seconds above 0"),
    "random_state": (NonNegativeInt, "a whole number from 0"),
}


def estimator(method: str, task: str) -> type[Any]:
    """Return the estimator class of a method and a task.

    Parameters
    ----------
    method : str
        A key of `METHODS`.
    task : str
        ``"classification"`` or ``"regression"``.

    Raises
    ------
    JobError
        The method is for the other task only.
    """
    from ... import estimators

    name = METHODS[method][task == "classification"]
    if name is None:
        raise JobError(
            f"[model] method = {method!r} is for classification, and the targets are values: use a method such as "
            '"orols", or task = "classification" in [data]',
            kind="task",
        )
    found: type[Any] = getattr(estimators, name)
    return found


def signature(kind: type[Any]) -> dict[str, inspect.Parameter]:
    """Return the constructor parameters of an estimator class."""
    parameters = inspect.signature(kind).parameters
    return {name: item for name, item in parameters.items() if item.kind is not item.VAR_KEYWORD}


def model_fields(method: object) -> dict[str, Any]:
    """Return the field definitions of ``[model]`` for a method, for `pydantic.create_model`.

    Both tasks' parameters are known here, since a job file may leave the task to the data.
    """
    known: dict[str, inspect.Parameter] = {}
    name = method if isinstance(method, str) and method in METHODS else "orols"
    for task, found in zip(("regression", "classification"), METHODS[name], strict=True):
        if found is not None:
            known |= signature(estimator(name, task))
    return {name: _field(name, item) for name, item in known.items() if name not in RESERVED}


def _field(name: str, parameter: inspect.Parameter) -> tuple[Any, Any]:
    kind, description = _CHECKED.get(name, (Any, None))
    if isinstance(parameter.default, bool):
        kind, description = bool, "true or false"
    if name == "stop" or parameter.default is None:
        kind = Annotated[kind | None if kind is not Any else Any, BeforeValidator(_none)]
    return kind, Field(None, description=description)


def _none(value: object) -> object:
    return None if value == "none" else value


def build(method: str, task: str, parameters: dict[str, Any], surroundings: dict[str, Any]) -> Any:
    """Return an unfitted estimator whose parameters have been checked.

    Parameters
    ----------
    method, task : str
        What to train.
    parameters : dict
        Keys of the job file's ``[model]``; one that the class lacks is refused.
    surroundings : dict
        Client, callbacks and the like; one that the class lacks is left out.
    """
    from ...kernels import kernel_from_parameters

    kind = estimator(method, task)
    known = signature(kind)
    kernel = parameters.get("kernel")
    if isinstance(kernel, dict):
        settings = {name: value for name, value in kernel.items() if name != "name"}
        made = kernel_from_parameters(kernel.get("name", "gaussian"), settings)
        parameters = {**parameters, "kernel": made}
    if surroundings.get("run_dir") is not None and "run_dir" not in known:
        raise JobError(
            f"[output] run is named, and method {method!r} keeps no record of a run: leave it out", kind="no-run"
        )
    for name in parameters:
        if name not in known:
            raise JobError(
                f"[model] {name} does not belong to {task} with method {method!r} ({kind.__name__})",
                kind="parameter-of-other-task",
            )
    made = kind(**parameters, **{name: value for name, value in surroundings.items() if name in known})
    made._check_parameters()
    return made
