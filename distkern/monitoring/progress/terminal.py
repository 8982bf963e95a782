"""Lines at the bottom of a terminal that are redrawn during a run."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..run_state import RunFigures
from .display import Display
from .rich_view import picture

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

_STYLES = {logging.WARNING: "yellow", logging.ERROR: "red"}


class TerminalDisplay(Display):
    """Redraws a few lines, and removes them at the end of the run.

    Parameters
    ----------
    console : rich.console.Console
        The terminal.
    write : callable, optional
        Function that takes the level, as of `logging`, and a line that stays; the console prints by default.
    """

    def __init__(self, console: Console, write: Callable[[int, str], None] | None = None) -> None:
        self._console = console
        self._write = self._print if write is None else write
        self._live: Live | None = None
        self._shown: tuple[RunFigures, str | None] = (RunFigures(), None)
        self._note: str | None = None

    def show(self, figures: RunFigures, dashboard: str | None) -> None:
        """Set the figures to draw; redrawing starts with a metric's rounds, a search, or the shapes of the run."""
        self._shown = figures, dashboard
        if figures.begun:
            self.start()

    def start(self) -> None:
        """Start to redraw, also without figures; the caller must call `close`."""
        if self._live is not None:
            return
        from rich.live import Live

        self._live = Live(
            console=self._console,
            get_renderable=self._picture,
            transient=True,
            refresh_per_second=4,
            # Output of the program to a file or a pipe must not appear on the terminal.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        self._live.start()

    def note(self, text: str | None) -> None:
        """Set the line below the picture; None removes it."""
        self._note = text

    def say(self, level: int, text: str) -> None:
        """Print a line above the picture."""
        self._write(level, text)

    def close(self) -> None:
        """Remove the picture and show the cursor."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _picture(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        drawn = picture(*self._shown)
        return drawn if self._note is None else Group(drawn, Text(self._note, style="yellow"))

    def _print(self, level: int, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text, style=_STYLES.get(level, "")))
