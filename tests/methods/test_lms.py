"""LMS in groups against one row after another."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.methods.lms import GROUP, LMSRule, LMSState
from tests.linear_references import augmented, lms

SETTINGS = st.tuples(
    st.floats(1e-3, 3.0), st.sampled_from(["pass", "row", "constant"]), st.booleans(), st.integers(0, 2**32 - 1)
)


def data(seed: int, whole_weights: bool = True):
    rng = np.random.default_rng(seed)
    n, d, n_targets = rng.integers(1, 3 * GROUP), rng.integers(1, 6), rng.integers(1, 4)
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-1, 2)
    weights = rng.integers(0, 4, n).astype(float) if whole_weights else rng.random(n)
    return X, rng.choice([-1.0, 1.0], (n, n_targets)), weights


def run(X, targets, weights, rule: LMSRule, passes: int, cuts) -> LMSState:
    state = LMSState.start(np.zeros((X.shape[1] + 1, targets.shape[1])))
    for number in range(1, passes + 1):
        for a, b in pairwise(cuts):
            state = state.advance(X[a:b].copy(), targets[a:b].copy(), weights[a:b].copy(), rule, number)
        state = state.finish(rule, number)
    return state


@given(SETTINGS)
def test_groups_are_the_sequence_of_steps(setting) -> None:
    rate, schedule, normalized, seed = setting
    X, targets, weights = data(seed)
    rates = {"pass": lambda k, _: rate / k, "row": lambda _, k: rate / k, "constant": lambda _, __: rate}
    state = run(X, targets, weights, LMSRule(rate, schedule, normalized), 3, [0, len(X)])
    expected = lms(augmented(X), targets, weights, rates[schedule], normalized, 3)
    np.testing.assert_allclose(state.weights, expected, atol=1e-9 * max(1.0, np.abs(expected).max()))
    assert state.seen == 3 * weights.sum()
    assert not len(state.rows)


@given(SETTINGS, st.lists(st.integers(0, 3 * GROUP), max_size=8))
def test_pieces_of_any_size_give_the_same_bits(setting, cuts) -> None:
    rate, schedule, normalized, seed = setting
    X, targets, weights = data(seed, whole_weights=False)
    n = len(X)
    rule = LMSRule(rate, schedule, normalized)
    whole = run(X, targets, weights, rule, 2, [0, n])
    pieces = run(X, targets, weights, rule, 2, [0, *sorted(min(c, n) for c in cuts), n])
    assert whole.weights.tobytes() == pieces.weights.tobytes()
    assert whole.seen == pieces.seen


def test_rows_of_weight_zero_take_no_step_whatever_they_hold() -> None:
    X, targets, weights = data(3)
    weights[::2] = 0.0
    wild = X.copy()
    wild[::2] = 1e200
    rule = LMSRule(0.1, "pass", False)
    a, b = (run(rows, targets, weights, rule, 2, [0, len(X)]) for rows in (X, wild))
    np.testing.assert_array_equal(a.weights, b.weights)


@pytest.mark.parametrize("normalized", [True, False])
def test_no_row_makes_it_diverge(normalized: bool) -> None:
    X, targets, weights = data(5)
    X[len(X) // 2] *= 1e6
    state = run(X, targets, weights, LMSRule(1e3, "constant", normalized), 20, [0, len(X)])
    assert np.abs(state.weights).max() < 1e4


def test_it_converges_to_least_squares() -> None:
    rng = np.random.default_rng(7)
    X = rng.standard_normal((200, 3))
    targets = np.where(X[:, :1] + rng.standard_normal((200, 1)) > 0, 1.0, -1.0)
    expected = np.linalg.lstsq(augmented(X), targets, rcond=None)[0]
    errors = [
        np.abs(run(X, targets, np.ones(200), LMSRule(0.1, "pass", False), passes, [0, 200]).weights - expected).max()
        for passes in (5, 50, 500)
    ]
    assert errors[0] > 3 * errors[1] > 9 * errors[2]
    assert errors[2] < 1e-3
