"""Threads for calls that may never come back, or that find no memory to begin or to end.

Python ends no thread: a call that hangs stays behind with its memory, on a daemon thread, which does not keep the
process alive as one of an executor would. Where memory is short, a thread may die before its first step or between two
steps of Python's own, and say nothing. Covers such calls; how long to wait for them is up to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")

START_SECONDS = 30.0
"""Longest time from the start of a thread to its first step."""

ALIVE_SECONDS = 1.0
"""Time between two looks whether the thread of an awaited call still exists."""


class ThreadCall(Generic[T]):
    """A call of a function on a daemon thread of its own.

    Parameters
    ----------
    function : callable
        Called without arguments.
    name : str
        Name of the thread.

    Raises
    ------
    MemoryError
        There is no memory for another thread.
    """

    def __init__(self, function: Callable[[], T], name: str) -> None:
        self._future: Future[T] = Future()
        self.thread: Thread = _StartingThread(target=_call, args=(function, self._future), name=name, daemon=True)
        """The thread; it ends with the call, whether there is a result or not."""
        try:
            self.thread.start()
        except RuntimeError as error:  # the system refuses the thread
            raise MemoryError(str(error)) from error

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result and return it; raise the error of the function.

        Parameters
        ----------
        timeout : float, optional
            Most seconds to wait; as long as it takes by default.

        Raises
        ------
        TimeoutError
            There is none in time.
        MemoryError
            The thread died without one.
        """
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            left = ALIVE_SECONDS if deadline is None else min(ALIVE_SECONDS, max(0.0, deadline - monotonic()))
            exists = self.thread.is_alive()
            try:
                return self._future.result(timeout=left)
            except TimeoutError:
                if self._future.done():  # the function's own
                    raise
                if not exists:
                    raise MemoryError(f"{self.thread.name} died without a result; memory may be short") from None
                if deadline is not None and monotonic() >= deadline:
                    raise TimeoutError(f"no answer within {timeout:g} s") from None


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
