"""Kernel Fisher directions and the Gaussian rule on them, against the thesis's matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigh
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from distkern.methods.kernel_fisher import FisherDirections, discriminants, fisher_directions
from tests.dense_references import class_means, within_scatter
from tests.references import gaussian_gram


def problem(n: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.repeat(np.arange(n_classes), 2), rng.integers(0, n_classes, n - 2 * n_classes)])
    return gaussian_gram(rng.standard_normal((n, 2)) + codes[:, None], 1.0), codes


@given(st.integers(10, 50), st.integers(0, 1000), st.sampled_from([1e-2, 1.0]))
def test_two_classes_give_the_direction_of_the_thesis(n: int, seed: int, epsilon: float) -> None:
    K, codes = problem(n, 2, seed)
    found = fisher_directions(K.copy(), codes, 2, np.ones(n), epsilon)
    means = class_means(K, codes)
    expected = np.linalg.solve(within_scatter(K, codes) + epsilon * np.eye(n), means[1] - means[0])
    a = found.directions[:, 0]
    scale = (a @ expected) / (expected @ expected)
    np.testing.assert_allclose(a, scale * expected, rtol=1e-8, atol=1e-8 * np.abs(a).max())


@given(st.integers(10, 50), st.integers(0, 1000), st.sampled_from([1e-2, 1.0]))
def test_the_weights_are_those_of_ridge_regression_on_the_labels(n: int, seed: int, epsilon: float) -> None:
    K, codes = problem(n, 2, seed)
    coef, _ = discriminants(fisher_directions(K.copy(), codes, 2, np.ones(n), epsilon))
    # |K a + b - y|^2 + epsilon |a|^2 (thesis 3.43, with an intercept).
    centred = K - K.mean(axis=0)
    ridge = np.linalg.solve(centred.T @ centred + epsilon * np.eye(n), centred.T @ np.where(codes == 1, 1.0, -1.0))
    scale = (coef[:, 0] @ ridge) / (ridge @ ridge)
    assert scale > 0
    np.testing.assert_allclose(coef[:, 0], scale * ridge, rtol=1e-8, atol=1e-8 * np.abs(coef).max())


@given(st.integers(12, 40), st.integers(3, 5), st.integers(0, 1000))
def test_several_classes_give_the_generalised_eigenvectors(n: int, n_classes: int, seed: int) -> None:
    K, codes = problem(n, n_classes, seed)
    found = fisher_directions(K.copy(), codes, n_classes, np.ones(n), 0.1)
    counts = np.bincount(codes)
    means = class_means(K, codes) - K.mean(axis=1)
    B = (means.T * counts) @ means
    N = within_scatter(K, codes) + 0.1 * np.eye(n)
    values = eigh(B, N, eigvals_only=True)[::-1][: n_classes - 1]
    np.testing.assert_allclose(found.eigenvalues, values, rtol=1e-8)
    A = found.directions
    np.testing.assert_allclose(A.T @ N @ A, np.eye(n_classes - 1), atol=1e-6)
    np.testing.assert_allclose(A.T @ B @ A, np.diag(found.eigenvalues), atol=1e-6 * values[0])


@given(st.integers(2, 4), st.integers(0, 1000))
def test_the_rule_is_that_of_gaussian_projections_with_unequal_priors(n_classes: int, seed: int) -> None:
    n = 60
    K, codes = problem(n, n_classes, seed)
    found = fisher_directions(K.copy(), codes, n_classes, np.ones(n), 1.0)
    coef, intercept = discriminants(found)
    values = K @ coef + intercept
    if n_classes == 2:
        values = np.column_stack([np.zeros(n), values])
    lda = LinearDiscriminantAnalysis(solver="lsqr").fit(K @ found.directions, codes)
    expected = lda.predict_log_proba(K @ found.directions)
    log_probabilities = values - np.logaddexp.reduce(values, axis=1, keepdims=True)
    np.testing.assert_allclose(log_probabilities, expected, rtol=1e-5, atol=1e-5)


@given(st.integers(2, 3), st.integers(0, 1000))
def test_a_weight_is_the_same_as_repeated_rows(n_classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 25
    K, codes = problem(n, n_classes, seed)
    repeats = rng.integers(1, 4, n)
    index = np.repeat(np.arange(n), repeats)
    weighted = discriminants(fisher_directions(K.copy(), codes, n_classes, repeats.astype(float), 0.1))
    repeated = discriminants(
        fisher_directions(K[np.ix_(index, index)].copy(), codes[index], n_classes, np.ones(len(index)), 0.1)
    )
    np.testing.assert_allclose(
        K @ weighted[0] + weighted[1], K[:, index] @ repeated[0] + repeated[1], rtol=1e-5, atol=1e-6
    )


def test_a_class_without_rows_never_wins() -> None:
    K, codes = problem(30, 2, 0)
    coef, intercept = discriminants(fisher_directions(K.copy(), codes, 3, np.ones(30), 0.1))
    assert np.isfinite(intercept).all()
    assert (K @ coef + intercept).argmax(axis=1).max() == 1


def test_coinciding_projections_stay_finite() -> None:
    found = FisherDirections(
        np.ones((2, 1)), np.ones(1), np.array([[0.0], [1.0]]), np.zeros((1, 1)), np.array([0.5, 0.5])
    )
    coef, intercept = discriminants(found)
    assert np.isfinite(coef).all()
    assert intercept[0] == pytest.approx(-coef[0, 0] / 2)
