"""The callback `Progress`, which chooses the display."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import datetime
from typing import IO

from ...errors import JobError
from ..events import Event
from .display import Display, RunDisplay
from .log_lines import LOG_INTERVAL, LineDisplay
from .notebook import NotebookDisplay
from .terminal import TerminalDisplay

_PLACES = ("auto", "terminal", "notebook", "lines")


class Progress:
    """Shows a training while it runs: ``callbacks=[distkern.Progress()]``.

    On a terminal a few lines are redrawn: centres against the limit, GCV, lambda, the largest residual, the held-out
    error where rows are held out, centres per second, an upper bound of the time left, and the address of the dask
    dashboard where the training is on a cluster. In a notebook the output of the cell is replaced twice a second;
    that needs no widgets. Elsewhere, as in the log of a batch job, lines without control codes report the start, the
    end and failed workers at once, and the state of the training once a minute.

    Parameters
    ----------
    where : {"auto", "terminal", "notebook", "lines"}, default "auto"
        Where the training is shown; "auto" detects the place.
    interval : float, default 60.0
        Smallest number of seconds between two lines on the state of the training, where lines are written.
    file : text stream, optional
        Stream to write to, standard error by default; a notebook ignores it.

    Examples
    --------
    >>> import distkern as dk
    >>> model = dk.OROLSRegressor(callbacks=[dk.Progress()])
    """

    def __init__(
        self,
        where: str = "auto",
        *,
        interval: float = LOG_INTERVAL,
        file: IO[str] | None = None,
    ) -> None:
        if where not in _PLACES:
            raise JobError(f"where={where!r}: it must be one of {', '.join(_PLACES)}", kind="invalid-parameter")
        self.where = where
        self.interval = interval
        self.file = file
        self._shown: RunDisplay | None = None

    def __call__(self, event: Event) -> None:
        """Show an event of a training."""
        if self._shown is None:
            # Not in `__init__`: standard error may be replaced after that.
            self._shown = RunDisplay(self._display())
        self._shown(event)

    def _display(self) -> Display:
        stream = sys.stderr if self.file is None else self.file
        where = _place(stream) if self.where == "auto" else self.where
        if where == "notebook":
            return NotebookDisplay()
        if where == "terminal":
            from rich.console import Console

            return TerminalDisplay(Console(file=stream, markup=False, highlight=False))
        return LineDisplay(_timed(stream), self.interval)

    def __repr__(self) -> str:
        return f"Progress(where={self.where!r})"


def _timed(stream: IO[str]) -> Callable[[int, str], None]:
    def write(level: int, text: str) -> None:
        del level
        print(f"{datetime.now():%Y-%m-%d %H:%M:%S} {text}", file=stream, flush=True)

    return write


def _place(stream: IO[str]) -> str:
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    if shell is not None and getattr(shell, "kernel", None) is not None:
        return "notebook"
    return "terminal" if stream.isatty() and os.environ.get("TERM") != "dumb" else "lines"
