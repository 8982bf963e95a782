"""Frames, states and stores of a small part of the recordings."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from examples.speech.material import Material, Utterances
from examples.speech.topology import N_STATES, words_of

pytestmark = pytest.mark.slow


def lengths(arrays: tuple[np.ndarray, ...]) -> list[int]:
    return [len(array) for array in arrays]


def all_of(material: Material) -> tuple[Utterances, ...]:
    return material.train, material.digits, material.strings


def test_every_frame_has_features_context_and_a_state(material: Material) -> None:
    for utterances in all_of(material):
        assert lengths(utterances.frames) == lengths(utterances.context) == lengths(utterances.states)
        assert {frames.shape[1] for frames in utterances.frames} == {39}
        assert {frames.shape[1] for frames in utterances.context} == {60}
        assert utterances.n_frames == sum(lengths(utterances.states))


def test_states_spell_what_was_said(material: Material) -> None:
    for utterances in all_of(material):
        assert [words_of(path) for path in utterances.states] == list(utterances.words)


def test_training_says_each_recording_once_and_the_test_strings_twice(material: Material) -> None:
    trained, alone, joined = (Counter(word for own in part.words for word in own) for part in all_of(material))
    assert trained == dict.fromkeys(range(10), 6)
    assert alone == dict.fromkeys(range(10), 2)
    assert joined == dict.fromkeys(range(10), 4)
    assert {len(words) for words in material.digits.words} == {1}


def test_training_frames_are_normalised(material: Material) -> None:
    frames = np.concatenate(material.train.frames).astype(np.float64)
    np.testing.assert_allclose(frames.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(frames.std(axis=0), 1, atol=1e-4)


def test_test_frames_are_normalised_by_the_training_frames(material: Material) -> None:
    """The projection is that of the training frames too, so later recordings have the same input."""
    assert abs(np.concatenate(material.digits.frames).mean(axis=0)).max() > 0.05
    for utterances in all_of(material):
        for frames, context in zip(utterances.frames, utterances.context, strict=True):
            np.testing.assert_array_equal(material.context(frames), context)
    raw = np.concatenate(material.train.frames) * material.normalised.deviation + material.normalised.mean
    np.testing.assert_allclose(raw.mean(axis=0), material.normalised.mean, atol=1e-3)


def test_the_store_holds_the_context_and_state_of_every_training_frame(material: Material) -> None:
    store, train = material.store, material.train
    assert store.n_rows == train.n_frames
    np.testing.assert_array_equal(np.asarray(store.X[:]), np.concatenate(train.context))
    np.testing.assert_array_equal(store.targets(), np.concatenate(train.states))


def test_shares_of_the_states_sum_to_1(material: Material) -> None:
    shares = np.exp(material.log_priors)
    assert shares.shape == (N_STATES,)
    assert shares.sum() == pytest.approx(1)
    path = np.concatenate(material.train.states)
    assert shares[80] == pytest.approx(np.count_nonzero(path == 80) / len(path))


def test_some_utterances_are_taken_evenly_and_with_all_that_belongs_to_them() -> None:
    """Of 25 utterances in the order of the speakers, a tuning on 10 uses the first and the last ones."""
    numbers = np.arange(25)
    frames, context, states = (tuple(np.full((3, 2), part + i) for i in numbers) for part in (0, 100, 200))
    utterances = Utterances(tuple((int(i),) for i in numbers), frames, context, states)
    for count, expected in ((10, [0, 3, 6, 9, 12, 15, 18, 21, 24]), (25, numbers), (80, numbers), (1, [0])):
        taken = utterances.spread(count)
        assert [words[0] for words in taken.words] == list(expected)
        assert [array[0, 0] for array in taken.frames] == list(expected)
        assert [array[0, 0] - 100 for array in taken.context] == list(expected)
        assert [array[0, 0] - 200 for array in taken.states] == list(expected)
