"""Text for people, and values as JSON holds them: one form for one quantity, wherever it is shown.

Covers sizes, times, counts, values of any type and the nearest known name. What a single place shows in its own way,
such as the typography of a report, is formatted there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

MOST_ITEMS = 12
"""Items of a list that are shown."""


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


def counted(count: int, one: str) -> str:
    """Return a count with its noun, as in ``1 block`` and ``2 blocks``."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return what a message adds to an unknown name: the nearest known one, or nothing where none is near."""
    near = get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def nearest_or_all(name: object, known: Iterable[str]) -> str:
    """Return what a message adds to an unknown name: the nearest known one, or all of them where none is near."""
    names = list(known)
    return did_you_mean(name, names) or f"; known are {', '.join(names)}"


def shown(value: object) -> str:
    """Return a value as a person reads it; long lists are cut."""
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
    """Return a value as JSON can hold it: numpy scalars and arrays unwrapped, NaN and infinities as None."""
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
