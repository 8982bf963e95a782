"""Scores of the models along a path against their definitions over rows."""

from __future__ import annotations

from math import comb, inf, log
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.selection.criteria import bayesian_information, description_length, path_score
from distkern.selection.regularization import charged_gcv

Array = npt.NDArray[Any]

seeds = st.integers(0, 2**32 - 1)
lambdas = st.floats(-6.0, 3.0).map(lambda e: 10.0**e)


def problem(seed: int, n: int, m: int, T: int) -> tuple[Array, Array]:
    """Orthogonal columns, the constant first, and centred targets."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, m))]))
    Q *= 10.0 ** rng.uniform(-1, 1, m + 1)
    Q[:, 0] = 1.0
    Y = rng.standard_normal((n, T))
    return Q, Y - Y.mean(axis=0)


def sums(Q: Array, Y: Array, lam: Array) -> tuple[Array, Array, Array, Array, float]:
    z = Q.T @ Y
    z[0] = 0.0
    return np.square(Q).sum(axis=0), z, np.square(Y).sum(axis=0), lam, float(len(Q))


def fitted(Q: Array, y: Array, lam: float) -> tuple[float, float]:
    """Residual sum of squares, and the trace of the smoother of the columns but the constant."""
    w = np.linalg.solve(Q.T @ Q + lam * np.eye(Q.shape[1]), Q.T @ y)
    rest = Q[:, 1:]
    smoother = rest @ np.linalg.solve(rest.T @ rest + lam * np.eye(rest.shape[1]), rest.T)
    return float(np.sum((y - Q @ w) ** 2)), float(np.trace(smoother))


@given(seeds, st.integers(0, 9), st.integers(1, 3), lambdas, st.booleans())
def test_both_as_written(seed: int, m: int, T: int, lam: float, shared: bool) -> None:
    n = 40
    Q, Y = problem(seed, n, m, T)
    lams = np.array([lam]) if shared else lam * 2.0 ** np.arange(T)
    fits = [fitted(Q, Y[:, [t]], float(np.broadcast_to(lams, T)[t])) for t in range(T)]
    ss, p = sum(fit[0] for fit in fits), 1 + np.mean([fit[1] for fit in fits])
    bic = n * log(ss / (n * T)) + p * log(n)
    arguments = sums(Q, Y, lams)
    assert bayesian_information(*arguments) == pytest.approx(bic, rel=1e-9, abs=1e-7)
    # The likelihood at its maximum over the variance that the targets share, and each weight at half a log W.
    variance = ss / (n * T)
    likelihood = -0.5 * T * n * (log(2 * np.pi * variance) + 1)
    code = -likelihood + 0.5 * T * p * log(n) + log(comb(n, m))
    constant = 0.5 * n * (log(2 * np.pi) + 1)
    assert description_length(*arguments) == pytest.approx(code / T - constant, rel=1e-9, abs=1e-7)


@given(seeds, st.integers(1, 6), lambdas)
def test_repeated_targets_change_bic_by_nothing(seed: int, m: int, lam: float) -> None:
    Q, Y = problem(seed, 30, m, 1)
    lams = np.array([lam])
    once, twice = (bayesian_information(*sums(Q, np.repeat(Y, k, axis=1), lams)) for k in (1, 2))
    assert twice == pytest.approx(once, rel=1e-9, abs=1e-9)


@given(seeds, st.integers(1, 6), lambdas, st.integers(-8, 8))
def test_units_of_the_targets_shift_all_models_alike(seed: int, m: int, lam: float, exponent: int) -> None:
    Q, Y = problem(seed, 30, m, 2)
    unit, lams = 10.0**exponent, np.array([lam])
    for score in (bayesian_information, description_length):
        differences = [
            score(*sums(Q, scale * Y, lams)) - score(*sums(Q[:, :1], scale * Y, lams)) for scale in (1.0, unit)
        ]
        assert differences[0] == pytest.approx(differences[1], rel=1e-6, abs=1e-6)


@given(seeds, st.integers(1, 6), lambdas)
def test_weights_count_as_repeated_rows(seed: int, m: int, lam: float) -> None:
    Q, Y = problem(seed, 24, m, 2)
    copies = np.repeat(np.arange(24), 3)
    lams = np.array([lam])
    s, z, yy, _, W = sums(Q, Y, lams)
    for score in (bayesian_information, description_length):
        repeated = score(*sums(Q[copies], Y[copies], lams))
        assert score(3 * s, 3 * z, 3 * yy, lams, 3 * W) == pytest.approx(repeated, rel=1e-9)


def test_a_fit_without_residual_has_a_finite_score() -> None:
    Q, _ = problem(0, 40, 4, 1)
    arguments = sums(Q, Q[:, 1:] @ np.ones((4, 2)), np.zeros(1))
    for score in (bayesian_information, description_length):
        assert np.isfinite(score(*arguments))
    fewer = sums(Q[:, :4], Q[:, 1:4] @ np.ones((3, 2)), np.zeros(1))
    assert bayesian_information(*fewer) < bayesian_information(*arguments)


@pytest.mark.parametrize("n", [8, 9])
def test_no_score_where_half_of_the_rows_are_spent(n: int) -> None:
    Q, Y = problem(0, n, 4, 1)
    arguments = sums(Q, Y, np.zeros(1))
    assert bayesian_information(*arguments) == inf
    assert description_length(*arguments) == inf
    Q, Y = problem(0, 10, 4, 1)
    assert np.isfinite(bayesian_information(*sums(Q, Y, np.zeros(1))))


def test_no_code_for_more_centres_than_rows() -> None:
    s = np.append(3.0, np.full(4, 1e-9))
    z, yy, lam = np.zeros((5, 1)), np.ones(1), np.array([1e3])
    assert np.isfinite(bayesian_information(s, z, yy, lam, 3.0))
    assert description_length(s, z, yy, lam, 3.0) == inf


def test_each_rule_has_its_score() -> None:
    arguments = sums(*problem(1, 40, 4, 2), np.array([0.1, 0.2]))
    assert path_score("gcv", *arguments) == charged_gcv(*arguments).sum()
    assert path_score("bic", *arguments) == bayesian_information(*arguments)
    assert path_score("mdl", *arguments) == description_length(*arguments)
    for other in ("lambda", "validation", None):
        assert path_score(other, *arguments) is None
