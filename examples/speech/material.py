"""The data that all models of a split share: frames, their states, and the stores that trainings read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import distkern
from distkern.storage import DatasetWriter
from examples.speech.alignment import Aligner, Transcribed
from examples.speech.context import Context
from examples.speech.corpus import Utterance, alone, strings
from examples.speech.features import Frames, Normalisation, frames_of, word_frames
from examples.speech.splits import Split
from examples.speech.topology import N_STATES

TUNING_STRINGS = 80
"""Number of training strings that the word penalty is chosen on."""

CHUNK_ROWS = 65_536
"""Frames in a chunk: each of the thousands of pairs of states has few frames, and an overhead in every chunk."""


@dataclass(frozen=True)
class Utterances:
    """Utterances as input of models.

    Parameters
    ----------
    words : sequence of tuple of int
    frames, context : sequence of array, shape (n_frames, 39) and (n_frames, 60)
        The normalised features, and the projection of their windows.
    states : sequence of array of int, shape (n_frames,)
        States from the alignment with the words.
    """

    words: tuple[tuple[int, ...], ...]
    frames: tuple[Frames, ...]
    context: tuple[Frames, ...]
    states: tuple[NDArray[np.intp], ...]

    def spread(self, count: int) -> Utterances:
        """Return at most `count` utterances, evenly spaced, because they are in the order of the speakers."""
        step = -(-len(self.words) // count)
        return Utterances(self.words[::step], self.frames[::step], self.context[::step], self.states[::step])

    @property
    def n_frames(self) -> int:
        """Number of frames of all utterances."""
        return sum(map(len, self.frames))


@dataclass(frozen=True)
class Material:
    """Training and test data of a split.

    Parameters
    ----------
    store : Dataset
        Context of every training frame, and its state.
    train, digits, strings : Utterances
        Training strings; test recordings one by one, and joined.
    stay : array, shape (N_STATES,)
        Probability that each state is followed by itself.
    normalised : Normalisation
        Scaling by the training frames.
    context : Context
        Projection that was trained on these frames.
    """

    store: distkern.Dataset
    train: Utterances
    digits: Utterances
    strings: Utterances
    stay: NDArray[np.float64]
    normalised: Normalisation
    context: Context

    @property
    def log_priors(self) -> NDArray[np.float64]:
        """Log of the share of each state in the training frames."""
        return np.log(np.bincount(np.concatenate(self.train.states), minlength=N_STATES) / self.train.n_frames)


def prepare(split: Split, rate: int, rounds: int, folder: Path, seed: int) -> Material:
    """Compute features, align them, and write the stores.

    Parameters
    ----------
    split : Split
    rate : int
        Samples in a second.
    rounds : int
        Number of times that the test recordings are joined to strings, each time in another order.
    folder : path
        Folder of the stores.
    seed : int
        Seed of pauses, strings and the first clusters.
    """
    training = strings(split.train, rate, seed)
    isolated = alone(split.test, rate, seed + 1)
    connected = [string for round_ in range(rounds) for string in strings(split.test, rate, seed + 2 + round_)]
    transcribed = [_transcribed(utterance, rate) for utterance in training]
    normalised = Normalisation.of([utterance.frames for utterance in transcribed])
    transcribed = _normalise(transcribed, normalised)
    aligner = Aligner.fit(transcribed, seed)
    states = aligner.align(transcribed)
    context = Context.fit([utterance.frames for utterance in transcribed], states, seed)

    def aligned(utterances: Sequence[Utterance]) -> Utterances:
        own = _normalise([_transcribed(utterance, rate) for utterance in utterances], normalised)
        return _utterances(own, context, aligner.align(own))

    train = _utterances(transcribed, context, states)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "frames.zarr", train.frames, train.states)
    store = _write(folder / "context.zarr", train.context, train.states)
    return Material(store, train, aligned(isolated), aligned(connected), aligner.stay, normalised, context)


def _transcribed(utterance: Utterance, rate: int) -> Transcribed:
    return Transcribed(frames_of(utterance.samples, rate), utterance.words, tuple(word_frames(utterance, rate)))


def _normalise(utterances: Sequence[Transcribed], normalised: Normalisation) -> list[Transcribed]:
    return [replace(utterance, frames=normalised(utterance.frames)) for utterance in utterances]


def _utterances(own: Sequence[Transcribed], context: Context, states: Sequence[NDArray[np.intp]]) -> Utterances:
    return Utterances(
        tuple(utterance.words for utterance in own),
        tuple(utterance.frames for utterance in own),
        tuple(context(utterance.frames) for utterance in own),
        tuple(states),
    )


def _write(path: Path, frames: Sequence[Frames], states: Sequence[NDArray[np.intp]]) -> distkern.Dataset:
    """Write frames utterance by utterance."""
    with DatasetWriter(path, chunk_rows=CHUNK_ROWS, task="classification", overwrite=True) as writer:
        for rows, labels in zip(frames, states, strict=True):
            writer.append(rows, labels)
    return distkern.open_dataset(path)
