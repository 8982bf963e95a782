"""Class probabilities on test rows: forms of calibration, compared with each other and with Platt's sigmoid of an SVM.

All forms use one model and are fitted on its leave-one-out outputs, unless the row states otherwise. The SVM has the
same rows and the same kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import distkern
from benchmarks.datasets import data_folder
from distkern.estimators.base import output_functions as outputs
from distkern.probability.calibration import Calibration, log_softmax
from distkern.probability.class_gaussians import ClassGaussians
from distkern.probability.pairwise import pairwise_coupling

Array = NDArray[np.float64]

Losses = tuple[Array, ...]
"""Log loss, Brier score and error of every row."""

SMALLEST = 1e-15
"""Smallest probability in the log loss, as in scikit-learn."""


@dataclass(frozen=True)
class Setting:
    """Width of the kernel on standardised features, and centres."""

    sigma: float
    centers: int


SETTINGS = {
    "pendigits": Setting(2.0, 600),
    "satimage": Setting(2.5, 400),
    "magic": Setting(3.5, 200),
}

MAGIC_ROWS = 5000
"""Training rows of magic, from the 70 percent that are not test rows."""


def load(name: str) -> tuple[Array, NDArray[Any], Array, NDArray[Any]]:
    """Load a set: its own split, or 70 to 30 percent at random for magic."""
    with np.load(data_folder() / f"{name}.npz", allow_pickle=False) as archive:
        if name == "magic":
            X, y = archive["X"].astype(np.float64), archive["y"]
            rows = np.random.default_rng(0).permutation(len(y))
            train, test = rows[: int(0.7 * len(y))][:MAGIC_ROWS], rows[int(0.7 * len(y)) :]
            parts = X[train], y[train], X[test], y[test]
        else:
            parts = tuple(archive[key] for key in ("X_train", "y_train", "X_test", "y_test"))
    scaler = StandardScaler().fit(parts[0].astype(np.float64))
    return scaler.transform(parts[0]), parts[1], scaler.transform(parts[2]), parts[3]


def run(names: tuple[str, ...], seeds: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Measure every set that is present."""
    for name, setting in SETTINGS.items():
        if (not names or name in names) and (data_folder() / f"{name}.npz").exists():
            for row in measure(*load(name), setting, seeds):
                yield {"set": name, **row}


def measure(
    X: Array, y: NDArray[Any], X_test: Array, y_test: NDArray[Any], setting: Setting, seeds: tuple[int, ...]
) -> Iterator[dict[str, Any]]:
    """Score all forms on one split, losses averaged over seeds; the SVM comes first."""
    classes = np.unique(y)
    truth = np.searchsorted(classes, y_test)
    svm = SVC(C=10.0, gamma=1 / (2 * setting.sigma**2), probability=True, random_state=0, cache_size=500)
    with warnings.catch_warnings():
        # Newer versions of scikit-learn warn and recommend another function for the same sigmoid.
        warnings.simplefilter("ignore")
        svm.fit(X, y)
    base = _losses(np.log(np.maximum(svm.predict_proba(X_test), SMALLEST)), truth)
    yield _row("SVC", base, base)
    found: dict[str, list[Losses]] = {}
    for seed in seeds:
        model = distkern.OROLSClassifier(
            sigma=setting.sigma, max_centers=setting.centers, stop=None, standardize=False, random_state=seed
        ).fit(X, y)
        values = model.decision_function(X_test).reshape(len(X_test), -1)
        seen = model.decision_function(model._sample.features).reshape(len(model._sample.codes), -1)
        for form, logs in forms(model._outputs_left_out(), seen, model._sample.codes, values, len(classes)):
            found.setdefault(form, []).append(_losses(logs, truth))
        found.setdefault("predict_proba", []).append(_losses(np.log(model.predict_proba(X_test)), truth))
    for form, losses in found.items():
        yield _row(form, tuple(np.mean(kind, axis=0) for kind in zip(*losses, strict=True)), base)


def forms(
    left_out: Array, seen: Array, codes: NDArray[np.intp], values: Array, n_classes: int
) -> Iterator[tuple[str, Array]]:
    """Yield the name and the log posteriors of each form.

    Parameters
    ----------
    left_out, seen : array, shape (n, T)
        Leave-one-out outputs of training rows, and their plain outputs.
    codes : array, shape (n,)
        Classes of these rows.
    values : array, shape (n_test, T)
        Outputs of test rows.
    n_classes : int
        Classes.
    """
    yield "linear estimate", np.log(outputs.probabilities(values))
    if n_classes > 2:
        yield "Gaussians a target", _per_target(left_out, codes, values)
        yield "pairs of Gaussians, coupled (4.8)", _coupled(left_out, codes, values, n_classes)
    for name, shared in (("Gaussians, shared covariance", True), ("Gaussians, own covariance", False)):
        fitted = ClassGaussians.fit(left_out, codes, n_classes, shared=shared)
        yield name, fitted.log_posteriors(values)
    yield "logistic, training outputs", Calibration.fit(seen, codes).log_posteriors(values)


def _per_target(left_out: Array, codes: NDArray[np.intp], values: Array) -> Array:
    logs = np.empty(values.shape)
    for t in range(values.shape[1]):
        fitted = ClassGaussians.fit(left_out[:, [t]], (codes == t).astype(np.intp), 2, shared=False)
        logs[:, t] = fitted.log_posteriors(values[:, [t]])[:, 1]
    return log_softmax(logs)


def _coupled(left_out: Array, codes: NDArray[np.intp], values: Array, n_classes: int) -> Array:
    """Couple pairs: the projection of classes i and j is the difference of their outputs."""
    chances = np.ones((len(values), n_classes, n_classes))
    for i, j in combinations(range(n_classes), 2):
        pair = (codes == i) | (codes == j)
        difference = (left_out[:, i] - left_out[:, j])[pair, None]
        fitted = ClassGaussians.fit(difference, (codes[pair] == i).astype(np.intp), 2, shared=False)
        chances[:, [j, i], [i, j]] = np.exp(fitted.log_posteriors((values[:, i] - values[:, j])[:, None]))
    return np.log(pairwise_coupling(chances))


def _losses(logs: Array, truth: NDArray[np.intp]) -> Losses:
    chances = np.exp(logs)
    chances /= chances.sum(axis=1, keepdims=True)
    own = chances[np.arange(len(truth)), truth]
    targets = np.eye(logs.shape[1])[truth]
    return (
        -np.log(np.maximum(own, SMALLEST)),
        np.square(chances - targets).sum(axis=1),
        (chances.argmax(axis=1) != truth).astype(np.float64),
    )


def _row(form: str, found: Losses, base: Losses) -> dict[str, Any]:
    """Return means, and differences from the SVM with the standard error of a paired comparison."""
    row: dict[str, Any] = {"form": form}
    for name, ours, theirs in zip(("log loss", "Brier", "error"), found, base, strict=True):
        row[name] = float(ours.mean())
        if name != "error":
            row[f"{name} - SVC"] = float((ours - theirs).mean())
            row[f"se {name}"] = float((ours - theirs).std() / np.sqrt(len(ours)))
    return row
