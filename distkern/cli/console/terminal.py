"""The streams of a command: verbosity, log records and warnings on standard error; ``-v`` and ``-q``."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from time import time
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from ...errors import DistkernWarning
from ...redaction import displayed_cause, redact

if TYPE_CHECKING:
    from rich.console import Console

Command = TypeVar("Command", bound=Callable[..., Any])


class Terminal:
    """Standard output and error of one command.

    Parameters
    ----------
    verbosity : int, default 0
        Messages on standard error: -1 errors only, 0 progress and warnings, 1 the log of every room, 2 debugging and
        the log of libraries too.

    Attributes
    ----------
    json_wanted : bool
        Whether standard output is for a program: errors are printed there too, as JSON.
    owns_process : bool
        Whether the process runs this command only, so that its age is that of the command.
    """

    def __init__(self, verbosity: int = 0) -> None:
        self.verbosity = verbosity
        self.json_wanted = False
        self.owns_process = False

    def seconds(self) -> float:
        """Return the seconds since the start of the process, imports included; 0 where it runs other code too."""
        if not self.owns_process:
            return 0.0
        import psutil

        return max(time() - float(psutil.Process().create_time()), 0.0)

    @property
    def quiet(self) -> bool:
        """True where only errors are shown."""
        return self.verbosity < 0

    @property
    def live(self) -> bool:
        """True where standard error is a terminal that can redraw a line."""
        return can_redraw(sys.stderr)

    @cached_property
    def messages(self) -> Console:
        """Console on standard error, for the progress bar and the log records."""
        from rich.console import Console

        return Console(stderr=True, markup=False, highlight=False)

    def adjust(self, verbosity: int) -> None:
        """Set the verbosity and its log levels."""
        self.verbosity = verbosity
        rooms = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG)
        logging.getLogger("distkern").setLevel(rooms)
        logging.getLogger("distkern.cli").setLevel(min(rooms, logging.INFO) if verbosity >= 0 else rooms)

    @contextmanager
    def log_records(self) -> Iterator[None]:
        """Send log records to standard error while a command runs."""
        handler = self._handler()
        handler.addFilter(self._wanted)
        handler.addFilter(_without_credentials)
        root = logging.getLogger()
        loggers = [logging.getLogger("distkern"), logging.getLogger("distkern.cli")]
        levels = [logger.level for logger in loggers]
        root.addHandler(handler)
        self.adjust(self.verbosity)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", DistkernWarning)
                warnings.showwarning = _logged(warnings.showwarning)
                yield
        finally:
            root.removeHandler(handler)
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)

    def _wanted(self, record: logging.LogRecord) -> bool:
        """Return whether a record is shown: those of libraries only as warnings and errors, but all with ``-vv``."""
        if record.name.partition(".")[0] == "distkern" or self.verbosity > 1:
            return True
        if record.name == "asyncio" and record.exc_info and type(record.exc_info[1]).__name__ == "AllExit":
            # A dask task stops waiting for the answer of a failed worker, which has its own message.
            return False
        return record.levelno >= (logging.ERROR if self.quiet else logging.WARNING)

    def _handler(self) -> logging.Handler:
        if self.live:
            from rich.logging import RichHandler

            return RichHandler(console=self.messages, show_path=False, markup=False)
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        return handler


def can_redraw(stream: IO[str]) -> bool:
    """Return whether a stream is a terminal that can redraw a line."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _logged(otherwise: Callable[..., None]) -> Callable[..., None]:
    """Return a hook that makes log records of distkern's warnings, without their line of code."""

    def show(message: Warning | str, category: type[Warning], *arguments: Any, **named: Any) -> None:
        if issubclass(category, DistkernWarning):
            logging.getLogger("distkern").warning("%s", message)
        else:
            otherwise(message, category, *arguments, **named)

    return show


def _without_credentials(record: logging.LogRecord) -> bool:
    """Remove credentials from the message of a record, and the traceback of an error with credentials."""
    message = record.getMessage()
    if redact(message) != message:
        record.msg, record.args = redact(message), None
    if record.exc_info and record.exc_info[1] is not None and displayed_cause(record.exc_info[1]) is None:
        record.exc_info = record.exc_text = None
    return True


def verbosity_options(command: Command) -> Command:
    """Give a command the options ``-v`` and ``-q``, which set the verbosity of its `Terminal`."""
    command = click.option(
        "-q", "--quiet", is_flag=True, expose_value=False, callback=_quieter, help="Show errors only."
    )(command)
    return click.option(
        "-v",
        "--verbose",
        count=True,
        expose_value=False,
        callback=_louder,
        help="Show the log of every room; twice: debugging too.",
    )(command)


def _louder(context: click.Context, _: click.Parameter, count: int) -> None:
    if count:
        terminal_of(context).adjust(count)


def _quieter(context: click.Context, _: click.Parameter, quiet: bool) -> None:
    if quiet:
        terminal_of(context).adjust(-1)


def terminal_of(context: click.Context) -> Terminal:
    """Return the terminal of a command's context."""
    return context.ensure_object(Terminal)
