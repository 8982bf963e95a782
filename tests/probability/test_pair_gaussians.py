"""Gaussians of pairs against the equations of the thesis, term by term."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from distkern.probability import pair_gaussians
from distkern.probability.pair_gaussians import PairGaussians

Array = NDArray[Any]


def clusters(n_classes: int, own_outputs: bool, n: int = 300) -> tuple[Array, Array, Array]:
    """Return outputs near +-1, classes and weights."""
    rng = np.random.default_rng(n_classes)
    codes = np.concatenate([np.tile(np.arange(n_classes), 8), rng.integers(0, n_classes, n - 8 * n_classes)])
    pairs = list(combinations(range(n_classes), 2))
    if own_outputs or n_classes == 2:
        targets = np.column_stack([np.where(codes == j, 1.0, -1.0) for _, j in pairs])
    else:
        targets = np.where(codes[:, None] == np.arange(n_classes), 1.0, -1.0)
    outputs = 0.5 * targets + rng.uniform(0.2, 0.6, n_classes)[codes, None] * rng.standard_normal(targets.shape)
    return outputs, codes, rng.integers(1, 4, n).astype(float)


@pytest.mark.parametrize(("n_classes", "own_outputs"), [(2, False), (3, False), (4, False), (3, True), (4, True)])
def test_posteriors_are_those_of_the_thesis(n_classes: int, own_outputs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_gaussians, "MIXED_IN", 0.0)
    monkeypatch.setattr(pair_gaussians, "VALUES_AT_A_TIME", 100)
    outputs, codes, weights = clusters(n_classes, own_outputs)
    fitted = PairGaussians.fit(outputs, codes, weights, n_classes, own_outputs=own_outputs)
    counts = np.bincount(codes, weights)
    priors = (counts + 0.5) / (counts + 0.5).sum()
    nu = np.zeros((len(outputs), n_classes, n_classes))
    for pair, (i, j) in enumerate(combinations(range(n_classes), 2)):
        q = outputs[:, pair] if own_outputs or n_classes == 2 else outputs[:, j] - outputs[:, i]
        joint = []
        for c in (i, j):
            own = np.repeat(q[codes == c], weights[codes == c].astype(int))
            joint.append(priors[c] * norm.pdf(q, own.mean(), own.std()))  # 4.7
        nu[:, i, j], nu[:, j, i] = joint[0] / (joint[0] + joint[1]), joint[1] / (joint[0] + joint[1])
    expected = np.empty((len(outputs), n_classes))
    for i in range(n_classes):
        others = [j for j in range(n_classes) if j != i]
        expected[:, i] = 1 / (sum(1 / nu[:, i, j] for j in others) - (n_classes - 2))  # 4.8
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(fitted.log_posteriors(outputs)), expected, rtol=1e-6, atol=1e-9)


def test_outputs_far_away_and_classes_without_rows_have_probabilities() -> None:
    outputs, codes, weights = clusters(3, False)
    fitted = PairGaussians.fit(np.column_stack([outputs, outputs[:, 0]]), codes, weights, 4)
    assert np.isfinite(fitted.log_posteriors(1e3 * np.column_stack([outputs, outputs[:, 0]]))).all()
    assert fitted.log_posteriors(np.empty((0, 4))).shape == (0, 4)
    same = PairGaussians.fit(np.where(codes >= 1, 1.0, -1.0)[:, None], np.minimum(codes, 1), weights, 2)
    chances = np.exp(same.log_posteriors(np.array([[-1.0], [1.0]])))
    np.testing.assert_allclose(chances, np.eye(2), atol=1e-9)
