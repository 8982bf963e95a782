"""The events of a run under a URL: objects of some lines each, in one sequence for all processes."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock, Timer
from typing import Any, Self

from .event_tail import parsed
from .run_files import RemoteFiles

__all__ = ["EventParts", "PartTail", "event_part"]

EVENT_SECONDS = 1.0
"""Seconds that an event may wait for others, which are written with it."""

_LOOKS_BETWEEN = 10
"""Looks for a new part between two checks of whether the run was replaced."""


def event_part(token: str, number: int) -> str:
    """Return the name of a part."""
    return f"events-{token}/{number:010d}.jsonl"


class EventParts:
    """Collects events and writes them together; a process that is killed loses those of the last second.

    Parameters
    ----------
    files : RemoteFiles
        The run.
    """

    def __init__(self, files: RemoteFiles) -> None:
        self._files = files
        self._lines: list[str] = []
        self._next: int | None = None
        self._timer: Timer | None = None
        self._failure: BaseException | None = None
        self._collecting, self._writing = Lock(), Lock()

    def append(self, line: str) -> None:
        """Take one event; what failed since the last call is raised here."""
        with self._collecting:
            failure, self._failure = self._failure, None
            self._lines.append(line)
            if self._timer is None:
                self._timer = Timer(EVENT_SECONDS, self._flush_late)
                self._timer.start()
        if failure is not None:
            raise failure

    def flush(self) -> None:
        """Write the events so far; `RunError` where this fails, and they are kept."""
        with self._writing:
            with self._collecting:
                lines, self._lines = self._lines, []
                timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
            if not lines:
                return
            try:
                self._write("".join(lines).encode())
            except BaseException:
                with self._collecting:
                    self._lines = lines + self._lines
                raise

    def _flush_late(self) -> None:
        try:
            self.flush()
        except BaseException as failure:  # raised in the thread that records the next event
            self._failure = failure

    def _write(self, text: bytes) -> None:
        if self._next is None:
            sizes = self._files.listing(f"events-{self._files.token}")[0]
            self._next = len(sizes)
        # Events exclude nobody: a part that another process wrote first is passed over.
        while not self._files.folder.create(event_part(self._files.token, self._next), text):
            if self._files.read(event_part(self._files.token, self._next)) == text:
                break
            self._next += 1
        self._next += 1


class PartTail:
    """A reader's position in the parts, with the methods of `EventTail`.

    Parameters
    ----------
    files : RemoteFiles
        The run.

    Attributes
    ----------
    replaced : int
        Number of times the run was replaced by another.
    """

    def __init__(self, files: RemoteFiles) -> None:
        self._files = files
        self._token = files.token
        self._next = self._looks = 0
        self.replaced = 0

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the events that were recorded since the last call."""
        while True:
            text = self._files.read(event_part(self._token, self._next))
            if text is not None:
                self._next += 1
                yield from filter(None, map(parsed, text.splitlines()))
                continue
            self._looks += 1
            if self._looks % _LOOKS_BETWEEN:
                return
            token = self._files.present_token()
            if token == self._token:
                return
            self._token, self._next = token, 0
            self.replaced += 1

    def close(self) -> None:
        """Do nothing; nothing is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
