from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.scheduler.runtime.tree_reducer import TreeReducer


def add(left: Any, right: Any) -> Any:
    return left + right


def tree(values: list[Any], level: int, index: int) -> Any:
    """Value of a node, straight from the definition: left child, then right child if it has a leaf."""
    if level == 0:
        return values[index]
    left = tree(values, level - 1, 2 * index)
    right = (2 * index + 1) << (level - 1)
    return left + tree(values, level - 1, 2 * index + 1) if right < len(values) else left


def whole(values: list[Any]) -> Any:
    return tree(values, max(len(values) - 1, 0).bit_length(), 0)


def numbers(n: int, seed: int) -> list[float]:
    """Numbers whose sum depends on the order of the additions."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(n) * 10.0 ** rng.integers(-12, 12, n)).tolist()


leaves = st.integers(1, 70)
seeds = st.integers(0, 2**32 - 1)


@given(leaves, seeds, st.data())
def test_any_order_of_arrival_gives_the_sum_of_the_tree(n: int, seed: int, data: st.DataObject) -> None:
    values = numbers(n, seed)
    reducer = TreeReducer[float](n, add)
    for index in data.draw(st.permutations(range(n))):
        reducer.add(values[index], index)
    assert reducer.root().hex() == whole(values).hex()
    assert len(reducer.nodes()) == 1


@given(leaves, st.integers(1, 8), seeds, st.data())
def test_any_placement_gives_the_sum_of_the_tree(n: int, workers: int, seed: int, data: st.DataObject) -> None:
    values = numbers(n, seed)
    rng = np.random.default_rng(seed)
    owners = rng.integers(0, workers, n)
    if data.draw(st.booleans(), label="contiguous"):
        owners.sort()
    sent = []
    for worker in range(workers):
        local = TreeReducer[float](n, add)
        for index in rng.permutation(np.flatnonzero(owners == worker)):
            local.add(values[index], int(index))
        sent += list(local.nodes().items())
    driver = TreeReducer[float](n, add)
    rng.shuffle(sent)
    driver.add_nodes(dict(sent[: n // 2]))
    driver.add_nodes(sent[n // 2 :])
    assert driver.root().hex() == whole(values).hex()


@given(leaves, st.data())
def test_a_worker_sends_complete_subtrees_only(n: int, data: st.DataObject) -> None:
    mine = data.draw(st.sets(st.integers(0, n - 1)))
    reducer = TreeReducer[frozenset[int]](n, frozenset.union)
    for index in sorted(mine):
        reducer.add(frozenset([index]), index)
    covered = reducer.nodes()
    assert reduce(frozenset.union, covered.values(), frozenset()) == mine
    assert sum(map(len, covered.values())) == len(mine)
    for (level, index), block in covered.items():
        assert block == set(range(index << level, min((index + 1) << level, n)))


@given(leaves, st.data())
def test_a_missing_leaf_is_an_error(n: int, data: st.DataObject) -> None:
    missing = data.draw(st.integers(0, n - 1))
    reducer = TreeReducer[int](n, add)
    for index in set(range(n)) - {missing}:
        reducer.add(1, index)
    with pytest.raises(LookupError, match="incomplete"):
        reducer.root()
    reducer.add(1, missing)
    assert reducer.root() == n


def test_the_order_of_merging_is_left_to_right() -> None:
    reducer = TreeReducer[str](5, lambda left, right: f"({left}{right})")
    for index in (4, 2, 0, 3, 1):
        reducer.add("abcde"[index], index)
    assert reducer.root() == "(((ab)(cd))e)"


def test_a_merge_may_reuse_its_left_argument() -> None:
    values = [np.full(3, float(i)) for i in range(7)]
    reducer = TreeReducer[Any](7, lambda left, right: np.add(left, right, out=left))
    for index, value in enumerate(values):
        reducer.add(value.copy(), index)
    np.testing.assert_array_equal(reducer.root(), np.full(3, 21.0))
