"""Recordings of spoken digits, and strings: recordings that are joined with short pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile
from zlib import error as ZlibError

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError
from examples.speech.topology import N_DIGITS

Samples = NDArray[np.float32]

STRING_WORDS = (3, 7)
"""Fewest and most words of a string."""

PAUSE_SECONDS = (0.05, 0.15)
"""Shortest and longest pause before, between and after the words."""

QUIET_SECONDS = 0.02
"""Length of the pieces of a recording; the quietest piece determines the level of the pauses."""

FULL_SCALE = 32768.0

LEAST_RATE = 8000
"""Smallest number of samples in a second that represents speech."""

FACTS = ("digit", "speaker", "take")
"""Arrays with one number for each recording."""

ARRAYS = ("audio", "offsets", *FACTS, "rate")


@dataclass(frozen=True)
class Recording:
    """One digit, spoken once."""

    samples: Samples
    """Shape (n,), in -1..1."""
    digit: int
    speaker: int
    take: int


@dataclass(frozen=True)
class Utterance:
    """Words of one speaker with pauses around each."""

    samples: Samples
    words: tuple[int, ...]
    speaker: int
    bounds: tuple[tuple[int, int], ...]
    """First and last sample of each word, the last one excluded."""


@dataclass(frozen=True)
class Corpus:
    """All recordings of a set.

    Parameters
    ----------
    recordings : sequence of Recording
    rate : int
        Samples in a second.
    """

    recordings: tuple[Recording, ...]
    rate: int

    @classmethod
    def load(cls, path: Path) -> Corpus:
        """Read an npz file with `audio`, `offsets`, `digit`, `speaker`, `take` and `rate`.

        Raises
        ------
        DataError
            The file is no such file, or its arrays do not belong together.
        """
        arrays = _read(path)
        _check(arrays, path)
        audio = arrays["audio"].astype(np.float32) / FULL_SCALE
        ends = arrays["offsets"]
        facts = zip(*(arrays[name] for name in FACTS), strict=True)
        recordings = tuple(
            Recording(audio[ends[i] : ends[i + 1]], int(digit), int(speaker), int(take))
            for i, (digit, speaker, take) in enumerate(facts)
        )
        return cls(recordings, int(arrays["rate"]))

    def with_takes(self, count: int) -> Corpus:
        """Return the first `count` takes of every digit and speaker."""
        return replace(self, recordings=tuple(recording for recording in self.recordings if recording.take < count))

    @property
    def speakers(self) -> tuple[int, ...]:
        """Numbers of the speakers, in order."""
        return tuple(sorted({recording.speaker for recording in self.recordings}))


def _read(path: Path) -> dict[str, NDArray[Any]]:
    required = f"{', '.join(ARRAYS[:-1])} and {ARRAYS[-1]}"
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            missing = [name for name in ARRAYS if name not in arrays]
            if not missing:
                return {name: arrays[name] for name in ARRAYS}
    except (BadZipFile, EOFError, TypeError, ValueError, ZlibError) as error:
        raise DataError(f"{str(path)!r} is no npz file with {required}", kind="not-recordings") from error
    raise DataError(
        f"{str(path)!r} has no {', '.join(missing)}: it must be an npz file with {required}", kind="not-recordings"
    )


def _check(arrays: dict[str, NDArray[Any]], path: Path) -> None:
    """Refuse arrays that do not describe recordings."""

    def refuse(what: str) -> DataError:
        return DataError(f"{str(path)!r}: {what}", kind="not-recordings")

    audio, ends, rate = arrays["audio"], arrays["offsets"], arrays["rate"]
    if audio.dtype != np.int16 or audio.ndim != 1:
        raise refuse(f"audio is {audio.dtype} of shape {audio.shape}: it must be int16 of one dimension, one channel")
    for name in ("offsets", *FACTS):
        if arrays[name].dtype.kind not in "iu" or arrays[name].ndim != 1:
            raise refuse(
                f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}: it must be integers of one dimension"
            )
    counts = {name: len(arrays[name]) for name in FACTS}
    if set(counts.values()) != {len(ends) - 1} or len(ends) < 2:
        raise refuse(
            f"offsets has {len(ends)} entries, and {', '.join(f'{name} {count}' for name, count in counts.items())}: "
            "there must be at least one recording, and one offset more than recordings"
        )
    if ends[0] < 0 or ends[-1] > len(audio) or (ends[1:] <= ends[:-1]).any():
        raise refuse(f"offsets must rise, from recording to recording, within the {len(audio)} samples of audio")
    if not 0 <= arrays["digit"].min() <= arrays["digit"].max() < N_DIGITS:
        raise refuse(f"digit has {arrays['digit'].min()} to {arrays['digit'].max()}: the digits are 0 to 9")
    if rate.shape or rate.dtype.kind not in "iu" or rate < LEAST_RATE:
        raise refuse(f"rate is {rate}: it must be a whole number of samples a second, {LEAST_RATE} or more")


def alone(recordings: Sequence[Recording], rate: int, seed: int) -> list[Utterance]:
    """Make an utterance of each recording."""
    rng = np.random.default_rng(seed)
    return [_join([recording], rate, rng) for recording in recordings]


def strings(recordings: Sequence[Recording], rate: int, seed: int) -> list[Utterance]:
    """Join the recordings of each speaker, each once and in random order, to strings of 3 to 7 words.

    The last string of a speaker may have fewer words.
    """
    rng = np.random.default_rng(seed)
    made = []
    for speaker in sorted({recording.speaker for recording in recordings}):
        own = [recording for recording in recordings if recording.speaker == speaker]
        left = [own[i] for i in rng.permutation(len(own))]
        while left:
            length = int(rng.integers(STRING_WORDS[0], STRING_WORDS[1] + 1))
            made.append(_join(left[:length], rate, rng))
            left = left[length:]
    return made


def _join(recordings: Sequence[Recording], rate: int, rng: np.random.Generator) -> Utterance:
    level = float(np.median([_quietest(recording.samples, rate) for recording in recordings]))
    pieces, bounds, length = [_pause(level, rate, rng)], [], 0
    length = len(pieces[0])
    for recording in recordings:
        bounds.append((length, length + len(recording.samples)))
        pieces += [recording.samples, _pause(level, rate, rng)]
        length += len(recording.samples) + len(pieces[-1])
    words = tuple(recording.digit for recording in recordings)
    return Utterance(np.concatenate(pieces), words, recordings[0].speaker, tuple(bounds))


def _quietest(samples: Samples, rate: int) -> float:
    """Return the root mean square of the quietest piece."""
    size = min(int(QUIET_SECONDS * rate), len(samples))
    pieces = samples[: len(samples) // size * size].reshape(-1, size)
    return float(np.sqrt((pieces**2).mean(axis=1).min()))


def _pause(level: float, rate: int, rng: np.random.Generator) -> Samples:
    """Return noise of the given level, and never digital silence."""
    length = int(rng.uniform(*PAUSE_SECONDS) * rate)
    return (max(level, 1 / FULL_SCALE) * rng.standard_normal(length)).astype(np.float32)
