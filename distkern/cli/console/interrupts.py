"""Ctrl-C and SIGTERM: the driver stops after the current exchange and closes its worker processes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import resource_tracker
from types import FrameType

import click

from ...errors import Cancelled
from ...monitoring.events import Event, Subscriber


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Block SIGINT while processes start; an interrupt meanwhile arrives at the end of the block.

    A terminal sends SIGINT to every process of its group. Threads and processes inherit the signal mask of the thread
    that starts them, so the processes that start here, and their children, never receive it.
    """
    # The tracker unblocks SIGINT in the thread that starts it, so it must run before.
    resource_tracker.ensure_running()
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], *numbers: signal.Signals) -> Iterator[None]:
    """Handle signals within the block; in other threads than the main one this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def terminated_as_interrupted() -> AbstractContextManager[None]:
    """Make SIGTERM, the signal of queues and service managers, end a command like Ctrl-C."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    return _handled(interrupt, signal.SIGTERM)


@contextmanager
def cancelled_by_signals() -> Iterator[Subscriber]:
    """Yield a subscriber that ends the training after a SIGINT or SIGTERM; a second signal interrupts at once.

    Yields
    ------
    callable
        Subscriber of the training.
    """
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt
        click.echo("stopping after the current exchange; press Ctrl-C again to stop at once", err=True)

    def watch(event: Event) -> None:
        if received:
            raise Cancelled("interrupted", kind="interrupted")

    with _handled(receive, signal.SIGINT, signal.SIGTERM):
        yield watch
