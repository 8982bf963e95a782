"""The splits of the recordings into training and test recordings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from distkern.errors import DataError
from examples.speech.corpus import Corpus, Recording
from examples.speech.topology import N_DIGITS

TEST_TAKES = 5
"""Number of first takes of every digit and speaker that are the set's own test recordings."""

LEAST_SECONDS = 0.1
"""Length of the shortest recording: every state of its word needs a frame."""

KINDS = ("takes", "left-out", "per-speaker")


@dataclass(frozen=True)
class Split:
    """Recordings to train on and to test with."""

    name: str
    train: tuple[Recording, ...]
    test: tuple[Recording, ...]


def splits(corpus: Corpus, kind: str) -> Iterator[Split]:
    """Yield the splits of a kind.

    Parameters
    ----------
    corpus : Corpus
    kind : {"takes", "left-out", "per-speaker"}
        All speakers, first takes against the others; all takes, one speaker against the others, each in turn; or each
        speaker alone, first takes against the others.
    """
    if kind == "takes":
        yield _by_take("takes", corpus.recordings)
        return
    for speaker in corpus.speakers:
        own = tuple(recording for recording in corpus.recordings if recording.speaker == speaker)
        others = tuple(recording for recording in corpus.recordings if recording.speaker != speaker)
        name = f"{kind} {speaker}"
        yield Split(name, others, own) if kind == "left-out" else _by_take(name, own)


def check(split: Split, rate: int) -> None:
    """Refuse a split that is not sufficient to train and test a recogniser of all digits.

    Raises
    ------
    DataError
        A digit is missing, there is no test recording, or a recording is too short for the states of a word.
    """
    absent = sorted(set(range(N_DIGITS)) - {recording.digit for recording in split.train})
    if absent:
        raise DataError(
            f"split {split.name}: no training recording is of {', '.join(map(str, absent))}; takes 0 to "
            f"{TEST_TAKES - 1} are tests where a speaker trains too, and left-out needs two speakers or more",
            kind="missing-digits",
        )
    if not split.test:
        raise DataError(
            f"split {split.name}: there is no test recording, where takes 0 to {TEST_TAKES - 1} are tests",
            kind="nothing-to-test",
        )
    shortest = min((*split.train, *split.test), key=lambda recording: len(recording.samples))
    if len(shortest.samples) < LEAST_SECONDS * rate:
        raise DataError(
            f"split {split.name}: digit {shortest.digit}, take {shortest.take} of speaker {shortest.speaker} has "
            f"{len(shortest.samples)} samples, {1000 * len(shortest.samples) / rate:.0f} ms: recordings must have "
            f"{1000 * LEAST_SECONDS:.0f} ms or more",
            kind="too-short",
        )


def _by_take(name: str, recordings: tuple[Recording, ...]) -> Split:
    return Split(
        name,
        tuple(recording for recording in recordings if recording.take >= TEST_TAKES),
        tuple(recording for recording in recordings if recording.take < TEST_TAKES),
    )
