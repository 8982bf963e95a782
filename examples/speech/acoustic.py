"""Acoustic models that score states by log P(state | x) - log P(state) (thesis 4.2), from distkern and scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.svm import SVC

import distkern
from examples.speech.emissions import Emissions, Scores
from examples.speech.features import Frames
from examples.speech.material import Material, Utterances
from examples.speech.mixtures import BASELINE_MIXTURES, GaussianMixtures
from examples.speech.topology import N_STATES

SIGMA = 8.0
"""Width of the kernel, about the distance of two frames of a state."""

SVM_COST = 3.0

PAIR_CANDIDATES = 16
PAIR_PANEL = 5
"""The pools are small, because each of the 3403 pairs of states has few rows."""

DECIDED_FRAMES = 20_000
"""Most training frames on which decisions are counted."""

COMMON: dict[str, Any] = {
    "sigma": SIGMA,
    "stop": None,
    "standardize": False,
    "dtype": "float32",
    "memory_limit": "2GiB",
}
"""Parameters of all models: the input is scaled already, and lambda regularises."""


@dataclass(frozen=True)
class AcousticModel:
    """Scores of states, and the input that they are computed from.

    Parameters
    ----------
    emissions : Emissions
    source : {"frames", "context"}
        The array of an utterance that is the model's input.
    n_centers : int
        Kernel evaluations, or Gaussians, for one frame.
    """

    emissions: Emissions
    source: str
    n_centers: int

    def inputs(self, utterances: Utterances) -> tuple[Frames, ...]:
        """Return the model's input for some utterances."""
        return utterances.frames if self.source == "frames" else utterances.context


@dataclass(frozen=True)
class KernelEmissions:
    """Emission scores from a classifier of distkern.

    Parameters
    ----------
    classifier : estimator of distkern
        Trained on the states of all frames.
    """

    classifier: Any

    def __call__(self, inputs: Frames) -> Scores:
        """Return log P(state | x) - log P(state), shape (n_frames, N_STATES)."""
        return np.asarray(self.classifier.log_likelihood(inputs))


@dataclass(frozen=True)
class DecidedStates:
    """Emission scores from decisions alone: the log of how often frames of each state were decided so in training.

    Parameters
    ----------
    classifier : estimator of distkern
        Trained on the states of all frames.
    log_chances : array, shape (N_STATES, N_STATES)
        Log P(decision | state), a row for each decision.
    """

    classifier: Any
    log_chances: NDArray[np.float64]

    @classmethod
    def of(cls, classifier: Any, frames: Frames, states: NDArray[np.intp]) -> DecidedStates:
        """Count the decisions on some frames; every pair of a decision and a state counts once more."""
        counts = np.ones((N_STATES, N_STATES))
        np.add.at(counts, (classifier.predict(frames), states), 1.0)
        return cls(classifier, np.log(counts / counts.sum(axis=0)))

    def __call__(self, inputs: Frames) -> Scores:
        """Return log P(decision | state), shape (n_frames, N_STATES)."""
        return self.log_chances[self.classifier.predict(inputs)]


@dataclass(frozen=True)
class SampledSVM:
    """Emission scores from a support vector machine that was trained on a sample.

    Parameters
    ----------
    classifier : CalibratedClassifierCV
    log_priors : array, shape (N_STATES,)
        Log of the shares of the states in all frames.
    """

    classifier: CalibratedClassifierCV
    log_priors: NDArray[np.float64]

    def __call__(self, inputs: Frames) -> Scores:
        """Return log P(state | x) - log P(state), shape (n_frames, N_STATES)."""
        tiny = np.finfo(np.float64).tiny
        return np.asarray(np.log(np.maximum(self.classifier.predict_proba(inputs), tiny)) - self.log_priors)


@dataclass(frozen=True)
class Sizes:
    """Sizes of the models; the defaults are for all frames.

    Parameters
    ----------
    shared : int, default 1000
        Centres of the model with shared centres.
    selection_rows : int, default 32000
        Frames among which centres are chosen.
    own : int, default 60
        Centres of each state, one-vs-rest.
    pair : int, default 12
        Centres of each pair of states, one-vs-one.
    nu : float, default 0.5
        Smallest independence of a centre in the dictionary of recursive least squares.
    svm_rows : int, default 5000
        Training frames of the support vector machine.
    """

    shared: int = 1000
    selection_rows: int = 32_000
    own: int = 60
    pair: int = 12
    nu: float = 0.5
    svm_rows: int = 5_000


def gmm(material: Material, sizes: Sizes, seed: int) -> AcousticModel:
    """Train the baseline: mixtures of Gaussians on the features themselves."""
    return _mixtures(material, "frames", seed)


def gmm_context(material: Material, sizes: Sizes, seed: int) -> AcousticModel:
    """Train the baseline's mixtures on the input of the kernel models."""
    return _mixtures(material, "context", seed)


def orols_shared(material: Material, sizes: Sizes, seed: int) -> AcousticModel:
    """Train one set of centres for all states, with one column of weights for each state."""
    return _trained(
        distkern.OROLSClassifier(
            max_centers=sizes.shared,
            selection_rows=min(sizes.selection_rows, material.store.n_rows),
            multiclass="shared",
            random_state=seed,
            **COMMON,
        ),
        material,
    )


def orols_one_vs_rest(material: Material, sizes: Sizes, seed: int) -> AcousticModel:
    """Train each state against all frames of all others, with its own centres."""
    return _trained(
        distkern.OROLSClassifier(
            max_centers=sizes.own,
            selection_rows=min(sizes.selection_rows, material.store.n_rows),
            multiclass="one-vs-rest",
            random_state=seed,
            **COMMON,
        ),
        material,
    )


def npd_one_vs_one(material: Material, sizes: Sizes, seed: int) -> AcousticModel:
    """Train each pair of states; pairwise coupling (thesis 4.8) joins them."""
    return _trained(_of_pairs(distkern.NPDClassifier, "one-vs-one", sizes, seed), material)


def orols_one_vs_one(material: Material, sizes: Sizes, seed: int) -> AcousticModel:
    """Train each pair of states as `npd_one_vs_one` does, with lambda by generalised cross-validation."""
    return _trained(_of_pairs(distkern.OROLSClassifier, "one-vs-one", sizes, seed), material)


def orols_graph(material: Material, sizes: Sizes, seed: int) -> AcousticModel:
    """Train the same pairs; a frame's state is decided by 82 of them, one after another (thesis 4.5, an outlook)."""
    trained = _trained(_of_pairs(distkern.OROLSClassifier, "dag", sizes, seed), material)
    assert isinstance(trained.emissions, KernelEmissions)
    frames, states = np.concatenate(material.train.context), np.concatenate(material.train.states)
    step = -(-len(states) // DECIDED_FRAMES)
    decided = DecidedStates.of(trained.emissions.classifier, frames[::step], states[::step])
    return replace(trained, emissions=decided)


def _of_pairs(kind: Any, multiclass: str, sizes: Sizes, seed: int) -> Any:
    return kind(
        max_centers=sizes.pair,
        candidates=PAIR_CANDIDATES,
        panel=PAIR_PANEL,
        multiclass=multiclass,
        random_state=seed,
        **COMMON,
    )


def krls_one_vs_rest(material: Material, sizes: Sizes, seed: int) -> AcousticModel:
    """Train a dictionary in one pass over all frames, with one column of weights for each state."""
    return _trained(distkern.KRLSClassifier(sigma=SIGMA, nu=sizes.nu, standardize=False), material)


def svm_one_vs_one(material: Material, sizes: Sizes, seed: int) -> AcousticModel:
    """Train support vector machines of all pairs of states on a sample: time grows with the square of the frames."""
    frames, states = np.concatenate(material.train.context), np.concatenate(material.train.states)
    rows = np.sort(np.random.default_rng(seed).permutation(len(states))[: sizes.svm_rows])
    machine = SVC(C=SVM_COST, gamma=1 / (2 * SIGMA**2), cache_size=500)
    calibrated = CalibratedClassifierCV(machine, method="temperature", ensemble=False, cv=2)
    calibrated.fit(frames[rows], states[rows])
    vectors = calibrated.calibrated_classifiers_[0].estimator.n_support_.sum()
    return AcousticModel(SampledSVM(calibrated, material.log_priors), "context", int(vectors))


MODELS: dict[str, Callable[[Material, Sizes, int], AcousticModel]] = {
    "GMM": gmm,
    "GMM, context": gmm_context,
    "SVM one-vs-one": svm_one_vs_one,
    "NPD one-vs-one": npd_one_vs_one,
    "OROLS one-vs-one": orols_one_vs_one,
    "OROLS decision graph": orols_graph,
    "OROLS one-vs-rest": orols_one_vs_rest,
    "OROLS shared centres": orols_shared,
    "KRLS one-vs-rest": krls_one_vs_rest,
}
"""Training function of each model, by its name in the table."""


def _mixtures(material: Material, source: str, seed: int) -> AcousticModel:
    frames, states = np.concatenate(getattr(material.train, source)), np.concatenate(material.train.states)
    mixtures = GaussianMixtures.fit(frames, states, BASELINE_MIXTURES, seed)
    return AcousticModel(mixtures, source, mixtures.n_gaussians)


def _trained(classifier: Any, material: Material) -> AcousticModel:
    classifier.fit(material.store)
    return AcousticModel(KernelEmissions(classifier), "context", len(np.unique(classifier.center_indices_)))
