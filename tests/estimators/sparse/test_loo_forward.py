"""Forward selection by leave-one-out misclassification, against the slides' algorithm and real refits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import distkern as dk
from distkern.errors import JobError
from distkern.storage import ArraySource
from tests.references import gaussian_gram
from tests.scheduler.worker_clusters import cluster

RIDGE = 1e-3


class Reference:
    """The slides' algorithm for two classes, one candidate at a time; equal rates by error reduction."""

    def __init__(self, gram: Any, y: Any, ridge: float, n_steps: int, *, stop: bool = True) -> None:
        n = len(y)
        self.rows: list[int] = []
        self.w = np.empty((n, 0))
        self.rates = [1.0]
        self.alpha, self.beta = np.zeros(n), np.ones(n)
        self.clear = True
        while len(self.rows) < n_steps:
            best: Any = None
            reductions: dict[float, list[float]] = {}
            for row in set(range(n)) - set(self.rows):
                w = gram[:, row].copy()
                for _ in range(2):
                    for q in self.w.T:
                        w -= q * (q @ w) / (q @ q)
                kappa = w @ w
                if kappa <= 1e-14 * (gram[:, row] @ gram[:, row]):
                    continue
                gamma = w @ y / (kappa + ridge)
                alpha = self.alpha + gamma * w * y - w**2 / (kappa + ridge)
                beta = self.beta - w**2 / (kappa + ridge)
                # The sign of an output that is all rounding counts one row more or less.
                self.clear &= bool((np.abs(alpha) > 1e-14).all())
                rate = np.mean(alpha / beta <= 0)
                reduction = (w @ y) ** 2 / kappa
                reductions.setdefault(rate, []).append(reduction)
                key = (rate, -reduction, row)
                if best is None or key < best[0]:
                    best = key, row, w, alpha, beta
            if best is None or (stop and best[0][0] >= self.rates[-1]):
                break
            (rate, *_), row, w, self.alpha, self.beta = best
            *_, second, first = [0.0, *sorted(reductions[rate])]
            self.clear &= second < first * (1 - 1e-6)
            self.rates.append(rate)
            self.rows.append(row)
            self.w = np.column_stack([self.w, w])
        kept = gram[:, self.rows]
        # w = z / (ridge + s) on the orthogonal columns, in the kernel basis.
        u = np.linalg.lstsq(self.w, kept, rcond=None)[0] if self.rows else np.empty((0, 0))
        s = np.square(self.w).sum(axis=0)
        self.coef = np.linalg.solve(u, self.w.T @ y / (s + ridge)) if self.rows else np.empty(0)


def two_classes(n: int, seed: int, duplicates: bool = False) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    if duplicates:
        X[n // 2 :] = X[: n - n // 2]
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] + 0.4 * rng.normal(size=n) > 0, 1, -1)
    y[:2] = -1, 1
    return X, y


@given(st.integers(12, 60), st.integers(0, 1000), st.floats(0.7, 2.0), st.integers(5, 70), st.booleans())
def test_the_slides_algorithm(n: int, seed: int, sigma: float, rows: int, stop: bool) -> None:
    X, y = two_classes(n, seed)
    expected = Reference(gaussian_gram(X, sigma), y, RIDGE, 8, stop=stop)
    assume(expected.clear)  # rounding may order equally good candidates
    model = dk.LOOForwardClassifier(
        sigma=sigma, ridge=RIDGE, standardize=False, max_centers=8, stop="loo" if stop else None
    )
    model._check_parameters()
    boundaries = (*range(0, n, rows), n)
    classes = np.array([-1, 1])
    model._train(ArraySource(X, (y > 0).astype(int), classes=classes, boundaries=boundaries), None)
    assert model.center_indices_.tolist() == expected.rows
    np.testing.assert_allclose(model.coef_[:, 0], expected.coef, rtol=1e-8, atol=1e-8)
    assert model.intercept_[0] == 0.0
    assert (model.stop_reason_ == "loo-risen") == (len(expected.rows) < 8 and stop)


def left_out_error(model: Any, X: Any, y: Any, weights: Any = None) -> float:
    """Refit the model's centres and lambda without each row in turn, and count the wrong."""
    classes = model.classes_
    K = gaussian_gram(np.vstack([X, model.centers_]), model.kernel_.sigma)[: len(X), len(X) :]
    design = np.column_stack([np.ones(len(X)), K])
    targets = np.where(y[:, None] == classes, 1.0, -1.0)
    mass = np.ones(len(X)) if weights is None else weights
    wrong = 0.0
    for i in np.flatnonzero(mass):
        left = mass.copy()
        left[i] -= 1
        root = np.sqrt(left)[:, None]
        fitted = np.linalg.lstsq(root * design, root * targets, rcond=None)[0]
        wrong += mass[i] * (classes[np.argmax(design[i] @ fitted)] != y[i])
    return float(wrong)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_counts_are_those_of_real_refits(n_classes: int, weighted: bool) -> None:
    """With lambda = 0 the recursions are exact; the last count of a path is that of its model."""
    rng = np.random.default_rng(n_classes)
    n = 90
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n, 2)) + 1.2 * np.column_stack([np.cos(2.1 * y), np.sin(2.1 * y)])
    weights = rng.integers(0, 3, n).astype(float) if weighted else None
    counts: list[float] = []
    model = dk.OROLSClassifier(
        criterion="loo-error",
        sigma=1.0,
        standardize=False,
        max_centers=6,
        regularization="none",
        stop=None,
    )
    with pytest.MonkeyPatch.context() as patch:
        from distkern.scheduler.selectors import loo_selector

        receive = loo_selector.LooSelector.receive

        def spy(self: Any, answer: Any) -> None:
            scoring = self._scoring is not None
            receive(self, answer)
            if scoring:
                counts.append(self._misclassified)

        patch.setattr(loo_selector.LooSelector, "receive", spy)
        model.fit(X, y, sample_weight=weights)
    for m in range(1, 7):
        assert counts[m - 1] == left_out_error(model.truncate(m), X, y, weights)


@pytest.fixture(scope="module")
def client() -> Any:
    with cluster(2, processes=False) as client:
        yield client


@pytest.mark.slow
def test_more_rows_than_candidates_and_blocks(client: Any) -> None:
    X, y = two_classes(700, 3)
    settings: dict[str, Any] = {"criterion": "loo-error", "candidates": 64, "max_centers": 15, "stop": "gcv"}
    here = dk.OROLSClassifier(**settings).fit(X, y)
    for factors in ("workers", "driver"):
        there = dk.OROLSClassifier(**settings, client=client, factors=factors).fit(X, y)
        np.testing.assert_array_equal(there.center_indices_, here.center_indices_)
        assert there.coef_.tobytes() == here.coef_.tobytes()
    assert here.score(X, y) > 0.8


def test_ridge_and_refusals() -> None:
    X, y = two_classes(60, 0)
    with pytest.raises(JobError, match="ridge=-1"):
        dk.LOOForwardClassifier(ridge=-1.0).fit(X, y)
    with pytest.raises(JobError, match=r"criterion='loo-error'.*regression"):
        dk.OROLSRegressor(criterion="loo-error").fit(X, y)
    with pytest.raises(JobError, match="stop='loo'"):
        dk.OROLSClassifier(stop="loo").fit(X, y)
    assert dk.LOOForwardClassifier(ridge=10.0).fit(X, y).lambda_ == 10.0


def test_a_saved_model_comes_back(tmp_path: Any) -> None:
    X, y = two_classes(60, 1)
    model = dk.LOOForwardClassifier(ridge=RIDGE).fit(X, y)
    model.save(tmp_path / "model")
    again = dk.load_model(tmp_path / "model")
    assert again.ridge == RIDGE
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.stop_reason_ is model.stop_reason_
