"""The alignment of frames to states: Viterbi training of whole-word models with one Gaussian for each state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from examples.speech.decoder import best_path
from examples.speech.emissions import Emissions, Scores
from examples.speech.features import Frames
from examples.speech.mixtures import GaussianMixtures
from examples.speech.topology import N_STATES, SILENCE, forced, states_of

States = NDArray[np.intp]

ROUNDS = 4
"""Number of times that the frames are aligned and the Gaussians trained again."""


@dataclass(frozen=True)
class Transcribed:
    """An utterance as frames, and its words.

    Parameters
    ----------
    frames : array, shape (n_frames, 39)
    words : sequence of int
    parts : sequence of slice
        Frames of each word, from the ends of its recording.
    """

    frames: Frames
    words: tuple[int, ...]
    parts: tuple[slice, ...]


@dataclass(frozen=True)
class Aligner:
    """Aligns frames to the states of known words.

    Parameters
    ----------
    emissions : Emissions
        Scores of the states at frames.
    stay : array, shape (N_STATES,)
        Probability that each state is followed by itself.
    """

    emissions: Emissions
    stay: NDArray[np.float64]

    @classmethod
    def fit(cls, utterances: Sequence[Transcribed], seed: int) -> Aligner:
        """Train from an even division of every recording among the states of its word."""
        frames = np.concatenate([utterance.frames for utterance in utterances])

        def trained(paths: Sequence[States]) -> Aligner:
            return cls(GaussianMixtures.fit(frames, np.concatenate(paths), 1, seed), _stay(paths))

        aligner = trained([_even_division(utterance) for utterance in utterances])
        for _ in range(ROUNDS):
            aligner = trained(aligner.align(utterances))
        return aligner

    def align(self, utterances: Sequence[Transcribed]) -> list[States]:
        """Return the state of every frame of each utterance."""
        scores = self.emissions(np.concatenate([utterance.frames for utterance in utterances]))
        return [
            best_path(forced(utterance.words, self.stay), own).states
            for utterance, own in zip(utterances, split(scores, utterances), strict=True)
        ]


def split(scores: Scores, utterances: Sequence[Transcribed]) -> list[Scores]:
    """Split the scores of concatenated frames into those of each utterance."""
    return np.split(scores, np.cumsum([len(utterance.frames) for utterance in utterances])[:-1])


def _even_division(utterance: Transcribed) -> States:
    """Divide the frames of each word, and of the pauses around it, evenly among the states."""
    path, end = np.empty(len(utterance.frames), dtype=np.intp), 0
    for word, part in zip(utterance.words, utterance.parts, strict=True):
        path[end : part.start] = _evenly(SILENCE, part.start - end)
        path[part] = _evenly(word, part.stop - part.start)
        end = part.stop
    path[end:] = _evenly(SILENCE, len(path) - end)
    return path


def _evenly(word: int, n_frames: int) -> States:
    states = states_of(word)
    return states.start + np.arange(n_frames) * len(states) // max(n_frames, 1)


def _stay(paths: Sequence[States]) -> NDArray[np.float64]:
    """Return the share of the frames of each state that are followed by a frame of the same state."""
    kept = np.concatenate([path[:-1][path[1:] == path[:-1]] for path in paths])
    left = np.concatenate([path[:-1] for path in paths])
    return (np.bincount(kept, minlength=N_STATES) + 1) / (np.bincount(left, minlength=N_STATES) + 2)
