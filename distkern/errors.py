"""Errors and warnings that a user's data, job or cluster can cause, grouped by the reaction of a handler.

::

    DistkernError
    ├── JobError      (ValueError)    2  a parameter, a command line or a job file is wrong
    ├── DataError     (ValueError)    3  the data cannot be used for training, or does not exist
    │   └── DataTypeError (TypeError) 3  the type of the data cannot be used for training
    ├── BudgetError   (ValueError)    4  the job does not fit its memory limit
    ├── ClusterError  (RuntimeError)  5  no workers are available, or workers failed too often
    ├── RunError      (RuntimeError)  6  a run cannot be recorded or resumed
    ├── StoreError    (OSError)       6  a model store is unusable
    └── Cancelled     (RuntimeError) 130  the user ended the training

    DistkernWarning   (UserWarning)
    ├── LazyRowsWarning            a lazy dask array is computed many times in each pass over its rows
    ├── RoundingWarning            the rounding of kernel values ended a path, or spoils the model
    ├── ScaleWarning               features differ so much in scale that some hardly change the kernel
    └── TableWarning               new rows hold levels or gaps that the training did not have

The number is the exit code of the command line. ``kind`` names the exact cause and never changes once published, so
scripts may compare it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from .redaction import redact

_HEAD, _TAIL = 8_000, 1_500
"""Characters that are kept of the beginning and of the end of a longer message."""
_MARGIN = 12_000
"""Characters beyond these that are redacted too, so that no cut leaves a part of a credential."""


class DistkernError(Exception):
    """Base of every error distkern raises on purpose.

    Parameters
    ----------
    message : str
        The mistake, the value, the limit and the setting to change; credentials in it are replaced, and of a text with
        more than about 10,000 characters, such as one that repeats a hostile input, the middle is left out.
    kind : str, default "unspecified"
        Stable, machine-readable name of the cause.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, kind: str = "unspecified") -> None:
        message = _shortened(message)
        super().__init__(message)
        self.message = message
        self.kind = kind

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.kind)


def _shortened(message: str) -> str:
    """Return a message without credentials, and without the middle of one that is too long to be read."""
    if len(message) <= _HEAD + _TAIL:
        return redact(message)
    head, tail = redact(message[: _HEAD + _MARGIN])[:_HEAD], redact(message[-_TAIL - _MARGIN :])[-_TAIL:]
    return f"{head} ... ({len(message) - _HEAD - _TAIL} characters left out) ... {tail}"


def _rebuild(cls: type[DistkernError], message: str, kind: str) -> DistkernError:
    return cls(message, kind=kind)


class JobError(DistkernError, ValueError):
    """A parameter, a command line or a job file is wrong."""

    exit_code = 2


class DataError(DistkernError, ValueError):
    """The data cannot be used for training, or does not exist."""

    exit_code = 3


class DataTypeError(DataError, TypeError):
    """The type of the data cannot be used for training; a `TypeError` too, by scikit-learn's convention."""


class BudgetError(DistkernError, ValueError):
    """The job does not fit its memory limit."""

    exit_code = 4


class ClusterError(DistkernError, RuntimeError):
    """No workers are available, or workers failed too often."""

    exit_code = 5


class RunError(DistkernError, RuntimeError):
    """A run cannot be recorded or resumed, because of its directory, its scratch files or another driver."""

    exit_code = 6


class StoreError(DistkernError, OSError):
    """A model store is unusable."""

    exit_code = 6


class Cancelled(DistkernError, RuntimeError):
    """The user ended the training; a callback may raise it, and a run directory keeps the finished exchanges.

    Parameters
    ----------
    message : str, default "the training was cancelled"
        Text of the error.
    kind : str, default "cancelled"
        Name of the cause.
    """

    exit_code = 130

    def __init__(self, message: str = "the training was cancelled", *, kind: str = "cancelled") -> None:
        super().__init__(message, kind=kind)


class DistkernWarning(UserWarning):
    """Base of every warning: the training continues, but the model is probably not the intended one."""


class LazyRowsWarning(DistkernWarning):
    """A lazy dask array computes the same chunks many times in each pass over its rows."""


class RoundingWarning(DistkernWarning):
    """The rounding of kernel values would spoil the predictions of a longer model, or spoils those of this one."""


class ScaleWarning(DistkernWarning):
    """Features differ so much in scale that some of them hardly change the kernel."""


class TableWarning(DistkernWarning):
    """New rows hold levels of a category, or missing values, that the training did not have."""
