"""Values as text for readers, and the numbers and tables of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class KeyNumber:
    """A number with its name."""

    name: str
    text: str
    value: object = None
    """The exact number, for programs that read the page; None without (default None)."""


@dataclass(frozen=True)
class ReportTable:
    """A table; its first column names the rows."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]


MOST_SETTINGS = 200
"""Most rows of a table of settings."""

LONGEST_TEXT = 400
"""Most characters of a value."""


def shortened(text: str) -> str:
    """Return a text, or the beginning of a long one."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def grouped(count: float) -> str:
    """Return a whole number with its digits in groups of three."""
    return f"{round(count):,}".replace(",", "\u202f")


def moment(timestamp: float | None) -> str:
    """Return date and local time with the time zone."""
    try:
        return f"{datetime.fromtimestamp(timestamp).astimezone():%Y-%m-%d %H:%M:%S %Z}" if timestamp else "–"
    except (ValueError, OverflowError, OSError):
        return "–"


def rate(value: float) -> str:
    """Return a fraction in per cent."""
    return "–" if not math.isfinite(value) else f"{100 * value:.3g} %"
