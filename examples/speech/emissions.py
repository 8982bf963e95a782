"""Emission scores: the log likelihood of a frame for each state of the models."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from examples.speech.features import Frames

Scores = NDArray[np.float64]


class Emissions(Protocol):
    """Function that scores frames."""

    def __call__(self, frames: Frames, /) -> Scores:
        """Return the score of every state, shape (n_frames, n_states): log P(x | state), up to a term of the frame."""


class CachedEmissions:
    """Caches the scores of frames (thesis 4.3): decoding the same frames again evaluates no kernel.

    Parameters
    ----------
    emissions : Emissions
        Function that scores new frames.
    """

    def __init__(self, emissions: Emissions) -> None:
        self._emissions = emissions
        self._known: dict[bytes, Scores] = {}
        self.scored = 0
        """Number of scored frames."""

    def __call__(self, frames: Frames) -> Scores:
        """Return the score of every state, shape (n_frames, n_states)."""
        keys = [frame.tobytes() for frame in frames]
        new = {key: i for i, key in enumerate(keys) if key not in self._known}
        if new:
            self._known.update(zip(new, self._emissions(frames[list(new.values())]), strict=True))
            self.scored += len(new)
        return np.stack([self._known[key] for key in keys])
