"""Checks of estimator parameters, before any data is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from ...errors import JobError
from ...kernels import make_kernel
from ...kernels.standard import WITH_SIGMA
from ...selection.rkhs_refit import require_norm

CRITERIA = ("error-reduction", "residual", "loo-error")
SAMPLERS = ("mixture", "residual-weighted", "top-residual", "uniform", "all")
STOPS = ("gcv", "bic", "mdl", "lambda", "validation", "loo", "none", None)
REGULARIZATIONS = ("gcv", "gcv-per-target", "evidence", "evidence-per-target", "none")
REFITS = ("rkhs", "none", None)
MULTICLASS = ("shared", "one-vs-rest", "one-vs-one", "dag")
DTYPES = ("float64", "float32")
FACTORS = ("auto", "driver", "workers")


def refuse(name: str, value: object, wanted: str) -> JobError:
    """Return the error for a parameter that is not what it must be."""
    return JobError(f"{name}={value!r}: it must be {wanted}", kind="invalid-parameter")


def one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Require `value` to be one of `allowed`.

    Raises
    ------
    JobError
        It is not.
    """
    if not any(value is a or (isinstance(value, str) and value == a) for a in allowed):
        raise refuse(name, value, "one of " + ", ".join(repr(a) for a in allowed))


def integer(name: str, value: object, lowest: int) -> int:
    """Require an integer of at least `lowest`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < lowest:
        raise refuse(name, value, f"an integer of at least {lowest}")
    return int(value)


def number(name: str, value: object, lowest: float = 0.0, *, open_interval: bool = False) -> float:
    """Require a finite number of at least (or above) `lowest`."""
    good = isinstance(value, Real) and not isinstance(value, bool)
    if good:
        as_float = float(value)  # type: ignore[arg-type]
        good = as_float == as_float and abs(as_float) != float("inf")
        good = good and (as_float > lowest if open_interval else as_float >= lowest)
    if not good:
        raise refuse(name, value, f"a finite number {'above' if open_interval else 'of at least'} {lowest:g}")
    return float(value)  # type: ignore[arg-type]


def width_values(sigma: object) -> float | tuple[float, ...]:
    """Return a width as a number, or several as a tuple; one in a sequence is a number.

    Raises
    ------
    JobError
        `sigma` is neither a number above 0 nor a sequence of different ones.
    """
    if not _is_sequence(sigma):
        return number("sigma", sigma, open_interval=True)
    wrong = refuse("sigma", sigma, "a number above 0, or a list of one or more different ones")
    try:
        values = tuple(number("sigma", value, open_interval=True) for value in sigma)  # type: ignore[attr-defined]
    except JobError:
        raise wrong from None
    if not values or len(set(values)) < len(values):
        raise wrong
    return values[0] if len(values) == 1 else values


def _is_sequence(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 1
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def byte_count(name: str, value: object) -> int | None:
    """Bytes of a memory size such as 2147483648 or "2GiB"; None stays None.

    Raises
    ------
    JobError
        It is no size above 0.
    """
    if value is None:
        return None
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        size = int(TypeAdapter(ByteSize).validate_python(value))
    except (ValidationError, TypeError):
        size = 0
    if isinstance(value, bool) or size <= 0:
        raise refuse(name, value, 'a size above 0 in bytes, or one such as "2GiB"')
    return size


def check_parameters(estimator: Any) -> None:
    """Check every parameter of an OROLS or NPD estimator.

    Raises
    ------
    JobError
        Names the parameter, its value and what is allowed.
    """
    integer("max_centers", estimator.max_centers, 1)
    integer("candidates", estimator.candidates, 1)
    integer("panel", estimator.panel, 1)
    integer("folds", estimator.folds, 2)
    one_of("criterion", estimator.criterion, CRITERIA)
    one_of("sampler", estimator.sampler, SAMPLERS)
    one_of("stop", estimator.stop, STOPS)
    if estimator.criterion == "loo-error":
        if not estimator._classification:
            raise refuse("criterion", "loo-error", "another one for regression: it counts misclassified rows")
        if getattr(estimator, "regularization", None) in ("gcv-per-target", "evidence-per-target"):
            raise refuse("regularization", estimator.regularization, "shared by the targets with criterion='loo-error'")
    elif estimator.stop == "loo":
        raise refuse("stop", "loo", "another rule, or used with criterion='loo-error'")
    one_of("dtype", estimator.dtype, DTYPES)
    one_of("factors", estimator.factors, FACTORS)
    if hasattr(estimator, "multiclass"):
        one_of("multiclass", estimator.multiclass, MULTICLASS)
    regularization = getattr(estimator, "regularization", "none")
    if isinstance(regularization, str):
        one_of("regularization", regularization, REGULARIZATIONS)
    else:
        number("ridge" if hasattr(estimator, "ridge") else "regularization", regularization)
    number("epsilon", estimator.epsilon)
    if estimator.tol is not None:
        number("tol", estimator.tol)
    if estimator.patience is not None:
        integer("patience", estimator.patience, 1)
    if estimator.selection_rows is not None:
        integer("selection_rows", estimator.selection_rows, 2)
    if estimator.max_seconds is not None:
        number("max_seconds", estimator.max_seconds, open_interval=True)
    check_callbacks(estimator.callbacks)
    check_kernel_space(estimator)


def check_callbacks(callbacks: Any) -> None:
    """Check that `callbacks` are callables, or None."""
    listed = callbacks is None or (isinstance(callbacks, Iterable) and not isinstance(callbacks, (str, bytes)))
    if not listed or not all(callable(callback) for callback in callbacks or ()):
        raise refuse("callbacks", callbacks, "a list of functions that take an event")


def check_surroundings(estimator: Any) -> None:
    """Check the parameters that every method has: `standardize`, and where the work is done.

    Raises
    ------
    JobError
        Names the parameter, its value and what is allowed.
    """
    if not isinstance(estimator.standardize, (bool, np.bool_)):
        raise refuse("standardize", estimator.standardize, "True or False")
    byte_count("memory_limit", estimator.memory_limit)
    if estimator.client is not None and not hasattr(estimator.client, "scheduler_info"):
        raise refuse("client", estimator.client, "a distributed.Client, or None")


def check_kernel_space(estimator: Any) -> None:
    """Check the parameters that every kernel method has: of the kernel's space, and of where the work is done.

    Raises
    ------
    JobError
        Names the parameter, its value and what is allowed.
    """
    if hasattr(estimator, "random_state"):
        integer("random_state", estimator.random_state, 0)
    check_surroundings(estimator)
    searches = hasattr(estimator, "folds")
    if isinstance(estimator.sigma, str):
        if estimator.sigma == "cv" and searches and estimator.kernel not in WITH_SIGMA:
            usable = " and ".join(map(repr, WITH_SIGMA))
            raise refuse("sigma", "cv", f"a number where the kernel is {estimator.kernel!r}: 'cv' is for {usable}")
        rules = ("median", "cv") if searches else ("median",)
        if estimator.sigma not in rules:
            raise refuse("sigma", estimator.sigma, "a number above 0, or " + " or ".join(map(repr, rules)))
    elif searches and isinstance(width_values(estimator.sigma), tuple):
        _check_several_widths(estimator)
    elif not searches:
        number("sigma", estimator.sigma, open_interval=True)
    kernel = make_kernel(estimator.kernel, 1.0)
    refit = getattr(estimator, "refit", None)
    one_of("refit", refit, REFITS)
    if refit == "rkhs":
        require_norm(kernel)


def _check_several_widths(estimator: Any) -> None:
    """Refuse what several widths do not go together with."""
    if estimator.kernel != "gaussian":
        raise refuse("sigma", estimator.sigma, f"one number where the kernel is {estimator.kernel!r}, not 'gaussian'")
    if estimator.criterion == "residual":
        raise refuse(
            "criterion", "residual", "'error-reduction' where sigma is a list: a residual tells rows apart, not widths"
        )
    if getattr(estimator, "refit", None) == "rkhs":
        raise refuse(
            "refit", "rkhs", "None where sigma is a list: several widths have no norm in the space of one kernel"
        )
