"""Constraints of every parameter: one table for the estimators, which check it before any data, and for job files.

It covers single values, and combinations of the parameters of OROLS and NPD. Checks that depend on the data are made
where the data is read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from distkern.scheduler.clusters.client_choice import require_usable
from distkern.scheduler.planning.large_plan import CONJUGATE_GRADIENTS
from distkern.scheduler.training.solver import unsolvable
from distkern.storage import RunDirectory

from ...errors import JobError
from ...kernels import make_kernel
from ...kernels.standard import WITH_SIGMA
from ...selection.losses import HUBER, LOGISTIC, QUANTILE, SQUARED
from ...selection.rkhs_refit import require_norm
from ...text import did_you_mean

DTYPES = ("float64", "float32")

PROBABILITIES = ("logistic", "gaussian")
"""Ways from outputs to probabilities."""

AUTO = "auto"
"""Name in place of a kernel's where the rounds of a metric choose it."""


SEEDS = np.iinfo(np.int32).max
"""One above the largest seed that is drawn."""


def plain_parameter(value: Any) -> Any:
    """Return a number of numpy as Python's, and a dtype by its name; other values as they are."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    if isinstance(value, np.dtype) or (isinstance(value, type) and value in (float, np.float32, np.float64)):
        return np.dtype(value).name
    return value


def seed_of(random_state: Any) -> int:
    """Return a whole number as it is; draw one from a `RandomState`, or from numpy's own for None."""
    plain = plain_parameter(random_state)
    return int(plain) if isinstance(plain, Integral) else int(check_random_state(plain).randint(SEEDS))


def refuse(name: str, value: object, wanted: str) -> JobError:
    """Return the error for a parameter that violates its constraint."""
    return JobError(f"{name}={value!r}: it must be {wanted}", kind="invalid-parameter")


@dataclass(frozen=True)
class Constraint:
    """The allowed values of a parameter."""

    wanted: str
    """End of the sentence "it must be"."""
    accepts: Callable[[Any], bool]
    """Function that returns whether a value is allowed."""
    names: tuple[str, ...] = ()
    """Names among the allowed values, default ()."""
    optional: bool = False
    """Whether None is allowed too, default False; job files write it as ``"none"``."""

    def __or__(self, other: Constraint) -> Constraint:
        return Constraint(
            f"{self.wanted}, or {other.wanted}",
            lambda value: self.accepts(value) or other.accepts(value),
            (*self.names, *other.names),
        )

    def or_none(self) -> Constraint:
        """Return the constraint that allows None too."""
        return replace(self, optional=True)

    def violation(self, value: object) -> str | None:
        """Return the allowed values, and the nearest name to a misspelt one; None for a value that is allowed."""
        if (value is None and self.optional) or self.accepts(value):
            return None
        return self.wanted + (did_you_mean(value, self.names) if isinstance(value, str) else "")

    def check(self, name: str, value: object) -> None:
        """Raise `JobError`, with the name, the value and the allowed values, for a value that is not allowed."""
        wanted = self.violation(value)
        if wanted is not None:
            raise refuse(name, value, wanted)


def whole(lowest: int) -> Constraint:
    """Return the constraint to whole numbers from `lowest` on."""

    def accepts(value: object) -> bool:
        value = plain_parameter(value)
        return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= lowest

    return Constraint("a whole number above 0" if lowest == 1 else f"a whole number of at least {lowest}", accepts)


def real(wanted: str, within: Callable[[float], bool]) -> Constraint:
    """Return the constraint to finite numbers within a range."""

    def accepts(value: object) -> bool:
        value = plain_parameter(value)
        if isinstance(value, bool) or not isinstance(value, Real):
            return False
        try:
            return math.isfinite(value) and within(float(value))
        except OverflowError:
            return False

    return Constraint(wanted, accepts)


def one_of(*names: str) -> Constraint:
    """Return the constraint to some names."""
    listed = ", ".join(map(repr, names))
    return Constraint(
        f"one of {listed}" if len(names) > 1 else listed, lambda value: isinstance(value, str) and value in names, names
    )


ABOVE_ZERO = real("a number above 0", lambda value: value > 0)
FROM_ZERO = real("a number of at least 0", lambda value: value >= 0)
FLAG = Constraint("true or false", lambda value: isinstance(plain_parameter(value), bool))


def _is_sequence(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 1
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _are_widths(value: Any) -> bool:
    return _is_sequence(value) and all(map(ABOVE_ZERO.accepts, value)) and 0 < len(value) == len(set(map(float, value)))


def _different_numbers(value: Any) -> bool:
    rows = np.asarray(value)
    return rows.ndim == 1 and rows.dtype.kind in "iu" and 0 < len(rows) == len(np.unique(rows))


def _are_class_weights(value: Any) -> bool:
    return isinstance(value, Mapping) and len(value) > 0 and all(map(ABOVE_ZERO.accepts, value.values()))


def _functions(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes) and all(map(callable, value))


def is_source_of_seeds(value: object) -> bool:
    """Whether a seed has to be drawn."""
    return value is None or isinstance(value, np.random.RandomState)


WIDTHS = ABOVE_ZERO | Constraint("a list of different ones", _are_widths) | one_of("median", "cv")
"""Width of methods that choose among several widths."""

MEMORY = Constraint('a size above 0 such as "2GiB", or a number of bytes', lambda value: bytes_of(value) > 0).or_none()

CONSTRAINTS: Mapping[str, Constraint] = {
    "b_min": ABOVE_ZERO,
    "callbacks": Constraint("a list of functions that take an event", _functions).or_none(),
    "candidates": whole(1) | one_of("auto"),
    "center_rows": Constraint("a sequence of different row numbers", _different_numbers).or_none(),
    "class_weight": (
        one_of("balanced") | Constraint("a mapping of labels to numbers above 0", _are_class_weights)
    ).or_none(),
    "client": Constraint(
        "a distributed.Client, such as Client(address) or cluster.get_client(), or None",
        # A cluster has scheduler_info, too.
        lambda value: hasattr(value, "scheduler_info") and hasattr(value, "submit"),
    ).or_none(),
    "criterion": one_of("error-reduction", "residual", "loo-error"),
    "dtype": replace(
        one_of(*DTYPES), accepts=lambda value: isinstance(name := plain_parameter(value), str) and name in DTYPES
    ),
    "epsilon": FROM_ZERO,
    "factors": one_of("auto", "driver", "workers"),
    "fit_intercept": FLAG,
    "folds": whole(2),
    "gamma": ABOVE_ZERO,
    "intervals": FLAG | one_of("auto"),
    "huber_threshold": ABOVE_ZERO,
    "loss": one_of(SQUARED, LOGISTIC, HUBER, QUANTILE),
    "margin": ABOVE_ZERO,
    "max_centers": whole(1),
    "max_iter": whole(1),
    "max_seconds": ABOVE_ZERO.or_none(),
    "memory_limit": MEMORY,
    "metric": one_of("isotropic", "diagonal", "full", "auto"),
    "metric_rank": whole(1).or_none(),
    "metric_rounds": whole(0).or_none(),
    "multiclass": one_of("shared", "one-vs-rest", "one-vs-one", "dag"),
    "normalized": FLAG,
    "nu": ABOVE_ZERO,
    "panel": whole(1),
    "passes": whole(1),
    "patience": whole(1).or_none(),
    "preconditioner_rank": whole(0),
    "probabilities": one_of(*PROBABILITIES),
    "quantile": real("a number above 0 and below 1", lambda value: 0 < value < 1),
    "random_state": whole(0) | Constraint("a RandomState or None", is_source_of_seeds),
    "refit": one_of("rkhs", "none").or_none(),
    "regularization": FROM_ZERO | one_of("gcv", "gcv-per-target", "evidence", "evidence-per-target", "none"),
    "ridge": FROM_ZERO,
    "run_dir": Constraint(
        "a path, or None", lambda value: isinstance(value, str | os.PathLike | RunDirectory)
    ).or_none(),
    "sampler": one_of("mixture", "residual-weighted", "top-residual", "uniform", "all"),
    "schedule": one_of("pass", "row", "constant"),
    "selection_rows": (whole(2) | one_of("auto")).or_none(),
    "shrinkage": real("a number from 0 to 1", lambda value: 0 <= value <= 1),
    "sigma": ABOVE_ZERO | one_of("median"),
    "solver": one_of("auto", "factors", "conjugate-gradients"),
    "standardize": FLAG,
    "stop": one_of("gcv", "bic", "mdl", "lambda", "validation", "loo", "none").or_none(),
    "tol": FROM_ZERO.or_none(),
    "tolerance": FROM_ZERO,
}
"""Constraints by the name of the parameter; a class with another meaning of a name has its own in ``_constraints``.

`make_kernel` checks the kernel.
"""


def constraints_of(kind: type[Any]) -> dict[str, Constraint]:
    """Return the constraints of the parameters of an estimator class."""
    own = [vars(base).get("_constraints", {}) for base in reversed(kind.__mro__)]
    return {name: constraint for table in (CONSTRAINTS, *own) for name, constraint in table.items()}


def check_parameters(estimator: Any) -> None:
    """Check every parameter of an estimator by itself; raise `JobError` for the first that is not allowed."""
    constraints, parameters = constraints_of(type(estimator)), estimator.get_params(deep=False)
    for name, value in parameters.items():
        if name in constraints:
            constraints[name].check(name, value)
    if parameters.get("client") is not None:
        require_usable(estimator.client)
    if "kernel" in parameters and not (parameters["kernel"] == AUTO and "metric" in parameters):
        make_kernel(estimator.kernel, 1.0)


def check_selection(estimator: Any) -> None:
    """Check combinations of the parameters of OROLS and NPD; raise `JobError` for one that is not allowed."""
    refit = getattr(estimator, "refit", None)
    if estimator.criterion == "loo-error":
        if not estimator._classification:
            raise refuse("criterion", "loo-error", "another one for regression: it counts misclassified rows")
        if getattr(estimator, "regularization", None) in ("gcv-per-target", "evidence-per-target"):
            raise refuse("regularization", estimator.regularization, "shared by the targets with criterion='loo-error'")
    elif estimator.stop == "loo":
        raise refuse("stop", "loo", "another rule, or used with criterion='loo-error'")
    if isinstance(estimator.sigma, str):
        if estimator.sigma == "cv" and estimator.kernel not in WITH_SIGMA and estimator.kernel != AUTO:
            usable = " and ".join(map(repr, WITH_SIGMA))
            raise refuse("sigma", "cv", f"a number where the kernel is {estimator.kernel!r}: 'cv' is for {usable}")
    elif isinstance(width_values(estimator.sigma), tuple):
        if estimator.kernel != "gaussian":
            wanted = f"one number where the kernel is {estimator.kernel!r}, not 'gaussian'"
            raise refuse("sigma", estimator.sigma, wanted)
        if estimator.criterion == "residual":
            wanted = "'error-reduction' where sigma is a list: a residual ranks rows, not widths"
            raise refuse("criterion", "residual", wanted)
        if refit == "rkhs":
            wanted = "None where sigma is a list: several widths have no norm in the space of one kernel"
            raise refuse("refit", "rkhs", wanted)
    if getattr(estimator, "solver", "auto") == CONJUGATE_GRADIENTS:
        violated = unsolvable(estimator.training_job())
        if violated is not None:
            raise refuse(violated[0], getattr(estimator, violated[0], None), violated[1])
    if plain_parameter(getattr(estimator, "intervals", False)) is True:
        if refit == "rkhs":
            raise refuse("refit", "rkhs", "None with intervals=True: its weights without a row have no closed form")
        if getattr(estimator, "solver", "auto") == CONJUGATE_GRADIENTS:
            raise refuse(
                "solver", CONJUGATE_GRADIENTS, "'factors' with intervals=True: residuals come from the factors"
            )
    if refit == "rkhs" and estimator.kernel != AUTO:  # the kernels among which the rounds choose have a norm
        require_norm(make_kernel(estimator.kernel, 1.0))
    _check_loss(estimator)
    _check_metric(estimator)


def _check_loss(estimator: Any) -> None:
    """Check the combinations of `loss` with the other parameters."""
    loss = getattr(estimator, "loss", SQUARED)
    if loss == SQUARED:
        return
    own = (SQUARED, LOGISTIC) if estimator._classification else (SQUARED, HUBER, QUANTILE)
    if loss not in own:
        kind = "a classifier" if estimator._classification else "a regressor"
        raise refuse("loss", loss, f"{one_of(*own).wanted} for {kind}")
    if getattr(estimator, "probabilities", "logistic") != "logistic":
        raise refuse("probabilities", estimator.probabilities, "'logistic' with loss='logistic': outputs are log odds")
    if getattr(estimator, "multiclass", "shared") != "shared":
        raise refuse(
            "multiclass", estimator.multiclass, "'shared' with another loss than squares: softmax joins classes"
        )
    if estimator.refit not in (None, "none"):
        raise refuse("refit", estimator.refit, "None with another loss, whose weights are small in that norm anyway")
    if isinstance(estimator.regularization, str) and estimator.regularization not in ("gcv", "none"):
        raise refuse("regularization", estimator.regularization, "'gcv', 'none' or a number with another loss")
    if not isinstance(estimator.sigma, str) and isinstance(width_values(estimator.sigma), tuple):
        raise refuse(
            "sigma", estimator.sigma, "one width with another loss: several have no norm in one kernel's space"
        )
    if plain_parameter(getattr(estimator, "intervals", False)) is True:
        raise refuse("loss", loss, "'squared' with intervals=True: residuals without a row come from the factors")
    if estimator.kernel != AUTO:
        require_norm(make_kernel(estimator.kernel, 1.0), f"loss={loss!r}")


def _check_metric(estimator: Any) -> None:
    """Check the combinations of `metric` with the other parameters."""
    learns = getattr(estimator, "metric", "isotropic") != "isotropic"
    if estimator.kernel == AUTO and not (isinstance(estimator.sigma, str) and estimator.sigma in ("median", AUTO)):
        raise refuse("sigma", estimator.sigma, "'median' where kernel='auto': the rounds choose the width too")
    if learns and isinstance(width_values(estimator.sigma) if not isinstance(estimator.sigma, str) else 0.0, tuple):
        raise refuse("sigma", estimator.sigma, "one width with a learnt metric, not a list")
    if not learns:
        for name in ("metric_rounds", "metric_rank"):
            if getattr(estimator, name, None) is not None:
                raise refuse(name, getattr(estimator, name), "None where metric='isotropic': there is no map to learn")


def width_values(sigma: Any) -> float | tuple[float, ...]:
    """Return one width as a number, also from a sequence of one, and several widths as a tuple."""
    values = tuple(map(float, sigma)) if _is_sequence(sigma) else (float(sigma),)
    return values[0] if len(values) == 1 else values


def bytes_of(value: object) -> int:
    """Return a memory size such as 2147483648 or "2GiB" in bytes; 0 for what is none."""
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return 0 if isinstance(value, bool) else int(TypeAdapter(ByteSize).validate_python(value))
    except (ValidationError, TypeError):
        return 0
