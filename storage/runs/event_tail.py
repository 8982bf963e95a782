"""Reading of a run's events while a driver records them: each byte once, and only complete lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self

__all__ = ["EventTail", "parsed"]

_PIECE = 1 << 20
_LONGEST_LINE = 8 << 20


class EventTail:
    """A reader's position in a growing file of JSON lines.

    A line that a killed process left incomplete is skipped once the next writer has ended it. A file that was replaced,
    as by a run that was started again, is read from its beginning.

    Parameters
    ----------
    path : pathlib.Path
        The file; it may appear later.

    Attributes
    ----------
    replaced : int
        Number of times the file was replaced by another.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: IO[bytes] | None = None
        self._rest = b""
        self._overlong = False
        self.replaced = 0

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the events that were recorded since the last call."""
        if self._stream is not None:
            # The last events of the old file come first, then the new file is read.
            yield from self._lines(self._stream)
            if not self._is_replaced(self._stream):
                return
            self.close()
            self.replaced += 1
        try:
            self._stream = self._path.open("rb")
        except OSError:
            return
        yield from self._lines(self._stream)

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._stream is not None:
            self._stream.close()
        self._stream, self._rest, self._overlong = None, b"", False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _is_replaced(self, stream: IO[bytes]) -> bool:
        held = os.fstat(stream.fileno())
        try:
            now = os.stat(self._path)
        except OSError:
            # The time is between the two renames of a replacement; the next call finds the new file.
            return False
        return (held.st_dev, held.st_ino) != (now.st_dev, now.st_ino) or now.st_size < stream.tell()

    def _lines(self, stream: IO[bytes]) -> Iterator[dict[str, Any]]:
        while piece := stream.read(_PIECE):
            *lines, self._rest = (self._rest + piece).split(b"\n")
            if lines and self._overlong:
                del lines[0]
                self._overlong = False
            for line in lines:
                event = parsed(line)
                if event is not None:
                    yield event
            if len(self._rest) > _LONGEST_LINE:
                self._rest, self._overlong = b"", True


def parsed(line: bytes) -> dict[str, Any] | None:
    """Return the event of a line; None where the line is none."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None
