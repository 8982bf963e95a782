"""Estimator parameters as keys of a job file's ``[model]``.

The names are those of the estimators' signatures, and the allowed values those of the estimators' constraints, so there
is one list of each; messages name the key of the file.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any

from ...errors import JobError
from ...estimators.base.parameter_checks import Constraint, constraints_of
from .section import constrained

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
"""Parameters that other sections of the job file set, with advice for the message."""

_KERNEL = Constraint(
    'the name of a kernel, or a table such as {name = "polynomial", degree = 3}',
    lambda value: isinstance(value, str | dict),
)


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
            f"[model] method = {method!r} is for classification, and the targets are numbers: use a method such as "
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
    """Return the field definitions of ``[model]`` for a method, for `pydantic.create_model`."""
    return {key: (Annotated[Any, constrained(value)], None) for key, value in model_constraints(method).items()}


def model_constraints(method: object) -> dict[str, Constraint]:
    """Return the constraint of each parameter of a method, for both tasks: the job file may not name the task."""
    known: dict[str, Constraint] = {}
    name = method if isinstance(method, str) and method in METHODS else "orols"
    for task, found in zip(("regression", "classification"), METHODS[name], strict=True):
        if found is not None:
            kind = estimator(name, task)
            constraints = {**constraints_of(kind), "kernel": _KERNEL}
            known |= {key: constraints[key] for key in signature(kind) if key not in RESERVED}
    return known


def build(method: str, task: str, parameters: dict[str, Any], runtime: dict[str, Any]) -> Any:
    """Return an unfitted estimator whose parameters have been checked.

    Parameters
    ----------
    method, task : str
        Method and task of the estimator.
    parameters : dict
        Keys of the job file's ``[model]``; one that is no parameter of the class is refused.
    runtime : dict
        Client, callbacks and other runtime arguments; those that are no parameter of the class are ignored.
    """
    from ...kernels import kernel_from_parameters

    kind = estimator(method, task)
    known = signature(kind)
    kernel = parameters.get("kernel")
    if isinstance(kernel, dict):
        settings = {name: value for name, value in kernel.items() if name != "name"}
        made = kernel_from_parameters(kernel.get("name", "gaussian"), settings)
        parameters = {**parameters, "kernel": made}
    if runtime.get("run_dir") is not None and "run_dir" not in known:
        raise JobError(
            f"[output] run is set, and method {method!r} keeps no record of a run: leave it out", kind="no-run"
        )
    for name in parameters:
        if name not in known:
            raise JobError(
                f"[model] {name} does not belong to {task} with method {method!r} ({kind.__name__})",
                kind="parameter-of-other-task",
            )
    made = kind(**parameters, **{name: value for name, value in runtime.items() if name in known})
    made._check_parameters()
    return made
