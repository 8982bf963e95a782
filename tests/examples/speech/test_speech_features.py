"""Features of frames: their number, differences, and how they follow the sound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.speech.corpus import Recording, alone
from examples.speech.features import CEPSTRA, N_FEATURES, Normalisation, frames_of, word_frames

# The first features of a process take a minute where numba has not compiled librosa's functions before.
uses_librosa = pytest.mark.slow

RATE = 8000
HOP = 80
ENERGY = CEPSTRA
BASE = CEPSTRA + 1


def noise(n_samples: int, seed: int = 0) -> np.ndarray:
    return (0.1 * np.random.default_rng(seed).standard_normal(n_samples)).astype(np.float32)


@given(
    n_samples=st.integers(600, 4000) | st.integers(6, 36).map(lambda i: 110 * i),
    rate=st.sampled_from([8000, 11025, 16000]),
)
@uses_librosa
def test_a_frame_of_39_features_begins_every_10_ms(n_samples: int, rate: int) -> None:
    frames = frames_of(noise(n_samples), rate)
    assert frames.shape == (1 + n_samples // (rate // 100), N_FEATURES)
    assert N_FEATURES == 39
    assert frames.dtype == np.float32
    assert np.isfinite(frames).all()


def slopes(values: np.ndarray) -> np.ndarray:
    """Slope of the line through five frames, the first and last repeated."""
    padded = np.pad(values, ((2, 2), (0, 0)), mode="edge")
    n = len(values)
    return sum(k * padded[2 + k : 2 + k + n] for k in (-2, -1, 1, 2)) / 10


def curvatures(values: np.ndarray) -> np.ndarray:
    """Second derivative of the parabola through five frames, the first and last repeated."""
    padded = np.pad(values, ((2, 2), (0, 0)), mode="edge")
    n = len(values)
    return sum(c * padded[i : i + n] for i, c in enumerate((2, -1, -2, -1, 2))) / 7


@uses_librosa
def test_differences_are_slopes_and_curvatures_of_the_features_over_five_frames() -> None:
    frames = frames_of(noise(8000) * np.linspace(0.01, 1, 8000, dtype=np.float32), RATE).astype(np.float64)
    base = frames[:, :BASE]
    np.testing.assert_allclose(frames[:, BASE : 2 * BASE], slopes(base), atol=1e-4)
    np.testing.assert_allclose(frames[:, 2 * BASE :], curvatures(base), atol=1e-4)


@uses_librosa
def test_sound_that_grows_exponentially_has_an_energy_that_rises_by_its_rate() -> None:
    n, rate_of_growth = 8000, 10.0
    swing = np.sin(2 * np.pi * 1000 * np.arange(n) / RATE)
    frames = frames_of((1e-3 * np.exp(rate_of_growth * np.arange(n) / RATE / 2) * swing).astype(np.float32), RATE)
    inner = slice(5, -5)
    np.testing.assert_allclose(np.diff(frames[inner, ENERGY]), rate_of_growth * 0.01, rtol=0.02)
    np.testing.assert_allclose(frames[inner, BASE + ENERGY], rate_of_growth * 0.01, rtol=0.02)
    np.testing.assert_allclose(frames[inner, 2 * BASE + ENERGY], 0, atol=0.01)


@uses_librosa
def test_louder_sound_raises_the_energy_alone_and_by_the_log_of_its_power() -> None:
    quiet, loud = frames_of(noise(4000), RATE), frames_of(4 * noise(4000), RATE)
    np.testing.assert_allclose((loud - quiet)[:, ENERGY], 2 * np.log(4), rtol=1e-5)
    others = [i for i in range(N_FEATURES) if i != ENERGY]
    np.testing.assert_allclose(loud[:, others], quiet[:, others], atol=1e-3)


@pytest.mark.parametrize("n_samples", [400, 4000])
@uses_librosa
def test_silence_has_finite_features(n_samples: int) -> None:
    frames = frames_of(np.zeros(n_samples, dtype=np.float32), RATE)
    assert np.isfinite(frames).all()
    np.testing.assert_allclose(frames[:, BASE:], 0, atol=1e-9)


@uses_librosa
def test_sounds_of_another_colour_have_other_cepstra() -> None:
    low, high = (
        frames_of(np.sin(2 * np.pi * pitch * np.arange(4000) / RATE).astype(np.float32), RATE) for pitch in (300, 3000)
    )
    assert abs(low[20, 0] - high[20, 0]) > 1


@uses_librosa
def test_frames_of_a_word_have_their_middle_in_its_recording() -> None:
    utterances = alone([Recording(noise(n), 1, 0, 0) for n in range(300, 900, 37)], RATE, 0)
    for utterance in utterances:
        (part,) = word_frames(utterance, RATE)
        ((first, last),) = utterance.bounds
        middles = HOP * np.arange(len(frames_of(utterance.samples, RATE)))
        assert (middles[part] >= first).all()
        assert (middles[part] < last).all()
        assert len(middles[part]) >= (last - first) // HOP - 1


@uses_librosa
def test_a_loud_word_is_where_its_frames_are() -> None:
    rng = np.random.default_rng(0)
    samples = noise(4000) * np.where(np.arange(4000) < 400, 0.01, 1)
    utterance = alone([Recording(samples.astype(np.float32), 1, 0, 0)], RATE, int(rng.integers(100)))[0]
    energy = frames_of(utterance.samples, RATE)[:, ENERGY]
    (part,) = word_frames(utterance, RATE)
    loud = np.flatnonzero(energy > energy.mean())
    assert abs(loud[0] - (part.start + 5)) <= 2
    assert abs(loud[-1] - (part.stop - 1)) <= 2


def test_normalised_frames_have_mean_0_and_deviation_1() -> None:
    rng = np.random.default_rng(0)
    utterances = [(rng.standard_normal((n, 39)) * np.arange(1, 40) + 5).astype(np.float32) for n in (40, 70)]
    normalised = Normalisation.of(utterances)
    frames = np.concatenate([normalised(utterance) for utterance in utterances])
    assert frames.dtype == np.float32
    np.testing.assert_allclose(frames.mean(axis=0, dtype=np.float64), 0, atol=1e-5)
    np.testing.assert_allclose(frames.std(axis=0, dtype=np.float64), 1, atol=1e-5)


def test_other_frames_are_normalised_with_the_statistics_of_training() -> None:
    normalised = Normalisation.of([np.array([[0.0, 10.0], [2.0, 30.0]], dtype=np.float32)])
    np.testing.assert_allclose(normalised(np.array([[3.0, 0.0]], dtype=np.float32)), [[2.0, -2.0]])
