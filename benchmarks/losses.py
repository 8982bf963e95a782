"""Losses other than squares on test rows, beside scikit-learn's linear models on Nystroem features of the same size.

Log loss of classes: squares with calibrated probabilities or Gaussians, the logistic loss, and `LogisticRegression`.
Pinball loss of
quantiles: OROLS and `QuantileRegressor`. Absolute error where a tenth of the targets are spoilt: squares, the Huber
loss, and `HuberRegressor`. The penalties of scikit-learn's models are chosen on a quarter of the training rows that is
held out; all models have the same rows, kernel and number of centres.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import HuberRegressor, LogisticRegression, QuantileRegressor
from sklearn.metrics import log_loss, mean_absolute_error, mean_pinball_loss
from sklearn.preprocessing import StandardScaler

import distkern
from benchmarks.datasets import Split

Array = NDArray[Any]

MOST_ROWS = 50_000
"""Most training and test rows."""

MOST_CENTERS = 500

ROWS_TO_CHOOSE = 8000
"""Most rows on which scikit-learn's penalties are chosen."""

QUANTILE_ROWS, QUANTILE_CENTERS = 1500, 50
"""Sizes of the quantile regressions; scikit-learn solves a linear programme."""

LEVELS = (0.1, 0.5, 0.9)

SPOILT = 0.1
"""Share of the targets that outliers replace."""


def run(splits: Iterable[Split], kinds: tuple[str, ...], seeds: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Measure the losses of some kinds ("classes", "quantiles", "outliers"), means over seeds of the row draws."""
    measures = {"classes": classes, "quantiles": quantiles, "outliers": outliers}
    for split in splits:
        for kind in kinds:
            if split.recipe.classification == (kind == "classes"):
                for row in measures[kind](split, seeds):
                    yield {"set": split.recipe.name, **row}


def classes(split: Split, seeds: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Yield the log loss of squares with either kind of probabilities, the logistic loss, and `LogisticRegression`."""
    X, y = _some(split.X, split.y, MOST_ROWS)
    X_test, y_test = _some(split.X_test, split.y_test, MOST_ROWS)
    forms: dict[str, dict[str, Any]] = {
        "squared": {},
        "gaussian": {"probabilities": "gaussian"},
        "logistic": {"loss": "logistic"},
    }
    names, sizes = (*forms, "Nystroem"), []
    found: dict[str, list[float]] = {name: [] for name in names}
    seconds: dict[str, float] = dict.fromkeys(names, 0.0)
    for seed in seeds:
        for form, parameters in forms.items():
            model = _ours(distkern.OROLSClassifier, split, random_state=seed, **parameters)
            began = process_time()
            chances = model.fit(X, y).predict_proba(X_test)
            seconds[form] += process_time() - began
            found[form].append(log_loss(y_test, chances, labels=model.classes_))
        sizes.append(model.n_centers_)
        began = process_time()
        maps = _Features(split, X, model.kernel_, model.n_centers_, seed)
        chosen = maps.choose(
            [LogisticRegression(C=C, max_iter=500) for C in (1.0, 10.0, 100.0, 1000.0)],
            y,
            lambda linear, Z, truth: log_loss(truth, linear.predict_proba(Z), labels=linear.classes_),
        )
        chances = chosen.fit(maps.training, y).predict_proba(maps.of(X_test))
        seconds["Nystroem"] += process_time() - began
        found["Nystroem"].append(log_loss(y_test, chances, labels=chosen.classes_))
    yield {"centres": float(np.mean(sizes)), **_row(found, seconds, len(seeds))}


def quantiles(split: Split, seeds: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Yield the pinball loss at every level, beside `QuantileRegressor`."""
    X, y = _some(split.X, split.y, QUANTILE_ROWS)
    X_test, y_test = _some(split.X_test, split.y_test, MOST_ROWS)
    for level in LEVELS:
        found: dict[str, list[float]] = {"quantile": [], "Nystroem": []}
        seconds = dict.fromkeys(found, 0.0)
        below, sizes = [], []
        for seed in seeds:
            parameters = {"loss": "quantile", "quantile": level, "max_centers": QUANTILE_CENTERS, "random_state": seed}
            began = process_time()
            model = _ours(distkern.OROLSRegressor, split, **parameters).fit(X, y)
            predicted = model.predict(X_test)
            seconds["quantile"] += process_time() - began
            found["quantile"].append(mean_pinball_loss(y_test, predicted, alpha=level))
            below.append(float(np.mean(y_test <= predicted)))
            sizes.append(model.n_centers_)
            began = process_time()
            maps = _Features(split, X, model.kernel_, QUANTILE_CENTERS, seed)

            def pinball(linear: Any, Z: Array, truth: Array, level: float = level) -> float:
                return float(mean_pinball_loss(truth, linear.predict(Z), alpha=level))

            tried = [QuantileRegressor(quantile=level, alpha=alpha) for alpha in (0.0, 1e-4, 1e-3, 1e-2)]
            predicted = maps.choose(tried, y, pinball).fit(maps.training, y).predict(maps.of(X_test))
            seconds["Nystroem"] += process_time() - began
            found["Nystroem"].append(mean_pinball_loss(y_test, predicted, alpha=level))
        shown = {"level": level, "centres": float(np.mean(sizes)), "below": float(np.mean(below))}
        yield {**shown, **_row(found, seconds, len(seeds))}


def outliers(split: Split, seeds: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Yield absolute errors on clean test rows where some training targets are ten deviations away."""
    X, y = _some(split.X, split.y, MOST_ROWS)
    X_test, y_test = _some(split.X_test, split.y_test, MOST_ROWS)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(len(y)) < SPOILT, y + 10 * y.std() * rng.exponential(1.0, len(y)), y)
    names = ("squared", "huber", "Nystroem")
    found: dict[str, list[float]] = {name: [] for name in names}
    seconds = dict.fromkeys(names, 0.0)
    for seed in seeds:
        for loss in names[:2]:
            began = process_time()
            model = _ours(distkern.OROLSRegressor, split, loss=loss, random_state=seed).fit(X, y)
            found[loss].append(mean_absolute_error(y_test, model.predict(X_test)))
            seconds[loss] += process_time() - began
        began = process_time()
        maps = _Features(split, X, model.kernel_, model.n_centers_, seed)
        tried = [HuberRegressor(alpha=alpha, max_iter=500) for alpha in (1e-4, 1e-2, 1.0)]
        chosen = maps.choose(tried, y, lambda linear, Z, truth: mean_absolute_error(truth, linear.predict(Z)))
        found["Nystroem"].append(mean_absolute_error(y_test, chosen.fit(maps.training, y).predict(maps.of(X_test))))
        seconds["Nystroem"] += process_time() - began
    yield {"centres": model.n_centers_, **_row(found, seconds, len(seeds))}


def _some(X: Array, y: Array, most: int) -> tuple[Array, Array]:
    rows = np.sort(np.random.default_rng(0).permutation(len(X))[:most])
    return X[rows], y[rows]


def _ours(kind: Any, split: Split, **parameters: Any) -> Any:
    recipe = split.recipe
    own = {
        "sigma": recipe.sigma or "median",
        "max_centers": min(recipe.centers, MOST_CENTERS),
        "standardize": recipe.standardize,
    }
    return kind(**{**own, **parameters})


class _Features:
    """Nystroem features of the training rows, and the choice of a linear model on them."""

    def __init__(self, split: Split, X: Array, kernel: Any, n_centers: int, seed: int) -> None:
        self._scale = StandardScaler().fit(X) if split.recipe.standardize else None
        gamma, count = 1 / (2 * kernel.sigma**2), max(1, min(n_centers, len(X)))
        self._map = Nystroem(gamma=gamma, n_components=count, random_state=seed)
        self.training = self._map.fit_transform(X if self._scale is None else self._scale.transform(X))

    def of(self, X: Array) -> Array:
        """Return the features of some rows."""
        return np.asarray(self._map.transform(X if self._scale is None else self._scale.transform(X)))

    def choose(self, models: list[Any], y: Array, score: Callable[[Any, Array, Array], float]) -> Any:
        """Return the model with the lowest score on rows that are held out, not fitted to all rows yet."""
        rows = np.random.default_rng(1).permutation(len(y))[:ROWS_TO_CHOOSE]
        out, kept = rows[: len(rows) // 4], rows[len(rows) // 4 :]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            known = np.isin(y[out], y[kept]) if y.dtype.kind not in "f" else np.ones(len(out), dtype=bool)
            scores = [
                score(model.fit(self.training[kept], y[kept]), self.training[out[known]], y[out[known]])
                for model in models
            ]
        return models[int(np.argmin(scores))]


def _row(found: dict[str, list[float]], seconds: dict[str, float], n_seeds: int) -> dict[str, Any]:
    means = {name: float(np.mean(values)) for name, values in found.items()}
    return {**means, **{f"{name}, s": value / n_seeds for name, value in seconds.items()}}
