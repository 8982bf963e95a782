"""Output of a notebook's cell that is replaced during a run; needs IPython and no widgets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

from ..run_state import RunFigures
from .display import Display
from .rich_view import picture

_INTERVAL = 0.5
_KEPT = 8


class NotebookDisplay(Display):
    """Shows a run in the output of a cell, which keeps the end of the run.

    Parameters
    ----------
    display : callable, optional
        Function like `IPython.display.display`, the default: it takes an object and ``display_id=True`` and returns a
        handle with ``update``.
    clock : callable, default monotonic
        Function that returns seconds.
    """

    def __init__(self, display: Callable[..., Any] | None = None, clock: Callable[[], float] = monotonic) -> None:
        if display is None:
            from IPython.display import display as displayed

            display = displayed
        self._display = display
        self._clock = clock
        self._handle: Any = None
        self._last = -_INTERVAL
        self._lines: list[tuple[int, str]] = []
        self._shown: tuple[RunFigures, str | None] = (RunFigures(), None)

    def show(self, figures: RunFigures, dashboard: str | None) -> None:
        """Replace the output if the last one is half a second old."""
        self._shown = figures, dashboard
        now = self._clock()
        if figures.begun and now - self._last >= _INTERVAL:
            self._last = now
            self._draw()

    def say(self, level: int, text: str) -> None:
        """Keep a line; the last few are shown below the picture."""
        self._lines = [*self._lines[-_KEPT + 1 :], (level, text)]

    def close(self) -> None:
        """Show the end of the run."""
        self._draw()
        self._handle = None
        self._lines = []
        self._last = -_INTERVAL

    def _draw(self) -> None:
        from rich.table import Table
        from rich.text import Text

        figures, dashboard = self._shown
        # IPython shows a Table as HTML.
        drawn = Table.grid()
        if figures.stop_reason is None:
            drawn.add_row(picture(figures, dashboard))
        for level, text in self._lines:
            drawn.add_row(Text(text, style="yellow" if level >= logging.WARNING else "dim"))
        if self._handle is None:
            self._handle = self._display(drawn, display_id=True)
        else:
            self._handle.update(drawn)
