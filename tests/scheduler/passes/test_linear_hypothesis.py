"""The linear methods over drawn sizes, chunkings, duplicates, constant columns and weights, here and on workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import distkern as dk
from distkern.methods.linear_discriminants import class_targets
from distkern.storage import ArraySource
from tests.linear_references import augmented, ho_kashyap, lms


@st.composite
def sources(draw: st.DrawFn, n_classes: int | None = None) -> ArraySource:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_classes = draw(st.integers(2, 4)) if n_classes is None else n_classes
    n, d = draw(st.integers(2 * n_classes + 3, 150)), draw(st.integers(1, 4))
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    X = rng.standard_normal((n, d)) + rng.standard_normal((n_classes, d))[y]
    if d > 1 and draw(st.booleans()):
        X[:, -1] = draw(st.sampled_from([0.0, -3.3, 1e6]))
    if draw(st.booleans()):
        X[n // 2 :] = X[: n - n // 2]
    weights = None
    if draw(st.booleans()):
        weights = rng.integers(0, 3, n).astype(float)
        weights[:n_classes] = 1.0
    cuts = sorted(set(draw(st.lists(st.integers(1, n - 1), max_size=6))))
    return ArraySource(X, y, weights, classes=np.arange(n_classes), boundaries=(0, *cuts, n))


def fit(model: Any, source: ArraySource, client: Any = None) -> Any:
    model._train(source, client)
    model.n_features_in_ = source.n_features
    return model


def present(source: ArraySource) -> tuple[Any, Any, Any]:
    weights = np.ones(source.n_rows) if source.weights is None else source.weights
    keep = weights > 0
    return source.X[keep], source.y[keep], weights[keep]


@given(sources(), st.floats(0.5, 2.0))
def test_mse_is_the_shortest_least_squares_solution(source: ArraySource, margin: float) -> None:
    X, y, weights = present(source)
    model = fit(dk.MSEClassifier(margin=margin), source)
    roots = np.sqrt(weights)[:, None]
    targets = class_targets(len(source.classes), margin)[y]
    expected, *_ = np.linalg.lstsq(roots * augmented(X), roots * targets, rcond=1e-12)
    found = np.concatenate([model.intercept_[None], model.coef_])
    np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(expected).max())


@given(sources(n_classes=2))
def test_fisher_has_the_direction_of_mse(source: ArraySource) -> None:
    fisher, mse = fit(dk.FisherDiscriminant(), source), fit(dk.MSEClassifier(standardize=True), source)
    if fisher.rank_ < mse.rank_:
        return  # a class without variation somewhere
    scale = present(source)[0].std(axis=0)
    a, b = fisher.coef_[:, 0] * scale, mse.coef_[:, 0] * scale
    assert a @ b == pytest.approx(np.linalg.norm(a) * np.linalg.norm(b), rel=1e-9)


@given(sources(), st.sampled_from(["pass", "constant"]), st.booleans())
def test_widrow_hoff_takes_its_steps_in_the_order_of_rows(source: ArraySource, schedule: str, normalized: bool) -> None:
    X, y, weights = present(source)
    model = dk.WidrowHoffClassifier(
        learning_rate=0.02, schedule=schedule, normalized=normalized, passes=3, standardize=False
    )
    fit(model, source)
    targets = class_targets(len(source.classes), 1.0)[y]
    rate = {"pass": lambda k, _: 0.02 / k, "constant": lambda _, __: 0.02}[schedule]
    expected = lms(augmented(X), targets, weights, rate, normalized, 3)
    found = np.concatenate([model.intercept_[None], model.coef_])
    np.testing.assert_allclose(found, expected, atol=1e-9 * max(1.0, np.abs(expected).max()))


@given(sources(n_classes=2))
def test_ho_kashyap_is_that_of_repeated_rows(source: ArraySource) -> None:
    X, y, weights = present(source)
    spread = X.std(axis=0)
    standard = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)
    repeated = np.repeat(np.where(y == 1, 1.0, -1.0)[:, None] * augmented(standard), weights.astype(int), axis=0)
    a, _, separable, _ = ho_kashyap(repeated, 0.8, 25, 1e-6)
    model = fit(dk.HoKashyapClassifier(learning_rate=0.8, max_iter=25), source)
    assert model.separable_ is separable
    fitted = augmented(standard) @ a
    np.testing.assert_allclose(model.decision_function(X), fitted, atol=1e-7 * max(1.0, np.abs(fitted).max()))


MAKERS = {
    "fisher": dk.FisherDiscriminant,
    "mse": dk.MSEClassifier,
    "lms": lambda: dk.WidrowHoffClassifier(passes=2),
    "ho-kashyap": lambda: dk.HoKashyapClassifier(max_iter=5),
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sources(), st.sampled_from(sorted(MAKERS)))
@pytest.mark.slow
def test_the_same_bits_here_and_on_workers(in_process_client: Any, source: ArraySource, method: str) -> None:
    make = MAKERS[method]
    here, there = fit(make(), source), fit(make(), source, in_process_client)
    assert here.coef_.tobytes() == there.coef_.tobytes()
    assert here.intercept_.tobytes() == there.intercept_.tobytes()
