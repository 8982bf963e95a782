"""Values as a person reads them, and the small pieces that all parts of a report are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from distkern.progress.wording import duration


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


def plain(value: object) -> str:
    """Return a value as a person reads it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else "–"
    if isinstance(value, list | tuple):
        return "none" if not value else ", ".join(map(plain, value[:20])) + (", …" if len(value) > 20 else "")
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plain(item)}" for name, item in value.items())
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
    if timestamp is None:
        return "–"
    return datetime.fromtimestamp(timestamp).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def rate(value: float) -> str:
    """Return a share in per cent."""
    return "–" if not math.isfinite(value) else f"{100 * value:.3g} %"


def fixed(value: float) -> str:
    """Return a rate with four decimals."""
    return f"{value:.4f}" if math.isfinite(value) else "–"


def brief(seconds: float) -> str:
    """Return a time that may be far below a second."""
    return duration(seconds) if seconds >= 0.95 else f"{1000 * seconds:.3g} ms"
