"""The progress of a training on standard error: redrawn on a terminal, log lines elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from ...monitoring.events import Event as RunEvent
from ...monitoring.events import Subscriber
from ..console.terminal import Terminal

if TYPE_CHECKING:
    from ...monitoring.progress import LineDisplay

logger = logging.getLogger(__name__)


@contextmanager
def show_progress(terminal: Terminal, interval: float | None = None) -> Iterator[Subscriber]:
    """Yield a subscriber for the terminal: it draws a picture, writes log lines, or is quiet.

    Parameters
    ----------
    terminal : Terminal
        Terminal of the command, with its verbosity.
    interval : float, optional
        Least seconds between two log lines on the state of the training; a minute by default.

    Yields
    ------
    callable
        Subscriber of the training.
    """
    if terminal.quiet:
        yield _ignore
        return
    from ...monitoring.progress import LineDisplay, RunDisplay, TerminalDisplay
    from ...monitoring.progress.log_lines import LOG_INTERVAL

    if terminal.live:
        picture = TerminalDisplay(terminal.messages, logger.log)
        picture.start()
        try:
            yield RunDisplay(picture)
        finally:
            picture.close()
        return
    interval = LOG_INTERVAL if interval is None else interval
    lines, over = LineDisplay(logger.log, interval), Event()
    # The log has a line a minute also during a long exchange.
    clock = Thread(target=_tick, args=(lines, over, interval / 4), name="distkern-progress", daemon=True)
    clock.start()
    try:
        yield RunDisplay(lines)
    finally:
        over.set()
        clock.join()


def _tick(lines: LineDisplay, over: Event, seconds: float) -> None:
    while not over.wait(seconds):
        lines.tick()


def _ignore(event: RunEvent) -> None:
    del event
