"""The 39 features of a frame of sound: 12 cepstra and energy with their first and second differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import librosa
import numpy as np
from numpy.typing import NDArray

from examples.speech.corpus import Samples, Utterance

Frames = NDArray[np.float32]

WINDOW_SECONDS = 0.025
HOP_SECONDS = 0.010
CEPSTRA = 12
N_FEATURES = 3 * (CEPSTRA + 1)
MEL_BANDS = 24
DIFFERENCE_FRAMES = 5
"""Frames over which a difference is taken."""

FLOOR = 1e-10
"""Added to energies before their logarithm."""


def frames_of(samples: Samples, rate: int) -> Frames:
    """Return the features of every frame, shape (n_frames, 39), not normalised."""
    window, hop = int(WINDOW_SECONDS * rate), int(HOP_SECONDS * rate)
    emphasised = librosa.effects.preemphasis(samples)
    power = librosa.feature.melspectrogram(
        y=emphasised,
        sr=rate,
        n_fft=1 << (window - 1).bit_length(),
        win_length=window,
        hop_length=hop,
        n_mels=MEL_BANDS,
        htk=True,
    )
    cepstra = librosa.feature.mfcc(S=np.log(power + FLOOR), n_mfcc=CEPSTRA + 1)[1:]
    # The length must be even; otherwise the last frame may be missing.
    energy = 2 * np.log(librosa.feature.rms(y=samples, frame_length=window + window % 2, hop_length=hop) + FLOOR)
    base = np.concatenate([cepstra, energy[:, : cepstra.shape[1]]])
    differences = [
        librosa.feature.delta(base, width=DIFFERENCE_FRAMES, order=order, mode="nearest") for order in (1, 2)
    ]
    return np.concatenate([base, *differences]).T.astype(np.float32)


def word_frames(utterance: Utterance, rate: int) -> list[slice]:
    """Return the frames of each word of an utterance, from the ends of its recording."""
    hop = int(HOP_SECONDS * rate)
    return [slice(-(-first // hop), last // hop) for first, last in utterance.bounds]


@dataclass(frozen=True)
class Normalisation:
    """Scales every feature to mean 0 and standard deviation 1 over the training frames (thesis 4.4.1)."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @classmethod
    def of(cls, utterances: Sequence[Frames]) -> Normalisation:
        """Compute the statistics of the frames of some utterances."""
        frames = np.concatenate(utterances).astype(np.float64)
        return cls(frames.mean(axis=0), frames.std(axis=0))

    def __call__(self, frames: Frames) -> Frames:
        """Return the frames, normalised."""
        return ((frames - self.mean) / self.deviation).astype(np.float32)
