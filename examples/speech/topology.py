"""Whole-word left-to-right models, and the networks of their states that a decoder searches.

Digit d has the states ``d * WORD_STATES`` to ``(d + 1) * WORD_STATES - 1``; silence has the last ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_DIGITS = 10
WORD_STATES = 8
SILENCE_STATES = 3
SILENCE = N_DIGITS
"""Number of the silence model, after the digits."""

N_STATES = N_DIGITS * WORD_STATES + SILENCE_STATES


def states_of(word: int) -> range:
    """Return the states of a digit, or of silence."""
    first = word * WORD_STATES
    return range(first, first + (SILENCE_STATES if word == SILENCE else WORD_STATES))


@dataclass(frozen=True)
class Network:
    """Nodes, each for a state of a word, and the weights of moves from node to node.

    Parameters
    ----------
    states : array of int, shape (N,)
        State of each node.
    start, moves : array, shape (N,) and (N, N)
        Weights of a start in a node, and of a move from one node to another.
    ends : array of bool, shape (N,)
        Whether an utterance may end in a node.
    """

    states: NDArray[np.intp]
    start: NDArray[np.float64]
    moves: NDArray[np.float64]
    ends: NDArray[np.bool_]


def forced(words: Sequence[int], stay: NDArray[np.float64]) -> Network:
    """Return the network of some words in order, with silence at both ends and optionally between words.

    Parameters
    ----------
    words : sequence of int
        Spoken digits.
    stay : array, shape (N_STATES,)
        Probability that each state is followed by itself.
    """
    chain = [SILENCE]
    for word in words:
        chain += [word, SILENCE]
    states = np.concatenate([states_of(word) for word in chain])
    first = np.cumsum([0, *(len(states_of(word)) for word in chain)])
    moves = _left_to_right(states, stay)
    last = first[1:] - 1
    for i in range(len(chain) - 1):
        leave = 1 - stay[states[last[i]]]
        # From a word to the next one, with or without a pause.
        skip = 0.5 * leave if chain[i] != SILENCE and i + 2 < len(chain) else 0.0
        moves[last[i], first[i + 1]] = leave - skip
        if skip:
            moves[last[i], first[i + 2]] = skip
    start = np.zeros(len(states))
    start[0] = 1.0
    ends = np.zeros(len(states), dtype=bool)
    ends[-1] = True
    return Network(states, start, moves, ends)


def loop(stay: NDArray[np.float64], penalty: float) -> Network:
    """Return the network of any digits in any order, with pauses between them or not.

    Parameters
    ----------
    stay : array, shape (N_STATES,)
        Probability that each state is followed by itself.
    penalty : float
        Subtracted from the log-probability at each word.
    """
    states = np.arange(N_STATES)
    moves = _left_to_right(states, stay)
    words = [*range(N_DIGITS), SILENCE]
    weights = np.array([np.exp(-penalty) / N_DIGITS] * N_DIGITS + [1.0]) / 2
    start = np.zeros(N_STATES)
    ends = np.zeros(N_STATES, dtype=bool)
    for word in words:
        last = states_of(word)[-1]
        ends[last] = True
        start[states_of(word)[0]] = weights[word]
        for follower, weight in zip(words, weights, strict=True):
            if (word, follower) != (SILENCE, SILENCE):
                moves[last, states_of(follower)[0]] += (1 - stay[last]) * weight
    return Network(states, start, moves, ends)


def words_of(states: NDArray[np.intp]) -> tuple[int, ...]:
    """Return the digits of a path of states: one for each entry into a word's first state."""
    before = np.concatenate([[-1], states[:-1]])
    entered = (states % WORD_STATES == 0) & (states != before) & (states < N_DIGITS * WORD_STATES)
    return tuple(int(state) // WORD_STATES for state in states[entered])


def _left_to_right(states: NDArray[np.intp], stay: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights of staying in a node, and of moving to the next node of the word."""
    moves = np.diag(stay[states])
    for node in range(len(states) - 1):
        if states[node + 1] == states[node] + 1 and states[node + 1] % WORD_STATES:
            moves[node, node + 1] = 1 - stay[states[node]]
    return moves
