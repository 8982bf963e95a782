"""A few lines at the bottom of a terminal that are redrawn while a run goes on."""

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
    """Redraws a few lines, and takes them away when the run is over.

    Parameters
    ----------
    console : rich.console.Console
        The terminal.
    write : callable, optional
        Takes the level, as of `logging`, and a line that is to stay; the console by default.
    """

    def __init__(self, console: Console, write: Callable[[int, str], None] | None = None) -> None:
        self._console = console
        self._write = self._print if write is None else write
        self._live: Live | None = None
        self._shown: tuple[RunFigures, str | None] = (RunFigures(), None)
        self._note: str | None = None

    def show(self, figures: RunFigures, dashboard: str | None) -> None:
        """Take what is drawn next; starts to redraw once there is a search, or the shapes of the run are known."""
        self._shown = figures, dashboard
        if figures.shapes or figures.search_exchanges:
            self.start()

    def start(self) -> None:
        """Start to redraw, before anything is known of the run too; whoever calls this closes it."""
        if self._live is not None:
            return
        from rich.live import Live

        self._live = Live(
            console=self._console,
            get_renderable=self._picture,
            transient=True,
            refresh_per_second=4,
            # What a program writes to a file or a pipe stays out of the terminal.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        self._live.start()

    def note(self, text: str | None) -> None:
        """Set a line below the picture, None to take it away."""
        self._note = text

    def say(self, level: int, text: str) -> None:
        """Print a line above what is redrawn."""
        self._write(level, text)

    def close(self) -> None:
        """Take the picture away and show the cursor."""
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
