"""Viterbi paths through networks of states, on emission scores from any acoustic model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hmmlearn.base import BaseHMM
from numpy.typing import NDArray

from examples.speech.emissions import Emissions, Scores
from examples.speech.features import Frames
from examples.speech.topology import N_DIGITS, Network, forced, loop, words_of

NEVER = -1e30
"""Score of an impossible state; finite, because hmmlearn refuses infinite rows."""


class _NetworkHMM(BaseHMM):  # type: ignore[misc]
    """A model whose rows are scores of the nodes; weights of moves need not sum to 1, since words have a penalty."""

    def __init__(self, network: Network) -> None:
        super().__init__(n_components=len(network.states))
        self.startprob_ = network.start
        self.transmat_ = network.moves

    def _check(self) -> None:
        pass

    def _compute_log_likelihood(self, X: Scores) -> Scores:
        return X


@dataclass(frozen=True)
class StatePath:
    """A path through a network."""

    score: float
    """Log of the weights of the moves and the emission scores, summed."""
    states: NDArray[np.intp]
    """State of each frame."""


def best_path(network: Network, scores: Scores) -> StatePath:
    """Return the path of greatest score that ends in a node where an utterance may end.

    Parameters
    ----------
    network : Network
    scores : array, shape (n_frames, N_STATES)
        Emission score of each state at each frame.
    """
    nodes = scores[:, network.states]
    nodes[-1, ~network.ends] = NEVER
    score, path = _NetworkHMM(network).decode(np.maximum(nodes, NEVER))
    return StatePath(float(score), network.states[path])


@dataclass(frozen=True)
class Decoder:
    """Decodes utterances with the scores of an acoustic model.

    Parameters
    ----------
    emissions : Emissions
        Scores of the states.
    stay : array, shape (N_STATES,)
        Probability that each state is followed by itself.
    penalty : float, default 0.0
        Subtracted from a string's score at each word.
    """

    emissions: Emissions
    stay: NDArray[np.float64]
    penalty: float = 0.0

    def digit(self, inputs: Frames) -> int:
        """Return the digit of an utterance of one word, from the model's inputs of its frames."""
        scores = self.emissions(inputs)
        return int(np.argmax([best_path(forced([digit], self.stay), scores).score for digit in range(N_DIGITS)]))

    def string(self, inputs: Frames) -> tuple[int, ...]:
        """Return the digits of an utterance of any number of words."""
        return words_of(best_path(loop(self.stay, self.penalty), self.emissions(inputs)).states)
