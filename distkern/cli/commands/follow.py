"""``distkern info RUN --follow``: the progress of a run that another process trains."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import datetime
from time import monotonic, sleep
from typing import Any

import click

from distkern.storage import RunDirectory, is_run, is_url

from ...errors import RunError
from ...monitoring.progress import Display, LineDisplay, RunDisplay, TerminalDisplay
from ...monitoring.progress.messages import line
from ..console.output import print_json
from ..console.terminal import Terminal, can_redraw
from ..running.result import recorded_result, show_result
from ..running.run_liveness import RunStatus, RunWatch

EVENTS_SECONDS = 0.5
"""Seconds between two reads of the events."""

DRIVER_SECONDS = 2.0
"""Seconds between two checks of the driver process."""

REMOTE_SECONDS = 10.0
"""Seconds between two checks of the driver of a run under a URL, which take several requests."""


_SHOWN = ("n_centers", "lambda", "gcv", "stop_reason", "test")
"""Numbers that are shown from the summary of an estimator."""


class Follower:
    """Shows the events of a run: first the recorded ones, then new ones.

    Parameters
    ----------
    run : RunDirectory
        The run.
    display : Display
        Display of the events.
    receive : callable, optional
        Function that takes every record before it is shown.
    clock : callable, default monotonic
        Function that returns seconds.
    wait : callable, default sleep
        Function that waits a number of seconds.
    """

    def __init__(
        self,
        run: RunDirectory,
        display: Display,
        receive: Callable[[dict[str, Any]], None] | None = None,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], None] = sleep,
    ) -> None:
        self._run = run
        self._tail = run.tail()
        self._receive = receive
        self._clock = clock
        self._wait = wait
        self._display = display
        self._shown = RunDisplay(self._display)
        self._watch = RunWatch(clock())
        self._probed = clock() - max(DRIVER_SECONDS, REMOTE_SECONDS)

    @property
    def figures(self) -> Any:
        """Figures of the run so far."""
        return self._shown.figures

    def run(self) -> None:
        """Follow the run to its end.

        Raises
        ------
        RunError
            ``abandoned``: its process exited and no other resumed the run. ``missing``: its directory was removed.
        """
        try:
            self._read(show=False)
            begun = self.figures.n_centers or self.figures.search_exchanges or self.figures.metric_rounds
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
                self._display.say(logging.WARNING, "the run was started again from the beginning")
            self._watch.record_event(self._clock())
            if self._receive is not None:
                self._receive(record)
            self._shown.take(record, show=show)

    def _over(self) -> bool:
        now = self._clock()
        if now - self._probed < (REMOTE_SECONDS if is_url(self._run.path) else DRIVER_SECONDS):
            return False
        self._probed = now
        status = self._status(now)
        if status.abandoned:
            raise RunError(
                f"the run {self._run.path} is unfinished at {self.figures.n_centers} centres: its driver process "
                "exited, and no other process resumed it; resume it with distkern train --resume",
                kind="abandoned",
            )
        self._display.note(status.remark)
        return status.ended

    def _status(self, now: float) -> RunStatus:
        if not is_run(self._run.path):
            # The directory is absent for a moment while another run replaces this one.
            self._wait(EVENTS_SECONDS)
            if not is_run(self._run.path):
                raise RunError(f"the run {self._run.path} was removed", kind="missing")
        return self._watch.status(
            self._run.driver(),
            summary=self._run.summary is not None,
            stopped=self.figures.stop_reason is not None,
            now=now,
        )


def follow(path: str, terminal: Terminal, *, as_json: bool) -> int:
    """Show the progress and the result of a run, or its events as lines of JSON; return the exit code."""
    run = RunDirectory.open(path)
    display, receive = Display(), None
    if as_json:
        receive = _print_event
    elif not terminal.quiet and can_redraw(sys.stdout):
        from rich.console import Console

        display = TerminalDisplay(Console(file=sys.stdout, markup=False, highlight=False))
    elif not terminal.quiet:
        lines = _DatedLines()
        display, receive = LineDisplay(lines), lines.date
    follower = Follower(run, display, receive)
    try:
        follower.run()
    except KeyboardInterrupt:
        if not terminal.quiet:
            click.echo("stopped following; the run is not changed", err=True)
        return 130
    if not as_json and not terminal.quiet:
        figures = follower.figures
        known = {"n_centers": figures.n_centers, "stop_reason": figures.stop_reason, "seconds": figures.seconds}
        summary = recorded_result(run.summary or {})
        show_result(summary or known | {name: value for name, value in (run.summary or {}).items() if name in _SHOWN})
    return 0


def _print_event(record: dict[str, Any]) -> None:
    print_json(record)
    sys.stdout.flush()


class _DatedLines:
    """Lines on standard output, each with the time of its event."""

    def __init__(self) -> None:
        self._at: datetime | None = None

    def date(self, record: dict[str, Any]) -> None:
        """Set the time of the next line to that of an event."""
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
