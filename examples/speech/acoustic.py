"""Acoustic models that score states by log P(state | x) - log P(state) (thesis 4.2), from distkern and scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.svm import SVC

import distkern
from examples.speech.emissions import Scores
from examples.speech.features import Frames

SIGMA = 8.0
"""Width of the kernel, about the distance of two frames of a state."""

SVM_ROWS = 8_000
SVM_COST = 3.0


@dataclass(frozen=True)
class KernelModel:
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
class SampledSVM:
    """Emission scores from a support vector machine that was trained on a sample.

    Parameters
    ----------
    classifier : CalibratedClassifierCV
    log_priors : array, shape (N_STATES,)
        Of the states in all frames.
    """

    classifier: CalibratedClassifierCV
    log_priors: NDArray[np.float64]

    def __call__(self, inputs: Frames) -> Scores:
        """Return log P(state | x) - log P(state), shape (n_frames, N_STATES)."""
        tiny = np.finfo(np.float64).tiny
        return np.log(np.maximum(self.classifier.predict_proba(inputs), tiny)) - self.log_priors


@dataclass(frozen=True)
class Sizes:
    """How large the models may become: for all frames, or for a small slice.

    Parameters
    ----------
    shared : int
        Centres of the model with shared centres.
    selection_rows : int
        Frames among which these are chosen.
    own : int
        Centres of each state, one-vs-rest.
    pair : int
        Centres of each pair of states, one-vs-one.
    nu : float
        Least independence of a centre, by which the dictionary of recursive least squares grows.
    """

    shared: int = 2000
    selection_rows: int = 32_000
    own: int = 60
    pair: int = 12
    nu: float = 0.3


Train = Callable[[distkern.Dataset, Sizes], Any]


def orols_shared(train: distkern.Dataset, sizes: Sizes) -> KernelModel:
    """One set of centres for all states, one column of weights a state."""
    return _fit(
        distkern.OROLSClassifier(
            sigma=SIGMA,
            max_centers=sizes.shared,
            selection_rows=min(sizes.selection_rows, train.n_rows),
            multiclass="shared",
            stop=None,
            standardize=False,
            dtype="float32",
        ),
        train,
    )


def orols_one_vs_rest(train: distkern.Dataset, sizes: Sizes) -> KernelModel:
    """Each state against all frames of all others, with centres of its own."""
    return _fit(
        distkern.OROLSClassifier(
            sigma=SIGMA,
            max_centers=sizes.own,
            multiclass="one-vs-rest",
            stop=None,
            standardize=False,
            dtype="float32",
        ),
        train,
    )


def npd_one_vs_one(train: distkern.Dataset, sizes: Sizes) -> KernelModel:
    """Each pair of states, joined by pairwise coupling (thesis 4.8)."""
    return _fit(
        distkern.NPDClassifier(
            sigma=SIGMA,
            max_centers=sizes.pair,
            multiclass="one-vs-one",
            stop=None,
            standardize=False,
            dtype="float32",
        ),
        train,
    )


def krls_one_vs_rest(train: distkern.Dataset, sizes: Sizes) -> KernelModel:
    """A dictionary from one pass over all frames, one column of weights a state."""
    return _fit(distkern.KRLSClassifier(sigma=SIGMA, nu=sizes.nu, standardize=False), train)


def svm_one_vs_one(train: distkern.Dataset, sizes: Sizes, seed: int) -> SampledSVM:
    """A support vector machine a pair of states, on a sample of the frames: all of them would take hours."""
    X, y = train.X[:], train.y[:]
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(y))[:SVM_ROWS])
    machine = SVC(C=SVM_COST, gamma=1 / (2 * SIGMA**2))
    calibrated = CalibratedClassifierCV(machine, method="temperature", ensemble=False, cv=2).fit(X[rows], y[rows])
    return SampledSVM(calibrated, np.log(np.bincount(y) / len(y)))


def _fit(classifier: Any, train: distkern.Dataset) -> KernelModel:
    return KernelModel(classifier.fit(train))
