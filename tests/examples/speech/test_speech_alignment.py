"""States that were planted are found from the words and the ends of their recordings."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from examples.speech.alignment import Aligner, Transcribed, split
from examples.speech.mixtures import LEAST_VARIANCE, STEPS, TILE_FRAMES, GaussianMixtures
from examples.speech.topology import N_STATES, SILENCE, states_of, words_of

CONTRAST = 3.0


def planted(n: int, seed: int) -> tuple[list[Transcribed], list[np.ndarray]]:
    """Utterances of three words, each state 1 to 6 frames; the pause between words is sometimes left out."""
    means = CONTRAST * np.random.default_rng(99).standard_normal((N_STATES, 39))
    rng = np.random.default_rng(seed)
    utterances, paths = [], []
    for i in range(n):
        words = (i % 10, *(int(word) for word in rng.integers(0, 10, 2)))
        path, parts = spread(SILENCE, rng), []
        for k, word in enumerate(words):
            own = spread(word, rng)
            parts.append(slice(len(path), len(path) + len(own)))
            path += own
            if k == 2 or rng.random() < 0.7:
                path += spread(SILENCE, rng)
        frames = (means[path] + rng.standard_normal((len(path), 39))).astype(np.float32)
        utterances.append(Transcribed(frames, words, tuple(parts)))
        paths.append(np.array(path))
    return utterances, paths


def spread(word: int, rng: np.random.Generator) -> list[int]:
    return [state for state in states_of(word) for _ in range(rng.integers(1, 7))]


@pytest.fixture(scope="module")
def trained() -> tuple[Aligner, list[Transcribed], list[np.ndarray]]:
    utterances, paths = planted(60, seed=0)
    return Aligner.fit(utterances, seed=0), utterances, paths


def agreement(found: list[np.ndarray], paths: list[np.ndarray]) -> float:
    return float(np.mean(np.concatenate(found) == np.concatenate(paths)))


@pytest.mark.slow
def test_planted_states_are_found(trained: tuple[Aligner, list[Transcribed], list[np.ndarray]]) -> None:
    aligner, utterances, paths = trained
    assert agreement(aligner.align(utterances), paths) > 0.97


def test_planted_states_of_others_are_found(
    trained: tuple[Aligner, list[Transcribed], list[np.ndarray]],
) -> None:
    aligner, _, _ = trained
    utterances, paths = planted(10, seed=1)
    found = aligner.align(utterances)
    assert agreement(found, paths) > 0.97
    for utterance, path in zip(utterances, found, strict=True):
        assert len(path) == len(utterance.frames)
        assert words_of(path) == utterance.words


def test_probabilities_to_stay_are_those_of_the_planted_lengths(
    trained: tuple[Aligner, list[Transcribed], list[np.ndarray]],
) -> None:
    aligner, _, paths = trained
    assert aligner.stay.shape == (N_STATES,)
    assert ((aligner.stay > 0) & (aligner.stay < 1)).all()
    path = np.concatenate(paths)
    lengths = np.array([np.count_nonzero(path == state) for state in range(N_STATES)])
    visits = np.array([np.count_nonzero((path == state) & (np.roll(path, 1) != state)) for state in range(N_STATES)])
    np.testing.assert_allclose(aligner.stay, 1 - visits / lengths, atol=0.1)


def test_scores_end_to_end_are_divided_among_utterances() -> None:
    utterances, _ = planted(4, seed=3)
    frames = np.concatenate([utterance.frames for utterance in utterances])
    for part, utterance in zip(split(frames, utterances), utterances, strict=True):
        np.testing.assert_array_equal(part, utterance.frames)


def labelled(n_each: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    states = np.repeat(np.arange(N_STATES), n_each)
    return (rng.standard_normal((len(states), 3)) + states[:, None] % 7).astype(np.float32), states


def test_one_gaussian_a_state_has_the_density_of_its_mean_and_variances() -> None:
    frames, states = labelled(12)
    scores = GaussianMixtures.fit(frames, states, 1, 0)(frames[:20])
    for state in range(N_STATES):
        own = frames[states == state].astype(np.float64)
        mean, variance = own.mean(axis=0), own.var(axis=0) + LEAST_VARIANCE
        expected = -0.5 * (np.log(2 * np.pi * variance) + (frames[:20] - mean) ** 2 / variance).sum(axis=1)
        np.testing.assert_allclose(scores[:, state], expected, rtol=1e-3, atol=1e-3)


def density(mixture: GaussianMixture, frames: np.ndarray) -> np.ndarray:
    """Log of the weighted sum of normal densities, feature by feature."""
    parts = zip(mixture.weights_, mixture.means_, mixture.precisions_, strict=True)
    logs = [
        np.log(float(weight)) + norm.logpdf(frames, mean, precision.astype(np.float64) ** -0.5).sum(axis=1)
        for weight, mean, precision in parts
    ]
    return logsumexp(logs, axis=0)


def test_mixtures_have_the_densities_of_their_gaussians() -> None:
    """On more frames than are scored at a time, and far from the training frames, too."""
    frames, states = labelled(30)
    scored = np.concatenate([frames, frames, frames[:5] + 100])
    scores = GaussianMixtures.fit(frames, states, 4, 0)(scored)
    assert len(scored) > TILE_FRAMES
    for state in (0, 41, 82):
        mixture = GaussianMixture(
            4, covariance_type="diag", reg_covar=LEAST_VARIANCE, max_iter=STEPS, tol=1e-2, random_state=0
        ).fit(frames[states == state])
        np.testing.assert_allclose(scores[:, state], density(mixture, scored.astype(np.float64)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("n_each", "gaussians"), [(1, 1), (2, 1), (3, 1), (6, 3), (40, 8)])
def test_states_of_few_frames_have_few_gaussians(n_each: int, gaussians: int) -> None:
    frames, states = labelled(n_each)
    mixtures = GaussianMixtures.fit(frames, states, 8, 0)
    assert mixtures.n_gaussians == gaussians * N_STATES
    assert np.isfinite(mixtures(frames)).all()


@pytest.mark.slow
def test_mixtures_are_the_same_with_any_number_of_threads() -> None:
    """And take no part in the wait of many threads for few processors."""
    rng = np.random.default_rng(0)
    states = np.repeat(np.arange(N_STATES), np.where(np.arange(N_STATES) % 20, 8, 3000))
    frames = rng.standard_normal((len(states), 39)).astype(np.float32)
    mixtures = []
    for threads in (1, 4):
        with threadpool_limits(threads):
            mixtures.append(GaussianMixtures.fit(frames, states, 8, 0))
    one, four = mixtures
    np.testing.assert_array_equal(one.means, four.means)
    np.testing.assert_array_equal(one.constants, four.constants)
