"""Successive elimination changes neither the best setting nor its errors."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from distkern.scheduler.search.elimination import SuccessiveElimination

tables = st.tuples(st.integers(1, 7), st.integers(2, 6)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(0, 12).map(lambda k: k / 8))
)


def run(table: np.ndarray, most: int, *, leave_out: bool = True) -> tuple[SuccessiveElimination, int]:
    search = SuccessiveElimination(*table.shape, leave_out=leave_out)
    rounds = 0
    while models := search.next_models(range(len(table)), most):
        assert len(models) <= most
        assert len(set(models)) == len(models)
        assert not any(search.trained[model] for model in models)
        search.note(models, np.array([table[model] for model in models]))
        rounds += 1
    return search, rounds


@given(tables, st.integers(1, 20))
def test_the_choice_is_that_of_a_complete_search(table: np.ndarray, most: int) -> None:
    search, _ = run(table, most)
    best = int(np.argmin(table.mean(axis=1)))
    assert int(np.nanargmin(search.means())) == best
    assert search.trained[best].all()
    np.testing.assert_array_equal(search.errors[search.trained], table[search.trained])
    left_out = ~search.trained.all(axis=1)
    assert (search.means()[left_out] > table[best].mean()).all()
    assert (table[left_out].sum(axis=1) > table[best].sum()).all()


@given(tables, st.integers(1, 20))
def test_a_complete_search_leaves_nothing_out(table: np.ndarray, most: int) -> None:
    search, rounds = run(table, most, leave_out=False)
    np.testing.assert_array_equal(search.errors, table)
    assert rounds == -(-table.size // most)


def test_all_models_are_trained_at_once_where_they_have_room() -> None:
    table = np.array([[0.0, 0.0], [1.0, 1.0]])
    search, rounds = run(table, 4)
    assert rounds == 1
    assert search.trained.all()


def test_folds_of_hopeless_settings_are_left_out() -> None:
    table = np.array([[0.3, 0.3, 0.3, 0.3], [0.02, 0.01, 0.01, 0.02], [0.02, 0.02, 0.02, 0.02], [0.05, 0.05, 0.1, 0.1]])
    search, _ = run(table, 6)
    assert search.trained.sum(axis=1).tolist() == [1, 4, 4, 2]


def test_folds_without_rows_enter_no_mean() -> None:
    table = np.array([[0.2, np.nan, 0.1], [0.1, np.nan, 0.1], [0.5, np.nan, 0.5]])
    search, _ = run(table, 3)
    assert int(np.nanargmin(search.means())) == 1
    np.testing.assert_allclose(search.means()[1], 0.1)
