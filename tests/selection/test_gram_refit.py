"""Factors from sums over rows against orthogonalising the columns themselves."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distkern.selection.factors import kernel_weights
from distkern.selection.gram_refit import (
    FORESEEN,
    RELIABLE,
    Preconditioner,
    Refit,
    add_gram,
    add_gram_of_some,
    empty_gram,
    orthogonal_shares,
    preconditioner_of,
    refit,
    regularise,
    unpack_gram,
)
from distkern.selection.regularization import charged_gcv
from tests.references import lambda_step

Array = NDArray[Any]


def dense_factors(columns: Array, targets: Array) -> tuple[Array, Array, Array]:
    """U, s and z by a QR decomposition of all rows."""
    q, r = np.linalg.qr(columns)
    scale = r.diagonal()
    return r / scale[:, None], scale**2, (q.T @ targets) * scale[:, None]


def sums(columns: Array, targets: Array, u: Array | None = None, tiles: int = 3) -> tuple[Array, Array]:
    """Packed Gram matrix and products, a few rows at a time."""
    n = columns.shape[1]
    gram, products = empty_gram(n), np.zeros((n, targets.shape[1]))
    edges = np.linspace(0, len(columns), tiles + 1).astype(int)
    for start, stop in pairwise(edges):
        tile = np.ascontiguousarray(columns[start:stop].T)
        if u is not None:
            Preconditioner(u).apply(tile)
        add_gram(gram, tile, np.empty((n, n)))
        products += tile @ targets[start:stop]
    return gram, products


@dataclass
class Rows:
    """[1 K] and centred targets, times the root weights."""

    columns: Array
    targets: Array
    weight_sum: float

    @classmethod
    def make(cls, seed: int, n: int, tails: list[float], n_targets: int, *, weighted: bool, scale: float = 1.0) -> Rows:
        """Columns that depend on those before them up to a tail of the given relative size."""
        rng = np.random.default_rng(seed)
        weights = rng.integers(0, 3, n) / 2 if weighted else np.ones(n)
        columns = np.ones((n, 1 + len(tails)))
        for j, tail in enumerate(tails, start=1):
            mixture = columns[:, :j] @ rng.standard_normal(j)
            columns[:, j] = mixture / np.abs(mixture).max() + tail * rng.standard_normal(n)
            columns[:, j] *= scale**j
        targets = rng.standard_normal((n, n_targets)) + columns @ rng.standard_normal((columns.shape[1], n_targets))
        targets -= np.average(targets, axis=0, weights=weights)
        roots, present = np.sqrt(weights)[:, None], weights > 0
        return cls((columns * roots)[present], (targets * roots)[present], float(weights.sum()))

    def sample(self, every: int) -> Array:
        """U of some of the rows."""
        u, _, _ = dense_factors(self.columns[::every], self.targets[::every])
        return np.ascontiguousarray(u)


def check(fitted: Refit | None, rows: Rows, accurate: float) -> None:
    """Hold a refit to its equations and to the dense factors of the columns it keeps."""
    assert fitted is not None
    kept = np.append(0, fitted.kept + 1)
    columns = rows.columns[:, kept]
    u, s, z = dense_factors(columns, rows.targets)
    np.testing.assert_array_equal(np.tril(fitted.u), np.eye(len(kept)))
    np.testing.assert_allclose(fitted.s, s, rtol=accurate)
    lengths = np.sqrt(s)
    column_norms = np.linalg.norm(columns, axis=0)
    np.testing.assert_allclose(
        fitted.u * lengths[:, None] / column_norms, u * lengths[:, None] / column_norms, atol=accurate
    )
    size = np.linalg.norm(rows.targets, axis=0)
    assert (fitted.z[0] == 0).all()
    np.testing.assert_allclose(fitted.z / np.outer(lengths, size), z / np.outer(lengths, size), atol=accurate)


sizes = st.integers(30, 120)
seeds = st.integers(0, 2**32 - 1)
n_targets = st.integers(1, 3)
well = st.lists(st.floats(1e-2, 1.0), min_size=1, max_size=12)
ill = st.lists(st.floats(-6.5, 0.0).map(lambda e: 10**e), min_size=1, max_size=12)


@pytest.mark.parametrize("which", [[], [3], [0, 2, 3, 7]])
def test_sums_of_some_columns(which: list[int]) -> None:
    columns = np.zeros((8, 30))
    columns[which] = np.random.default_rng(0).standard_normal((len(which), 30))
    expected, packed = empty_gram(8), empty_gram(8)
    add_gram(expected, columns, np.empty((8, 8)))
    add_gram_of_some(packed, columns[which], np.array(which, dtype=np.intp), np.full((8, 8), np.nan))
    np.testing.assert_allclose(packed, expected, rtol=1e-14, atol=1e-14)


@given(seeds, sizes, st.integers(2, 9), st.integers(1, 5))
def test_packed_sums_are_the_gram_matrix(seed: int, n: int, k: int, tiles: int) -> None:
    columns = np.random.default_rng(seed).standard_normal((n, k))
    gram, products = sums(columns, columns, tiles=tiles)
    assert gram.shape == (k * (k + 1) // 2,)
    np.testing.assert_allclose(unpack_gram(gram, k), columns.T @ columns, atol=1e-12 * n)
    np.testing.assert_allclose(products, columns.T @ columns, atol=1e-12 * n)


@given(seeds, sizes, well, n_targets, st.booleans())
def test_plain_sums_give_the_factors(seed: int, n: int, tails: list[float], n_targets: int, weighted: bool) -> None:
    rows = Rows.make(seed, n, tails, n_targets, weighted=weighted)
    gram, products = sums(rows.columns, rows.targets)
    fitted = refit(gram, products, 1e-14)
    check(fitted, rows, 1e-8)
    assert fitted is not None
    assert fitted.kept.tolist() == list(range(len(tails)))


@given(seeds, sizes, ill, n_targets, st.booleans(), st.floats(0.1, 10.0))
def test_preconditioned_sums_give_the_factors_of_nearly_dependent_columns(
    seed: int, n: int, tails: list[float], n_targets: int, weighted: bool, scale: float
) -> None:
    """Whatever the condition number, up to the limit of what counts as dependent."""
    rows = Rows.make(seed, n, tails, n_targets, weighted=weighted, scale=scale)
    u, s, _ = dense_factors(rows.columns, rows.targets)
    if orthogonal_shares(u, s).min() < 1e-13:
        return
    start = rows.sample(1 if len(rows.columns) < 4 * len(tails) else 2)
    fitted = refit(*sums(rows.columns, rows.targets, start), 1e-14, start)
    # The columns themselves hold what is left of them to eps / sqrt(share) only.
    check(fitted, rows, 1e-9 + 1e3 * np.finfo(float).eps / np.sqrt(orthogonal_shares(u, s).min()))


@given(seeds, sizes, ill, n_targets)
def test_plain_sums_say_when_they_are_not_enough(seed: int, n: int, tails: list[float], n_targets: int) -> None:
    rows = Rows.make(seed, n, tails, n_targets, weighted=False)
    u, s, _ = dense_factors(rows.columns, rows.targets)
    fitted = refit(*sums(rows.columns, rows.targets), 1e-14)
    share = orthogonal_shares(u, s).min()
    if share > 10 * RELIABLE:
        check(fitted, rows, 1e-3)
    elif share < RELIABLE / 10:
        assert fitted is None


@given(seeds, sizes, ill, n_targets)
def test_only_nearly_dependent_columns_are_changed(seed: int, n: int, tails: list[float], n_targets: int) -> None:
    """Their number decides whether a tile multiplies or solves; the factors are the same."""
    rows = Rows.make(seed, n, tails, n_targets, weighted=True)
    every = 1 if len(rows.columns) < 4 * len(tails) else 2
    start, s, _ = dense_factors(rows.columns[::every], rows.targets[::every])
    near = orthogonal_shares(start, s) < FORESEEN
    matrix = preconditioner_of(start, s)
    if not near.any():
        assert matrix is None
    elif 2 * near.sum() > len(near):
        assert matrix is start
    else:
        assert matrix is not None
        np.testing.assert_array_equal(np.triu(matrix, 1).any(axis=0), near)
        shares = orthogonal_shares(*dense_factors(rows.columns, rows.targets)[:2])
        fitted = refit(*sums(rows.columns, rows.targets, matrix), 1e-14, matrix, complete=False)
        if shares.min() > 1e-13 and shares[~near].min() > 10 * RELIABLE:
            check(fitted, rows, 1e-3 if shares[~near].min() < FORESEEN else 1e-5)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_fits_are_those_of_least_squares_at_a_condition_of_1e8(seed: int) -> None:
    rows = Rows.make(seed, 200, [1e-6] * 12, 2, weighted=True)
    assert np.linalg.cond(rows.columns / np.linalg.norm(rows.columns, axis=0)) > 1e7
    assert refit(*sums(rows.columns, rows.targets), 1e-14) is None
    start = rows.sample(3)
    fitted = refit(*sums(rows.columns, rows.targets, start), 1e-14, start)
    check(fitted, rows, 1e-7)
    assert fitted is not None
    weights = kernel_weights(fitted.u, fitted.s, fitted.z, np.zeros(1))
    expected = np.linalg.lstsq(rows.columns, rows.targets, rcond=1e-15)[0]
    np.testing.assert_allclose(rows.columns @ weights, rows.columns @ expected, atol=1e-7)


@given(seeds, sizes, well, st.data())
def test_dependent_columns_are_left_out(seed: int, n: int, tails: list[float], data: st.DataObject) -> None:
    """Copies and sums of earlier columns, and later columns that were projected on them."""
    rows = Rows.make(seed, n, tails, 2, weighted=False)
    rng, m = np.random.default_rng(seed), len(tails)
    position = data.draw(st.integers(1, m), label="the column that depends on those before it")
    rows.columns[:, position] = rows.columns[:, :position] @ rng.uniform(0.5, 1, position)
    # Over other rows, nothing depended on anything.
    start, _, _ = dense_factors(rows.columns + 0.3 * rng.standard_normal(rows.columns.shape), rows.targets)
    start = np.ascontiguousarray(start)
    fitted = refit(*sums(rows.columns, rows.targets, start), 1e-12, start)
    assert fitted is not None
    assert fitted.kept.tolist() == [j for j in range(m) if j != position - 1]
    check(fitted, rows, 1e-7)


def test_nothing_but_the_constant_is_left_of_constant_columns() -> None:
    rows = Rows.make(0, 40, [1.0, 1.0], 1, weighted=False)
    rows.columns[:, 1:] = [2.0, 3.0]
    start = np.eye(3)
    assert refit(*sums(rows.columns, rows.targets), 1e-14) is None
    fitted = refit(*sums(rows.columns, rows.targets, start), 1e-14, start)
    assert fitted is not None
    assert fitted.kept.tolist() == []
    assert fitted.u.tolist() == [[1.0]]
    assert fitted.z.tolist() == [[0.0]]


def test_what_rounding_left_of_the_mean_does_not_matter() -> None:
    rows = Rows.make(1, 60, [1.0, 0.1, 0.5], 1, weighted=True)
    shifted = Rows(rows.columns, rows.targets + 1e-3 * rows.columns[:, :1], rows.weight_sum)
    exact, moved = (refit(*sums(r.columns, r.targets), 1e-14) for r in (rows, shifted))
    assert exact is not None
    assert moved is not None
    np.testing.assert_allclose(moved.z, exact.z, atol=1e-9)


@given(seeds, st.integers(1, 6), st.integers(10, 40))
def test_orthogonal_shares(seed: int, m: int, n: int) -> None:
    columns = np.random.default_rng(seed).standard_normal((n, m + 1))
    u, s, _ = dense_factors(columns, columns)
    assert orthogonal_shares(u, s) == pytest.approx(s / np.square(columns).sum(axis=0))
    assert RELIABLE < FORESEEN


@given(seeds, sizes, well, n_targets, st.booleans())
def test_lambda_follows_the_path_over_all_rows(
    seed: int, n: int, tails: list[float], n_targets: int, weighted: bool
) -> None:
    rows = Rows.make(seed, n, tails, n_targets, weighted=weighted)
    norms = np.square(rows.targets).sum(axis=0)
    fitted = refit(*sums(rows.columns, rows.targets), 1e-14)
    assert fitted is not None
    factors, gcv, charged = regularise(fitted, rows.weight_sum, norms, "gcv-per-target", "gcv")
    assert charged is not None
    for t in range(n_targets):
        lam, s, z = 0.0, np.append(rows.weight_sum, fitted.s[1:]), fitted.z[:, t]
        for j in range(1, len(s)):
            lam = lambda_step(s[: j + 1], z[: j + 1], norms[t], lam, rows.weight_sum)
            assert factors.lambdas[j, t] == pytest.approx(lam, rel=1e-6)
    for j in range(1, len(fitted.s)):
        small = (factors.s[: j + 1], factors.z[: j + 1], norms, factors.lambdas[j], rows.weight_sum)
        assert charged[j - 1] == charged_gcv(*small).sum()
        assert gcv[j - 1] == charged_gcv(*small, charge=1.0).sum()


@given(seeds, sizes, well, n_targets, st.floats(0.0, 10.0))
def test_weights_are_the_dense_regularised_solution(
    seed: int, n: int, tails: list[float], n_targets: int, lam: float
) -> None:
    """Minimum of |Y - [1 K] a|^2 + lambda |U a|^2, by least squares on both stacked."""
    rows = Rows.make(seed, n, tails, n_targets, weighted=True)
    fitted = refit(*sums(rows.columns, rows.targets), 1e-14)
    assert fitted is not None
    factors, _, _ = regularise(fitted, rows.weight_sum, np.square(rows.targets).sum(axis=0), lam, None)
    weights = kernel_weights(factors.u, factors.s, factors.z, factors.lambda_)
    u, _, _ = dense_factors(rows.columns, rows.targets)
    stacked = np.vstack([rows.columns, np.sqrt(lam) * u])
    padded = np.vstack([rows.targets, np.zeros((len(u), n_targets))])
    expected = np.linalg.lstsq(stacked, padded, rcond=1e-15)[0]
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(rows.columns @ weights, rows.columns @ expected, atol=1e-8 * scale)
