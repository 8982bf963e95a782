"""Values as a person reads them, and the small pieces that all parts of a report are made of."""

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
    """The number in full, for programs that read the page."""


@dataclass(frozen=True)
class ReportTable:
    """A table; its first column names the rows."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]


MOST_SETTINGS = 200
"""Rows of a table of settings."""

LONGEST_TEXT = 400
"""Characters of a value that are shown."""


def shortened(text: str) -> str:
    """Return a text, or the beginning of a long one."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def grouped(count: float) -> str:
    """Return a whole number with its digits in groups of three."""
    return f"{round(count):,}".replace(",", "\u202f")


def moment(timestamp: float | None) -> str:
    """Return a time of the day where this runs, with the date and the zone."""
    try:
        return f"{datetime.fromtimestamp(timestamp).astimezone():%Y-%m-%d %H:%M:%S %Z}" if timestamp else "–"
    except (ValueError, OverflowError, OSError):
        return "–"


def rate(value: float) -> str:
    """Return a share in per cent."""
    return "–" if not math.isfinite(value) else f"{100 * value:.3g} %"
