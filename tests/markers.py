"""Parameters of a test: what runs always, and what runs nightly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def variants(always: Iterable[Any], all_of_them: Iterable[Any]) -> list[Any]:
    """The first, and the others with the marker ``nightly``."""
    first = list(always)
    return [*first, *(nightly(values) for values in all_of_them if values not in first)]


def nightly(values: Any) -> Any:
    """One set of parameters that runs nightly."""
    return pytest.param(*(values if isinstance(values, tuple) else (values,)), marks=pytest.mark.nightly)
