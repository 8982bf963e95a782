"""One Ho-Kashyap iteration on pieces of rows."""

from __future__ import annotations

import numpy as np
import pytest

from distkern.methods.ho_kashyap import MarginSums, grow_margins


def test_an_iteration_follows_its_equations_in_pieces_too() -> None:
    rng = np.random.default_rng(0)
    X, signs, weights = rng.standard_normal((30, 3)), rng.choice([-1.0, 1.0], (30, 2)), rng.integers(1, 4, 30) * 1.0
    b, a, bias = 1 + rng.random((30, 2)), rng.standard_normal((3, 2)), rng.standard_normal(2)
    rates = np.array([0.9, 0.0])
    grown, sums = grow_margins(X, signs, weights, b, a, bias, rates)
    z = signs * (X @ a + bias)
    e = z - b
    np.testing.assert_allclose(grown[:, 0], b[:, 0] + 0.9 * (e + np.abs(e))[:, 0])
    np.testing.assert_array_equal(grown[:, 1], b[:, 1])
    left = weights[:, None] * signs * (grown - z)
    np.testing.assert_allclose(sums.products, X.T @ left)
    np.testing.assert_allclose(sums.bias_products, left.sum(axis=0))
    np.testing.assert_allclose(sums.beyond - sums.short, (weights[:, None] * e).sum(axis=0))
    parts = [
        grow_margins(X[p], signs[p], weights[p], b[p], a, bias, rates)[1]
        for p in (slice(0, 0), slice(0, 9), slice(9, 30))
    ]
    merged = parts[0].merge(parts[1]).merge(parts[2])
    for name, value in vars(sums).items():
        np.testing.assert_allclose(getattr(merged, name), value)


@pytest.mark.parametrize(
    ("lowest", "beyond", "short", "expected"),
    [
        (0.1, 1.0, 1.0, True),
        (-0.1, 0.0, 1.0, False),
        (0.0, 1e-7, 1.0, False),
        (-0.1, 0.5, 1.0, None),
        (0.0, 0, 0, None),
    ],
)
def test_separable(lowest: float, beyond: float, short: float, expected: bool | None) -> None:
    one = [np.array([v]) for v in (0.0, 0.0, lowest, 1.0, beyond, short)]
    assert MarginSums(*one).separable(1e-6) == [expected]
