"""Strings of recordings: which ones, in which order, and what is between them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.errors import DataError
from examples.speech.corpus import PAUSE_SECONDS, Corpus, Recording, Utterance, alone, strings

RATE = 1000


def recordings(n_speakers: int, n_each: int, seed: int = 0, level: float = 0.1) -> list[Recording]:
    """Noise of which every recording has its own, so that it is known again."""
    rng = np.random.default_rng(seed)
    return [
        Recording(
            (level * rng.standard_normal(int(rng.integers(60, 200)))).astype(np.float32),
            digit=int(rng.integers(10)),
            speaker=speaker,
            take=take,
        )
        for speaker in range(n_speakers)
        for take in range(n_each)
    ]


def words_in(utterance: Utterance) -> list[np.ndarray]:
    return [utterance.samples[first:last] for first, last in utterance.bounds]


def pauses_in(utterance: Utterance) -> list[np.ndarray]:
    edges = [0, *(edge for bounds in utterance.bounds for edge in bounds), len(utterance.samples)]
    return [utterance.samples[edges[i] : edges[i + 1]] for i in range(0, len(edges), 2)]


@given(n_speakers=st.integers(1, 3), n_each=st.integers(1, 20), seed=st.integers(0, 100))
def test_every_recording_is_in_one_string_of_its_speaker_as_it_was(n_speakers: int, n_each: int, seed: int) -> None:
    given = recordings(n_speakers, n_each, seed)
    joined = strings(given, RATE, seed)
    found = Counter(
        (string.speaker, word, samples.tobytes())
        for string in joined
        for word, samples in zip(string.words, words_in(string), strict=True)
    )
    assert found == Counter((one.speaker, one.digit, one.samples.tobytes()) for one in given)


@given(n_speakers=st.integers(1, 3), n_each=st.integers(1, 20), seed=st.integers(0, 100))
def test_strings_have_3_to_7_words_and_the_last_of_a_speaker_what_is_left(
    n_speakers: int, n_each: int, seed: int
) -> None:
    joined = strings(recordings(n_speakers, n_each), RATE, seed)
    for speaker in range(n_speakers):
        lengths = [len(string.words) for string in joined if string.speaker == speaker]
        assert all(3 <= length <= 7 for length in lengths[:-1])
        assert 1 <= lengths[-1] <= 7


def test_all_lengths_of_strings_occur() -> None:
    lengths = Counter(len(string.words) for string in strings(recordings(1, 500), RATE, 0)[:-1])
    assert set(lengths) == {3, 4, 5, 6, 7}


def test_a_seed_gives_the_same_strings_and_another_seed_others() -> None:
    given = recordings(2, 20)
    first, again, other = (strings(given, RATE, seed) for seed in (1, 1, 2))
    assert [string.words for string in first] == [string.words for string in again]
    for one, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.samples, same.samples)
    assert [string.words for string in first] != [string.words for string in other]


def test_a_recording_alone_is_an_utterance_of_one_word() -> None:
    given = recordings(2, 3)
    utterances = alone(given, RATE, 0)
    assert [utterance.words for utterance in utterances] == [(one.digit,) for one in given]
    assert [utterance.speaker for utterance in utterances] == [one.speaker for one in given]
    for utterance, one in zip(utterances, given, strict=True):
        np.testing.assert_array_equal(words_in(utterance)[0], one.samples)


def test_pauses_are_before_between_and_after_and_as_long_as_they_may_be() -> None:
    joined = strings(recordings(1, 200), RATE, 3)
    lengths = [len(pause) / RATE for string in joined for pause in pauses_in(string)]
    assert len(lengths) == 200 + len(joined)
    shortest, longest = PAUSE_SECONDS
    assert min(lengths) >= shortest
    assert max(lengths) <= longest
    assert max(lengths) - min(lengths) > 0.8 * (longest - shortest)


@pytest.mark.parametrize("level", [0.3, 0.002])
def test_pauses_are_about_as_loud_as_the_quietest_part_of_the_words(level: float) -> None:
    """A word that is loud everywhere but in a quarter: pauses are as loud as that."""
    rate, rng = 8000, np.random.default_rng(0)
    samples = rng.standard_normal(4000).astype(np.float32) * np.where(np.arange(4000) < 1000, level / 10, level)
    utterance = alone([Recording(samples.astype(np.float32), 1, 0, 0)], rate, 0)[0]
    for pause in pauses_in(utterance):
        assert np.sqrt((pause**2).mean()) == pytest.approx(level / 10, rel=0.25)


def test_pauses_are_never_digital_silence() -> None:
    utterance = alone([Recording(np.zeros(400, dtype=np.float32), 1, 0, 0)], RATE, 0)[0]
    for pause in pauses_in(utterance):
        assert 0 < np.sqrt((pause**2).mean()) < 1e-3


def test_pauses_around_a_very_short_recording_are_no_louder_than_it() -> None:
    short = Recording(np.full(10, 0.01, dtype=np.float32), 1, 0, 0)
    for pause in pauses_in(alone([short], RATE, 0)[0]):
        assert np.sqrt((pause**2).mean()) < 0.02


def corpus_file(path: Path) -> Path:
    """Three recordings of 2, 3 and 1 samples."""
    np.savez(
        path,
        audio=np.array([16384, -32768, 1, 2, 3, 0], dtype=np.int16),
        offsets=np.array([0, 2, 5, 6]),
        digit=np.array([7, 0, 9], dtype=np.int8),
        speaker=np.array([4, 1, 4], dtype=np.int8),
        take=np.array([0, 6, 5], dtype=np.int16),
        rate=np.array(8000),
    )
    return path


def test_a_corpus_is_read_from_a_file(tmp_path: Path) -> None:
    corpus = Corpus.load(corpus_file(tmp_path / "digits.npz"))
    assert corpus.rate == 8000
    assert corpus.speakers == (1, 4)
    assert [(one.digit, one.speaker, one.take) for one in corpus.recordings] == [(7, 4, 0), (0, 1, 6), (9, 4, 5)]
    np.testing.assert_array_equal(corpus.recordings[0].samples, np.array([0.5, -1.0], dtype=np.float32))
    np.testing.assert_array_equal(corpus.recordings[1].samples * 32768, [1, 2, 3])
    assert corpus.recordings[2].samples.dtype == np.float32


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("audio", np.zeros(6, dtype=np.float32), "audio is float32 of shape (6,): it must be int16"),
        ("audio", np.zeros((6, 2), dtype=np.int16), "one channel"),
        ("audio", np.zeros(5, dtype=np.int16), "within the 5 samples"),
        ("offsets", np.array([0, 2, 2, 6]), "offsets must rise"),
        ("offsets", np.array([6, 5, 2, 0]), "offsets must rise"),
        ("offsets", np.array([-1, 2, 5, 6]), "offsets must rise"),
        ("offsets", np.array([0, 2, 5]), "offsets has 3 entries, and digit 3"),
        ("offsets", np.array([0.0, 2.0, 5.0, 6.0]), "offsets is float64"),
        ("digit", np.array([7, 10, 9]), "digit has 7 to 10"),
        ("digit", np.array([7, -1, 9]), "digit has -1 to 9"),
        ("digit", np.array([7.5, 0.5, 9.5]), "digit is float64"),
        ("take", np.array([0, 6]), "take 2"),
        ("speaker", np.array(["ann", "bob", "ann"]), "speaker is <U3"),
        ("rate", np.array(4000), "rate is 4000"),
        ("rate", np.array(8000.5), "rate is 8000.5"),
        ("rate", np.array([8000, 8000]), "rate is [8000 8000]"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(
    name: str, value: np.ndarray, said: str, tmp_path: Path
) -> None:
    path = corpus_file(tmp_path / "digits.npz")
    with np.load(path) as given:
        arrays = {**given, name: value}
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=re.escape(said)) as caught:
        Corpus.load(path)
    assert "digits.npz" in str(caught.value)


def test_a_file_without_recordings_in_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "digits.npz"
    none = np.zeros(0, dtype=np.int16)
    np.savez(path, audio=none, offsets=np.zeros(1, dtype=int), digit=none, speaker=none, take=none, rate=8000)
    with pytest.raises(DataError, match="at least one recording"):
        Corpus.load(path)


def test_arrays_that_are_missing_are_named(tmp_path: Path) -> None:
    path = corpus_file(tmp_path / "digits.npz")
    with np.load(path) as given:
        arrays = {name: given[name] for name in given if name not in ("take", "rate")}
    np.savez(path, **arrays)
    with pytest.raises(DataError, match="has no take, rate"):
        Corpus.load(path)


def test_the_first_takes_of_a_corpus(tmp_path: Path) -> None:
    corpus = Corpus.load(corpus_file(tmp_path / "digits.npz"))
    assert [one.take for one in corpus.with_takes(6).recordings] == [0, 5]
    assert corpus.with_takes(7) == corpus
    assert corpus.with_takes(6).rate == corpus.rate
