"""The input of the kernel models for a frame: a window of frames, projected to directions that separate the states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from examples.speech.features import Frames

REACH = 8
"""Frames before and after a frame in its window."""

STRIDE = 2
"""Distance of the frames in a window; features hardly change from one frame to the next."""

DIMENSIONS = 60

MOST_ROWS = 50_000
"""Largest number of training frames of the projection."""


def windows_of(frames: Frames) -> Frames:
    """Return the window around each frame, shape (n_frames, 9 * 39); the first and last frames are repeated."""
    padded = np.pad(frames, ((REACH, REACH), (0, 0)), mode="edge")
    windows = sliding_window_view(padded, 2 * REACH + 1, axis=0)[:, :, ::STRIDE]
    return windows.transpose(0, 2, 1).reshape(len(frames), -1)


@dataclass(frozen=True)
class Context:
    """Fisher's discriminant of the states on windows of frames; within a state the variance in each direction is 1.

    Parameters
    ----------
    projection : LinearDiscriminantAnalysis
    """

    projection: LinearDiscriminantAnalysis

    @classmethod
    def fit(cls, utterances: Sequence[Frames], states: Sequence[NDArray[np.intp]], seed: int) -> Context:
        """Train on a sample of the frames of some utterances with known states."""
        share = min(1.0, MOST_ROWS / sum(map(len, utterances)))
        rng = np.random.default_rng(seed)
        taken = [rng.random(len(frames)) < share for frames in utterances]
        rows = np.concatenate([windows_of(frames)[mask] for frames, mask in zip(utterances, taken, strict=True)])
        labels = np.concatenate([path[mask] for path, mask in zip(states, taken, strict=True)])
        return cls(LinearDiscriminantAnalysis(n_components=DIMENSIONS).fit(rows, labels))

    def __call__(self, frames: Frames) -> Frames:
        """Return the input of the kernel models for the frames of an utterance, shape (n_frames, 60)."""
        return np.asarray(self.projection.transform(windows_of(frames)), dtype=np.float32)
