"""Limits of rounding, and the search for the longest prefix that agrees."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distkern as dk
from distkern.selection.rounding import in_deviations, longest_prefix, magnified, warn_of_rounding


def found(kept: int, full: int, together: int, agrees: Callable[[int], bool]) -> tuple[int, list[list[int]]]:
    """Run a search; return its result and what it asked for."""
    search = longest_prefix(kept, full, together)
    asked = [next(search)]
    while True:
        try:
            asked.append(search.send([agrees(length) for length in asked[-1]]))
        except StopIteration as end:
            return int(end.value), asked


@given(full=st.integers(1, 200), part=st.floats(0, 1), limit=st.integers(0, 220), together=st.integers(1, 60))
def test_the_longest_prefix_that_agrees(full: int, part: float, limit: int, together: int) -> None:
    kept = round(part * full)
    length, asked = found(kept, full, together, lambda n: n <= limit)
    assert length == min(limit, full)
    assert len(asked) == 1 or limit < full
    assert all(lengths == sorted(set(lengths)) and lengths[0] > 0 and lengths[-1] <= full for lengths in asked)


@given(data=st.data(), full=st.integers(1, 60), together=st.integers(1, 9))
def test_a_length_that_was_seen_to_agree(data: st.DataObject, full: int, together: int) -> None:
    good = {0, *data.draw(st.lists(st.integers(1, full)))}
    kept = data.draw(st.integers(0, full))
    length, asked = found(kept, full, together, good.__contains__)
    assert length in good
    assert length == 0 or any(length in lengths for lengths in asked) or length == full
    assert length >= kept or kept not in good


def test_what_a_unit_of_rounding_can_do() -> None:
    norms, weights = np.array([1.0, 0.5]), np.array([[1.0, 2.0, 0.0], [-4.0, 0.0, 0.0]])
    for dtype in ("float32", "float64"):
        moved = magnified(norms, weights, dtype)
        np.testing.assert_array_equal(moved, np.finfo(dtype).eps * np.array([3.0, 2.0, 0.0]))
        assert in_deviations(moved, np.array([2.0, 0.25, 0.0])) == np.finfo(dtype).eps * 8.0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kept", [None, 0, 7])
def test_the_warning_names_numbers_and_settings(dtype: str, kept: int | None) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_rounding(9, 1.234, kept, dtype)
    text = str(caught[0].message)
    assert caught[0].category is dk.RoundingWarning
    assert ("dtype='float64'" in text) == (dtype == "float32")
    assert all(
        part in text for part in ("9 centres", dtype, "by 1.2 standard deviations", "limit is 0.01", "smaller sigma")
    )
    assert "fewer centres" in text if kept is None else f"first {kept} centres" in text
