"""Retries of failed reads: transient errors, waits between attempts, and reports of retries and absent chunks.

Every read of a block goes through `read_patiently`. An attempt runs on a thread of its own, so that one that never
comes back, as where a library or a mounted disk hangs, ends as a timeout like any other. The `ReadReport` of the
`collect_report` around it, if there is one, counts retries and absent chunks; the driver emits them as events.
"""

from __future__ import annotations

import errno
import gzip
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from time import monotonic
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential, wait_random

from distkern.errors import DataError, DistkernError
from distkern.redaction import displayed_cause, redact

from .threads import ThreadCall

__all__ = [
    "ReadReport",
    "RetryPolicy",
    "collect_report",
    "is_transient",
    "note_absent",
    "note_report",
    "read_patiently",
]

logger = logging.getLogger(__name__)

T = TypeVar("T")

ATTEMPTS = 5
"""Attempts of a read."""

FIRST_WAIT_SECONDS = 0.5
"""Wait before the second attempt; every further one is twice as long."""

LONGEST_WAIT_SECONDS = 5.0
"""Longest wait between two attempts."""

LONGEST_READ_SECONDS = 600.0
"""Time of an attempt; object stores have shorter timeouts of their own, see `urls`."""

NAMED_CHUNKS = 5
"""Absent chunks of an array that a report names one by one."""

_PERMANENT = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EINVAL,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENODEV,
    errno.ENXIO,
}
_BUSY_STATUS = {408, 425, 429, 500, 502, 503, 504}
_NETWORK_LIBRARIES = {"aiohttp", "azure", "botocore", "aiobotocore", "gcsfs", "google", "http", "httpx", "obstore"}
_NETWORK_LIBRARIES |= {"requests", "s3fs", "ssl", "urllib3"}
_NETWORK_FAILURES = (
    "timeout",
    "timedout",
    "connect",
    "disconnected",
    "incomplete",
    "payload",
    "protocol",
    "unavailable",
)


@dataclass(frozen=True)
class RetryPolicy:
    """Number of attempts of a read, and the waits between them."""

    attempts: int = ATTEMPTS
    """Attempts of a read, default 5; 1 for no retries."""
    first_wait: float = FIRST_WAIT_SECONDS
    """Seconds before the second attempt, default 0.5; each later wait is twice as long, with up to as much jitter."""
    longest: float = LONGEST_READ_SECONDS
    """Seconds after which an attempt counts as failed, default 600.0; infinite for a read on the calling thread."""

    @classmethod
    def default(cls) -> RetryPolicy:
        """Return the policy that the environment sets.

        ``DISTKERN_READ_ATTEMPTS`` is the number of attempts, ``DISTKERN_READ_WAIT`` the seconds before the second one,
        and ``DISTKERN_READ_SECONDS`` the time of an attempt. A variable that is not set, or no usable number, has its
        default.
        """
        return cls(
            attempts=int(_from_environment("DISTKERN_READ_ATTEMPTS", ATTEMPTS, 1)),
            first_wait=_from_environment("DISTKERN_READ_WAIT", FIRST_WAIT_SECONDS, 0.0),
            longest=_from_environment("DISTKERN_READ_SECONDS", LONGEST_READ_SECONDS, 0.01),
        )

    @property
    def longest_read(self) -> float:
        """Most seconds of a read, with all its attempts and the waits between them."""
        return self.attempts * self.longest + (self.attempts - 1) * (LONGEST_WAIT_SECONDS + self.first_wait)

    def at_start(self) -> RetryPolicy:
        """Return the policy for opening a store, of at most 3 attempts: a wrong name is to be reported soon."""
        return replace(self, attempts=min(self.attempts, 3))


def _from_environment(name: str, default: float, least: float) -> float:
    try:
        value = float(os.environ.get(name, default))
    except ValueError:
        return default
    return value if least <= value < 1e6 else default


@dataclass
class ReadReport:
    """Retries and absent chunks of reads that succeeded in the end."""

    retries: dict[str, int] = field(default_factory=dict)
    """Failed attempts by the name of the array; none by default."""
    absent: dict[str, tuple[int, tuple[tuple[int, ...], ...]]] = field(default_factory=dict)
    """Absent chunks by the name of the array, their number and the first of them; none by default."""

    def merge(self, other: ReadReport) -> ReadReport:
        """Add up the reports of disjoint sets of reads."""
        retries = dict(self.retries)
        for name, count in other.retries.items():
            retries[name] = retries.get(name, 0) + count
        absent = dict(self.absent)
        for name, (count, chunks) in other.absent.items():
            known, first = absent.get(name, (0, ()))
            absent[name] = known + count, tuple(sorted({*first, *chunks})[:NAMED_CHUNKS])
        return ReadReport(retries, absent)


_report: ContextVar[ReadReport | None] = ContextVar("distkern_read_report", default=None)


@contextmanager
def collect_report() -> Iterator[ReadReport]:
    """Yield a report of all reads of the body in this thread."""
    report = ReadReport()
    token = _report.set(report)
    try:
        yield report
    finally:
        _report.reset(token)


def note_retry(what: str) -> None:
    """Record a failed attempt."""
    note_report(ReadReport(retries={what: 1}))


def note_absent(what: str, chunks: list[tuple[int, ...]]) -> None:
    """Record chunks that are absent from an array and read as its fill value."""
    note_report(ReadReport(absent={what: (len(chunks), tuple(sorted(chunks)[:NAMED_CHUNKS]))}))


def note_report(news: ReadReport) -> None:
    """Add an earlier report to the current one."""
    report = _report.get()
    if report is not None:
        merged = report.merge(news)
        report.retries, report.absent = merged.retries, merged.absent


def is_transient(error: BaseException) -> bool:
    """Return whether the same read may succeed after an error of a store, a file system or a network library.

    True for timeouts, broken connections, busy servers, and errors of the operating system other than those about
    names, rights and space.
    """
    if isinstance(error, (DistkernError, MemoryError, gzip.BadGzipFile)):
        return False
    if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)):
        return False
    if isinstance(error, OSError):
        cause = getattr(error, "os_error", error)  # aiohttp wraps
        if isinstance(cause, socket.gaierror):
            return cause.errno == socket.EAI_AGAIN  # any other error means that there is no such host
        return error.errno not in _PERMANENT
    library = type(error).__module__.partition(".")[0]
    if library not in _NETWORK_LIBRARIES:
        return isinstance(error, (TimeoutError, ConnectionError))
    if _status(error) is not None:
        return _status(error) in _BUSY_STATUS
    name = type(error).__name__.lower()
    return any(failure in name for failure in _NETWORK_FAILURES)


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    found = getattr(error, "status", None) or getattr(error, "status_code", None) or getattr(error, "code", None)
    if found is None and isinstance(response, dict):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    try:
        return None if found is None else int(found)
    except (TypeError, ValueError):
        return None


def read_patiently(read: Callable[[], T], what: str, place: str, policy: RetryPolicy | None = None) -> T:
    """Call `read` until it succeeds or fails for good, and return its result.

    Parameters
    ----------
    read : callable
        Function that reads into memory of its own; called once in each attempt, on another thread if `policy` limits
        its time.
    what : str
        Name of the array and its part, such as ``"X, rows 0 to 99"``; the name ends at the first comma.
    place : str
        Place of the array for the message.
    policy : RetryPolicy, optional
        Attempts and waits; `RetryPolicy.default` if not given.

    Raises
    ------
    DataError
        ``unreachable``: the last attempt failed with a transient error. Other errors of `read` pass.
    """
    policy = RetryPolicy.default() if policy is None else policy
    name = what.partition(",")[0]
    started = monotonic()

    def report(state: RetryCallState) -> None:
        note_retry(name)
        error = None if state.outcome is None else state.outcome.exception()
        logger.info("reading %s of %s again: %s", what, redact(place), redact(repr(error)))
        if error is not None:
            # Its frames refer to those of all callers, and the state of the retries to it: until cycles are collected,
            # which may be never on a worker that has nothing to do, scratch files of a finished run would stay open.
            error.__traceback__ = None

    retrying = Retrying(
        stop=stop_after_attempt(policy.attempts),
        wait=wait_exponential(policy.first_wait, LONGEST_WAIT_SECONDS) + wait_random(0, policy.first_wait),
        retry=retry_if_exception(is_transient),
        before_sleep=report,
        reraise=True,
    )
    try:
        found: T = retrying(_within, read, policy.longest)
        return found
    except Exception as cause:
        if not is_transient(cause):
            raise
        cause.__traceback__ = None  # as above
        reason = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
        raise DataError(
            f"{what} of {place} cannot be read: {reason}; tried {policy.attempts} times in "
            f"{monotonic() - started:.1f} s: check that the storage can be reached, or set DISTKERN_READ_ATTEMPTS to "
            f"try more often, or DISTKERN_READ_SECONDS to wait longer than {policy.longest:g} s for an answer",
            kind="unreachable",
        ) from displayed_cause(cause)


def _within(read: Callable[[], T], seconds: float) -> T:
    """Call `read` on a thread of its own; raise `TimeoutError` where it takes longer."""
    if seconds == inf:
        return read()
    context = copy_context()  # the report of this thread is that of the read
    return ThreadCall(partial(context.run, read), "distkern-read").result(timeout=seconds)
