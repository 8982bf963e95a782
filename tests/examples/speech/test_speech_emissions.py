"""Scores of frames that are remembered."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.speech.decoder import Decoder
from examples.speech.emissions import CachedEmissions
from examples.speech.topology import N_STATES


class Linear:
    """Scores that depend on each frame alone, and how many frames they were asked for."""

    def __init__(self) -> None:
        self.weights = np.random.default_rng(1).standard_normal((5, N_STATES))
        self.asked = 0

    def __call__(self, frames: np.ndarray) -> np.ndarray:
        self.asked += len(frames)
        return 5 * np.stack([frame.astype(np.float64) @ self.weights for frame in frames])


def utterances(n: int, seed: int = 0, n_frames: int = 30) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n_frames + i, 5)).astype(np.float32) for i in range(n)]


def test_remembered_scores_are_those_of_the_model_bit_for_bit() -> None:
    plain, cached = Linear(), CachedEmissions(Linear())
    for frames in utterances(4) * 2:
        np.testing.assert_array_equal(cached(frames), plain(frames))


def test_the_same_frames_are_scored_once() -> None:
    model = Linear()
    cached = CachedEmissions(model)
    given = utterances(4)
    for frames in given:
        cached(frames)
    assert cached.scored == model.asked == sum(map(len, given))
    for frames in given:
        cached(frames[::-1])
    assert cached.scored == model.asked == sum(map(len, given))


@given(rows=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=20), min_size=1, max_size=6))
def test_only_frames_that_are_new_are_scored(rows: list[list[int]]) -> None:
    frames, model, plain = utterances(1)[0], Linear(), Linear()
    cached = CachedEmissions(model)
    for own in rows:
        np.testing.assert_array_equal(cached(frames[own]), plain(frames[own]))
    assert cached.scored == model.asked == len({row for own in rows for row in own})


def test_scores_that_are_changed_by_who_asked_are_remembered_as_they_were() -> None:
    cached, frames = CachedEmissions(Linear()), utterances(1)[0]
    first = cached(frames)
    expected = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(cached(frames), expected)


@pytest.mark.parametrize("penalty", [0.0, 10.0])
def test_decoders_with_and_without_memory_agree(penalty: float) -> None:
    stay = np.full(N_STATES, 0.6)
    plain, cached = Decoder(Linear(), stay, penalty), Decoder(CachedEmissions(Linear()), stay, penalty)
    for frames in utterances(10, seed=2, n_frames=60) * 2:
        assert cached.string(frames) == plain.string(frames)
        assert cached.digit(frames) == plain.digit(frames)


def test_a_second_decoding_scores_no_frame() -> None:
    cached = CachedEmissions(Linear())
    given = utterances(5)
    for penalty in (0.0, 5.0, 50.0):
        for frames in given:
            Decoder(cached, np.full(N_STATES, 0.6), penalty).string(frames)
        assert cached.scored == sum(map(len, given))
