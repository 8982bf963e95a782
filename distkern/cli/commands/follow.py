"""``distkern info RUN --follow``: a run that another process trains, while it does."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import datetime
from time import monotonic, sleep
from typing import Any

import click

from distkern.storage import RunDirectory, driver_of, is_run

from ...errors import RunError
from ...monitoring.progress import Display, LineDisplay, RunDisplay, TerminalDisplay
from ...monitoring.progress.messages import line
from ..console.output import print_json
from ..console.terminal import Terminal, can_redraw
from ..running.result import recorded_result, show_result
from ..running.run_liveness import RunStatus, RunWatch

EVENTS_SECONDS = 0.5
"""Between two looks at the events."""

DRIVER_SECONDS = 2.0
"""Between two looks at who drives the run."""


_TOLD = ("n_centers", "lambda", "gcv", "stop_reason", "test")
"""What is shown of the summary that an estimator wrote."""


class Follower:
    """Shows what a run records, from its beginning and then as it comes.

    Parameters
    ----------
    run : RunDirectory
        The run.
    display : Display
        Where.
    told : callable
        Takes every record before it is shown.
    clock, wait : callable
        Returns seconds; takes as many to wait.
    """

    def __init__(
        self,
        run: RunDirectory,
        display: Display,
        told: Callable[[dict[str, Any]], None] = lambda record: None,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], None] = sleep,
    ) -> None:
        self._run = run
        self._tail = run.tail()
        self._told = told
        self._clock = clock
        self._wait = wait
        self._display = display
        self._shown = RunDisplay(self._display)
        self._liveness = RunWatch(clock())
        self._probed = clock() - DRIVER_SECONDS

    @property
    def figures(self) -> Any:
        """The run so far."""
        return self._shown.figures

    def run(self) -> None:
        """Follow until the run has ended.

        Raises
        ------
        RunError
            ``abandoned``: its process is gone and no other went on. ``missing``: its directory was removed.
        """
        try:
            self._read(show=False)
            begun = self.figures.n_centers or self.figures.search_exchanges
            if begun and self.figures.stop_reason is None:
                self._display.say(logging.INFO, f"so far {line(self.figures)}")
            while not self._over():
                self._wait(EVENTS_SECONDS)
                self._read(show=True)
            self._read(show=True)
        finally:
            self._display.close()
            self._tail.close()

    def _read(self, *, show: bool) -> None:
        replaced = self._tail.replaced
        for record in self._tail.read():
            if self._tail.replaced != replaced:
                replaced = self._tail.replaced
                self._shown = RunDisplay(self._display)
                self._display.say(logging.WARNING, "the run was started anew")
            self._liveness.hear(self._clock())
            self._told(record)
            self._shown.take(record, show=show)

    def _over(self) -> bool:
        now = self._clock()
        if now - self._probed < DRIVER_SECONDS:
            return False
        self._probed = now
        verdict = self._judge(now)
        if verdict.abandoned:
            raise RunError(
                f"the run {self._run.path} was left unfinished at {self.figures.n_centers} centres: its process is "
                "gone, and no other has gone on with it; go on with distkern train --resume",
                kind="abandoned",
            )
        self._display.note(verdict.remark)
        return verdict.ended

    def _judge(self, now: float) -> RunStatus:
        if not is_run(self._run.path):
            # A run that replaces this one is away for a moment.
            self._wait(EVENTS_SECONDS)
            if not is_run(self._run.path):
                raise RunError(f"the run {self._run.path} was removed", kind="missing")
        return self._liveness.judge(
            driver_of(self._run.path),
            summary=self._run.summary is not None,
            stopped=self.figures.stop_reason is not None,
            now=now,
        )


def follow(path: str, terminal: Terminal, *, as_json: bool) -> int:
    """Show a run until it ends and its result, or only events, a JSON object a line; return the exit code."""
    run = RunDirectory.open(path)
    told: Callable[[dict[str, Any]], None] = lambda record: None  # noqa: E731
    display = Display()
    if as_json:
        told = _print_event
    elif not terminal.quiet and can_redraw(sys.stdout):
        from rich.console import Console

        display = TerminalDisplay(Console(file=sys.stdout, markup=False, highlight=False))
    elif not terminal.quiet:
        lines = _DatedLines()
        display, told = LineDisplay(lines), lines.date
    follower = Follower(run, display, told)
    try:
        follower.run()
    except KeyboardInterrupt:
        if not terminal.quiet:
            click.echo("no longer following; the run is left as it is", err=True)
        return 130
    if not as_json and not terminal.quiet:
        figures = follower.figures
        known = {"n_centers": figures.n_centers, "stop_reason": figures.stop_reason, "seconds": figures.seconds}
        summary = recorded_result(run.summary or {})
        show_result(summary or known | {name: value for name, value in (run.summary or {}).items() if name in _TOLD})
    return 0


def _print_event(record: dict[str, Any]) -> None:
    print_json(record)
    sys.stdout.flush()


class _DatedLines:
    """Lines on standard output, each with the time of the event that it tells of."""

    def __init__(self) -> None:
        self._at: datetime | None = None

    def date(self, record: dict[str, Any]) -> None:
        """Take the time of an event."""
        at = record.get("timestamp")
        try:
            self._at = datetime.fromtimestamp(at) if isinstance(at, int | float) else None
        except (OverflowError, OSError, ValueError):
            self._at = None

    def __call__(self, level: int, text: str) -> None:
        """Print a line."""
        at, self._at = self._at or datetime.now(), None
        mark = "" if level < logging.WARNING else "warning: "
        click.echo(f"{at:%Y-%m-%d %H:%M:%S} {mark}{text}")
        sys.stdout.flush()
