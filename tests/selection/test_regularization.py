from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from distkern.selection.regularization import (
    charged_gcv,
    effective_centers,
    effective_trace,
    gcv,
    reestimate_by_evidence,
    reestimate_lambda,
    residual_sum_of_squares,
)

Array = npt.NDArray[Any]

seeds = st.integers(0, 2**32 - 1)
targets = st.integers(1, 4)
lambdas = st.floats(-6.0, 3.0).map(lambda e: 10.0**e)

RULES = [reestimate_lambda, reestimate_by_evidence]


def factors(seed: int, n: int, m: int, T: int, spread: float = 2.0) -> tuple[Array, Array]:
    """Orthogonal columns, the constant first, of norms over 10^+-spread, and centred targets."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, m))]))
    Q *= 10.0 ** rng.uniform(-spread, spread, m + 1)
    Q[:, 0] = 1.0
    Y = Q[:, : m // 2 + 1] @ rng.standard_normal((m // 2 + 1, T)) + rng.standard_normal((n, T))
    return Q, Y - Y.mean(axis=0)


def summary(Q: Array, Y: Array, r: Array | None = None) -> tuple[Array, Array, Array, float]:
    r = np.ones(len(Q)) if r is None else r
    z = Q.T @ (r[:, None] * Y)
    z[0] = 0.0
    return r @ Q**2, z, r @ Y**2, float(r.sum())


def smoother(Q: Array, lam: float) -> Array:
    """Return the residual matrix P = I - Q (Q'Q + lambda I)^-1 Q'."""
    gram = np.diag(np.diag(Q.T @ Q)) + lam * np.eye(Q.shape[1])
    return np.asarray(np.eye(len(Q)) - Q @ np.linalg.solve(gram, Q.T))


@settings(deadline=None)
@given(seeds, st.integers(0, 12), targets, lambdas, st.booleans())
def test_sums_equal_the_dense_smoother(seed: int, m: int, T: int, lam: float, shared: bool) -> None:
    Q, Y = factors(seed, 30, m, T)
    s, z, yy, W = summary(Q, Y)
    lams = np.array([lam]) if shared else lam * 2.0 ** np.arange(T)
    P = [smoother(Q, value) for value in np.broadcast_to(lams, T)]
    ss = np.array([np.square(P[t] @ Y[:, t]).sum() for t in range(T)])
    trace = np.array([np.trace(p) for p in P])
    np.testing.assert_allclose(residual_sum_of_squares(s, z, yy, lams), ss, rtol=1e-9)
    np.testing.assert_allclose(effective_trace(s, lams, W), trace[: len(lams)], rtol=1e-10)
    expected = W * ss.sum(keepdims=True) / trace[:1] ** 2 if shared else W * ss / trace**2
    np.testing.assert_allclose(gcv(s, z, yy, lams, W), expected, rtol=1e-8)


@settings(deadline=None)
@given(seeds, st.integers(0, 12), targets, lambdas, st.sampled_from([1.5, 2.0, 3.0]), st.booleans())
def test_charged_trace_as_written(seed: int, m: int, T: int, lam: float, charge: float, shared: bool) -> None:
    s, z, yy, W = summary(*factors(seed, 60, m, T))
    lams = np.array([lam]) if shared else lam * 2.0 ** np.arange(T)
    trace = np.array([W - 1 - charge * sum(sj / (value + sj) for sj in s[1:]) for value in lams])
    np.testing.assert_allclose(effective_trace(s, lams, W, charge), trace, rtol=1e-12)
    np.testing.assert_allclose(effective_centers(s, lams), (W - 1 - trace) / charge, rtol=1e-9, atol=1e-9)
    ss = residual_sum_of_squares(s, z, yy, lams)
    expected = W * (ss.sum(keepdims=True) if shared else ss) / trace**2
    np.testing.assert_allclose(charged_gcv(s, z, yy, lams, W, charge), expected, rtol=1e-12)
    if charge == 2.0:
        np.testing.assert_array_equal(charged_gcv(s, z, yy, lams, W), charged_gcv(s, z, yy, lams, W, charge))


@settings(deadline=None)
@given(seeds, st.integers(1, 12), targets, st.floats(1e-2, 1e3), st.booleans())
def test_step_equals_the_dense_formula(seed: int, m: int, T: int, lam: float, shared: bool) -> None:
    Q, Y = factors(seed, 30, m, T, spread=1.0)
    s, z, yy, W = summary(Q, Y)
    lams = np.array([lam]) if shared else lam * 2.0 ** np.arange(T)
    expected = []
    for index, value in enumerate(lams):
        y = Y if shared else Y[:, [index]]
        P = smoother(Q, value)
        h = 1e-3 * value
        trace_slope = (np.trace(smoother(Q, value + h)) - np.trace(smoother(Q, value - h))) / (2 * h)
        inverse = np.linalg.inv(np.diag(s) + value * np.eye(len(s)))
        w = inverse @ Q.T @ y
        expected.append(trace_slope * np.square(P @ y).sum() / (np.trace(P) * np.trace(w.T @ inverse @ w)))
    limit = 1e6 * s.max()
    np.testing.assert_allclose(reestimate_lambda(s, z, yy, lams, W), np.clip(expected, 0.0, limit), rtol=1e-5)


@settings(deadline=None)
@given(seeds, st.integers(2, 12), targets, st.booleans())
def test_a_converged_lambda_is_stationary(seed: int, m: int, T: int, shared: bool) -> None:
    s, z, yy, W = summary(*factors(seed, 40, m, T, spread=1.0))
    lam = np.zeros(1 if shared else T)
    for _ in range(1000):
        lam, old = reestimate_lambda(s, z, yy, lam, W), lam
        if converged := bool((np.abs(lam - old) <= 1e-10 * lam).all()):
            break
    assume(converged and bool((lam < 1e5 * s.max()).all()))
    h = 1e-3
    below, at, above = (gcv(s, z, yy, factor * lam, W) for factor in (1 - h, 1.0, 1 + h))
    slope = (above - below) / (2 * h * at)
    np.testing.assert_allclose(slope, 0.0, atol=1e-5)


@settings(deadline=None)
@given(seeds, st.integers(1, 8), targets, lambdas, st.booleans())
def test_a_shared_lambda_of_one_target_is_its_own(seed: int, m: int, T: int, lam: float, shared: bool) -> None:
    s, z, yy, W = summary(*factors(seed, 30, m, T))
    own = np.full(T, lam)
    for t in range(T):
        one = (s, z[:, [t]], yy[[t]], np.array([lam]), W)
        for function in (gcv, charged_gcv, reestimate_lambda, reestimate_by_evidence):
            np.testing.assert_allclose(function(*one)[0], function(s, z, yy, own, W)[t], rtol=1e-12)


@settings(deadline=None)
@given(seeds, st.integers(1, 6), targets, lambdas)
def test_weights_equal_repeated_rows(seed: int, m: int, T: int, lam: float) -> None:
    rng = np.random.default_rng(seed)
    r = rng.integers(0, 4, 25).astype(float)
    r[:10] = 2.0
    K = np.column_stack([np.ones(25), rng.standard_normal((25, m))])
    root = np.sqrt(r)[:, None]
    _, u = np.linalg.qr(root * K)
    Q = K @ np.linalg.inv(u / np.diag(u)[:, None])
    Y = rng.standard_normal((25, T))
    Y -= r @ Y / r.sum()
    copies = np.repeat(np.arange(25), r.astype(int))
    weighted = summary(Q, Y, r)
    repeated = summary(Q[copies], Y[copies])
    lams = np.array([lam])
    for function in (gcv, charged_gcv, reestimate_lambda, reestimate_by_evidence):
        s, z, yy, W = weighted
        np.testing.assert_allclose(function(s, z, yy, lams, W), function(*repeated[:3], lams, repeated[3]), rtol=1e-9)
    ss = np.square(smoother(Q[copies], lam) @ Y[copies]).sum(axis=0)
    np.testing.assert_allclose(residual_sum_of_squares(*weighted[:3], lams), ss, rtol=1e-9)


def test_an_exact_fit_has_no_negative_residual() -> None:
    for seed in range(20):
        Q, _ = factors(seed, 20, 6, 1, spread=4.0)
        Y = Q[:, 1:] @ np.random.default_rng(seed).standard_normal((6, 3))
        s, z, yy, W = summary(Q, Y)
        ss = residual_sum_of_squares(s, z, yy, np.zeros(1))
        assert (ss >= 0.0).all()
        assert (ss <= 1e-13 * yy).all()
        lam = reestimate_lambda(s, z, yy, np.zeros(3), W)
        assert (lam >= 0.0).all()


@pytest.mark.parametrize("W", [3.0, 4.0])
def test_no_trace_left(W: float) -> None:
    rng = np.random.default_rng(0)
    s = np.array([W, *rng.uniform(0.1, 10.0, 3)])
    z = rng.standard_normal((4, 2))
    z[0] = 0.0
    yy = np.array([100.0, 100.0])
    lam = np.zeros(2)
    assert (effective_trace(s, lam, W) == W - 4.0).all()
    assert (gcv(s, z, yy, lam, W) == np.inf).all()
    assert (charged_gcv(s, z, yy, lam, W) == np.inf).all()
    assert charged_gcv(s, z, yy, lam[:1], W).tolist() == [np.inf]
    for rule in RULES:
        np.testing.assert_array_equal(rule(s, z, yy, lam, W), lam)


@pytest.mark.parametrize("rule", RULES)
def test_degenerate_sums_keep_lambda(rule: Any) -> None:
    s = np.array([50.0, 2.0, 0.0])
    z = np.zeros((3, 2))
    z[1, 1] = 3.0
    yy = np.array([5.0, 7.0])
    for start in (0.0, 0.25):
        lam = rule(s, z, yy, np.full(2, start), 50.0)
        assert lam[0] == start
        assert 0.0 < lam[1] <= 1e6 * 50.0
        assert np.isfinite(gcv(s, z, yy, np.full(2, start), 50.0)).all()
    z[1, 1] = 1e-9
    assert rule(s, z, yy, np.zeros(1), 50.0).tolist() == [1e6 * 50.0]


@np.errstate(over="ignore")  # as in the engine
@settings(deadline=None)
@given(
    seeds,
    st.integers(0, 6),
    targets,
    st.sampled_from([0.0, 1e-300, 1e-8, 1.0, 1e12]),
    st.sampled_from([10.0, 100.0, 150.0]),
    st.booleans(),
)
def test_extreme_numbers_never_give_nan(seed: int, m: int, T: int, lam: float, spread: float, shared: bool) -> None:
    rng = np.random.default_rng(seed)
    s = 10.0 ** rng.uniform(-2 * spread, spread, m + 1)
    s[0] = 1e3
    s[1:][rng.random(m) < 0.2] = 0.0
    z = np.sqrt(s)[:, None] * rng.standard_normal((m + 1, T))
    z[0] = 0.0
    yy = (z[s > 0] ** 2 / s[s > 0, None]).sum(axis=0) + rng.choice([0.0, 1.0])
    lams = np.full(1 if shared else T, lam)
    for rule in RULES:
        new = rule(s, z, yy, lams, 1e3)
        assert new.shape == lams.shape
        assert ((new >= 0.0) & (new <= max(lam, 1e6 * s.max()))).all()
    for score in (gcv(s, z, yy, lams, 1e3), charged_gcv(s, z, yy, lams, 1e3)):
        assert score.shape == lams.shape
        assert (score >= 0.0).all()


@settings(deadline=None)
@given(seeds, st.integers(1, 40), targets, lambdas)
def test_bits_do_not_depend_on_memory_order(seed: int, m: int, T: int, lam: float) -> None:
    s, z, yy, W = summary(*factors(seed, 60, m, T))
    lams = np.array([lam])
    for function in (gcv, charged_gcv, reestimate_lambda, reestimate_by_evidence):
        expected = function(s, z, yy, lams, W)
        assert expected.tobytes() == function(s, np.asfortranarray(z), yy, lams, W).tobytes()


# --- evidence --------------------------------------------------------------------------------------------------------


def log_evidence(Q: Array, Y: Array, alpha: float, beta: float) -> float:
    """Log marginal likelihood of targets that are Gaussian with covariance I/beta + Q Q'/alpha."""
    covariance = np.eye(len(Q)) / beta + Q @ Q.T / alpha
    _, determinant = np.linalg.slogdet(2 * np.pi * covariance)
    return float(-0.5 * (Y.shape[1] * determinant + np.sum(Y * np.linalg.solve(covariance, Y))))


def noise_precision(s: Array, z: Array, yy: Array, lam: Array, W: float) -> Array:
    """beta of MacKay's re-estimation, written out; shared with lambda."""
    determined = np.array([sum(s / (value + s)) for value in lam])
    ss = residual_sum_of_squares(s, z, yy, lam)
    return (W - determined) * (len(yy) / ss.sum() if len(lam) == 1 else 1 / ss)


@settings(deadline=None)
@given(seeds, st.integers(1, 12), targets, lambdas, st.booleans())
def test_an_evidence_step_as_written(seed: int, m: int, T: int, lam: float, shared: bool) -> None:
    Q, Y = factors(seed, 30, m, T, spread=1.0)
    s, z, yy, W = summary(Q, Y)
    lams = np.array([lam]) if shared else lam * 2.0 ** np.arange(T)
    expected = []
    for index, value in enumerate(lams):
        y = Y if shared else Y[:, [index]]
        count = y.shape[1]
        w = np.linalg.solve(Q.T @ Q + value * np.eye(m + 1), Q.T @ y)
        determined = np.trace(Q @ np.linalg.solve(Q.T @ Q + value * np.eye(m + 1), Q.T))
        alpha = count * determined / np.sum(w**2)
        beta = count * (len(Q) - determined) / np.sum((y - Q @ w) ** 2)
        expected.append(alpha / beta)
    limit = 1e6 * s.max()
    np.testing.assert_allclose(reestimate_by_evidence(s, z, yy, lams, W), np.clip(expected, 0, limit), rtol=1e-6)


@settings(deadline=None)
@given(seeds, st.integers(2, 10), targets, st.booleans())
def test_converged_evidence_is_stationary_in_alpha_and_beta(seed: int, m: int, T: int, shared: bool) -> None:
    Q, Y = factors(seed, 40, m, T, spread=0.5)
    s, z, yy, W = summary(Q, Y)
    lam = np.zeros(1 if shared else T)
    for _ in range(2000):
        lam, old = reestimate_by_evidence(s, z, yy, lam, W), lam
        if converged := bool((np.abs(lam - old) <= 1e-11 * lam).all()):
            break
    assume(converged and bool((lam < 1e3 * s.max()).all()))
    beta = noise_precision(s, z, yy, lam, W)
    h = 1e-4
    for index, (value, precision) in enumerate(zip(lam, beta, strict=True)):
        y = Y if shared else Y[:, [index]]
        for change in ((1 + h, 1.0), (1.0, 1 + h)):
            up, down = (
                log_evidence(Q, y, value * precision * change[0] ** sign, precision * change[1] ** sign)
                for sign in (1, -1)
            )
            assert abs(up - down) / (2 * h) < 1e-3


def test_evidence_leaves_zero_at_once() -> None:
    """At lambda = 0 the evidence is minus infinity, and the step is defined all the same."""
    s, z, yy, W = summary(*factors(3, 40, 5, 1, spread=0.5))
    first = reestimate_by_evidence(s, z, yy, np.zeros(1), W)
    w = z[:, 0] / s
    ss = yy[0] - np.sum(z[:, 0] ** 2 / s)
    assert first[0] == pytest.approx(6 * ss / ((W - 6) * np.sum(w**2)))


def test_an_exact_fit_leaves_evidence_at_zero() -> None:
    Q, _ = factors(1, 30, 4, 1, spread=0.0)
    s, z, yy, W = summary(Q, Q[:, 1:] @ np.ones((4, 1)))
    assert reestimate_by_evidence(s, z, yy, np.zeros(1), W)[0] < 1e-12
