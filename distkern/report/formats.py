"""Values as a person reads them, and the small pieces that all parts of a report are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ..monitoring.progress.messages import duration


@dataclass(frozen=True)
class Figure:
    """A number with its name."""

    name: str
    text: str
    value: object = None
    """The number in full, for programs that read the page."""


@dataclass(frozen=True)
class Table:
    """A table; its first column names the rows."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]


MOST_ROWS = 200
"""Rows of a table of settings."""

LONGEST = 400
"""Characters of a value that are shown."""


def shortened(text: str) -> str:
    """Return a text, or the beginning of a long one."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def plain(value: object) -> str:
    """Return a value as a person reads it, the beginning of a long one."""
    return shortened(_plain(value))


def _plain(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else "–"
    if isinstance(value, list | tuple):
        return "none" if not value else ", ".join(map(plain, value[:20])) + (", …" if len(value) > 20 else "")
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plain(item)}" for name, item in list(value.items())[:20])
    return str(value)


def grouped(count: float) -> str:
    """Return a whole number with its digits in groups of three."""
    return f"{round(count):,}".replace(",", "\u202f")


def size(count: float | None) -> str:
    """Return a number of bytes in binary units."""
    if count is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def moment(timestamp: float | None) -> str:
    """Return a time of the day where this runs, with the date and the zone."""
    try:
        return f"{datetime.fromtimestamp(timestamp).astimezone():%Y-%m-%d %H:%M:%S %Z}" if timestamp else "–"
    except (ValueError, OverflowError, OSError):
        return "–"


def rate(value: float) -> str:
    """Return a share in per cent."""
    return "–" if not math.isfinite(value) else f"{100 * value:.3g} %"


def fixed(value: float) -> str:
    """Return a rate with four decimals."""
    return f"{value:.4f}" if math.isfinite(value) else "–"


def brief(seconds: float) -> str:
    """Return a time that may be far below a second."""
    return duration(seconds) if seconds >= 0.95 else f"{1000 * seconds:.3g} ms"
