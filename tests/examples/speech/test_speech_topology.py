"""Networks of words: what may follow what, and with what weight."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.speech.topology import (
    N_DIGITS,
    N_STATES,
    SILENCE,
    SILENCE_STATES,
    WORD_STATES,
    Network,
    forced,
    loop,
    states_of,
    words_of,
)

STAY = np.random.default_rng(0).uniform(0.3, 0.9, N_STATES)

words = st.lists(st.integers(0, N_DIGITS - 1), min_size=1, max_size=6)


def followers(network: Network, node: int) -> set[int]:
    return set(np.flatnonzero(network.moves[node])) - {node}


def walks(network: Network) -> set[tuple[int, ...]]:
    """Nodes of every way through a network without cycles, from its beginnings to its ends."""
    found = set()
    left = [(int(node),) for node in np.flatnonzero(network.start)]
    while left:
        walk = left.pop()
        if network.ends[walk[-1]]:
            found.add(walk)
        left += [(*walk, int(node)) for node in followers(network, walk[-1])]
    return found


def spelled(words_and_pauses: list[int]) -> tuple[int, ...]:
    return tuple(state for word in words_and_pauses for state in states_of(word))


def test_states_are_divided_among_the_digits_and_silence() -> None:
    numbered = [state for word in [*range(N_DIGITS), SILENCE] for state in states_of(word)]
    assert numbered == list(range(N_STATES))
    assert {len(states_of(digit)) for digit in range(N_DIGITS)} == {WORD_STATES}
    assert len(states_of(SILENCE)) == SILENCE_STATES
    assert N_STATES >= 80


@given(spoken=st.lists(st.integers(0, N_DIGITS - 1), min_size=1, max_size=4))
def test_a_forced_path_passes_all_states_in_order_with_pauses_between_or_not(spoken: list[int]) -> None:
    network = forced(spoken, STAY)
    expected = set()
    for pauses in range(1 << (len(spoken) - 1)):
        chain = [SILENCE]
        for i, word in enumerate(spoken):
            chain.append(word)
            if i + 1 == len(spoken) or pauses >> i & 1:
                chain.append(SILENCE)
        expected.add(spelled(chain))
    assert {tuple(int(network.states[node]) for node in walk) for walk in walks(network)} == expected


@given(spoken=words)
def test_weights_of_a_forced_network_sum_to_1_but_at_its_end(spoken: list[int]) -> None:
    network = forced(spoken, STAY)
    assert network.start.sum() == 1
    np.testing.assert_allclose(network.moves[:-1].sum(axis=1), 1)
    np.testing.assert_allclose(np.diag(network.moves), STAY[network.states])
    assert network.ends.tolist() == [False] * (len(network.states) - 1) + [True]


@pytest.mark.parametrize("penalty", [0.0, 3.0])
def test_the_loop_goes_from_the_end_of_each_word_to_the_beginning_of_any(penalty: float) -> None:
    network = loop(STAY, penalty)
    first = {word: states_of(word)[0] for word in [*range(N_DIGITS), SILENCE]}
    for word in first:
        for state, following in pairwise(states_of(word)):
            assert followers(network, state) == {following}
            assert network.moves[state, following] == pytest.approx(1 - STAY[state])
        last = states_of(word)[-1]
        may_follow = set(first.values()) - ({first[SILENCE]} if word == SILENCE else set())
        assert followers(network, last) == may_follow
        assert network.moves[last, first[3]] == pytest.approx((1 - STAY[last]) * np.exp(-penalty) / 20)
        if word != SILENCE:
            assert network.moves[last, first[SILENCE]] == pytest.approx((1 - STAY[last]) / 2)
    assert set(np.flatnonzero(network.start)) == set(first.values())
    assert set(np.flatnonzero(network.ends)) == {states_of(word)[-1] for word in first}
    np.testing.assert_allclose(np.diag(network.moves), STAY)


def test_without_a_penalty_weights_at_the_end_of_a_word_sum_to_1() -> None:
    network = loop(STAY, 0.0)
    assert network.start.sum() == pytest.approx(1)
    for digit in range(N_DIGITS):
        assert network.moves[states_of(digit)[-1]].sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("chain", "spoken"),
    [
        ([SILENCE], ()),
        ([4], (4,)),
        ([SILENCE, 0, SILENCE], (0,)),
        ([SILENCE, 3, 9, SILENCE], (3, 9)),
        ([7, 7, 7], (7, 7, 7)),
        ([9, SILENCE, 9, SILENCE, 0], (9, 9, 0)),
    ],
)
@pytest.mark.parametrize("frames_each", [1, 3])
def test_words_of_a_path(chain: list[int], spoken: tuple[int, ...], frames_each: int) -> None:
    assert words_of(np.repeat(spelled(chain), frames_each)) == spoken


@given(spoken=words, lengths=st.randoms(use_true_random=False), pauses=st.lists(st.booleans(), min_size=7, max_size=7))
def test_words_of_any_path_through_words(spoken: list[int], lengths: object, pauses: list[bool]) -> None:
    chain = []
    for word, pause in zip(spoken, pauses, strict=False):
        chain += [SILENCE, word] if pause else [word]
    path = [state for state in spelled(chain) for _ in range(lengths.randint(1, 5))]  # type: ignore[attr-defined]
    assert words_of(np.array(path)) == tuple(spoken)
