"""Models of all kinds on a small part of the recordings: probabilities, scores, and what they decode."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import distkern
from examples.speech.acoustic import COMMON, MODELS, AcousticModel, DecidedStates, KernelEmissions, Sizes
from examples.speech.decoder import Decoder
from examples.speech.emissions import CachedEmissions
from examples.speech.evaluation import frame_error
from examples.speech.experiment import measure
from examples.speech.material import Material
from examples.speech.topology import N_STATES
from tests.markers import variants

pytestmark = pytest.mark.nightly

SMALL = Sizes(shared=150, selection_rows=1500, own=5, pair=2, nu=0.6, svm_rows=1000)

SHARED = "OROLS shared centres"
GRAPH = "OROLS decision graph"
WITH_POSTERIORS = [name for name in MODELS if not name.startswith("GMM") and name != GRAPH]


@dataclass
class Trained:
    """Models of the small material, each trained when a test first asks for it."""

    material: Material
    models: dict[str, AcousticModel]

    def __getitem__(self, name: str) -> AcousticModel:
        if name not in self.models:
            self.models[name] = MODELS[name](self.material, SMALL, 0)
        return self.models[name]


@pytest.fixture(scope="module")
def trained(material: Material) -> Trained:
    return Trained(material, {})


@pytest.mark.parametrize("name", variants(["GMM", SHARED], MODELS))
def test_every_model_scores_frames_far_better_than_chance(name: str, trained: Trained) -> None:
    """The most frequent state alone is wrong in more than 90 % of the frames."""
    strings, model = trained.material.strings, trained[name]
    scores = model.emissions(model.inputs(strings)[0])
    assert scores.shape == (len(strings.frames[0]), N_STATES)
    assert np.isfinite(scores).all()
    assert model.n_centers > 0
    error = frame_error(model.emissions, model.inputs(strings), strings.states, trained.material.log_priors)
    assert error < 80


@pytest.mark.parametrize("name", variants([SHARED], WITH_POSTERIORS))
def test_scores_and_shares_of_the_states_give_probabilities_that_sum_to_1(name: str, trained: Trained) -> None:
    model = trained[name]
    for inputs in model.inputs(trained.material.strings)[:3]:
        posteriors = np.exp(model.emissions(inputs) + trained.material.log_priors)
        np.testing.assert_allclose(posteriors.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("name", variants([SHARED], (name for name in WITH_POSTERIORS if name != "SVM one-vs-one")))
def test_scores_are_log_posteriors_less_log_shares(name: str, trained: Trained) -> None:
    model = trained[name]
    assert isinstance(model.emissions, KernelEmissions)
    inputs = model.inputs(trained.material.strings)[0]
    posteriors = model.emissions.classifier.predict_proba(inputs)
    assert (posteriors >= 0).all()
    np.testing.assert_allclose(posteriors.sum(axis=1), 1, rtol=1e-6)
    expected = np.log(np.maximum(posteriors, np.finfo(np.float64).tiny)) - trained.material.log_priors
    np.testing.assert_allclose(model.emissions(inputs), expected, atol=1e-6)


def test_a_decision_graph_scores_states_by_how_often_they_are_decided_so(trained: Trained) -> None:
    model = trained[GRAPH]
    emissions = model.emissions
    assert isinstance(emissions, DecidedStates)
    np.testing.assert_allclose(np.exp(emissions.log_chances).sum(axis=0), 1, rtol=1e-9)
    inputs = model.inputs(trained.material.strings)[0]
    decided = emissions.classifier.predict(inputs)
    np.testing.assert_array_equal(emissions(inputs), emissions.log_chances[decided])
    # Most decisions on frames of a state are that state.
    assert (emissions.log_chances.argmax(axis=0) == np.arange(N_STATES)).mean() > 0.8


@pytest.mark.parametrize("name", variants(["GMM"], ["GMM", "GMM, context"]))
def test_the_baseline_gives_every_state_its_gaussians(name: str, trained: Trained) -> None:
    model = trained[name]
    counts = np.bincount(np.concatenate(trained.material.train.states), minlength=N_STATES)
    assert model.n_centers == np.minimum(8, np.maximum(1, counts // 2)).sum()


@pytest.mark.nightly
def test_models_see_features_or_context(trained: Trained) -> None:
    digits = trained.material.digits
    assert trained["GMM"].inputs(digits) is digits.frames
    assert trained["GMM, context"].inputs(digits) is digits.context
    assert trained[SHARED].inputs(digits) is digits.context


def test_all_states_share_the_centres(trained: Trained) -> None:
    assert trained[SHARED].n_centers == SMALL.shared


def test_scores_of_a_frame_do_not_depend_on_the_others(trained: Trained) -> None:
    model = trained[SHARED]
    inputs = model.inputs(trained.material.strings)[0]
    one_by_one = np.concatenate([model.emissions(inputs[i : i + 1]) for i in range(0, len(inputs), 10)])
    np.testing.assert_allclose(model.emissions(inputs)[::10], one_by_one, atol=1e-3)


def test_decoders_with_and_without_memory_agree(trained: Trained) -> None:
    model, stay = trained[SHARED], trained.material.stay
    cached = CachedEmissions(model.emissions)
    plain, remembering = Decoder(model.emissions, stay, 20.0), Decoder(cached, stay, 20.0)
    strings = model.inputs(trained.material.strings)[:4]
    digits = model.inputs(trained.material.digits)[:6]
    for _ in range(2):
        for inputs in strings:
            np.testing.assert_allclose(cached(inputs), model.emissions(inputs), atol=1e-9)
            assert remembering.string(inputs) == plain.string(inputs)
        for inputs in digits:
            assert remembering.digit(inputs) == plain.digit(inputs)
        assert cached.scored == sum(map(len, (*strings, *digits)))


def test_scores_from_the_store_are_those_from_memory(material: Material) -> None:
    def trained_on(X: object, *y: np.ndarray) -> KernelEmissions:
        classifier = distkern.OROLSClassifier(max_centers=40, multiclass="shared", random_state=0, **COMMON)
        return KernelEmissions(classifier.fit(X, *y))

    inputs = material.strings.context[0]
    stored = trained_on(material.store)
    in_memory = trained_on(np.concatenate(material.train.context), np.concatenate(material.train.states))
    np.testing.assert_allclose(stored(inputs), in_memory(inputs), rtol=1e-3, atol=1e-2)


def test_a_measured_model_is_the_trained_one(trained: Trained) -> None:
    name, material = SHARED, trained.material
    result = measure(material, "small", name, SMALL, 0)
    assert (result.model, result.split) == (name, "small")
    assert result.n_centers == SMALL.shared
    model = trained[name]
    inputs = model.inputs(material.strings)
    error = frame_error(model.emissions, inputs, material.strings.states, material.log_priors)
    assert result.frame_error == pytest.approx(error, abs=0.2)
    decoder = Decoder(model.emissions, material.stay)
    decoded = [decoder.digit(frames) for frames in model.inputs(material.digits)]
    wrong = np.mean([digit != spoken for digit, (spoken,) in zip(decoded, material.digits.words, strict=True)])
    assert result.digit_error == pytest.approx(100 * wrong, abs=1e-9)
    assert result.strings.words == 40
    assert result.strings.accuracy > 50
    assert result.training_seconds > 0


def test_stores_of_frames_are_written_beside_each_other(material: Material) -> None:
    folder = Path(material.store.path).parent
    assert {path.name for path in folder.iterdir()} == {"frames.zarr", "context.zarr"}
    frames = distkern.open_dataset(folder / "frames.zarr")
    assert frames.n_rows == material.store.n_rows
