"""The rows of a sample in parts: every row in one of them, in full tiles, spread over the blocks."""

from __future__ import annotations

from functools import reduce
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.scheduler.protocol import selected_rows
from distkern.scheduler.protocol.selected_rows import SelectedRows, part_count


def sample(n: int, seed: int, *, weighted: bool = False, features: bool = True) -> SelectedRows:
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(10 * n + 1, n, replace=False)).astype(np.int64)
    return SelectedRows(
        rows,
        rng.standard_normal((n, 3)) if features else None,
        rng.standard_normal((n, 2)),
        rng.random(n) if weighted else None,
        rng.random(n) < 0.2,
    )


@given(st.integers(1, 200), st.integers(1, 30), st.integers(0, 99), st.booleans(), st.integers(3, 60))
def test_every_row_is_in_one_part(n: int, n_blocks: int, seed: int, weighted: bool, most: int) -> None:
    whole = sample(n, seed, weighted=weighted)
    n_fit = int(np.count_nonzero(~whole.held))
    with mock.patch.object(selected_rows, "PART_ROWS", most):
        parts = [whole.part(block, n_blocks) for block in range(n_blocks)]
        count = part_count(n_fit, n_blocks)
    filled = [part for part in parts if len(part.rows)]
    assert len(filled) <= count
    sizes = [int(np.count_nonzero(~part.held)) for part in filled]
    assert sum(sizes) == n_fit
    if n_fit >= count:
        assert max(sizes) - min(sizes) <= 1 or n_fit < count * 2
        assert max(sizes) <= most or count == n_blocks
    for part in filled:
        boundary = np.count_nonzero(~part.held)
        assert part.held[boundary:].all()  # training rows first, both kinds in ascending order
        assert (np.diff(part.rows[:boundary]) > 0).all()
        assert (np.diff(part.rows[boundary:]) > 0).all()
    joined = reduce(SelectedRows.merge, parts)
    order, expected = np.argsort(joined.rows), np.argsort(whole.rows)
    for name in ("rows", "features", "targets", "weights", "held"):
        found, wanted = getattr(joined, name), getattr(whole, name)
        assert (found is None) == (wanted is None)
        if wanted is not None:
            np.testing.assert_array_equal(found[order], wanted[expected])


@pytest.mark.parametrize(("n_blocks", "owners"), [(8, [0, 4]), (9, [0, 4]), (1, [0]), (2, [0, 1])])
def test_parts_are_spread_over_the_blocks(n_blocks: int, owners: list[int]) -> None:
    whole = sample(12, 0)
    whole.held[:] = False
    with mock.patch.object(selected_rows, "PART_ROWS", 6):
        assert [b for b in range(n_blocks) if len(whole.part(b, n_blocks).rows)] == owners


def test_rows_without_features_merge_to_rows_without_features() -> None:
    merged = sample(5, 0).merge(sample(4, 1, features=False))
    assert merged.features is None
    assert len(merged.rows) == len(merged.targets) == 9
