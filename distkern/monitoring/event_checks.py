"""Checks of recorded events: a run directory may be damaged, or come from another source."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from .events import EVENTS

_MOST = 1e15
"""Largest count or time of a valid event."""

_UNKNOWN = ("lambda_", "gcv", "residual_max")
"""Numbers that are null in the events of a path without steps."""

_NUMBERS = {
    name: [entry.name for entry in fields(kind) if entry.type in ("int", "float") and entry.name not in _UNKNOWN]
    for name, kind in EVENTS.items()
}
_LISTS = {"WorkerLost": "blocks", "BlocksReplayed": "blocks"}
_NEEDED = {"RoundDone": ("n_centers",), "MetricRoundDone": ("round", "factor", "error", "rounds")}
"""Numbers without which an event is of no use."""
_TEXTS = {"MetricRoundDone": ("kernel", "shape")}


def finite(value: object, most: float = _MOST) -> float | None:
    """Return a JSON number whose absolute value is at most `most` (default 1e15); None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Integers of JSON may be larger than any float.
    return value if abs(value) <= min(most, sys.float_info.max) else None


def usable(record: Mapping[str, Any]) -> bool:
    """Return whether a recorded event has a valid value in every field that is read."""
    kind = record.get("event")
    if not isinstance(kind, str):
        return False
    numbers = _NUMBERS.get(kind, ["timestamp"])
    if any(name in record and finite(record[name]) is None for name in numbers):
        return False
    if any(finite(record.get(name)) is None for name in _NEEDED.get(kind, ())):
        return False
    if not all(isinstance(record.get(name), str) for name in _TEXTS.get(kind, ())):
        return False
    if any(abs(value) > _MOST for value in record.values() if isinstance(value, int)):
        return False
    name = _LISTS.get(kind)
    if name is not None and not isinstance(record.get(name), list | tuple):
        return False
    return kind != "ExchangeDone" or _costs_usable(record)


def _costs_usable(record: Mapping[str, Any]) -> bool:
    """Return whether the seconds of each phase and the bytes of each worker are numbers."""
    busy, memory = record.get("busy") or {}, record.get("memory") or {}
    if not isinstance(busy, Mapping) or not isinstance(memory, Mapping):
        return False
    return all(
        isinstance(found, Mapping) and all(finite(value) is not None for value in found.values())
        for found in (busy, *memory.values())
    )
