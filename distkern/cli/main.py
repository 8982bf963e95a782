"""The ``distkern`` command: the group of commands, the messages of errors, and exit codes."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

import click

from ..errors import BudgetError, DistkernError, StoreError
from ..redaction import redact
from .commands.demo import demo
from .commands.info import info
from .commands.ingest import ingest
from .commands.metrics import metrics
from .commands.plan import plan
from .commands.predict_evaluate import evaluate, predict
from .commands.report import report
from .commands.train import train
from .console.interrupts import terminated_as_interrupted
from .console.output import print_json
from .console.terminal import Terminal, verbosity_options

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("distkern")
    except PackageNotFoundError:
        number = "(not installed)"
    click.echo(f"distkern {number}")
    context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@verbosity_options
def cli() -> None:
    """Train sparse kernel least-squares models on data that does not fit in memory.

    Results go to standard output, progress and logs to standard error. Exit codes: 0 done, 2 usage or job
    file, 3 data, 4 does not fit the memory budget, 5 cluster, 6 run or model store, 130 interrupted (Ctrl-C
    or SIGTERM; the run is kept), 1 a fault of distkern. A command with --json prints one JSON object last, also
    where it fails: {"error": {"kind", "message", "exit_code"}}.
    """


for _command in (demo, ingest, info, plan, train, predict, evaluate, report, metrics):
    cli.add_command(_command)


def _open_streams() -> None:
    """Open the null device as standard output or error where the caller closed it (``>&-``)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  open until the process ends


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; see `run_command`."""
    return run_command(cli, "distkern", arguments)


def run_command(command: click.Command, name: str, arguments: Sequence[str] | None = None) -> int:
    """Run a command with distkern's messages, signals and exit codes.

    Parameters
    ----------
    command : click.Command
        The command, or a group of them.
    name : str
        Name of the command in messages.
    arguments : sequence of str, optional
        The command and its arguments; those of the process by default.

    Returns
    -------
    int
        The exit code.
    """
    _open_streams()
    words = sys.argv[1:] if arguments is None else list(arguments)
    terminal = Terminal()
    terminal.json_wanted = "--json" in words
    terminal.owns_process = arguments is None
    with terminal.log_records(), terminated_as_interrupted():
        try:
            status = command.main(
                args=words,
                prog_name=name,
                standalone_mode=False,
                obj=terminal,
            )
        except click.ClickException as error:
            shown = io.StringIO()
            error.show(file=shown)
            click.echo(redact(shown.getvalue()), nl=False, err=True)
            return _failed(terminal, "usage", error.format_message(), error.exit_code)
        except (Exception, KeyboardInterrupt) as error:
            kind, message, code = _cause(error, terminal)
            if terminal.verbosity > 0:
                click.echo(redact(traceback.format_exc()), err=True)
            click.echo(redact(f"distkern: error: {message}"), err=True)
            return _failed(terminal, kind, message, code)
        return _flushed(status if isinstance(status, int) else 0)


def _cause(error: BaseException, terminal: Terminal) -> tuple[str, str, int]:
    """Return kind, message and exit code for the error that ended a command."""
    if isinstance(error, DistkernError):
        return error.kind, error.message, error.exit_code
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return "interrupted", "interrupted", INTERRUPTED
    if isinstance(error, MemoryError):
        advice = "fewer centres ([model] max_centers), smaller blocks or more memory ([cluster] memory) help"
        return "out-of-memory", f"the process ran out of memory; {advice}", BudgetError.exit_code
    if isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT):
        # Errors of stores have a file name; without one it is a file of the process itself.
        advice = "make room, or send the output elsewhere"
        place = "where standard output goes, or for temporary files"
        return "disk-full", f"{error.strerror} {place}: {advice}", StoreError.exit_code
    hint = "" if terminal.verbosity > 0 else "; run again with -v for the traceback"
    return "unexpected", f"unexpected {type(error).__name__}: {error}{hint}", 1


def _failed(terminal: Terminal, kind: str, message: str, code: int) -> int:
    """Print the error as JSON too, where ``--json`` is given; return the exit code."""
    if terminal.json_wanted:
        # The error may be that of standard output.
        with suppress(OSError):
            print_json({"error": {"kind": kind, "message": message, "exit_code": code}})
    return _flushed(code)


def _flushed(code: int) -> int:
    """Flush standard output and return the exit code; a pipe that its reader closed is no error message."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1 if isinstance(error, BrokenPipeError) else code or StoreError.exit_code
    return code
