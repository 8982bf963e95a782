"""Threads for calls that may never come back, or that find no memory to begin.

Python ends no thread: a call that hangs stays behind with its memory, on a daemon thread, which does not keep the
process alive as one of an executor would. Covers the start of such calls; who waits for them, and how long, is up to
the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")

START_SECONDS = 30.0
"""Longest time from the start of a thread to its first step."""


def call_in_thread(function: Callable[[], T], name: str) -> Future[T]:
    """Call a function on a daemon thread of its own.

    Parameters
    ----------
    function : callable
        Called without arguments.
    name : str
        Name of the thread.

    Returns
    -------
    future : concurrent.futures.Future
        The result or the error.

    Raises
    ------
    MemoryError
        There is no memory for another thread.
    """
    future: Future[T] = Future()
    try:
        _StartingThread(target=_call, args=(function, future), name=name, daemon=True).start()
    except RuntimeError as error:  # the system refuses the thread
        raise MemoryError(str(error)) from error
    return future


def _call(function: Callable[[], T], future: Future[T]) -> None:
    try:
        future.set_result(function())  # without a name, or this frame would hold it until the thread ends
    except BaseException as error:
        future.set_exception(error)
    finally:
        # The traceback of an error refers to this frame: with the future in it, memory and files of the call would
        # stay until Python collects cycles.
        del future


class _Begun(Event):
    """The event of a thread's first step, for which nobody waits forever."""

    def wait(self, timeout: float | None = None) -> bool:
        begun = super().wait(START_SECONDS if timeout is None else timeout)
        if timeout is None and not begun:
            raise MemoryError(f"a thread did not begin within {START_SECONDS:g} s; memory may be short")
        return begun


class _StartingThread(Thread):
    """A thread whose `start` always ends.

    That of Python waits without end for a thread that runs out of memory in its first steps, before it can say so
    (issue 140746 of CPython, open).
    """

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._started = _Begun()
