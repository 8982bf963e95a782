"""The simulated steps against a dense loop over all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distkern.selection.factors import Factors
from distkern.selection.lookahead import LookaheadCandidates, orthogonal_coefficients, predict_steps
from tests.references import DensePath, gaussian_gram

Array = NDArray[np.float64]

REGULARIZATION = st.sampled_from(["gcv", "gcv-per-target", "evidence", "evidence-per-target", "none", 0.3])


class Problem:
    """Rows with some columns in Q already, and everything a simulation among a few candidates needs."""

    def __init__(
        self,
        n: int,
        n_targets: int,
        seed: int,
        regularization: str | float,
        *,
        sigma: float = 0.7,
        epsilon: float = 0.0,
        weighted: bool = False,
        copies: float = 0.0,
    ) -> None:
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, (n, 2))
        copied = rng.random(n) < copies
        X[copied] = X[rng.integers(0, n, np.count_nonzero(copied))]
        self.roots = np.sqrt(rng.uniform(0.5, 2.0, n)) if weighted else np.ones(n)
        self.columns = (gaussian_gram(X, sigma) + epsilon * np.eye(n)) * self.roots[:, None]
        y = rng.standard_normal((n, n_targets))
        weights = self.roots**2
        self.targets = (y - weights @ y / weights.sum()) * self.roots[:, None]
        self.regularization = regularization

    def path(self, candidates: Any, n_steps: int) -> DensePath:
        return DensePath(self.columns, self.targets, self.roots, candidates, n_steps, self.regularization)

    def predict(
        self, before: DensePath, candidates: Any, watched: Any, limit: int, **changes: Any
    ) -> tuple[Any, LookaheadCandidates, Factors]:
        factors = Factors(
            float(self.roots @ self.roots),
            np.square(self.targets).sum(axis=0),
            len(before.rows) + limit,
            self.regularization,
        )
        for s, z in zip(before.s[1:], before.z[1:], strict=True):
            factors.append(np.zeros(factors.n_columns), s, z)
        rows = np.concatenate([candidates, watched]).astype(np.int64)
        K = self.columns[:, candidates]
        known = LookaheadCandidates(
            rows=rows,
            gram=K.T @ K,
            cross=before.q.T @ K,
            products=K.T @ before.residual,
            kernel=K[rows],
            q=before.q[rows],
            residual=before.residual[rows],
        )
        sizes = np.sqrt(np.square(before.residual[candidates]).sum(axis=1)) / self.roots[candidates]
        arguments = {"first": int(sizes.argmax()), "limit": limit, "reliable": 1e-11, "through_dependent": False}
        prediction = predict_steps(
            known, factors.s, factors.residual_products, factors.preview, **(arguments | changes)
        )
        return prediction, known, factors


def clear(path: DensePath, rows: Any, roots: Array) -> bool:
    """Whether no choice of the path was a tie to rounding."""
    return len(path.largest) < 2 or min(path.largest) > 1e-6 * max(path.largest)


@given(
    st.integers(12, 60),
    st.integers(1, 3),
    st.integers(0, 8),
    st.integers(1, 12),
    st.integers(0, 10_000),
    REGULARIZATION,
    st.sampled_from([0.0, 0.2]),
    st.booleans(),
)
def test_the_predicted_steps_are_the_greedy_ones(
    n: int,
    n_targets: int,
    n_before: int,
    limit: int,
    seed: int,
    regularization: str | float,
    epsilon: float,
    weighted: bool,
) -> None:
    problem = Problem(n, n_targets, seed, regularization, epsilon=epsilon, weighted=weighted)
    before = problem.path(range(n), n_before)
    left = np.setdiff1d(np.arange(n), before.rows)
    candidates = np.random.default_rng(seed).permutation(left)[: max(2, len(left) // 2)]
    prediction, known, factors = problem.predict(before, candidates, [], limit)
    among = problem.path(np.concatenate([before.rows, candidates]), n_before + limit)
    assume(among.rows[: len(before.rows)] == before.rows)
    assume(clear(among, candidates, problem.roots))
    expected = among.rows[len(before.rows) :]
    predicted = candidates[list(prediction.order)].tolist()
    if among.passed_over:
        expected = expected[: len(predicted) - 1]
        predicted = predicted[: len(expected)]
    assert predicted == expected
    # The columns that are formed are orthogonal, and with `lower` they give back what is left of the candidates.
    order = list(prediction.order)
    P = problem.columns[:, candidates[order]]
    P = P - before.q @ (known.cross[:, order] / before.s[:, None])
    F = P @ np.linalg.inv(prediction.lower)
    s = np.square(F).sum(axis=0)
    share = (s / np.square(problem.columns[:, candidates[order]]).sum(axis=0)).min()
    if share > 1e-6:
        np.testing.assert_allclose(F.T @ F / np.sqrt(np.outer(s, s)), np.eye(len(order)), atol=1e-7)
        assert prediction.share == np.float64(share) or abs(prediction.share / share - 1) < 1e-5
    np.testing.assert_array_equal(np.tril(prediction.lower), np.eye(len(order)))
    assert factors.n_columns == n_before + 1 - (n_before - len(before.rows))


@given(st.integers(20, 60), st.integers(1, 2), st.integers(0, 10_000), REGULARIZATION)
def test_the_simulation_ends_where_a_watched_row_leads(
    n: int, n_targets: int, seed: int, regularization: str | float
) -> None:
    problem = Problem(n, n_targets, seed, regularization)
    before = problem.path(range(n), 3)
    whole = problem.path(range(n), 15)
    assume(clear(whole, [], problem.roots))
    assume(not whole.passed_over)
    next_rows = whole.rows[3:]
    # All rows but the first that leads, and one that leads later, are only watched.
    missing = next_rows[4]
    left = np.setdiff1d(np.arange(n), [*before.rows, missing])
    prediction, _, _ = problem.predict(before, left, [missing], 12)
    assert left[list(prediction.order)].tolist() == next_rows[:4]


@given(st.integers(0, 10_000))
def test_ties_go_to_the_lowest_row(seed: int) -> None:
    """Rows too far apart to see each other, with the same residual."""
    n = 10
    targets = np.where(np.arange(n) % 2, 1.0, -1.0)[:, None]
    candidates = np.random.default_rng(seed).permutation(n)
    known = LookaheadCandidates(
        rows=candidates.astype(np.int64),
        gram=np.eye(n),
        cross=np.zeros((1, n)),
        products=targets[candidates],
        kernel=np.eye(n),
        q=np.ones((n, 1)),
        residual=targets[candidates],
    )
    prediction = predict_steps(
        known,
        np.array([10.0]),
        np.zeros((1, 1)),
        lambda i, s, z: z / s,
        first=int(np.flatnonzero(candidates == 0)[0]),
        limit=n,
        reliable=1e-11,
        through_dependent=False,
    )
    assert candidates[list(prediction.order)].tolist() == list(range(n))


@given(st.integers(20, 50), st.integers(0, 10_000), st.booleans())
def test_what_follows_a_dependent_candidate(n: int, seed: int, through: bool) -> None:
    """It ends the simulation, or is passed over without a step; the others keep their order."""
    problem = Problem(n, 1, seed, "gcv", copies=0.5)
    before = problem.path(range(n), 6)
    left = np.setdiff1d(np.arange(n), [*before.rows, *before.passed_over])
    prediction, known, _ = problem.predict(before, left, [], len(left), through_dependent=through)
    whole = problem.path(np.concatenate([before.rows, left]), len(before.rows) + len(left))
    assume(whole.rows[: len(before.rows)] == before.rows)
    order = left[list(prediction.order)].tolist()
    q = problem.columns[:, order] - before.q @ (known.cross[:, list(prediction.order)] / before.s[:, None])
    left_over = [np.square(q[:, j] - _fit(q[:, :j], q[:, j])).sum() for j in range(len(order))]
    independent = [
        o > 1e-9 * (problem.columns[:, r] @ problem.columns[:, r]) for o, r in zip(left_over, order, strict=True)
    ]
    if not through:
        assert all(independent[:-1])
        return
    taken = [row for row, keeps in zip(order, independent, strict=True) if keeps]
    expected = whole.rows[len(before.rows) :]
    k = min(len(taken), len(expected), 4)
    assume(clear(whole, [], problem.roots))
    assert taken[:k] == expected[:k]


def _fit(columns: Array, column: Array) -> Array:
    return columns @ np.linalg.lstsq(columns, column, rcond=1e-9)[0] if columns.shape[1] else np.zeros_like(column)


@given(st.integers(2, 12), st.integers(1, 4), st.floats(1e-12, 1e-6), st.integers(0, 10_000))
def test_coefficients_for_a_basis_that_leans(m: int, n: int, size: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    Q = (
        np.linalg.qr(rng.standard_normal((60, m)))[0]
        @ np.linalg.cholesky(np.eye(m) + size * _symmetric(rng.standard_normal((m, m)))).T
        * 10.0 ** rng.uniform(-2, 2, m)
    )
    K = rng.standard_normal((60, n))
    gram = Q.T @ Q
    s = gram.diagonal()
    coefficients = orthogonal_coefficients(Q.T @ K, s, gram - np.diag(s))
    left = K - Q @ coefficients
    cosines = (Q.T @ left) / np.sqrt(s)[:, None] / np.linalg.norm(left, axis=0)
    np.testing.assert_allclose(cosines, 0.0, atol=100 * m**2 * size**2 + 1e-14)


def _symmetric(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2
