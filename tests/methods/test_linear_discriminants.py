"""Fisher's discriminant and least squares from class scatter, against dense references."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from distkern.methods.linear_discriminants import Range, class_targets, fisher, least_squares
from distkern.numerics.class_scatter import ClassScatter, triangle
from tests.linear_references import augmented, within_scatter


@st.composite
def problems(draw: st.DrawFn, full_rank: bool = False, max_classes: int = 4):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d, n_classes = draw(st.integers(1, 5)), draw(st.integers(2, max_classes))
    n = draw(st.integers(2 * n_classes + (2 * d + 4 if full_rank else 0), 60))
    labels = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    X = rng.standard_normal((n, d)) + rng.standard_normal((n_classes, d))[labels]
    if not full_rank:
        if draw(st.booleans()):
            X[:, rng.integers(d)] = draw(st.sampled_from([0.0, 2.5]))
        if draw(st.booleans()):
            X[:, rng.integers(d)] = X[:, 0]
        if draw(st.booleans()):
            X[rng.integers(n, size=n // 2)] = X[0]
    weights = rng.integers(1, 4, n).astype(float) if draw(st.booleans()) else np.ones(n)
    return X, labels, weights


def centred(X, labels, weights):
    center = np.average(X, axis=0, weights=weights)
    return ClassScatter.of_rows(X - center, labels, weights), center


@given(problems(), st.floats(0.1, 10))
def test_least_squares_is_the_pseudoinverse(problem, margin: float) -> None:
    """The shortest of the best augmented vectors, as numpy's lstsq finds it."""
    X, labels, weights = problem
    scatter, center = centred(X, labels, weights)
    targets = class_targets(labels.max() + 1, margin)
    fit = least_squares(scatter, targets, center)
    roots = np.sqrt(weights)[:, None]
    expected, _, rank, _ = np.linalg.lstsq(roots * augmented(X), roots * targets[labels], rcond=1e-11)
    found = np.concatenate([[fit.intercept - center @ fit.weights], fit.weights])
    np.testing.assert_allclose(found, expected, atol=1e-8 * np.abs(expected).max() + 1e-10)
    assert fit.rank + 1 == rank


def test_the_rank_does_not_depend_on_units() -> None:
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((50, 4)), rng.integers(0, 2, 50)
    X[:, 3] = X[:, 0] - X[:, 1]
    for units in (np.ones(4), np.array([1e-12, 1e9, 1.0, 1e3])):
        scatter, center = centred(X * units, labels, np.ones(50))
        total = triangle(np.concatenate([scatter.factor, scatter.between()]))
        assert Range.of(total).rank == 3
        fit = least_squares(scatter, class_targets(2, 1.0), center)
        reference, *_ = np.linalg.lstsq(augmented(X), 2.0 * labels - 1, rcond=1e-11)
        fitted = X * units @ fit.weights[:, 0] + fit.intercept[0] - center @ fit.weights[:, 0]
        np.testing.assert_allclose(fitted, augmented(X) @ reference, atol=1e-9)


def test_ill_conditioned_features_keep_their_digits() -> None:
    """Powers of an interval far from zero: condition 1e11 of Y, against longdouble Gram-Schmidt."""
    t = np.linspace(0, 1, 300)
    X = np.vander(t, 9, increasing=True)[:, 1:] + 1e4
    labels = (np.random.default_rng(0).random(300) < t).astype(int)
    basis: list[np.ndarray] = []
    columns = np.concatenate([np.ones((300, 1)), X - 1e4], axis=1).astype(np.longdouble)
    columns[:, 1:] = X.astype(np.longdouble) - X.astype(np.longdouble).mean(axis=0)
    for column in columns.T:
        for _ in range(3):
            for q in basis:
                column = column - q * (q @ column)
        basis.append(column / np.sqrt(column @ column))
    b = (2.0 * labels - 1).astype(np.longdouble)
    exact = sum(q * (q @ b) for q in basis)
    scatter, center = centred(X, labels, np.ones(300))
    fit = least_squares(scatter, class_targets(2, 1.0), center)
    ours = np.abs((X - center) @ fit.weights[:, 0] + fit.intercept[0] - exact).max()
    theirs = np.abs(augmented(X) @ np.linalg.lstsq(augmented(X), 2.0 * labels - 1, rcond=1e-17)[0] - exact).max()
    assert ours < 1e-9
    assert ours < theirs


@given(problems(full_rank=True, max_classes=2))
def test_fisher_and_least_squares_have_one_direction(problem) -> None:
    """Thesis (3.28)."""
    X, labels, weights = problem
    scatter, center = centred(X, labels, weights)
    direction = fisher(scatter, 0.0)[0].weights[:, 0]
    other = least_squares(scatter, class_targets(2, 1.0), center).weights[:, 0]
    cosine = direction @ other / np.linalg.norm(direction) / np.linalg.norm(other)
    assert cosine == pytest.approx(1.0, abs=1e-10)


@given(problems(full_rank=True), st.sampled_from([0.0, 0.3, 1.0]))
def test_fisher_follows_its_equations(problem, shrinkage: float) -> None:
    """(3.11), (3.18) and (3.19), and the generalised eigenvectors of (3.8)."""
    X, labels, weights = problem
    n_classes, d = labels.max() + 1, X.shape[1]
    fit, projection = fisher(ClassScatter.of_rows(X, labels, weights), shrinkage)
    covariance = within_scatter(X, labels, weights) / weights.sum()
    covariance = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / d * np.eye(d)
    means = np.array([np.average(X[labels == k], axis=0, weights=weights[labels == k]) for k in range(n_classes)])
    priors = np.bincount(labels, weights) / weights.sum()
    w = np.linalg.solve(covariance, means.T)
    b = np.log(priors) - 0.5 * np.einsum("kd,dk->k", means, w)
    expected, found = X @ w + b, X @ fit.weights + fit.intercept
    if n_classes == 2:
        expected = expected[:, 1:] - expected[:, :1]
    else:
        expected, found = (v - v.mean(axis=1, keepdims=True) for v in (expected, found))
    np.testing.assert_allclose(found, expected, atol=1e-7 * max(1.0, np.abs(expected).max()))
    deviations = np.sqrt(priors)[:, None] * (means - priors @ means)
    values = scipy.linalg.eigvalsh(deviations.T @ deviations, covariance)[::-1]
    kept = min(n_classes - 1, d)
    assert projection.directions.shape == (d, kept)
    np.testing.assert_allclose(projection.ratios, values[:kept], atol=1e-8 * max(1.0, values[0]))
    gram = projection.directions.T @ covariance @ projection.directions
    np.testing.assert_allclose(gram, np.eye(kept), atol=1e-7)


@given(problems())
def test_a_singular_covariance_is_inverted_by_its_pseudoinverse(problem) -> None:
    X, labels, weights = problem
    fit, _ = fisher(ClassScatter.of_rows(X, labels, weights), 0.0)
    covariance = within_scatter(X, labels, weights) / weights.sum()
    singular = np.linalg.eigvalsh(covariance)
    if ((singular > 1e-13) & (singular < 1e-4)).any():
        return  # no reference decides that rank
    means = np.array([np.average(X[labels == k], axis=0, weights=weights[labels == k]) for k in np.unique(labels)])
    w = np.linalg.pinv(covariance, rcond=1e-8, hermitian=True) @ (means - np.average(X, axis=0, weights=weights)).T
    expected = w[:, 1:] - w[:, :1] if len(means) == 2 else w
    np.testing.assert_allclose(fit.weights, expected, atol=1e-6 * max(1.0, np.abs(expected).max()))


def test_without_any_variation_the_priors_remain() -> None:
    X, labels = np.array([[0.0], [0.0], [1.0]]), np.array([0, 0, 1])
    fit, projection = fisher(ClassScatter.of_rows(X, labels), 0.0)
    assert fit.rank == 0
    assert not fit.weights.any()
    assert fit.intercept[0] == pytest.approx(np.log(0.5))
    assert projection.directions.shape == (1, 0)
