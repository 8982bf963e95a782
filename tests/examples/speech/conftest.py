"""A small part of the recordings of spoken digits, where they are present."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from examples.speech.corpus import Corpus
from examples.speech.material import Material, prepare
from examples.speech.splits import Split

SPEAKERS = 2
TAKES = 8


@pytest.fixture(scope="session")
def digits_file(shared_data: Callable[[str], dict[str, np.ndarray]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first takes of two speakers: 160 recordings."""
    data = shared_data("spoken_digits")
    ends = data["offsets"]
    kept = np.flatnonzero((data["speaker"] < SPEAKERS) & (data["take"] < TAKES))
    pieces = [data["audio"][ends[i] : ends[i + 1]] for i in kept]
    path = tmp_path_factory.mktemp("speech") / "digits.npz"
    np.savez(
        path,
        audio=np.concatenate(pieces),
        offsets=np.cumsum([0, *map(len, pieces)]),
        rate=data["rate"],
        **{key: data[key][kept] for key in ("digit", "speaker", "take")},
    )
    return path


@pytest.fixture(scope="session")
def material(digits_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Material:
    """Three takes to train on and one to test, 60 and 20 recordings."""
    corpus = Corpus.load(digits_file)
    split = Split(
        "small",
        tuple(recording for recording in corpus.recordings if recording.take >= TAKES - 3),
        tuple(recording for recording in corpus.recordings if recording.take == 0),
    )
    return prepare(split, corpus.rate, rounds=2, folder=tmp_path_factory.mktemp("speech-stores"), seed=0)
