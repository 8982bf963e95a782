"""Limits of hostile input: each ends in a typed error or a harmless read, in bounded time and memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from distkern.errors import DistkernError
from tests.fuzzing import refusal
from tests.memory_limits import GIB, memory_for, ran_out_of_memory

SECONDS = 30.0
MOST_CHARACTERS = 20_000
"""Longest message of an error; one that repeats its input has no limit."""

_EXECUTES = ("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "os.startfile")
_watching = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event in _EXECUTES:
        raise AssertionError(f"hostile input led to {event} {arguments!r}")


# Python cannot remove a hook: it is added once, and looks only while hostile input is read.
sys.addaudithook(_watch)


@contextmanager
def nothing_executed() -> Iterator[None]:
    """Fail where the body unpickles an object or starts a program."""
    global _watching
    _watching = True
    try:
        yield
    finally:
        _watching = False


def end_of(work: Callable[[], object]) -> str:
    """Do something within 1 GiB and 30 s; return the kind of the typed error that it ended with, else "read"."""
    started = monotonic()
    with memory_for(GIB), nothing_executed():
        error: DistkernError | None = refusal(work)
    assert monotonic() - started < SECONDS
    if error is None:
        return "read"
    assert not ran_out_of_memory(error), error
    assert error.kind != "unspecified"
    assert 0 < len(str(error)) < MOST_CHARACTERS, str(error)[:2000]
    return error.kind
