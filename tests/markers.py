"""Parameters of a test: what runs always, and what runs with a marker only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest


def marked(mark: Any, *parameters: Any) -> list[Any]:
    """Parameters of runs with a marker."""
    return [pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=mark) for each in parameters]


def variants(always: Iterable[Any], every: Iterable[Any]) -> list[Any]:
    """The first; all others are nightly."""
    first = list(always)
    return [*first, *marked(pytest.mark.nightly, *(values for values in every if values not in first))]


def every_value(*parameters: Iterable[Any]) -> list[Any]:
    """Combinations in which every value of every parameter occurs; all the others are nightly."""
    lists: list[Sequence[Any]] = [list(values) for values in parameters]
    count = max(map(len, lists))
    # After a turn through a list its neighbour is a place ahead, or two lists of even length would never mix.
    first = [tuple(values[(i + i // len(values)) % len(values)] for values in lists) for i in range(count)]
    rest = [combination for combination in product(*lists) if not any(same(combination, other) for other in first)]
    return [*first, *marked(pytest.mark.nightly, *rest)]


def same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return all(x is y for x, y in zip(a, b, strict=True))


def name_of(value: Any) -> str:
    """A short name for a class or function among parameters, and the text of anything else."""
    return value.__name__ if hasattr(value, "__name__") else str(value)
