"""Training and measurement of the acoustic models of a split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

from examples.speech.acoustic import MODELS, AcousticModel, Sizes
from examples.speech.decoder import Decoder
from examples.speech.emissions import CachedEmissions
from examples.speech.evaluation import Speed, Words, frame_error, scoring_speed, string_errors, tuned
from examples.speech.material import TUNING_STRINGS, Material, Utterances


@dataclass(frozen=True)
class Result:
    """One line of the table.

    Parameters
    ----------
    model, split : str
    frame_error : float
        Percent of wrong frames in the test strings.
    digit_error : float
        Percent of wrong test recordings, decoded one by one.
    strings : Words
        Errors in the test strings.
    penalty : float
        Word penalty.
    n_centers : int
        Kernel evaluations, or Gaussians, for one frame.
    training_seconds : float
        Time of training, including the calibration of probabilities.
    speed : Speed
    """

    model: str
    split: str
    frame_error: float
    digit_error: float
    strings: Words
    penalty: float
    n_centers: int
    training_seconds: float
    speed: Speed


def measure(material: Material, split: str, name: str, sizes: Sizes, seed: int) -> Result:
    """Train a model by its name, and return its results."""
    model, seconds = trained(partial(MODELS[name], material, sizes, seed), material.digits)
    return _measured(model, material, name, split, seconds)


def trained(train: Callable[[], AcousticModel], digits: Utterances) -> tuple[AcousticModel, float]:
    """Train a model, and return it with the seconds until its first score.

    Parameters
    ----------
    train : callable
        Trains the model.
    digits : Utterances
        One of their frames is scored: distkern's classifiers calibrate their probabilities at the first score.
    """
    started = perf_counter()
    model = train()
    model.emissions(model.inputs(digits)[0][:1])
    return model, perf_counter() - started


def _measured(model: AcousticModel, material: Material, name: str, split: str, seconds: float) -> Result:
    digits, strings = material.digits, material.strings
    speed = scoring_speed(model.emissions, model.inputs(digits))
    cached = CachedEmissions(model.emissions)
    tuning = material.train.spread(TUNING_STRINGS)
    decoder = tuned(Decoder(cached, material.stay), model.inputs(tuning), tuning.words)
    decoder = replace(decoder, emissions=CachedEmissions(model.emissions))
    decoded = [decoder.digit(utterance) for utterance in model.inputs(digits)]
    wrong = sum(spoken != (digit,) for spoken, digit in zip(digits.words, decoded, strict=True))
    return Result(
        model=name,
        split=split,
        frame_error=frame_error(decoder.emissions, model.inputs(strings), strings.states, material.log_priors),
        digit_error=100.0 * wrong / len(decoded),
        strings=string_errors(decoder, model.inputs(strings), strings.words),
        penalty=decoder.penalty,
        n_centers=model.n_centers,
        training_seconds=seconds,
        speed=speed,
    )
