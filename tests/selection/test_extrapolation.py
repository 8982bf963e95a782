"""Scores of a sample's path over all rows, against the exact formulas and against larger samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distkern.selection.criteria import path_score
from distkern.selection.extrapolation import LambdaOverRows, score_over_rows, variance
from distkern.selection.factors import Factors
from distkern.selection.regularization import effective_centers, residual_sum_of_squares

Array = NDArray[Any]


def path(n: int, m: int, seed: int, n_targets: int = 1, per_target: bool = False) -> Factors:
    """Factors of a path on random orthogonal columns: 20 of them explain the targets, the rest fits noise."""
    rng = np.random.default_rng(seed)
    s = n * np.exp(-np.arange(1, m + 1) / 30)
    signal = np.where(np.arange(m) < 20, 1.0, 0.0)[:, None] * np.sqrt(n) * 0.2
    z = np.sqrt(s)[:, None] * (signal + rng.standard_normal((m, n_targets)))
    norms = np.square(z / np.sqrt(s)[:, None]).sum(axis=0) + (n - m - 1) * 1.0
    factors = Factors(float(n), norms, m, "gcv-per-target" if per_target else "gcv")
    for j in range(m):
        factors.append(np.zeros(j + 1), s[j], z[j])
    return factors


def arguments(factors: Factors) -> tuple[Any, ...]:
    return factors.s, factors.z, factors.target_norms, factors.lambda_, factors.weight_sum


@given(st.integers(0, 99), st.integers(1, 60), st.sampled_from(["gcv", "bic", "mdl"]), st.integers(1, 3))
def test_scores_are_those_of_the_expected_sums(seed: int, m: int, stop: str, n_targets: int) -> None:
    """The formulas of the score, with the residual that v leaves over all rows, computed one by one."""
    factors = path(200, m, seed, n_targets)
    s, z, yy, lam, W = arguments(factors)
    rows, T = 1000.0, n_targets
    p = float(effective_centers(s, lam)[0])
    v = float(residual_sum_of_squares(s, z, yy, lam).sum()) / (W - 1 - 1.5 * p)
    ss = (rows - 1 - p) * v
    bic = rows * np.log(ss / (rows * T)) + (1 + p) * np.log(rows)
    if stop == "gcv":
        expected = rows * ss / (rows - 1 - 2 * p) ** 2
    elif stop == "bic":
        expected = bic
    else:
        count = sum(np.log(rows - i) - np.log(i + 1) for i in range(m))
        expected = bic / 2 + count / T
    assert score_over_rows(stop, *arguments(factors), rows) == pytest.approx(expected, rel=1e-9)


def test_a_lambda_for_every_target_adds_up_their_scores() -> None:
    factors = path(200, 30, 0, 3, per_target=True)
    s, z, yy, lam, W = arguments(factors)
    single = [score_over_rows("gcv", s, z[:, [t]], yy[[t]], lam[[t]], W, 900.0) for t in range(3)]
    assert score_over_rows("gcv", s, z, yy, lam, W, 900.0) == pytest.approx(sum(x for x in single if x is not None))


@pytest.mark.parametrize("stop", ["gcv", "bic", "mdl"])
def test_a_path_that_leaves_no_degree_of_freedom_has_an_infinite_score(stop: str) -> None:
    factors = path(60, 50, 0)
    s, z, yy, _, W = arguments(factors)
    assert score_over_rows(stop, s, z, yy, np.zeros(1), W, 1000.0) == float("inf")
    assert score_over_rows("lambda", s, z, yy, np.zeros(1), W, 1000.0) is None
    assert variance(np.ones(2), np.array([10.0, 50.0]), W).tolist() == [1 / 44, np.inf]


@pytest.mark.parametrize("seed", range(4))
def test_the_minimum_is_beyond_that_of_the_sample(seed: int) -> None:
    """Where a sample of 200 rows stops, ten times the rows still gain: weak signals are found by more rows only."""
    rng = np.random.default_rng(seed)
    m, n, more = 90, 200, 2000
    gains = 0.6 * np.exp(-np.arange(m) / 20)  # of the variance 1 of the noise, for each row of the sample

    def scores(rows: int, over: float | None) -> list[float]:
        z = np.sqrt(gains * rows)[:, None] + rng.standard_normal((m, 1))
        norms = np.array([np.square(z).sum() + rows - m - 1.0])
        factors = Factors(float(rows), norms, m, "none")
        found = []
        for j in range(m):
            factors.append(np.zeros(j + 1), 1.0, z[j])
            found.append(factors.score("gcv", over))
        return [score for score in found if score is not None]

    own, estimated, whole = (int(np.argmin(scores(*case))) for case in ((n, None), (n, more), (more, None)))
    assert own < estimated
    assert estimated >= 0.8 * whole


def test_lambda_over_the_same_rows_is_near_lambda() -> None:
    """With as many rows as the sample has, noise and gains stay what they are."""
    factors = path(4000, 60, 1)
    estimate, followed = LambdaOverRows(4000.0), []
    again = Factors(4000.0, factors.target_norms, 60, "gcv")
    for j in range(60):
        again.append(np.zeros(j + 1), factors.s[j + 1], factors.z[j + 1])
        followed.append(again.lambda_over(estimate))
    assert followed[-1] == pytest.approx(float(factors.lambda_[0]), rel=0.35)
    assert path_score("lambda", *arguments(factors)) is None


def test_lambda_keeps_its_value_without_degrees_of_freedom() -> None:
    factors, estimate = path(60, 50, 0), LambdaOverRows(1000.0)
    first = estimate.observe(*arguments(path(60, 5, 0)))
    s, z, yy, _, W = arguments(factors)
    assert estimate.observe(s, z, yy, np.zeros(1), W) == first > 0
