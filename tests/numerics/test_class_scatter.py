"""Means and scatter of classes: merging pieces is the same as taking all rows, without losing digits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.numerics.class_scatter import ClassScatter
from distkern.numerics.scaling import FeatureScaling
from tests.linear_references import within_scatter


@st.composite
def labelled_rows(draw: st.DrawFn):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d, n_classes = draw(st.integers(1, 60)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-3, 4, d) + 10.0 ** rng.integers(-3, 4, d)
    if draw(st.booleans()):
        X[:, rng.integers(d)] = 3.7
    if draw(st.booleans()):
        X[rng.integers(n, size=n // 2)] = X[0]
    labels = rng.integers(0, n_classes, n)
    weights = rng.integers(1, 4, n).astype(float) if draw(st.booleans()) else None
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=6)))
    return X, labels, weights, [0, *cuts, n]


def in_pieces(X, labels, weights, cuts) -> ClassScatter:
    merged = ClassScatter.empty(labels, X.shape[1])
    for a, b in pairwise(cuts):
        merged = merged.merge(ClassScatter.of_rows(X[a:b], labels[a:b], None if weights is None else weights[a:b]))
    return merged


@given(labelled_rows())
def test_pieces_merge_to_the_whole(case) -> None:
    X, labels, weights, cuts = case
    found = in_pieces(X, labels, weights, cuts)
    mass = np.ones(len(X)) if weights is None else weights
    np.testing.assert_array_equal(found.labels, np.unique(labels))
    np.testing.assert_allclose(found.weights, [mass[labels == k].sum() for k in found.labels])
    means = [np.average(X[labels == k], axis=0, weights=mass[labels == k]) for k in found.labels]
    np.testing.assert_allclose(found.means, means, rtol=1e-13)
    np.testing.assert_allclose(found.mean, np.average(X, axis=0, weights=mass), rtol=1e-12)
    # What is the same in all rows is exactly zero in the reference too, and the rest has digits to spare.
    exact = X.astype(np.longdouble) - X[0].astype(np.longdouble)
    center = np.average(exact, axis=0, weights=mass)
    lengths = np.sqrt(mass @ np.square(exact - center))
    allowed = 1e-11 * np.outer(lengths, lengths)
    within = within_scatter(exact, labels, mass.astype(np.longdouble))
    assert (np.abs(found.factor.T @ found.factor - within) <= allowed).all()
    own = [np.average(exact[labels == k], axis=0, weights=mass[labels == k]) - center for k in found.labels]
    between = sum(w * np.outer(m, m) for w, m in zip(found.weights, own, strict=True))
    assert (np.abs(found.between().T @ found.between() - between) <= allowed).all()


@given(labelled_rows())
def test_a_weight_is_the_same_as_repeated_rows(case) -> None:
    X, labels, weights, cuts = case
    counts = np.ones(len(X), dtype=int) if weights is None else weights.astype(int)
    weighted = in_pieces(X, labels, weights, cuts)
    repeated = ClassScatter.of_rows(np.repeat(X, counts, axis=0), np.repeat(labels, counts))
    np.testing.assert_allclose(weighted.means, repeated.means, rtol=1e-13)
    a, b = (s.factor.T @ s.factor for s in (weighted, repeated))
    np.testing.assert_allclose(a, b, atol=1e-10 * np.abs(b).max() + 1e-20 * np.abs(X).max() ** 2)


def test_what_is_constant_within_classes_is_exactly_so() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 500)
    X = np.stack([rng.standard_normal(500), np.full(500, 0.1), labels * 0.3], axis=1)
    found = in_pieces(X, labels, rng.random(500) + 0.1, [0, 3, 100, 101, 500])
    assert not found.factor[:, 1:].any()
    assert (found.means[:, 1] == 0.1).all()
    assert (found.means[:, 2] == np.unique(labels * 0.3)).all()
    assert found.mean[1] == 0.1
    assert not found.between()[:, 1].any()


def test_no_digits_are_lost_to_an_offset() -> None:
    """Integers far from zero are exact, so the scatter of shifted rows must be that of the rows."""
    rng = np.random.default_rng(1)
    X = rng.integers(-50, 50, (400, 3)).astype(float)
    labels = rng.integers(0, 2, 400)
    near = in_pieces(X, labels, None, [0, 7, 200, 400])
    remote = in_pieces(X + 2.0**40, labels, None, [0, 7, 200, 400])
    np.testing.assert_allclose(np.abs(remote.factor), np.abs(near.factor), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(remote.between(), near.between(), rtol=1e-11)
    shifted = remote.scaled(FeatureScaling(np.full(3, 2.0**40), np.full(3, 4.0)))
    np.testing.assert_allclose(shifted.means, near.means / 4, rtol=1e-12)


def test_text_labels() -> None:
    found = in_pieces(np.arange(4.0)[:, None], np.array(["b", "a", "c", "a"]), None, [0, 1, 2, 4])
    assert found.labels.tolist() == ["a", "b", "c"]
    assert found.means[:, 0].tolist() == [2.0, 0.0, 2.0]


def test_squares_that_overflow_are_not_hidden() -> None:
    X = np.array([[1e308, 0.0], [-1e308, 1.0], [1e308, 2.0]])
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isnan(ClassScatter.of_rows(X, np.zeros(3, dtype=int)).factor).all() or np.isfinite(X).all()


@pytest.mark.parametrize("n", [1, 2])
def test_fewer_rows_than_features(n: int) -> None:
    X = np.random.default_rng(2).standard_normal((n, 5))
    found = ClassScatter.of_rows(X, np.zeros(n, dtype=int))
    assert found.factor.shape == (5, 5)
    np.testing.assert_allclose(found.factor.T @ found.factor, within_scatter(X, np.zeros(n), np.ones(n)), atol=1e-14)
