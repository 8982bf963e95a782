"""The progress of a training on standard error: redrawn on a terminal, log lines elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from distkern.cli.terminal import Terminal
from distkern.events import Event, Subscriber

logger = logging.getLogger(__name__)


@contextmanager
def show_progress(terminal: Terminal) -> Iterator[Subscriber]:
    """Yield the subscriber that suits the terminal: a picture, log lines, or nothing where it is quiet.

    Parameters
    ----------
    terminal : Terminal
        Says whether standard error can redraw lines and whether anything is wanted on it.

    Yields
    ------
    callable
        Takes each event of a training.
    """
    if terminal.quiet:
        yield _ignore
        return
    from distkern.progress import Display, LineDisplay, RunDisplay, TerminalDisplay

    display: Display
    if terminal.live:
        display = TerminalDisplay(terminal.messages, logger.log)
        display.start()
    else:
        display = LineDisplay(logger.log)
    try:
        yield RunDisplay(display)
    finally:
        display.close()


def _ignore(event: Event) -> None:
    del event
