"""Measures of an acoustic model: errors on frames, isolated digits and strings of digits, and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import jiwer
import numpy as np
from numpy.typing import NDArray

from examples.speech.decoder import Decoder
from examples.speech.emissions import Emissions
from examples.speech.features import HOP_SECONDS, Frames

PENALTIES = tuple(range(0, 201, 10))
"""Word penalties; one is chosen on training data."""

TIMED_FRAMES = 5_000
"""Number of frames in the measurement of speed."""


@dataclass(frozen=True)
class Words:
    """Word accuracy and its errors (thesis 4.5), in words and percent."""

    words: int
    substitutions: int
    insertions: int
    deletions: int

    @property
    def accuracy(self) -> float:
        """Percent of the words that are correct, less the inserted words."""
        return 100.0 - 100.0 * (self.substitutions + self.insertions + self.deletions) / self.words


@dataclass(frozen=True)
class Speed:
    """Speed of scoring frames without cache."""

    scores_per_second: float
    """Scores of one state at one frame in a second."""
    times_real_time: float
    """Seconds of sound scored in a second."""


def word_errors(spoken: Sequence[tuple[int, ...]], decoded: Sequence[tuple[int, ...]]) -> Words:
    """Align the decoded with the spoken words, and count the errors."""
    found = jiwer.process_words([_text(words) for words in spoken], [_text(words) for words in decoded])
    return Words(sum(map(len, spoken)), found.substitutions, found.insertions, found.deletions)


def string_errors(decoder: Decoder, inputs: Sequence[Frames], spoken: Sequence[tuple[int, ...]]) -> Words:
    """Decode strings of digits and count the errors."""
    return word_errors(spoken, [decoder.string(utterance) for utterance in inputs])


def tuned(decoder: Decoder, inputs: Sequence[Frames], spoken: Sequence[tuple[int, ...]]) -> Decoder:
    """Choose the word penalty: the middle of those with the fewest errors on some training strings."""
    errors = [-string_errors(replace(decoder, penalty=penalty), inputs, spoken).accuracy for penalty in PENALTIES]
    best = [penalty for penalty, error in zip(PENALTIES, errors, strict=True) if error == min(errors)]
    return replace(decoder, penalty=float(best[len(best) // 2]))


def frame_error(
    emissions: Emissions, inputs: Sequence[Frames], paths: Sequence[NDArray[np.intp]], log_priors: NDArray[np.float64]
) -> float:
    """Return the percent of frames whose most probable state is not that of the alignment."""
    wrong = [
        np.count_nonzero((emissions(utterance) + log_priors).argmax(axis=1) != path)
        for utterance, path in zip(inputs, paths, strict=True)
    ]
    return 100.0 * sum(wrong) / sum(map(len, paths))


def scoring_speed(emissions: Emissions, inputs: Sequence[Frames]) -> Speed:
    """Measure the time to score some frames, by emissions that were called before."""
    frames = np.concatenate(inputs)[:TIMED_FRAMES]
    started = perf_counter()
    scores = emissions(frames)
    seconds = perf_counter() - started
    return Speed(scores.size / seconds, len(frames) * HOP_SECONDS / seconds)


def _text(words: Sequence[int]) -> str:
    return " ".join(map(str, words))
