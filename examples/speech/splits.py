"""Which recordings train and which test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from examples.speech.corpus import Corpus, Recording

TEST_TAKES = 5
"""The set's own test split: the first takes of every digit and speaker."""

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


def _by_take(name: str, recordings: tuple[Recording, ...]) -> Split:
    return Split(
        name,
        tuple(recording for recording in recordings if recording.take >= TEST_TAKES),
        tuple(recording for recording in recordings if recording.take < TEST_TAKES),
    )
