"""Best paths against all paths and against a plain Viterbi search; words that were planted are found."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.speech.decoder import Decoder, StatePath, best_path
from examples.speech.topology import N_DIGITS, N_STATES, SILENCE, Network, forced, loop, states_of, words_of

STAY = np.full(N_STATES, 0.6)


def log(weights: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(weights)


def score_of(network: Network, scores: np.ndarray, nodes: tuple[int, ...]) -> float:
    """Of one path, as the definition says."""
    if not network.ends[nodes[-1]]:
        return -np.inf
    total = log(network.start)[nodes[0]] + sum(scores[t, network.states[node]] for t, node in enumerate(nodes))
    return float(total + sum(log(network.moves)[nodes[t - 1], nodes[t]] for t in range(1, len(nodes))))


def best_of_all(network: Network, scores: np.ndarray) -> float:
    nodes = range(len(network.states))
    return max(score_of(network, scores, path) for path in product(nodes, repeat=len(scores)))


def viterbi(network: Network, scores: np.ndarray) -> StatePath:
    """Frame by frame, in logarithms."""
    moves, best = log(network.moves), log(network.start) + scores[0, network.states]
    came_from = []
    for row in scores[1:]:
        came_from.append((best[:, None] + moves).argmax(axis=0))
        best = (best[:, None] + moves).max(axis=0) + row[network.states]
    best = np.where(network.ends, best, -np.inf)
    path = [int(best.argmax())]
    for previous in reversed(came_from):
        path.insert(0, int(previous[path[0]]))
    return StatePath(float(best.max()), network.states[path])


@st.composite
def networks(draw: st.DrawFn, most_nodes: int) -> Network:
    """Any nodes and weights, some of them 0; some way from the start to an end is always there."""
    n = draw(st.integers(1, most_nodes))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    moves = rng.uniform(0, 2, (n, n)) * (rng.random((n, n)) < 0.6)
    np.fill_diagonal(moves, 0.5)
    start, ends = rng.uniform(0, 1, n) * (rng.random(n) < 0.6), rng.random(n) < 0.5
    start[0], ends[0] = 0.5, True
    return Network(rng.integers(0, 4, n), start, moves, ends)


def drawn_scores(n_frames: int, n_states: int, seed: int) -> np.ndarray:
    return 3 * np.random.default_rng(seed).standard_normal((n_frames, n_states))


@given(network=networks(4), n_frames=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_no_path_is_better_than_the_best(network: Network, n_frames: int, seed: int) -> None:
    scores = drawn_scores(n_frames, 4, seed)
    assert best_path(network, scores).score == pytest.approx(best_of_all(network, scores))


@given(network=networks(12), n_frames=st.integers(1, 60), seed=st.integers(0, 10_000))
def test_the_best_path_is_that_of_a_plain_search(network: Network, n_frames: int, seed: int) -> None:
    scores = drawn_scores(n_frames, 4, seed)
    found, expected = best_path(network, scores), viterbi(network, scores)
    assert found.score == pytest.approx(expected.score)
    if len(set(network.states)) == len(network.states):  # else two paths of nodes may be equally good
        np.testing.assert_array_equal(found.states, expected.states)


@given(spoken=st.lists(st.integers(0, 9), min_size=1, max_size=3), more=st.integers(0, 60), seed=st.integers(0, 10_000))
def test_forced_paths_pass_all_states_of_the_words_and_begin_and_end_in_silence(
    spoken: list[int], more: int, seed: int
) -> None:
    scores = drawn_scores(6 + 11 * len(spoken) + more, N_STATES, seed)
    found, network = best_path(forced(spoken, STAY), scores), forced(spoken, STAY)
    expected = viterbi(network, scores)
    assert found.score == pytest.approx(expected.score)
    passed = found.states[np.flatnonzero(np.diff(found.states, prepend=-1))].tolist()
    assert passed[:3] == passed[-3:] == list(states_of(SILENCE))
    without_pauses = [state for state in passed if state not in states_of(SILENCE)]
    assert without_pauses == [state for word in spoken for state in states_of(word)]
    assert words_of(found.states) == tuple(spoken)


@given(penalty=st.sampled_from([0.0, 5.0, 100.0]), n_frames=st.integers(8, 50), seed=st.integers(0, 10_000))
def test_paths_through_the_loop_are_those_of_a_plain_search(penalty: float, n_frames: int, seed: int) -> None:
    scores, network = drawn_scores(n_frames, N_STATES, seed), loop(STAY, penalty)
    found, expected = best_path(network, scores), viterbi(network, scores)
    assert found.score == pytest.approx(expected.score)
    np.testing.assert_array_equal(found.states, expected.states)


def test_scores_are_left_as_they_are_and_may_be_infinitely_low() -> None:
    scores = drawn_scores(30, N_STATES, 0)
    scores[:, 5] = -np.inf
    before = scores.copy()
    found = best_path(loop(STAY, 0.0), scores)
    np.testing.assert_array_equal(scores, before)
    assert 5 not in found.states


def planted(chain: list[int], frames_each: int = 2, contrast: float = 8.0, seed: int = 0) -> np.ndarray:
    """Scores that favour the states of some words, pauses among them, with noise."""
    path = np.repeat([state for word in chain for state in states_of(word)], frames_each)
    scores = np.random.default_rng(seed).standard_normal((len(path), N_STATES))
    scores[np.arange(len(path)), path] += contrast
    return scores


class Given:
    """Emission scores that are the inputs themselves."""

    def __call__(self, frames: np.ndarray) -> np.ndarray:
        return frames


@pytest.mark.parametrize(
    ("chain", "spoken"),
    [
        ([SILENCE, 1, SILENCE], (1,)),
        ([SILENCE, 1, 2, 3, SILENCE], (1, 2, 3)),
        ([SILENCE, 5, 5, SILENCE, 5, SILENCE], (5, 5, 5)),
        ([9, 8, SILENCE, 0, 0], (9, 8, 0, 0)),
        ([SILENCE], ()),
    ],
)
def test_the_loop_finds_planted_words(chain: list[int], spoken: tuple[int, ...]) -> None:
    assert Decoder(Given(), STAY, penalty=5.0).string(planted(chain)) == spoken


@given(spoken=st.lists(st.integers(0, 9), min_size=1, max_size=7), seed=st.integers(0, 10_000))
def test_any_planted_words_are_found(spoken: list[int], seed: int) -> None:
    chain = [SILENCE, *(part for word in spoken for part in (word, SILENCE))]
    assert Decoder(Given(), STAY, penalty=3.0).string(planted(chain, seed=seed)) == tuple(spoken)


@pytest.mark.parametrize("digit", range(N_DIGITS))
def test_a_planted_digit_is_found(digit: int) -> None:
    assert Decoder(Given(), STAY).digit(planted([SILENCE, digit, SILENCE])) == digit


def test_a_digit_is_the_one_of_the_best_forced_path() -> None:
    decoder = Decoder(Given(), STAY)
    for seed in range(20):
        scores = drawn_scores(25, N_STATES, seed)
        best = max(range(N_DIGITS), key=lambda digit: viterbi(forced([digit], STAY), scores).score)
        assert decoder.digit(scores) == best


@given(seed=st.integers(0, 10_000), contrast=st.sampled_from([0.0, 1.0, 3.0]))
def test_a_larger_penalty_never_gives_more_words(seed: int, contrast: float) -> None:
    scores = planted([SILENCE, 2, 7, SILENCE, 7, SILENCE], contrast=contrast, seed=seed)
    counts = [len(Decoder(Given(), STAY, penalty).string(scores)) for penalty in (-5.0, 0.0, 2.0, 8.0, 30.0, 200.0)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_the_penalty_is_taken_once_a_word() -> None:
    scores = planted([SILENCE, 2, 7, SILENCE, 7, SILENCE], contrast=20.0)
    free, penalised = (best_path(loop(STAY, penalty), scores) for penalty in (0.0, 4.0))
    np.testing.assert_array_equal(free.states, penalised.states)
    assert free.score - penalised.score == pytest.approx(3 * 4.0)
