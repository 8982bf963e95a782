"""Mixtures of Gaussians, one mixture for each state: the models of the first alignment, and the baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from examples.speech.emissions import Scores
from examples.speech.features import Frames
from examples.speech.topology import N_STATES

BASELINE_MIXTURES = 8
STEPS = 30
"""Largest number of steps of expectation and maximisation."""

TILE_FRAMES = 4096
"""Frames that are scored together."""

LEAST_VARIANCE = 0.01
"""Added to the variance of a feature whose variance over all frames is 1."""


@dataclass(frozen=True)
class GaussianMixtures:
    """Emission scores from mixtures of Gaussians with diagonal covariances.

    Parameters
    ----------
    means, precisions : array, shape (n_gaussians, d)
        Means and precisions of the Gaussians of all states, state by state.
    constants : array, shape (n_gaussians,)
        Log of the weights, and the other terms of a log density that do not depend on the frame.
    firsts : array of int, shape (N_STATES,)
        First Gaussian of each state.
    """

    means: NDArray[np.float64]
    precisions: NDArray[np.float64]
    constants: NDArray[np.float64]
    firsts: NDArray[np.intp]

    @classmethod
    def fit(cls, frames: Frames, states: NDArray[np.intp], n_mixtures: int, seed: int) -> GaussianMixtures:
        """Train on frames with known states, by maximum likelihood.

        Parameters
        ----------
        frames : array, shape (n, d)
        states : array of int, shape (n,)
        n_mixtures : int
            Gaussians of each state; fewer where a state has fewer than twice as many frames.
        seed : int
            Seed of the first clusters.
        """
        # On a few hundred frames more threads are not faster, wait for each other on a busy CPU, and change last bits.
        with threadpool_limits(1):
            mixtures = [_mixture(frames[states == state], n_mixtures, seed) for state in range(N_STATES)]
        means = np.concatenate([mixture.means_ for mixture in mixtures], dtype=np.float64)
        precisions = np.concatenate([mixture.precisions_ for mixture in mixtures], dtype=np.float64)
        weights = np.concatenate([mixture.weights_ for mixture in mixtures], dtype=np.float64)
        constants = np.log(weights) + 0.5 * (np.log(precisions / (2 * np.pi)) - precisions * means**2).sum(axis=1)
        sizes = [mixture.n_components for mixture in mixtures]
        return cls(means, precisions, constants, np.cumsum([0, *sizes[:-1]]))

    def __call__(self, inputs: Frames) -> Scores:
        """Return log P(x | state), shape (n_frames, N_STATES)."""
        scores = np.empty((len(inputs), len(self.firsts)))
        for start in range(0, len(inputs), TILE_FRAMES):
            part = slice(start, start + TILE_FRAMES)
            x = inputs[part].astype(np.float64)
            # Two products give all Gaussians of all states.
            densities = x @ (self.means * self.precisions).T - 0.5 * x**2 @ self.precisions.T + self.constants
            scores[part] = np.logaddexp.reduceat(densities, self.firsts, axis=1)
        return scores

    @property
    def n_gaussians(self) -> int:
        """Number of Gaussians of all states."""
        return len(self.constants)


def _mixture(frames: Frames, n_mixtures: int, seed: int) -> GaussianMixture:
    """Train the Gaussians of a state."""
    if len(frames) == 1:  # scikit-learn requires two
        frames = np.repeat(frames, 2, axis=0)
    mixture = GaussianMixture(
        max(1, min(n_mixtures, len(frames) // 2)),
        covariance_type="diag",
        reg_covar=LEAST_VARIANCE,
        max_iter=STEPS,
        tol=1e-2,
        random_state=seed,
    )
    return mixture.fit(frames)
