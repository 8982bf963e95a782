"""Keeps Ctrl-C to the driver: worker processes end when it closes them, not in the middle of a message."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold SIGINT back while processes start; an interrupt meanwhile arrives at the end of the block.

    A terminal sends SIGINT to every process of its group. Threads and processes inherit the signal mask of
    the thread that starts them, so what starts in this block, and what that starts later, never sees it.
    """
    # The tracker unblocks SIGINT in the thread that starts it, so it must be there before.
    resource_tracker.ensure_running()
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
