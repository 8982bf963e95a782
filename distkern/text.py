"""Text for people, and values for JSON: one form for each quantity.

Covers sizes, times, counts, values of any type and the nearest known name. It does not cover formats of a single
place, such as the typography of a report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

MOST_ITEMS = 12
"""Largest number of items of a list in a text."""


def byte_size(count: float) -> str:
    """Return a number of bytes in binary units, as in ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration(seconds: float) -> str:
    """Return a time in at most two units, as in ``2 min 5 s``."""
    if seconds < 0.95:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, smaller, smaller_size in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def fixed(value: float) -> str:
    """Return a rate with four decimals."""
    return f"{value:.4f}" if math.isfinite(value) else "-"


def counted(count: int, one: str) -> str:
    """Return a count with its noun, as in ``1 block`` and ``2 blocks``."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the hint of a message on an unknown name: the nearest known name, or nothing if none is near."""
    near = get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def nearest_or_all(name: object, known: Iterable[str]) -> str:
    """Return the hint of a message on an unknown name: the nearest known name, or all names if none is near."""
    names = list(known)
    return did_you_mean(name, names) or f"; known are {', '.join(names)}"


def shown(value: object) -> str:
    """Return a value as text for people; long lists are cut."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {shown(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        head = ", ".join(map(shown, value[:MOST_ITEMS])) or "none"
        return head if len(value) <= MOST_ITEMS else f"{head}, ... ({len(value)} in all)"
    return str(value)


def plain(value: Any) -> Any:
    """Return a value for JSON: numpy scalars and arrays as plain values, NaN and infinities as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int):
        return value
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
