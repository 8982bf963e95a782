"""Reads that try again: which errors pass by themselves, how long to wait, and what is told of it.

Every read of a block goes through `read_patiently`. What it notes (retries, chunks that are absent) reaches the
`ReadReport` of the `collect_report` around it, if there is one, and from there the driver's events.
"""

from __future__ import annotations

import errno
import gzip
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential, wait_random

from distkern.errors import DataError, DistkernError
from distkern.redaction import displayed_cause, redact

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
"""Times a read is tried."""

FIRST_WAIT_SECONDS = 0.5
"""Wait before the second attempt; every further one is twice as long."""

LONGEST_WAIT_SECONDS = 5.0
"""Longest wait between two attempts."""

NAMED_CHUNKS = 5
"""Absent chunks of an array that are named one by one."""

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
_NETWORK_TROUBLE = (
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
    """How often and how soon a read that failed is tried again."""

    attempts: int = ATTEMPTS
    """Times a read is tried; 1 for no retries."""
    first_wait: float = FIRST_WAIT_SECONDS
    """Seconds before the second attempt; every further wait is twice as long, with up to as much jitter as this."""

    @classmethod
    def default(cls) -> RetryPolicy:
        """Return the policy that the environment asks for.

        ``DISTKERN_READ_ATTEMPTS`` is the number of attempts, ``DISTKERN_READ_WAIT`` the seconds before the second
        one; what is not set, or not a sensible number, has its default.
        """
        return cls(
            attempts=int(_from_environment("DISTKERN_READ_ATTEMPTS", ATTEMPTS, 1)),
            first_wait=_from_environment("DISTKERN_READ_WAIT", FIRST_WAIT_SECONDS, 0.0),
        )

    def at_start(self) -> RetryPolicy:
        """Return the policy for opening a store: a wrong name should not take as long to tell as a lost connection."""
        return replace(self, attempts=min(self.attempts, 3))


def _from_environment(name: str, default: float, least: float) -> float:
    try:
        value = float(os.environ.get(name, default))
    except ValueError:
        return default
    return value if least <= value < 1e6 else default


@dataclass
class ReadReport:
    """What is worth telling about reads that succeeded in the end."""

    retries: dict[str, int] = field(default_factory=dict)
    """Attempts that failed, by the name of the array."""
    absent: dict[str, tuple[int, tuple[tuple[int, ...], ...]]] = field(default_factory=dict)
    """By the name of the array, chunks that are absent and read as the fill value: how many, and the first of them."""

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
    """Yield a report that everything read in the body, by this thread, is noted in."""
    report = ReadReport()
    token = _report.set(report)
    try:
        yield report
    finally:
        _report.reset(token)


def note_retry(what: str) -> None:
    """Note an attempt that failed."""
    note_report(ReadReport(retries={what: 1}))


def note_absent(what: str, chunks: list[tuple[int, ...]]) -> None:
    """Note chunks that are absent from an array and read as its fill value."""
    note_report(ReadReport(absent={what: (len(chunks), tuple(sorted(chunks)[:NAMED_CHUNKS]))}))


def note_report(news: ReadReport) -> None:
    """Note what an earlier report says."""
    report = _report.get()
    if report is not None:
        merged = report.merge(news)
        report.retries, report.absent = merged.retries, merged.absent


def is_transient(error: BaseException) -> bool:
    """Tell whether the same read may succeed a moment later.

    Parameters
    ----------
    error : BaseException
        What a store, a file system or a network library raised.

    Returns
    -------
    bool
        True for timeouts, connections that broke, servers that are busy, and errors of the operating system other
        than those about names, rights and space.
    """
    if isinstance(error, (DistkernError, MemoryError, gzip.BadGzipFile)):
        return False
    if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)):
        return False
    if isinstance(error, OSError):
        cause = getattr(error, "os_error", error)  # aiohttp wraps
        if isinstance(cause, socket.gaierror):
            return cause.errno == socket.EAI_AGAIN  # any other says that there is no such host
        return error.errno not in _PERMANENT
    library = type(error).__module__.partition(".")[0]
    if library not in _NETWORK_LIBRARIES:
        return isinstance(error, (TimeoutError, ConnectionError))
    if _status(error) is not None:
        return _status(error) in _BUSY_STATUS
    name = type(error).__name__.lower()
    return any(trouble in name for trouble in _NETWORK_TROUBLE)


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
    """Call a function that reads, again and again where the trouble may pass.

    Parameters
    ----------
    read : callable
        Reads and returns; called once an attempt.
    what : str
        Name of the array and what of it is read, such as ``"X, rows 0 to 99"``; the name ends at the first comma.
    place : str
        Where the array is, for the message.
    policy : RetryPolicy, optional
        How patient to be; `RetryPolicy.default` if not given.

    Returns
    -------
    object
        What `read` returned.

    Raises
    ------
    DataError
        ``unreachable``: the last attempt failed in a way that might pass. Other errors of `read` come as they are.
    """
    policy = RetryPolicy.default() if policy is None else policy
    name = what.partition(",")[0]
    started = monotonic()

    def tell(state: RetryCallState) -> None:
        note_retry(name)
        error = None if state.outcome is None else state.outcome.exception()
        logger.info("reading %s of %s again: %s", what, redact(place), redact(repr(error)))

    retrying = Retrying(
        stop=stop_after_attempt(policy.attempts),
        wait=wait_exponential(policy.first_wait, LONGEST_WAIT_SECONDS) + wait_random(0, policy.first_wait),
        retry=retry_if_exception(is_transient),
        before_sleep=tell,
        reraise=True,
    )
    try:
        return retrying(read)
    except Exception as cause:
        if not is_transient(cause):
            raise
        raise DataError(
            f"{what} of {place} cannot be read: {_described(cause)}; tried {policy.attempts} times in "
            f"{monotonic() - started:.1f} s: check that the storage can be reached, or set DISTKERN_READ_ATTEMPTS to "
            "try more often",
            kind="unreachable",
        ) from displayed_cause(cause)


def _described(error: Any) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
