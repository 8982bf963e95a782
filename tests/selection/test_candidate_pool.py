"""The candidate pool against forward selection that projects everything anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distkern.selection.candidate_pool import Pool
from distkern.selection.factors import finish_panel
from tests.references import error_reductions, greedy_error_reduction

Array = NDArray[Any]

seeds = st.integers(0, 2**32 - 1)
NO_ROWS = np.empty(0, dtype=np.int64)


class Candidates:
    """Kernel columns of candidates, a basis, and the pool that holds them orthogonalised."""

    def __init__(self, seed: int, n_candidates: int = 10, m: int = 3, n_targets: int = 2, spare: int = 3) -> None:
        rng = np.random.default_rng(seed)
        n = 40
        self.q, _ = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, m))]))
        self.q *= 10.0 ** rng.uniform(-1, 1, m + 1)
        self.columns = rng.standard_normal((n, n_candidates)) * 10.0 ** rng.uniform(-2, 2, n_candidates)
        self.targets = rng.standard_normal((n, n_targets))
        s = np.square(self.q).sum(axis=0)
        self.s = s
        self.residual = self.targets - self.q @ ((self.q.T @ self.targets) / (s + 0.1 * s.max())[:, None])
        self.pool = Pool(n_candidates + spare, m + 20, n_targets, 1e-14)
        self.slots = rng.permutation(n_candidates + spare)[:n_candidates]
        self.rows = 100 + rng.permutation(n_candidates)
        self.fill()

    def fill(self) -> None:
        coefficients = self.q.T @ self.columns / self.s[:, None]
        projected = np.zeros((len(self.q), self.pool.capacity))
        projected[:, self.slots] = self.columns - self.q @ coefficients
        self.projected = projected
        self.pool.insert(
            self.slots, self.rows, self.rows[:, None].astype(float), np.square(self.columns).sum(axis=0), coefficients
        )
        self.pool.merge_gram(
            self.slots, projected.T @ projected[:, self.slots], projected[:, self.slots].T @ self.residual
        )

    def number(self, slots: Array) -> list[int]:
        """Numbers of the candidates in some slots."""
        where = {int(slot): i for i, slot in enumerate(self.slots)}
        return [where[int(slot)] for slot in slots]


def test_pool_starts_empty() -> None:
    pool = Pool(4, 5, 2, 1e-14)
    assert not pool.active.any()
    np.testing.assert_array_equal(pool.scores(), np.full(4, -np.inf))
    assert pool.drop_dependent() == 0
    panel = pool.pick(3)
    assert panel.slots.shape == (0,)
    assert panel.lower.shape == (0, 0)
    assert panel.multipliers.shape == (0, 4)


@given(seeds, st.integers(0, 4), st.integers(1, 12), st.integers(1, 3))
def test_picks_equal_dense_forward_selection(seed: int, m: int, count: int, n_targets: int) -> None:
    given_ = Candidates(seed, m=m, n_targets=n_targets)
    expected = greedy_error_reduction(given_.columns, given_.q, given_.targets, count)
    for i in range(len(expected)):
        basis = np.column_stack([given_.q, given_.columns[:, expected[:i]]])
        gains = np.sort(np.delete(error_reductions(given_.columns, basis, given_.targets), expected[:i]))
        assume(len(gains) < 2 or gains[-1] - gains[-2] > 1e-6 * gains[-1])
    panel = given_.pool.pick(count)
    assert given_.number(panel.slots) == expected
    assert len(panel.slots) == min(count, 10)


@given(seeds, st.integers(1, 8))
def test_scores_and_products_after_elimination_are_those_of_projections_anew(seed: int, count: int) -> None:
    given_ = Candidates(seed)
    np.testing.assert_allclose(
        given_.pool.scores()[given_.slots], error_reductions(given_.columns, given_.q, given_.targets), rtol=1e-9
    )
    before = given_.projected.copy()
    panel = given_.pool.pick(count)
    picked = given_.number(panel.slots)

    formed = before[:, panel.slots] @ np.linalg.inv(panel.lower)
    lengths = np.linalg.norm(formed, axis=0)
    np.testing.assert_allclose(formed.T @ formed / np.outer(lengths, lengths), np.eye(count), atol=1e-11)
    np.testing.assert_array_equal(np.tril(panel.lower), np.eye(count))
    np.testing.assert_array_equal(panel.multipliers[:, panel.slots], 0.0)

    given_.pool.clear(panel.slots)
    left = np.setdiff1d(given_.slots, panel.slots)
    basis, _ = np.linalg.qr(np.column_stack([given_.q, given_.columns[:, picked]]))
    anew = given_.columns[:, given_.number(left)]
    sizes = np.linalg.norm(anew, axis=0)
    anew = anew - basis @ (basis.T @ anew)
    np.testing.assert_allclose(
        (before[:, left] - formed @ panel.multipliers[:, left] - anew) / sizes, 0.0, atol=1e-12, rtol=0
    )
    gram = given_.pool.gram[np.ix_(left, left)]
    np.testing.assert_allclose((gram - anew.T @ anew) / np.outer(sizes, sizes), 0.0, atol=1e-12)
    norms = np.linalg.norm(given_.targets, axis=0)
    np.testing.assert_allclose(
        (given_.pool.products[left] - anew.T @ given_.targets) / np.outer(sizes, norms), 0.0, atol=1e-12
    )
    np.testing.assert_allclose((gram - gram.T) / np.outer(sizes, sizes), 0.0, atol=1e-14)


def test_a_duplicate_is_never_picked_beside_its_twin() -> None:
    given_ = Candidates(3)
    given_.columns[:, 7] = given_.columns[:, 2]
    given_.columns[:, 8] = 2 * given_.columns[:, 2] - given_.columns[:, 5]
    given_.fill()
    panel = given_.pool.pick(10)
    assert len(panel.slots) == 8
    given_.pool.clear(panel.slots)
    assert given_.pool.drop_dependent() == 2
    assert not given_.pool.active.any()


def test_drop_dependent_empties_what_lies_in_the_basis() -> None:
    given_ = Candidates(0)
    given_.columns[:, 4] = given_.q @ np.arange(1.0, 5.0)
    given_.fill()
    assert given_.pool.drop_dependent() == 1
    slot = given_.slots[4]
    assert given_.pool.rows[slot] == -1
    assert given_.pool.features[slot] is None
    assert not given_.pool.gram[slot].any()
    assert not given_.pool.gram[:, slot].any()
    assert not given_.pool.products[slot].any()
    assert given_.pool.drop_dependent() == 0


def uncorrelated(features: list[list[float]], rows: list[int], products: list[float]) -> Pool:
    """Return a pool of unit candidates that know nothing of each other."""
    n = len(rows)
    pool = Pool(n, 2, 1, 1e-14)
    slots = np.arange(n)
    pool.insert(slots, np.array(rows), np.array(features), np.ones(n), np.zeros((1, n)))
    pool.merge_gram(slots, np.eye(n), np.array(products)[:, None])
    return pool


def test_equal_scores_are_ordered_by_features_then_row() -> None:
    pool = uncorrelated([[2.0, 0.0], [1.0, 5.0], [1.0, 3.0], [1.0, 3.0]], [1, 2, 9, 4], [1.0, -1.0, 1.0, 1.0])
    np.testing.assert_array_equal(pool.pick(4).slots, [3, 2, 1, 0])


def test_scores_that_agree_to_rounding_are_equal() -> None:
    pool = uncorrelated([[2.0], [1.0]], [0, 1], [1.0 + 1e-13, 1.0])
    np.testing.assert_array_equal(pool.pick(1).slots, [1])


def test_scores_that_clearly_differ_are_not_equal() -> None:
    pool = uncorrelated([[2.0], [1.0]], [0, 1], [1.0 + 1e-8, 1.0])
    np.testing.assert_array_equal(pool.pick(1).slots, [0])


def test_a_pool_without_products_still_picks_by_features() -> None:
    """A fit that is exact leaves scores of zero: the order is defined all the same."""
    pool = uncorrelated([[2.0], [1.0], [3.0]], [0, 1, 2], [0.0, 0.0, 0.0])
    np.testing.assert_array_equal(pool.pick(3).slots, [1, 0, 2])


def test_free_slots_are_taken_first() -> None:
    pool = uncorrelated([[0.0]] * 4, [3, 1, 2, 0], [4.0, 3.0, 2.0, 1.0])
    pool.clear(np.array([0, 2]))
    slots, released = pool.free_slots(2)
    np.testing.assert_array_equal(slots, [0, 2])
    np.testing.assert_array_equal(released, NO_ROWS)


def test_free_slots_evict_the_lowest_scores() -> None:
    pool = uncorrelated([[0.0]] * 5, [3, 1, 2, 0, 7], [4.0, 1.0, 3.0, 2.0, 5.0])
    pool.clear(np.array([4]))
    slots, released = pool.free_slots(3)
    np.testing.assert_array_equal(slots, [4, 1, 3])
    np.testing.assert_array_equal(released, [1, 0])
    np.testing.assert_array_equal(pool.rows, [3, -1, 2, -1, -1])
    assert not pool.products[[1, 3]].any()


def test_free_slots_break_ties_by_row() -> None:
    pool = uncorrelated([[0.0]] * 3, [9, 5, 7], [1.0, 1.0, 1.0])
    slots, released = pool.free_slots(1)
    np.testing.assert_array_equal(slots, [1])
    np.testing.assert_array_equal(released, [5])


def test_free_slots_for_no_candidates() -> None:
    pool = uncorrelated([[0.0]] * 2, [0, 1], [1.0, 1.0])
    slots, released = pool.free_slots(0)
    assert len(slots) == len(released) == 0


@given(seeds, st.sampled_from([1e-14, 1.0]))
def test_a_round_leaves_the_survivors_expressed_in_the_new_basis(seed: int, dependent: float) -> None:
    """Pick, form, finish, give back, absorb: with all columns kept, and with about half of them dropped."""
    given_ = Candidates(seed)
    pool, q = given_.pool, given_.q
    panel = pool.pick(4)
    norms = pool.norms[panel.slots].copy()
    if dependent == 1.0:
        # A limit in the middle of the panel's own sizes, whatever they are.
        formed_norms = np.square(given_.projected[:, panel.slots] @ np.linalg.inv(panel.lower)).sum(axis=0)
        dependent = float(np.median(formed_norms / norms))
    pool.clear(panel.slots)
    formed = given_.projected[:, panel.slots] @ np.linalg.inv(panel.lower)
    survivors = given_.projected - formed @ panel.multipliers
    gram, products = formed.T @ formed, formed.T @ given_.residual
    update = finish_panel(q.T @ formed, gram, products, given_.s, q.T @ given_.residual, panel.lower, norms, dependent)
    if update.restore is not None:
        restored = update.restore @ panel.multipliers
        pool.restore(restored, panel)
        survivors = survivors + formed @ restored
    pool.absorb(panel.multipliers, update.correct, update.survivors)

    new = formed @ update.combine - q @ update.correct
    basis = np.column_stack([q, new])
    left = np.flatnonzero(pool.active)
    columns = given_.columns[:, given_.number(left)]
    sizes = np.linalg.norm(columns, axis=0)
    held = survivors[:, left]
    rebuilt = basis @ pool.coefficients[: basis.shape[1], left] + held
    np.testing.assert_allclose((rebuilt - columns) / sizes, 0.0, atol=1e-11)
    np.testing.assert_allclose(basis.T @ held / np.outer(np.linalg.norm(basis, axis=0), sizes), 0.0, atol=1e-11)
    np.testing.assert_allclose(
        (pool.gram[np.ix_(left, left)] - held.T @ held) / np.outer(sizes, sizes), 0.0, atol=1e-11
    )
    # E after the new columns were fitted: their part of the survivors is gone, so R does not change by it.
    residual = given_.residual - new @ (update.z / (0.3 + update.s)[:, None])
    np.testing.assert_allclose(
        (pool.products[left] - held.T @ residual) / np.outer(sizes, np.linalg.norm(given_.targets, axis=0)),
        0.0,
        atol=1e-11,
    )


def test_replace_gram_keeps_empty_slots_empty() -> None:
    given_ = Candidates(1)
    pool = given_.pool
    rng = np.random.default_rng(0)
    gram, products = rng.standard_normal((13, 13)), rng.standard_normal((13, 2))
    pool.replace_gram(gram, products)
    active = pool.active
    np.testing.assert_array_equal(pool.gram, np.where(np.outer(active, active), (gram + gram.T) / 2, 0.0))
    np.testing.assert_array_equal(pool.products, np.where(active[:, None], products, 0.0))


def test_replace_gram_with_the_truth_changes_nothing() -> None:
    given_ = Candidates(1)
    pool = given_.pool
    gram, products = pool.gram.copy(), pool.products.copy()
    pool.replace_gram(given_.projected.T @ given_.projected, given_.projected.T @ given_.residual)
    np.testing.assert_allclose(pool.gram, gram, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(pool.products, products, rtol=1e-12, atol=1e-12)


def test_merge_gram_leaves_the_other_candidates_alone() -> None:
    given_ = Candidates(2)
    pool = given_.pool
    gram, products = pool.gram.copy(), pool.products.copy()
    rng = np.random.default_rng(5)
    column = rng.standard_normal((40, 2))
    slots = np.flatnonzero(~pool.active)[:2]
    coefficients = given_.q.T @ column / given_.s[:, None]
    new = column - given_.q @ coefficients
    given_.projected[:, slots] = new
    pool.insert(slots, np.array([7, 8]), np.zeros((2, 1)), np.square(column).sum(axis=0), coefficients)
    pool.merge_gram(slots, given_.projected.T @ new, new.T @ given_.residual)
    others = given_.slots
    np.testing.assert_array_equal(pool.gram[np.ix_(others, others)], gram[np.ix_(others, others)])
    np.testing.assert_array_equal(pool.products[others], products[others])
    np.testing.assert_allclose(pool.gram[np.ix_(slots, slots)], new.T @ new)
    np.testing.assert_array_equal(pool.gram, pool.gram.T)
    np.testing.assert_array_equal(pool.coefficients[4:, slots], 0.0)


@pytest.mark.parametrize("count", [0, 1])
def test_pick_returns_at_most_what_is_asked(count: int) -> None:
    assert len(Candidates(0).pool.pick(count).slots) == count
