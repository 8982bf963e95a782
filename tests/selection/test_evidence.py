"""Width and regularisation of few rows by the evidence, against dense references from the equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distkern.selection.evidence import DistinctRows, best_setting, tried_settings
from tests.references import gaussian_gram

Array = NDArray[np.float64]


def drawn(seed: int, n: int, n_targets: int = 1) -> tuple[Array, Array, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    Y = np.sin(2 * X @ rng.normal(size=(2, n_targets))) + 0.2 * rng.normal(size=(n, n_targets))
    return X, Y, rng.integers(1, 4, size=n)


def restricted_evidence(X: Array, Y: Array, mu: float) -> tuple[float, float]:
    """Log evidence of rows that may repeat, and the penalised squares over the centred ones, by dense matrices."""
    n = len(X)
    K = gaussian_gram(X, 1.0) + mu * np.eye(n)
    C, one = np.linalg.inv(K), np.ones(n)
    Y = Y - Y.mean(axis=0)
    squares = np.square(Y).sum(axis=0)
    Y = Y / np.sqrt(squares)
    own = one @ C @ one
    q = np.einsum("it,ij,jt->t", Y, C, Y) - np.square(one @ C @ Y) / own
    evidence = -0.5 * ((n - 1) * np.log(q).sum() + Y.shape[1] * (np.linalg.slogdet(K)[1] + np.log(own)))
    return float(evidence), float(mu * q.mean())


@given(seed=st.integers(0, 999), n=st.integers(4, 25), n_targets=st.integers(1, 3))
def test_repeated_and_weighted_rows_have_the_dense_evidence(seed: int, n: int, n_targets: int) -> None:
    X, Y, counts = drawn(seed, n, n_targets)
    X[1] = X[0]  # two rows with other targets
    repeated = np.repeat(np.arange(n), counts)
    weighted = DistinctRows.of(X, Y, counts.astype(np.float64))
    copied = DistinctRows.of(X[repeated], Y[repeated])
    assert weighted is not None
    assert copied is not None
    assert len(weighted.features) == len(copied.features) == n - 1
    pairs = zip(
        tried_settings(gaussian_gram(weighted.features, 1.0), weighted, 1.0),
        tried_settings(gaussian_gram(copied.features, 1.0), copied, 1.0),
        strict=True,
    )
    for ours, same in pairs:
        if ours.mu < 1e-5:
            continue  # the dense inverse has no digits left
        evidence, share = restricted_evidence(X[repeated], Y[repeated], ours.mu)
        for found in (ours, same):
            np.testing.assert_allclose(found.evidence, evidence, rtol=1e-6, atol=1e-4)
            np.testing.assert_allclose(found.share, share, rtol=1e-5)
        np.testing.assert_allclose(ours.errors, same.errors, rtol=1e-5, atol=1e-10)


def test_errors_left_out_are_those_of_fits_without_the_row_and_its_copies() -> None:
    X, Y, counts = drawn(3, 15, 2)
    repeated = np.repeat(np.arange(15), counts)
    rows = DistinctRows.of(X, Y, counts.astype(np.float64))
    assert rows is not None
    order = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in rows.features]
    # Each target counts in units of its root sum of squares.
    scale = np.sqrt(np.square(Y[repeated] - Y[repeated].mean(axis=0)).sum(axis=0))
    setting = next(s for s in tried_settings(gaussian_gram(rows.features, 1.0), rows, 1.0) if s.mu > 0.05)
    for position, left in enumerate(order):
        kept = repeated[repeated != left]
        n = len(kept)
        bordered = np.ones((n + 1, n + 1))
        bordered[:n, :n] = gaussian_gram(X[kept], 1.0) + setting.mu * np.eye(n)
        bordered[n, n] = 0.0
        solution = np.linalg.solve(bordered, np.vstack([Y[kept], np.zeros((1, 2))]))
        output = np.exp(-np.square(X[left] - X[kept]).sum(axis=1) / 2) @ solution[:n] + solution[n]
        expected = counts[left] * np.square((Y[left] - output) / scale).mean()
        np.testing.assert_allclose(setting.errors[position], expected, rtol=1e-6)


def test_copies_of_noisy_rows_do_not_hide_the_noise() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    y = (np.sin(2 * X[:, :1]) + rng.normal(size=(150, 1))).round(1)
    X, y = np.vstack([X, X[:60]]), np.vstack([y, y[:60]])
    rows = DistinctRows.of(X, y)
    assert rows is not None
    tried = [s for factor in (0.05, 1.0) for s in tried_settings(gaussian_gram(rows.features, factor), rows, factor)]
    most = max(tried, key=lambda setting: setting.evidence)
    best = best_setting(tried)
    assert best.errors.sum() < most.errors.sum()
    assert best.mu > 0.05


def test_constant_targets_are_left_out() -> None:
    X, Y, _ = drawn(0, 10)
    both = DistinctRows.of(X, np.column_stack([Y, np.full(10, 3.0)]))
    alone = DistinctRows.of(X, Y)
    assert both is not None
    assert alone is not None
    np.testing.assert_array_equal(both.targets, alone.targets)
    assert DistinctRows.of(X, np.full((10, 2), 0.1)) is None


def test_a_matrix_that_is_not_finite_has_no_setting() -> None:
    X, Y, _ = drawn(0, 10)
    rows = DistinctRows.of(X, Y)
    assert rows is not None
    assert tried_settings(np.full((10, 10), np.inf), rows, 1.0) == []


@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_the_noise_is_found(noise: float) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 1))
    y = np.sin(3 * X) + noise * rng.normal(size=(200, 1))
    rows = DistinctRows.of(X, y)
    assert rows is not None
    best = best_setting(tried_settings(gaussian_gram(rows.features, 0.5), rows, 1.0))
    total = np.square(y - y.mean()).sum()
    # The minimum over its degrees of freedom is the variance of the noise.
    np.testing.assert_allclose(best.share * total / (len(y) - 1), noise**2, rtol=0.25)
