"""Mixtures of Gaussians, one a state: they find the first alignment, and are the baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture

from examples.speech.emissions import Scores
from examples.speech.features import Frames
from examples.speech.topology import N_STATES

BASELINE_MIXTURES = 8
STEPS = 30
"""Most steps of expectation and maximisation."""

LEAST_VARIANCE = 0.01
"""Added to the variance of a feature whose variance over all frames is 1."""


@dataclass(frozen=True)
class GaussianMixtures:
    """Emission scores from mixtures of Gaussians with diagonal covariances.

    Parameters
    ----------
    mixtures : sequence of GaussianMixture
        Of every state.
    """

    mixtures: tuple[GaussianMixture, ...]

    @classmethod
    def fit(cls, frames: Frames, states: NDArray[np.intp], n_mixtures: int, seed: int) -> GaussianMixtures:
        """Train on frames whose states are known, by maximum likelihood.

        Parameters
        ----------
        frames : array, shape (n, d)
        states : array of int, shape (n,)
        n_mixtures : int
            Gaussians a state; fewer where it has fewer than twice as many frames.
        seed : int
            For the first clusters.
        """
        mixtures = []
        for state in range(N_STATES):
            own = frames[states == state]
            mixture = GaussianMixture(
                max(1, min(n_mixtures, len(own) // 2)),
                covariance_type="diag",
                reg_covar=LEAST_VARIANCE,
                max_iter=STEPS,
                tol=1e-2,
                random_state=seed,
            )
            mixtures.append(mixture.fit(own))
        return cls(tuple(mixtures))

    def __call__(self, inputs: Frames) -> Scores:
        """Return log P(x | state), shape (n_frames, N_STATES)."""
        return np.stack([mixture.score_samples(inputs) for mixture in self.mixtures], axis=1)

    @property
    def n_gaussians(self) -> int:
        """Gaussians of all states."""
        return sum(mixture.n_components for mixture in self.mixtures)
