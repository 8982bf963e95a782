"""The errors a user can cause, grouped by what a handler would do.

::

    DistkernError
    ├── JobError      (ValueError)    2  a parameter, a command line or a job file is wrong
    ├── DataError     (ValueError)    3  the data cannot be trained on, or cannot be found
    │   └── DataTypeError (TypeError) 3  the data is of a type that cannot be trained on
    ├── BudgetError   (ValueError)    4  the job does not fit the memory it may use
    ├── ClusterError  (RuntimeError)  5  workers could not be had, or kept dying
    ├── RunError      (RuntimeError)  6  a run cannot be kept, or cannot go on
    ├── StoreError    (OSError)       6  a model store is unusable
    └── Cancelled     (RuntimeError) 130  someone asked the training to end

    DistkernWarning   (UserWarning)
    └── ScaleWarning               features differ in scale so much that the kernel hardly sees some

The number is the exit code of the command line. ``kind`` names the exact cause and never changes once
published, so that scripts can match on it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from .redaction import redact


class DistkernError(Exception):
    """Base of every error distkern raises on purpose.

    Parameters
    ----------
    message : str
        What is wrong, the value, the limit and the setting to change; credentials in it are taken out.
    kind : str
        Stable, machine-readable name of the cause.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, kind: str = "unspecified") -> None:
        message = redact(message)
        super().__init__(message)
        self.message = message
        self.kind = kind

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.kind)


def _rebuild(cls: type[DistkernError], message: str, kind: str) -> DistkernError:
    return cls(message, kind=kind)


class JobError(DistkernError, ValueError):
    """A parameter, a command line or a job file is wrong."""

    exit_code = 2


class DataError(DistkernError, ValueError):
    """The data cannot be trained on, or cannot be found."""

    exit_code = 3


class DataTypeError(DataError, TypeError):
    """The data is of a type that cannot be trained on, where scikit-learn's convention is a `TypeError`."""


class BudgetError(DistkernError, ValueError):
    """The job does not fit the memory it may use."""

    exit_code = 4


class ClusterError(DistkernError, RuntimeError):
    """Workers could not be had, or kept dying."""

    exit_code = 5


class RunError(DistkernError, RuntimeError):
    """A run cannot be kept, or cannot go on: its directory, its scratch, or another driver is in the way."""

    exit_code = 6


class StoreError(DistkernError, OSError):
    """A model store is unusable."""

    exit_code = 6


class Cancelled(DistkernError, RuntimeError):
    """Someone asked the training to end; a callback may raise it, and a run directory keeps what was done."""

    exit_code = 130

    def __init__(self, message: str = "the training was cancelled", *, kind: str = "cancelled") -> None:
        super().__init__(message, kind=kind)


class DistkernWarning(UserWarning):
    """Base of every warning: the training goes on, with a model that is probably not what was wanted."""


class ScaleWarning(DistkernWarning):
    """Features differ in scale so much that the kernel hardly sees some of them."""
